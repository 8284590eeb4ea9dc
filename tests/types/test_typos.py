"""Tests that the type checker reports a typo in an option, and reports nothing in correct code.

The tests run mypy. ``make check`` runs pyright on the same two files.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_module
from tests.house.modules import importable_modules
from tests.offenders import for_each
from tools.repository import ROOT

HERE = Path(__file__).parent
MARK = re.compile(r"  # type: ignore\[[a-z-]+\]$", re.MULTILINE)
PUBLIC = [
    module.name for module in importable_modules() if not any(part.startswith("_") for part in module.name.split("."))
]


def mypy(folder: Path, text: str) -> tuple[set[int], str]:
    """Return the lines of a program in which mypy reports an error, and mypy's output."""
    (folder / "program.py").write_text(text, "utf-8")
    options = ("--strict", "--python-version=3.11", "--no-incremental", "program.py")
    done = run_module("mypy", *options, cwd=folder, MYPYPATH=str(ROOT))
    assert done.returncode in {0, 1}, f"{done.stdout}{done.stderr}"
    return {int(line) for line in re.findall(r"program\.py:(\d+): error", done.stdout)}, done.stdout


def marked(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if MARK.search(line)}


@pytest.mark.long("make check runs mypy over the typos too, and names those that it does not find")
def test_every_typo_is_an_error_at_its_line(tmp_path: Path) -> None:
    text = (HERE / "typos.py").read_text("utf-8")
    lines, said = mypy(tmp_path, MARK.sub("", text))
    assert len(marked(text)) > 50
    assert lines == marked(text), said


@pytest.mark.long("make check runs mypy over this code too")
def test_mypy_reports_no_error_in_correct_code(tmp_path: Path) -> None:
    _, said = mypy(tmp_path, (HERE / "correct.py").read_text("utf-8"))
    assert said.startswith("Success: no issues found"), said


def untyped(name: str) -> list[str]:
    """Return the public functions of a module that accept keywords of any name."""
    module = import_module(name)
    found: list[str] = []
    for each in module.__all__:
        value = getattr(module, each)
        functions: dict[str, Any] = {each: value} if inspect.isroutine(value) else {}
        if inspect.isclass(value):
            members = ((member, inspect.getattr_static(value, member)) for member in dir(value))
            functions = {
                f"{each}.{member}": getattr(function, "__func__", function)
                for member, function in members
                if (not member.startswith("_") or member == "__init__")
                and str(getattr(getattr(function, "__func__", function), "__module__", "")).startswith("sbredis")
                and inspect.isfunction(getattr(function, "__func__", function))
            }
        found += [
            f"{name}.{path}(**{parameter.name}: {parameter.annotation})"
            for path, function in functions.items()
            for parameter in inspect.signature(function).parameters.values()
            if parameter.kind is parameter.VAR_KEYWORD and not re.match(r"Unpack\[|Never$", str(parameter.annotation))
        ]
    return found


@for_each("name", PUBLIC)
def test_no_public_function_accepts_keywords_of_any_name(name: str) -> None:
    assert untyped(name) == []
