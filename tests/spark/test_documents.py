"""Tests that the guide has every option and every column, with the same facts."""

from __future__ import annotations

import re

from sbredis.spark._options import OPTIONS, QueryKind
from sbredis.spark._schema import READ_COLUMNS, SETTLEMENT_COLUMNS, WRITE_COLUMNS
from tools.repository import ROOT

PAGE = (ROOT / "docs/spark.md").read_text("utf-8")
LETTERS = {QueryKind.BROWSE: "B", QueryKind.BROWSE_STREAM: "S", QueryKind.CONSUME: "C", QueryKind.WRITE: "W"}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def test_the_guide_says_for_which_queries_each_option_is() -> None:
    listed = re.findall(r"^\| `(\w+)` \| ([BSCW ]+) \|", section("Options"), re.MULTILINE)
    assert listed == [
        (option.name, " ".join(letter for kind, letter in LETTERS.items() if kind in option.legal))
        for option in OPTIONS
    ]


def test_the_guide_has_every_column_with_its_type_and_meaning() -> None:
    tables = {
        "Columns of a read": READ_COLUMNS,
        "Columns of a write": WRITE_COLUMNS,
        "Columns of settlements": SETTLEMENT_COLUMNS,
    }
    for title, columns in tables.items():
        listed = re.findall(r"^\| `(\w+)` \| `([^`]+)` \| (.+) \|$", section(title), re.MULTILINE)
        assert listed == [tuple(column) for column in columns]
