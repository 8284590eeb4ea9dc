"""Which columns of a table fit into a terminal, how wide each of them is, and where long texts are broken. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["GAP", "TableColumn", "broken", "fitted"]

GAP = 2
"""The blanks between two columns."""


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, and what becomes of it on a narrow terminal."""

    name: str
    rank: int = 0
    """Its place in the order of importance. Those of rank 0 are always shown, and a high rank is left out first."""
    shortest: int | None = None
    """The width down to which its texts may be cut; ``None`` for numbers, states and names, which are never cut."""


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
