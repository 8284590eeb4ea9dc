"""Tests of what a job shows on a terminal."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any, ClassVar, cast

import pytest

from sbredis._visible import without_guard
from sbredis.exceptions import SparkSetupError
from sbredis.spark._telling import require_writable, show, showing
from tests.waiting import wait_until


def test_progress_is_shown_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    known = iter([None, "3 rows are sent", *["5 rows are sent"] * 1_000_000])
    shown: list[str] = []

    def both_are_shown() -> bool:
        shown.append(capsys.readouterr().err)
        return "3 rows" in "".join(shown) and "5 rows" in "".join(shown)

    with showing(lambda: next(known), pause=0.001):
        wait_until(both_are_shown)


def test_nothing_is_asked_and_shown_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    def ask() -> str:
        raise AssertionError("nobody sees the answer")

    with showing(ask, pause=0.001):
        pass
    assert capsys.readouterr().err == ""


def test_a_place_where_no_report_can_be_written_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere" / "report.csv", tmp_path):
        with pytest.raises(SparkSetupError, match=r"The report cannot be written to .*: (No such file|Is a directory)"):
            require_writable(str(place))


def test_a_report_is_not_begun_by_the_look_whether_it_can_be_written(tmp_path: Path) -> None:
    earlier, new = tmp_path / "earlier.csv", tmp_path / "new.csv"
    earlier.write_text("kept", "utf-8")
    for place in (str(earlier), str(new), "-"):
        require_writable(place)
    assert earlier.read_text("utf-8") == "kept"
    assert not new.exists()


class _Report:
    """Rows as Spark gives them to a driver."""

    columns: ClassVar = ["reason", "change"]

    def drop(self, *_: str) -> _Report:
        return self

    def collect(self) -> list[tuple[object, ...]]:
        return [("=HYPERLINK(1)", -5), ("\x1b[2J\u202e\nfaked  1", 0.5), ("'quoted'", None)]


def test_a_report_has_no_formulas_and_its_texts_can_be_read_back(tmp_path: Path) -> None:
    assert show(cast("Any", _Report()), str(tmp_path / "report.csv")) == 0
    with (tmp_path / "report.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.reader(lines))
    assert rows[1][:2] == ["'=HYPERLINK(1)", "-5"]  # a number is no formula
    assert [without_guard(row[0]) for row in rows[1:]] == [str(row[0]) for row in _Report().collect()]


def test_a_table_shows_hostile_texts_with_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert show(cast("Any", _Report()), None) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    assert lines[2].startswith(r"\x1b[2J\u202e faked  1")
