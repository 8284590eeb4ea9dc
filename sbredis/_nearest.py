"""Find the known name that a user probably means. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["nearest_name"]


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a name, without regard to case, or ``None`` if none is near."""
    by_key = {each.lower(): each for each in known}
    return next((by_key[near] for near in difflib.get_close_matches(name.lower(), by_key, 1)), None)
