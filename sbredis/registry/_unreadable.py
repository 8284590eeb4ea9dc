"""Texts in the registry that cannot be read: records of entities, rules, and counts.

A text that cannot be read costs its entity alone. All decoders raise :class:`~sbredis.exceptions.DataLayoutError`, with
the name of the entity, the reason, and what to do. Lists contain an :class:`Unreadable` in its place.
A client logs each once, and again if it has changed.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, NoReturn, TypeVar, cast

from sbredis.engine import name_key
from sbredis.exceptions import DataLayoutError, Outcome

__all__ = [
    "Unreadable",
    "UnreadableLog",
    "layout_of",
    "onward_of",
    "read_all",
    "read_json",
    "reason_of",
    "shown_name",
    "too_new",
    "unreadable",
    "unreadable_in_script",
]

_log = logging.getLogger("sbredis.registry")
T = TypeVar("T")
_LAYOUT = re.compile(rb"(?P<layout>[0-9]{1,9})(?: |$)")
_PRESENT = "2"
_LONGEST_REASON = 300
_LONGEST_NAME = 1000
"""The bytes of a stored name that are shown. No entity can have a longer name."""
_DEEPEST = 50
"""The largest depth of nested lists and dictionaries. The limit of the interpreter differs between its releases."""


class Unreadable(NamedTuple):
    """An entity or a rule whose text in the registry cannot be read."""

    path: str
    """The path of the entity, or the place of the rule, in lower case."""
    text: bytes
    """The text; empty if it is missing."""
    error: DataLayoutError
    """The reason, and what to do."""


def unreadable(what: str, path: str | None, text: bytes, reason: str) -> DataLayoutError:
    """Return the error that a text cannot be read.

    ``what`` is the text in words, such as "record". ``path`` is the path of its entity, if it is known.
    """
    layout = layout_of(text)
    of = f"{what} of '{path}'" if path is not None else f"{what} {text[:60]!r}… of an entity"
    if not text:
        reason = "it is missing"
    elif layout is not None:
        reason = f"it has data layout {layout!r}"
    return _error(of, path, layout, reason)


def too_new(what: str, path: str, layout: str, reason: str) -> DataLayoutError:
    """Return the error that a text of the present layout has something that only a newer release knows."""
    return _error(f"{what} of '{path}'", path, layout, reason)


def unreadable_in_script(kind: str, layout: str, path: str) -> DataLayoutError:
    """Return the error for the refusal of a script, which names the kind of a text, its layout and its path."""
    foreign = layout if layout.isdecimal() else None
    reason = {"missing": "it is missing", "unreadable": "it does not begin as it should"}.get(
        layout, f"it has data layout {layout!r}"
    )
    return _error(f"{_WORDS.get(kind, kind)} of '{path}'", path, foreign, reason)


_WORDS = {"record": "record", "rule": "rule", "counts": "record of the counts"}


def _error(of: str, path: str | None, layout: str | None, reason: str) -> DataLayoutError:
    if layout is not None:
        advice = "Another release of sbredis has written it: install that release."
    else:
        name = "the entity" if path is None else f"'{path}'"
        advice = (
            "If a newer release of sbredis has written it, install that release. Otherwise it is damaged: delete "
            f"{name}, and create it again."
        )
    error = DataLayoutError(f"The {of} cannot be read: {reason}. {advice}", outcome=Outcome.REFUSED)
    error.entity, error.layout, error.reason = path, layout, reason
    return error


def layout_of(text: bytes) -> str | None:
    """Return the layout of a text that another release has written; ``None`` for any other text."""
    found = _LAYOUT.match(text)
    layout = None if found is None else found["layout"].decode()
    return None if layout == _PRESENT else layout


def read_json(text: bytes) -> Any:
    """Read JSON that a record contains. Raise :class:`ValueError` if it is malformed, or has absurd numbers."""
    try:
        value = json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if text.count(b"[") + text.count(b"{") > _DEEPEST and _is_deeper(value, _DEEPEST):
        raise ValueError("it is nested too deeply")
    return value


def _is_deeper(value: Any, depth: int) -> bool:
    """Return whether a value contains lists and dictionaries nested deeper than ``depth``."""
    level = [value]
    for _ in range(depth):
        level = [each for outer in level for each in _inside(outer)]
    return any(isinstance(each, (list, dict)) for each in level)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return cast("dict[str, Any]", value).values()
    return value if isinstance(value, list) else ()  # pyright: ignore[reportUnknownVariableType]  # JSON of any form


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value


def read_all(texts: list[bytes], read: Callable[[str, bytes], T]) -> list[T | Unreadable]:
    """Read a reply of names and texts. A text that cannot be read becomes an :class:`Unreadable`."""
    found: list[T | Unreadable] = []
    for name, text in zip(texts[::2], texts[1::2], strict=True):
        path = shown_name(name)
        try:
            found.append(read(path, text))
        except DataLayoutError as error:
            found.append(Unreadable(path, text, error))
    return found


def shown_name(name: bytes) -> str:
    """Return a name in the registry as text, whatever its bytes are."""
    return name[:_LONGEST_NAME].decode(errors="backslashreplace")


def onward_of(name: bytes) -> str | None:
    """Return the name after which a list can go on; ``None`` if no caller can give this name back."""
    try:
        return name.decode() if len(name) <= _LONGEST_NAME else None
    except UnicodeDecodeError:
        return None


def reason_of(error: Exception) -> str:
    """Return the reason in an error of a decoder."""
    text = f"it lacks {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"


class UnreadableLog:
    """The entities and rules that a client could not read and has logged."""

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
