"""Tests of what a job shows on a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.spark._telling import require_writable, showing
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
