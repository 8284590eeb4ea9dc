"""Show any text so that it does not disturb a terminal, a line of JSON or a spreadsheet. Pure.

Message ids, subjects, reasons and descriptions are chosen by senders, who may be hostile. Raw control characters would
let them move the cursor, colour or hide text, or add rows to a table. Marks of direction, such as U+202E, would let
them show a text in another order than it has. So every text that people or programs read passes one of these functions.
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["formula_free", "json_line", "visible", "without_guard"]

_GUARD = "'"
_GUARDED = ("=", "+", "-", "@", "\t", "\r", _GUARD)


def visible(text: str, *, lines: bool = False) -> str:
    """Return a text with escapes in place of characters that a terminal does not show as one sign.

    With ``lines`` the text may have several lines, and its line feeds stay.
    """
    if text.isprintable():
        return text
    kept = "\n" if lines else ""
    return "".join(each if each.isprintable() or each in kept else _escaped(each) for each in text)


def json_line(value: Any) -> str:
    """Return a value as JSON on one line. Letters of all languages stay, and all that is not printable is escaped."""
    text = json.dumps(value, ensure_ascii=False)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else json.dumps(each)[1:-1] for each in text)


def formula_free(text: str) -> str:
    """Return a cell of CSV that a spreadsheet reads as text, and not as a formula."""
    return f"{_GUARD}{text}" if text.startswith(_GUARDED) else text


def without_guard(cell: str) -> str:
    """Return the text of a cell that :func:`formula_free` has made."""
    return cell[1:] if cell.startswith(_GUARD) and cell[1:].startswith(_GUARDED) else cell


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
