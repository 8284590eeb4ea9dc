"""Tests of what a job shows on a terminal."""

from __future__ import annotations

import sys

import pytest

from sbredis.spark._telling import showing
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
