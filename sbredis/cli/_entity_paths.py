"""The paths of entities and of their dead-letter queues, as a user names them. Pure."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

__all__ = ["dead_letters_of", "entity_of", "names_dead_letters", "nearest_name"]

_SUFFIX = re.compile(r"(/\$transfer)?/\$deadletterqueue$", re.IGNORECASE)


def dead_letters_of(path: str) -> str:
    """Return the path of an entity's dead-letter queue. The path of a dead-letter queue is its own."""
    return path if names_dead_letters(path) else f"{path}/$DeadLetterQueue"


def names_dead_letters(path: str) -> bool:
    """Return whether the path is one of a dead-letter queue."""
    return _SUFFIX.search(path) is not None


def entity_of(path: str) -> str:
    """Return the path without its sub-queue."""
    return _SUFFIX.sub("", path)


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a name, without regard to case, or ``None`` if none is near."""
    by_key = {each.lower(): each for each in known}
    return next((by_key[near] for near in difflib.get_close_matches(name.lower(), by_key, 1)), None)
