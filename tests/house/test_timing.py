"""Tests that the table at the end of a run reports the time of each folder of tests."""

from __future__ import annotations

from typing import Literal

import pytest

from tests.plugins.timing import Part, folder_of, table


def report(nodeid: str, when: Literal["setup", "call", "teardown"], outcome: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(nodeid, ("", None, ""), {}, outcome, None, when, duration=seconds)  # type: ignore[arg-type]


def test_the_time_of_a_folder_covers_all_phases_and_counts_each_test_once() -> None:
    part = Part()
    for when, seconds in (("setup", 1.0), ("call", 2.0), ("teardown", 0.5)):
        part.add(report("tests/a/test_x.py::test_one", when, "passed", seconds))  # type: ignore[arg-type]
    assert part.seconds == 3.5
    assert part.count("passed") == 1
    assert part.slowest == (2.0, "test_one")


def test_a_test_with_a_failed_teardown_counts_as_failed() -> None:
    part = Part()
    part.add(report("tests/a/test_x.py::test_one", "call", "passed", 0.1))
    part.add(report("tests/a/test_x.py::test_one", "teardown", "failed", 0.1))
    assert (part.count("passed"), part.count("failed")) == (0, 1)


@pytest.mark.parametrize(
    ("nodeid", "folder"),
    [
        ("tests/house/test_imports.py::test_rule", "tests/house"),
        ("tests/transport/cluster/test_ask.py::test_one[x/y]", "tests/transport"),
        ("tests/test_top.py::test_one", "tests"),
        ("test_top.py::test_one", "."),
    ],
)
def test_a_test_counts_for_the_first_folder_below_tests(nodeid: str, folder: str) -> None:
    assert folder_of(nodeid) == folder


def test_the_slowest_folder_is_listed_first() -> None:
    lines = list(table({"tests/a": Part(1.0), "tests/b": Part(2.0)}, 3.0))
    assert [line.split()[0] for line in lines] == ["part", "tests/b", "tests/a", "(all,"]
