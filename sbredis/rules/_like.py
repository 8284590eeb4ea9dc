"""Patterns of LIKE: ``%`` is any text, ``_`` is any one character, and the escape character quotes the next character.

A matcher reads the text once, from left to right. A segment between two ``%`` may take the first place that fits, so
no other place needs to be tried. A segment without ``_`` is found by ``str.find``. A short segment with ``_`` inside is
found by a regular expression without repetition, which backtracks by no more than its own length. A longer segment
takes one step for each character of the text: the bits of a whole number mark all places in the segment that a match
may have reached. So the number of steps grows only with the length of the text, for any pattern; the length of patterns
is limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

__all__ = ["LONGEST_PATTERN", "PatternError", "matcher"]

Matcher: TypeAlias = "Callable[[str], bool]"

LONGEST_PATTERN = 1024
"""The largest number of characters of a pattern, the same as for a filter. With a longer pattern, the result of LIKE is
unknown.
"""


_SHORT = 16
"""The largest length of a short segment. For a short segment, backtracking costs less than avoiding it."""


class PatternError(ValueError):
    """A pattern that is not valid."""


class _Segment:
    """A segment between two ``%``: a list of characters, with ``None`` for any character."""

    def __init__(self, characters: list[str | None]) -> None:
        self.size = len(characters)
        self.plain = "".join(filter(None, characters)) if None not in characters else None
        self._pattern = re.compile(_expression(characters), re.DOTALL)
        given = [at for at, one in enumerate(characters) if one is not None]
        self._before = given[0] if given else self.size
        """The number of ``_`` before the first given character; ``_after`` is the number after the last given one."""
        self._after = self.size - given[-1] - 1 if given else 0
        core = characters[self._before : self.size - self._after]
        first_any = core.index(None) if None in core else len(core)
        self._start = "".join(filter(None, core[:first_any]))
        """The given characters up to the first ``_``."""
        self._whole = first_any == len(core)
        short = 0 < len(core) <= _SHORT
        self._short = re.compile(_expression(core), re.DOTALL) if short and not self._whole else None
        self._last = 1 << len(core) >> 1
        self._any = sum(1 << at for at, one in enumerate(core) if one is None)
        self._masks: dict[str, int] = {}
        """For each given character of the core, a bit mask of the places at which the core accepts the character."""
        for at, one in enumerate(core):
            if one is not None:
                self._masks[one] = self._masks.get(one, self._any) | 1 << at

    def here(self, text: str, at: int) -> bool:
        return text.startswith(self.plain, at) if self.plain is not None else bool(self._pattern.match(text, at))

    def find(self, text: str, at: int, end: int) -> int:
        """Return the end of the first match between two places; -1 if there is none."""
        if at + self.size > end:
            return -1
        last = end - self._after
        if self._short is not None:
            match = self._short.search(text, at + self._before, last)
            return match.end() + self._after if match else -1
        start = text.find(self._start, at + self._before, last)
        if start < 0:
            return -1
        found = start + len(self._start) if self._whole else self._end_of_core(text, start, last)
        return found if found < 0 else found + self._after

    def _end_of_core(self, text: str, at: int, end: int) -> int:
        reached, masks, anything, last = 0, self._masks, self._any, self._last
        for place in range(at, end):
            reached = (reached << 1 | 1) & masks.get(text[place], anything)
            if reached & last:
                return place + 1
        return -1


def _expression(characters: list[str | None]) -> str:
    return "".join("." if one is None else re.escape(one) for one in characters)


def _segments(pattern: str, escape: str | None) -> list[_Segment]:
    segments: list[list[str | None]] = [[]]
    escaped = False
    for character in pattern:
        if escaped:
            escaped = False
            segments[-1].append(character)
        elif character == escape:
            escaped = True
        elif character == "%":
            segments.append([])
        else:
            segments[-1].append(None if character == "_" else character)
    if escaped:
        raise PatternError("nothing follows the escape character at the end of the pattern")
    return [_Segment(segment) for segment in segments]


def matcher(pattern: str, escape: str | None = None) -> Matcher:
    """Return a function that returns whether text matches a pattern."""
    first, *inner = _segments(pattern, escape)
    if not inner:
        exact = first.plain
        if exact is not None:
            return lambda text: text == exact
        return lambda text: len(text) == first.size and first.here(text, 0)
    last = inner.pop()
    inner = [segment for segment in inner if segment.size]
    if not inner and first.plain is not None and not last.size:
        start = first.plain
        return lambda text: text.startswith(start)
    shortest = first.size + last.size

    def like(text: str) -> bool:
        end = len(text) - last.size
        if len(text) < shortest or not first.here(text, 0) or not last.here(text, end):
            return False
        at = first.size
        for segment in inner:
            at = segment.find(text, at, end)
            if at < 0:
                return False
        return True

    return like
