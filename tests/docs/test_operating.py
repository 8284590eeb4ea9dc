"""Tests that the pages about errors and operations name every error, logger, operation and metric, and no others."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from sbredis import exceptions
from sbredis.exceptions import ServiceBusError
from sbredis.registry import EntityChangedError
from sbredis.servers import ServerNotFoundError
from sbredis.telemetry import _metrics
from tests.azure.differences import ROWS
from tests.docs.test_pages import run_typed
from tests.offenders import for_each
from tests.telemetry.test_telemetry import operation_names
from tools.repository import ROOT, files

PAGE = (ROOT / "docs" / "operating.md").read_text("utf-8")
PORTING = (ROOT / "docs" / "migrating" / "azure-servicebus.md").read_text("utf-8")
ERRORS = (ROOT / "docs" / "errors.md").read_text("utf-8")
PUBLIC: list[type[ServiceBusError]] = [
    value
    for name in exceptions.__all__
    if inspect.isclass(value := getattr(exceptions, name)) and issubclass(value, ServiceBusError)
]


def rows(header: str, page: str = PAGE) -> list[list[str]]:
    """Return the rows of the table with this header."""
    lines = page.split(header, 1)[1].splitlines()[2:]
    table = lines[: next(place for place, line in enumerate(lines) if not line.startswith("|"))]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


def test_the_page_gives_a_cause_and_a_cure_for_every_public_error() -> None:
    table = rows("| error | code |", ERRORS)
    found = {name.strip("`"): (code.strip("`"), cause, cure) for name, code, _, cause, cure in table}
    kinds: set[type[ServiceBusError]] = {*PUBLIC, EntityChangedError, ServerNotFoundError}
    assert set(found) == {kind.__name__ for kind in kinds}
    assert {kind.__name__: kind.code for kind in kinds} == {name: code for name, (code, _, _) in found.items()}
    assert [name for name, (_, cause, cure) in found.items() if not (cause.endswith(".") and cure.endswith("."))] == []


def test_the_page_says_of_every_error_whether_a_retry_may_help() -> None:
    said = {name.strip("`"): retry == "yes" for name, _, retry, *_ in rows("| error | code |", ERRORS)}
    kinds: list[type[ServiceBusError]] = [*PUBLIC, EntityChangedError, ServerNotFoundError]
    assert said == {kind.__name__: kind.is_transient for kind in kinds}


def test_the_page_names_every_logger() -> None:
    code = [
        path.read_text("utf-8") for path in files(".py") if path.relative_to(ROOT).parts[0] in {"sbredis", "workers"}
    ]
    used = {name for text in code for name in re.findall(r'getLogger\("([\w.]+)"\)', text)}
    assert len(used) > 3
    assert {name.strip("`") for name, _ in rows("| logger |")} == used - {"sbredis"}  # the parent of all


def test_the_page_names_every_operation() -> None:
    spans = {name for cell, _ in rows("| span |") for name in re.findall(r"`(\w+)`", cell)}
    assert spans - {"process_span"} == {*operation_names(), "create", "process"}


def test_the_page_names_every_metric() -> None:
    made = set(re.findall(r'"((?:messaging|sbredis)\.[\w.]+)"', inspect.getsource(_metrics)))
    assert {name.strip("`") for name, _ in rows("| metric |")} == made - {"messaging.operation.type"}


@pytest.mark.long("it runs all programs of a page")
def test_the_programs_of_the_page_show_logs_traces_and_counts(tmp_path: Path) -> None:
    printed = run_typed(ROOT / "docs" / "operating.md", folder=tmp_path).printed
    for pattern in (
        r"DEBUG sbredis\.operations: send logged: 1 message \(1 'm-1'\) in [\d.]+ ms",
        "process traced",
        "counted 0 0 0",
    ):
        assert any(re.fullmatch(pattern, line) for line in printed), pattern


@for_each("row", sorted({name for *_, cell in rows("| in a program", PORTING) for name in cell.split(", ")}))
def test_every_porting_trap_names_an_existing_row_of_the_table_of_differences(row: str) -> None:
    assert row.strip("`") in ROWS
