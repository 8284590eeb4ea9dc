"""Patterns of LIKE: ``%`` is any text, ``_`` any one character, and what follows the escape character is itself.

What stands between two ``%`` is looked for from left to right, the first place being good enough: no pattern takes
longer than its length times that of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["PatternError", "matcher"]

Matcher: TypeAlias = "Callable[[str], bool]"


class PatternError(ValueError):
    """A pattern that means nothing."""


class _Piece:
    """What stands between two ``%``: characters, ``None`` where there may be any."""

    def __init__(self, characters: list[str | None]) -> None:
        self.size = len(characters)
        self.plain = "".join(filter(None, characters)) if None not in characters else None
        self._pattern = re.compile("".join("." if one is None else re.escape(one) for one in characters), re.DOTALL)

    def here(self, text: str, at: int) -> bool:
        return text.startswith(self.plain, at) if self.plain is not None else bool(self._pattern.match(text, at))

    def find(self, text: str, at: int, end: int) -> int:
        """Where it ends that is found first between two places; -1 if it is not there."""
        if self.plain is not None:
            start = text.find(self.plain, at, end)
            return start + self.size if start >= 0 else -1
        found = self._pattern.search(text, at, end)
        return found.end() if found else -1


def _pieces(pattern: str, escape: str | None) -> list[_Piece]:
    pieces: list[list[str | None]] = [[]]
    escaped = False
    for character in pattern:
        if escaped:
            escaped = False
            pieces[-1].append(character)
        elif character == escape:
            escaped = True
        elif character == "%":
            pieces.append([])
        else:
            pieces[-1].append(None if character == "_" else character)
    if escaped:
        raise PatternError("nothing follows the escape character at the end of the pattern")
    return [_Piece(piece) for piece in pieces]


def matcher(pattern: str, escape: str | None = None) -> Matcher:
    """A function that says whether text is like a pattern."""
    first, *inner = _pieces(pattern, escape)
    if not inner:
        exact = first.plain
        if exact is not None:
            return lambda text: text == exact
        return lambda text: len(text) == first.size and first.here(text, 0)
    last = inner.pop()
    inner = [piece for piece in inner if piece.size]
    if not inner and first.plain is not None and not last.size:
        start = first.plain
        return lambda text: text.startswith(start)
    shortest = first.size + last.size

    def like(text: str) -> bool:
        end = len(text) - last.size
        if len(text) < shortest or not first.here(text, 0) or not last.here(text, end):
            return False
        at = first.size
        for piece in inner:
            at = piece.find(text, at, end)
            if at < 0:
                return False
        return True

    return like
