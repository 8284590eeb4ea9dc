"""Showing where in a text a mistake is. Pure."""

from __future__ import annotations

__all__ = ["under_mistake"]

_SHOWN, _BEFORE_CARET = 100, 60
"""The number of characters of a long line that are shown, and the largest number of them before the caret."""


def under_mistake(text: str, line: int, column: int) -> str:
    """Return a line of a text with a caret under one of its characters. Both are counted from 1."""
    lines = text.splitlines() or [""]
    shown = lines[min(line, len(lines)) - 1].replace("\t", " ")
    start = max(0, column - 1 - _BEFORE_CARET)
    return f"  {shown[start : start + _SHOWN]}\n  {' ' * (column - 1 - start)}^"
