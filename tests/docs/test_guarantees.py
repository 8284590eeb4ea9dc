"""Tests that the page about guarantees names tests that exist."""

from __future__ import annotations

import ast
import re

from tests.offenders import for_each
from tools.repository import ROOT

PAGE = (ROOT / "docs" / "guarantees.md").read_text("utf-8")
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py::\w+)`", PAGE)))


def test_every_row_of_a_table_with_tests_names_a_test() -> None:
    tables = re.findall(r"^\|[^\n]*\| test \|\n\|[-|]+\|\n((?:\|[^\n]*\n)+)", PAGE, re.MULTILINE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 20
    assert [row for row in rows if not re.search(r"\| `tests/[\w/]+\.py::\w+` \|$", row)] == []


@for_each("name", NAMED)
def test_each_named_test_exists(name: str) -> None:
    path, _, function = name.partition("::")
    tree = ast.parse((ROOT / path).read_text("utf-8"))
    assert function in {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
