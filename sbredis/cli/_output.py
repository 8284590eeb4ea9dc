"""What a command prints: tables, records and lines for people, or JSON for programs."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TextIO, cast

import click

from sbredis._visible import json_line, visible
from sbredis.cli._stopping import ending_at_once

__all__ = ["GAP", "Output", "TableColumn", "broken", "fitted", "plain"]

GAP = 2
"""The blanks between two columns."""
_READABLE = 100  # columns of a text
_USUAL = 80  # columns of a terminal that does not say how wide it is
_LEAST = 20  # columns into which a value is broken; a terminal that is narrower breaks the lines itself


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, and what becomes of it on a narrow terminal."""

    name: str
    rank: int = 0
    """Its place in the order of importance. Those of rank 0 are always shown, and a high rank is left out first."""
    shortest: int | None = None
    """The width down to which its texts may be cut; ``None`` for numbers, states and names, which are never cut."""


class Output:
    """Prints results to stdout, and remarks to stderr.

    Characters that would disturb a terminal appear as escapes, because messages and names may come from anybody. With
    ``as_json`` each result is one JSON value, and remarks are left out of stdout as always. Colours appear only on a
    terminal, and not if ``NO_COLOR`` is set.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json

    def table(
        self, columns: Sequence[TableColumn], rows: Sequence[Mapping[str, Any]], *, empty: str = "nothing"
    ) -> None:
        """Print rows. A column's heading is its name in capitals. With JSON, print a list of objects with all keys.

        On a terminal, texts are cut and columns are left out as :class:`TableColumn` declares. A
        remark names the columns that are left out. In a pipe the table is whole.
        """
        if self.as_json:
            self.json([dict(row) for row in rows])
        elif not rows:
            self.remark(empty)
        else:
            left_out = self._table(columns, rows)
            if left_out:
                self.remark(f"left out: {', '.join(left_out)}; a wider terminal or --output json shows all")

    def _table(self, columns: Sequence[TableColumn], rows: Sequence[Mapping[str, Any]]) -> list[str]:
        """Print a table, and return the names of the columns that do not fit."""
        from rich.cells import cell_len, set_cell_size

        cells = {each.name: [_heading(each), *(visible(shown(row.get(each.name))) for row in rows)] for each in columns}
        whole = {name: max(map(cell_len, texts)) for name, texts in cells.items()}
        widths = fitted(columns, whole, _room()) if sys.stdout.isatty() else whole
        right = {name for name in widths if _are_numbers([row.get(name) for row in rows])}

        def cell(name: str, text: str) -> str:
            width = widths[name]
            if cell_len(text) > width:
                return set_cell_size(text, width - 1) + "…"
            blanks = " " * (width - cell_len(text))
            return blanks + text if name in right else text + blanks

        lines = [
            (" " * GAP).join(cell(name, cells[name][at]) for name in widths).rstrip() for at in range(len(rows) + 1)
        ]
        head = click.style(lines[0], bold=True) if _has_colours() else lines[0]
        self.text("\n".join([head, *lines[1:], ""]))
        return [_titled(each) for each in columns if each.name not in widths]

    def record(self, fields: Mapping[str, Any], *, whole: bool = False) -> None:
        """Print the fields of one thing, each on a line of its own. With JSON, print one object.

        On a terminal, values that are too long are broken into lines below each other. With ``whole`` they are not, so
        that they can be copied.
        """
        if self.as_json:
            self.json(dict(fields))
            return
        width = max(map(len, fields), default=0)
        room = max(_room() - width - GAP, _LEAST) if sys.stdout.isatty() and not whole else None
        below = "\n" + " " * (width + GAP)
        for name, value in fields.items():
            text = visible(shown(value), lines=True)
            lines = text.split("\n") if room is None else broken(text, room)
            self.line(f"{name.replace('_', ' '):<{width}}{' ' * GAP}{below.join(lines)}".rstrip())

    def json(self, value: object) -> None:
        """Print a JSON value on one line."""
        self.text(f"{json_line(plain(value))}\n")

    def line(self, text: str) -> None:
        """Print a line and flush it."""
        self.text(f"{visible(text, lines=True)}\n")

    def headed(self, word: str, colour: str, text: str) -> None:
        """Print a line that begins with a word. The word is coloured if the output is a terminal with colours."""
        styled = click.style(word, fg=colour, bold=True) if _has_colours() else word
        self.text(f"{styled}  {visible(text)}\n")

    def text(self, text: str) -> None:
        """Print a text as it is and flush it. Only for texts that have no raw value of a user."""
        _write(sys.stdout, text)

    def done(self, text: str, **facts: object) -> None:
        """Print what was done: a sentence for people, the facts for programs."""
        if self.as_json:
            self.json(facts)
        else:
            self.line(text)

    def paragraph(self, text: str, indent: int = 2) -> None:
        """Print a text, broken into lines that fit the terminal."""
        width = min(_READABLE, shutil.get_terminal_size((_READABLE, 0)).columns)
        for line in textwrap.wrap(text, width - indent, break_long_words=False, break_on_hyphens=False):
            self.line(" " * indent + line)

    def remark(self, text: str) -> None:
        """Print a remark to stderr."""
        _write(sys.stderr, f"{visible(text, lines=True)}\n")


def _write(stream: TextIO, text: str) -> None:
    """Write a text, and end at once if the command is interrupted while the reader is slow."""
    with ending_at_once():
        stream.write(text)
        stream.flush()


def _has_colours() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _room() -> int:
    return shutil.get_terminal_size((_USUAL, 0)).columns


def _titled(column: TableColumn) -> str:
    return column.name.replace("_", " ")


def _heading(column: TableColumn) -> str:
    return _titled(column).upper()


def _are_numbers(values: Sequence[object]) -> bool:
    return any(map(_is_number, values)) and all(each is None or _is_number(each) for each in values)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | timedelta) and not isinstance(value, bool)


def shown(value: object) -> str:
    """Return a value as a person reads it."""
    for kind, show in _SHOWN:
        if isinstance(value, kind):
            return show(value)
    return str(value)


_SHOWN: list[tuple[type[Any], Callable[[Any], str]]] = [
    (type(None), lambda _: "-"),
    (bool, lambda value: "yes" if value else "no"),
    (int, lambda value: f"{value:,}"),
    (float, lambda value: f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"),
    (datetime, lambda value: value.isoformat(sep=" ", timespec="seconds")),
    (timedelta, lambda value: duration(value.total_seconds())),
    (list, lambda value: ", ".join(map(shown, value)) or "-"),
]


def duration(seconds: float) -> str:
    """Return a number of seconds with the two largest units that it has."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    parts: list[str] = []
    left = int(seconds)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts[:2])


def plain(value: object) -> Any:
    """Return a value as JSON has it: instants in ISO 8601, durations in seconds."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in cast("Sequence[object]", value)]
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value if isinstance(value, str | int | float | bool | None) else str(value)


# -- which columns of a table fit, and where long texts are broken -----------------------------------------------------


def fitted(columns: Sequence[TableColumn], widths: Mapping[str, int], room: int) -> dict[str, int]:
    """Return the columns that fit into ``room``, with their widths. ``widths`` has the width of each whole column.

    Texts that may be cut make room first. Then a column is left out if it does not fit beside more important ones. What
    is always shown may be wider than ``room``.
    """
    least = {each.name: _least(each, widths[each.name]) for each in columns}
    found: dict[str, int] = {}
    by_rank = sorted(columns, key=lambda each: each.rank)
    for each in by_rank:
        wider = {**found, each.name: least[each.name]}
        if not each.rank or _taken(wider) <= room:
            found = wider
    for each in by_rank:  # the most important text is the last one to be cut
        if each.name in found:
            found[each.name] += min(widths[each.name] - found[each.name], max(0, room - _taken(found)))
    return {each.name: found[each.name] for each in columns if each.name in found}


def _least(column: TableColumn, width: int) -> int:
    return width if column.shortest is None else min(width, column.shortest)


def _taken(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + GAP * max(0, len(widths) - 1)


def broken(text: str, room: int) -> list[str]:
    """Break a text into lines of at most ``room`` columns, at a blank where there is one."""
    from rich.cells import cell_len, chop_cells

    lines: list[str] = []
    for line in text.splitlines() or [""]:
        rest = line
        while cell_len(rest) > room:
            piece = next(filter(None, chop_cells(rest, room)))
            at = len(piece) if rest[len(piece)] == " " else piece.rfind(" ")
            end = at if piece[: max(at, 0)].strip() else len(piece)
            lines.append(rest[:end].rstrip())
            rest = rest[end:].lstrip()
        lines.append(rest)
    return lines
