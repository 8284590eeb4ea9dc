"""The table of differences from Azure Service Bus, read from docs/differences.md."""

from __future__ import annotations

import re

from tools.repository import ROOT

__all__ = ["ROWS"]

_ROW = re.compile(r"^\| (?P<name>[a-z][a-z-]*) \|", re.MULTILINE)

ROWS: list[str] = [
    row["name"]
    for row in _ROW.finditer((ROOT / "docs/differences.md").read_text("utf-8"))
    if row["name"] != "row"  # all names in the first column except its heading
]
