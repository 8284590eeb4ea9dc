"""The table of differences from Azure Service Bus, read from docs/differences.md."""

from __future__ import annotations

import re

from tools.repository import ROOT

__all__ = ["ROWS", "rows_named_in"]

_ROW = re.compile(r"^\| (?P<name>[a-z][a-z-]*) \|", re.MULTILINE)
_MARK = re.compile(r"# row: (?P<name>\S+)")

ROWS: list[str] = [
    row["name"]
    for row in _ROW.finditer((ROOT / "docs/differences.md").read_text("utf-8"))
    if row["name"] != "row"  # all names in the first column except its heading
]


def rows_named_in(text: str) -> list[str]:
    """Return the rows of the table that the lines of a scenario name."""
    return [mark["name"] for mark in _MARK.finditer(text)]
