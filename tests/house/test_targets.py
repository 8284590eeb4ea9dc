"""Tests of the plugin that chooses the targets of a test and the shape of its entity (tests/plugins/targets.py)."""

from __future__ import annotations

import re
from pathlib import Path

from tests.children import run_module
from tools.repository import ROOT

FIXTURES = """
import pytest


@pytest.fixture
def target(request):
    return request.param


@pytest.fixture
def url(target):
    return target
"""

TESTS = """
import pytest

everywhere = pytest.mark.everywhere("partitions lie on several nodes")
both_shapes = pytest.mark.both_shapes
memory = pytest.mark.parametrize("target", ["memory"], indirect=True)


def test_without_a_target(): ...


def test_unmarked(url): ...


@everywhere
def test_everywhere(url): ...


@both_shapes
def test_shapes(url, partitioned): ...


@everywhere
@both_shapes
def test_shapes_everywhere(url, partitioned): ...


@both_shapes
def test_shapes_without_a_target(partitioned): ...


@memory
@both_shapes
def test_shapes_on_a_listed_target(url, partitioned): ...


@everywhere
@memory
def test_a_list_of_targets_takes_precedence_over_the_mark(url): ...
"""

CHOSEN = {
    "test_without_a_target": [""],
    "test_unmarked": ["memory", "server"],
    "test_everywhere": ["memory", "server", "cluster"],
    "test_shapes": ["memory-plain", "server-partitioned"],
    "test_shapes_everywhere": ["memory-plain", "server-partitioned", "cluster-partitioned"],
    "test_shapes_without_a_target": ["plain", "partitioned"],
    "test_shapes_on_a_listed_target": ["plain-memory", "partitioned-memory"],
    "test_a_list_of_targets_takes_precedence_over_the_mark": ["memory"],
}


def collected(folder: Path, tests: str) -> str:
    """Return the list of these tests that pytest prints when it collects them."""
    (folder / "conftest.py").write_text(FIXTURES, "utf-8")
    (folder / "test_it.py").write_text(tests, "utf-8")
    plugins = ("-p", "tests.plugins.targets", "-p", "no:cacheprovider")
    return run_module("pytest", "--collect-only", "-q", *plugins, cwd=folder, PYTHONPATH=str(ROOT)).stdout


def test_marks_select_the_targets_of_a_test(tmp_path: Path) -> None:
    found: dict[str, list[str]] = {}
    for name, item in re.findall(r"^test_it\.py::(\w+)(?:\[(.*)\])?$", collected(tmp_path, TESTS), re.MULTILINE):
        found.setdefault(name, []).append(item)
    assert found == CHOSEN


def test_a_test_with_the_mark_everywhere_gives_a_reason(tmp_path: Path) -> None:
    text = "import pytest\n\n\n@pytest.mark.everywhere\ndef test_it(url): ...\n"
    assert "test_it.py::test_it: everywhere needs a reason" in collected(tmp_path, text)
