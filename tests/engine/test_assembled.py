"""The assembled Lua: a process uses its file only if it was made from the files that are there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from sbredis.engine._assembled import as_json, assembled, from_json, sources_hash
from sbredis.engine._lua_files import assemble
from tests.house.building import run
from tests.plugins.parts import first
from tools.repository import ROOT

TOLD = """
import sys
from sbredis.engine import whole_library
found = whole_library()
print(found.name, 'a new line' in found.source, 'sbredis.engine._lua_files' in sys.modules)
"""


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package and its assembled Lua."""
    ignore = shutil.ignore_patterns("__pycache__", "assembled.*")
    shutil.copytree(ROOT / "sbredis", tmp_path / "sbredis", ignore=ignore)
    (tmp_path / "sbredis" / "lua" / "assembled.json").write_bytes(as_json(assembled()))
    return tmp_path


def told(copied: Path) -> list[str]:
    """Return what a process says that uses the copy: the library's name, what is in it, and whether it assembled."""
    return run(sys.executable, "-P", "-c", TOLD, cwd=copied, PYTHONPATH=str(copied)).split()


def test_the_file_has_what_is_assembled_from_the_lua_files() -> None:
    made = assemble(sources_hash())
    assert from_json(as_json(made)) == made == assembled()


def test_a_process_assembles_nothing_if_the_file_is_up_to_date(copied: Path) -> None:
    assert told(copied) == [assembled().library_name, "False", "False"]


@pytest.mark.parametrize("name", first(1, ["lua/includes/calls/begin.lua", "lua/send.lua"], "each copies the package"))
def test_a_change_of_a_lua_file_is_not_ignored(copied: Path, name: str) -> None:
    path = copied / "sbredis" / name
    path.write_text(path.read_text("utf-8").replace("  local ", "  local --[[a new line]] ", 1), encoding="utf-8")
    name, changed, assembles = told(copied)
    assert (name != assembled().library_name, changed, assembles) == (True, "True", "True")


def test_a_change_of_a_constant_or_another_file_is_not_ignored(copied: Path) -> None:
    bands = copied / "sbredis" / "engine" / "_lifecycle.py"
    text = bands.read_text("utf-8")
    assert text.count("9_999_999_999_999") == 1
    bands.write_text(text.replace("9_999_999_999_999", "9_999_999_999_998"), encoding="utf-8")
    name, _, assembles = told(copied)
    assert (name != assembled().library_name, assembles) == (True, "True")


@pytest.mark.parametrize("content", first(1, [b'["x",{},{},"sb_1"]', None, b"", b"["], "each copies the package"))
def test_a_file_that_is_missing_or_damaged_is_ignored(copied: Path, content: bytes | None) -> None:
    file = copied / "sbredis" / "lua" / "assembled.json"
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    assert told(copied) == [assembled().library_name, "False", "True"]


def test_the_tool_writes_the_file_that_processes_use() -> None:
    run(sys.executable, "-m", "tools.assemble", cwd=ROOT)
    assert from_json((ROOT / "lua" / "assembled.json").read_bytes()).made_from == sources_hash()
