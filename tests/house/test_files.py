"""Tests of rules that hold for all files of the repository."""

from __future__ import annotations

import re

import pytest

from tools.repository import ROOT, files

LONGEST = 800
"""The lines above which a file needs a reason in :data:`LONG`."""
LONG: dict[str, str] = {
    "sbredis/aio/_receiver.py": "the receiver: all its public calls, each a method of one class",
    "sbredis/engine/_partition.py": "all requests to one partition, each a method of one class",
}
"""The files that are one subject of more lines than that, each with the subject that a review has found it to be."""
WIDEST = 120
WIDEST_LUA_CODE = 160

# Texts that make sense on one machine or in one network only. No file of a repository may depend on them.
FOREIGN = re.compile(
    r"(?<![\w.~-])/(?:root|work|Users|home/\w+|opt/\w+)(?=[/\s\"'`)]|$)"
    r"|\b(?:pypi|pythonhosted|npmjs|nodesource|debian)\.(?:org|com)\b"
    r"|\b(?:index|find)-(?:url|links)\b",
    re.MULTILINE,
)

TEXTS = [path for path in files() if b"\0" not in path.read_bytes()]


def test_a_file_that_is_very_long_has_one_subject() -> None:
    """A file is a subject, and may be long. Above this length a review asks whether it is one, and the answer is noted.

    Tests may be longer, because a table of cases needs many lines.
    """
    code = [path for path in files(".py", ".lua") if "tests" not in path.relative_to(ROOT).parts]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text("utf-8").splitlines()) for path in code}
    assert {name for name, length in lengths.items() if length > LONGEST} == set(LONG)


def test_no_line_of_lua_is_too_wide_to_read() -> None:
    """Comments and ``@use`` lines have the same limit as Python. Code may be wider."""
    wide = [
        f"{path.relative_to(ROOT)}:{number}: {len(line)} characters"
        for path in files(".lua")
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > (WIDEST if line.lstrip().startswith("--") else WIDEST_LUA_CODE)
    ]
    assert wide == []


@pytest.mark.slow
def test_no_file_names_a_machine_or_a_package_registry() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {foreign[0]}"
        for path in TEXTS
        for foreign in FOREIGN.finditer(path.read_text("utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text",
    ["see {0}root{0}.cache", "in `{0}work`", "{0}home{0}ann{0}x", "https:{0}{0}pypi{1}org", "--extra-index{2}url x"],
)
def test_forbidden_texts_are_recognised(text: str) -> None:
    """The test composes these texts, because this file must not contain them either."""
    assert FOREIGN.search(text.format("/", ".", "-"))


@pytest.mark.parametrize(
    "text", ["sbredis/workers", "a/work of art", "embedded:///path", "./root/x", "/work-in-progress"]
)
def test_allowed_texts_are_not_reported(text: str) -> None:
    assert not FOREIGN.search(text)


def test_every_text_file_ends_with_one_newline_and_has_no_trailing_blanks() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in TEXTS
        if (text := path.read_text("utf-8"))
        and (not text.endswith("\n") or text.endswith("\n\n") or re.search(r"[ \t]$", text, re.MULTILINE))
    ]
    assert wrong == []


def test_every_module_has_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in files(".py")
        if (text := path.read_text("utf-8").strip()) and not re.match(r'(#.*\n)*r?"""', text)
    ]
    assert silent == []
