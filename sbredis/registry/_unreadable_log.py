"""The log of entities and rules that cannot be read: each is logged once, and again if it has changed."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sbredis.engine import name_key
from sbredis.registry._unreadable import Unreadable

__all__ = ["UnreadableLog"]

_log = logging.getLogger("sbredis.registry")


class UnreadableLog:
    """The entities and rules that a client could not read."""

    def __init__(self) -> None:
        self._texts: dict[str, bytes] = {}

    def note(self, unreadable: Iterable[Unreadable], readable: Iterable[str] = ()) -> None:
        """Log what cannot be read and was not logged before. ``readable`` are paths of what can be read now."""
        if self._texts:
            for path in readable:
                self._texts.pop(name_key(path), None)
        for each in unreadable:
            if self._texts.get(each.path) != each.text:
                self._texts[each.path] = each.text
                _log.warning("%s", each.error.message)

    def note_all(self, unreadable: Iterable[Unreadable]) -> None:
        """Do the same with all entities that cannot be read. All others can be read."""
        found = {each.path: each for each in unreadable}
        self._texts = {path: text for path, text in self._texts.items() if path in found}
        self.note(found.values())
