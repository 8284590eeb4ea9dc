"""Find the known name that a user probably means. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from sbredis._quoting import quoted

__all__ = ["nearest_name", "unexpected_keyword", "with_nearest"]


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is nearest to a name, without regard to case, or ``None`` if none is near."""
    import difflib  # only errors need it

    by_key = {each.lower(): each for each in known}
    return next((by_key[near] for near in difflib.get_close_matches(name.lower(), by_key, 1)), None)


def with_nearest(name: str, known: Iterable[str]) -> str:
    """Return an unknown name as errors quote it, followed by the nearest known name if one is near."""
    near = nearest_name(name, known)
    return quoted(name) if near is None else f"{quoted(name)} (did you mean {near!r}?)"


def unexpected_keyword(function: str, name: str, known: Iterable[str]) -> TypeError:
    """Return the error for a keyword that a function does not have. It names the nearest of the known keywords."""
    return TypeError(f"{function}() got an unexpected keyword argument {with_nearest(name, known)}")
