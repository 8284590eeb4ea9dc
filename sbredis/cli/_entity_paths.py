"""The paths of entities and of their dead-letter queues, as a user names them. Pure."""

from __future__ import annotations

import re

__all__ = ["dead_letters_of", "entity_of", "names_dead_letters"]

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
