"""Tests that the documents follow the project's rules, and that the tool that checks them finds violations."""

from __future__ import annotations

import pytest

from tools.check_docs import (
    anchors,
    check_files,
    check_leftovers,
    check_links,
    check_python,
    check_targets,
    check_version,
    problems,
)
from tools.repository import ROOT

README = ROOT / "README.md"


def test_the_documents_pass_the_check() -> None:
    assert list(problems()) == []


@pytest.mark.parametrize(
    "link", ["[x](nowhere.md)", "[x](../outside.md)", "[x](ARCHITECTURE.md#no-such-heading)", "[x](#no-such-heading)"]
)
def test_a_broken_link_is_found(link: str) -> None:
    assert len(list(check_links(README, link))) == 1


@pytest.mark.parametrize(
    "link",
    [
        "[x](ARCHITECTURE.md)",
        "[x](ARCHITECTURE.md#floors)",
        "[x](sbredis/)",
        "[x](https://example.com)",
        "`[x](nowhere.md)`",
    ],
)
def test_a_good_link_passes(link: str) -> None:
    assert list(check_links(README, link)) == []


def test_the_anchor_of_a_heading_is_made_of_its_words() -> None:
    assert anchors("# The `house`\n## What, why?\n## What, why?\n```\n# no heading\n```\n") == {
        "the-house",
        "what-why",
        "what-why-1",
    }


def test_python_code_that_does_not_compile_is_reported_with_its_line() -> None:
    text = "Text.\n\n```python\nawait f()\n```\n\n```python\ndef f(:\n```\n"
    assert [problem.startswith("the Python at line 7 does not compile") for problem in check_python(text)] == [True]


def test_a_make_target_that_does_not_exist_is_found() -> None:
    text = "Say `make tea`, and make haste.\n```sh\nmake test\n```\n"
    assert list(check_targets(text, {"test"})) == ["`make tea` is no target of the Makefile"]


def test_a_benchmark_or_proof_that_does_not_exist_is_found() -> None:
    text = "`make bench WHAT=tea`, `make bench WHAT=client` and `make prove WHAT=moves ARGS=--help`\n"
    assert list(check_targets(text, {"bench", "prove"})) == ["`make bench WHAT=tea` is no choice of it"]


def test_a_file_that_does_not_exist_is_found() -> None:
    text = "`a/_one.py` `_one.py` `lua/NAME.lua` `_other.py` `b/_one.py`\n```\n`none.py`\n```\n"
    found = list(check_files(text, {"src/a/_one.py"}))
    assert found == ["there is no file `_other.py`", "there is no file `b/_one.py`"]


def test_leftover_notes_are_found() -> None:
    assert len(list(check_leftovers("done\n" + "TO" + "DO: more\n"))) == 1


@pytest.mark.parametrize(
    ("top", "holds"),
    [("## [0.1.0] - Unreleased", True), ("## [Unreleased]", True), ("## [0.0.9] - 2020-01-01", False), ("", False)],
)
def test_the_changelog_starts_with_the_version_of_the_code(top: str, holds: bool) -> None:
    assert (list(check_version(f"# Changelog\n\n{top}\n", "0.1.0")) == []) is holds
