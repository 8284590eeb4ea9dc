"""Showing where in a text a mistake is. Pure."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["under_mistake"]

_SHOWN, _BEFORE_CARET = 100, 60
"""The width of the part of a long line that is shown, and the largest part of it before the caret."""
_LINE_END = re.compile(r"\r\n|\r|\n")


def under_mistake(text: str, line: int, column: int) -> str:
    """Return a line of a text with a caret under one of its characters. Both are counted from 1."""
    lines = _LINE_END.split(text)
    shown = "".join(each if each.isprintable() else " " for each in lines[min(line, len(lines)) - 1])
    start = at = min(column - 1, len(shown))
    left = _BEFORE_CARET
    while start and (left := left - _width(shown[start - 1])) >= 0:
        start -= 1
    end, left = start, _SHOWN
    while end < len(shown) and (left := left - _width(shown[end])) >= 0:
        end += 1
    return f"  {shown[start:end]}\n  {' ' * sum(map(_width, shown[start:at]))}^"


def _width(character: str) -> int:
    """Return the number of columns that a character takes on a terminal."""
    if unicodedata.category(character) in {"Mn", "Me"}:  # it is drawn over the character before it
        return 0
    return 2 if unicodedata.east_asian_width(character) in {"W", "F"} else 1
