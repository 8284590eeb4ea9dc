"""Tests of the programs behind ``make bench`` and ``make prove``."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import pytest

from tests.children import run_program
from tests.offenders import for_each
from tools.repository import ROOT
from tools.runs import RUNS, choices, wanted

EVERY = [(kind, what) for kind, runs in RUNS.items() for what in runs]


def said(*arguments: str) -> tuple[int, str, str]:
    """Run the tool as make does, and return its exit status, its output and its errors."""
    done = run_program(sys.executable, "-m", "tools.runs", *arguments, cwd=ROOT)
    return done.returncode, done.stdout, done.stderr


@for_each(("kind", "what"), EVERY)
def test_each_choice_names_programs_of_this_checkout(kind: str, what: str) -> None:
    *before, program = wanted(kind, what, ["--rows", "7"])
    assert [each[0] for each in before if not (ROOT / each[0]).is_file()] == []
    assert program[:2] == [sys.executable, "-m"]
    assert program[-2:] == ["--rows", "7"]
    assert find_spec(program[2]) is not None


def test_every_program_with_a_report_can_be_chosen() -> None:
    """A benchmark is a program with ``main``, beside the modules that it imports."""
    programs = {
        f"benchmarks.{path.stem}"
        for path in (ROOT / "benchmarks").glob("*.py")
        if '__name__ == "__main__"' in path.read_text("utf-8")
    }
    assert programs == {run.module for run in RUNS["bench"].values()}


def test_without_a_choice_all_benchmarks_run_and_no_proof_does() -> None:
    modules = [command[2] for command in wanted("bench", "", []) if command[0] == sys.executable]
    assert modules == [run.module for run in RUNS["bench"].values()]
    assert wanted("prove", "", []) == []


def test_the_proofs_are_listed_with_their_purpose() -> None:
    assert said("prove", "") == (0, choices("prove") + "\n", "")
    assert re.findall(r"WHAT=(\w+) +\S", choices("prove")) == list(RUNS["prove"])


@pytest.mark.parametrize("kind", RUNS)
def test_an_unknown_choice_is_refused_and_the_choices_are_named(kind: str) -> None:
    code, output, errors = said(kind, "tea")
    assert (code, output) == (2, "")
    assert errors == f"make {kind}: WHAT=tea is not known; choose one of\n{choices(kind)}\n"


@pytest.mark.parametrize("kind", RUNS)
def test_arguments_without_a_choice_are_refused(kind: str) -> None:
    code, output, errors = said(kind, "", "--rounds", "1")
    assert (code, output) == (2, "")
    assert errors.startswith(f"make {kind}: ARGS are for one run; choose it\n")


def test_a_choice_runs_its_program_with_the_arguments() -> None:
    """``--help`` shows that the program was reached, and ends it."""
    code, output, errors = said("prove", "bytes", "--help")
    assert (code, errors) == (0, "")
    assert "--inputs" in output
