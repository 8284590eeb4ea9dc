"""Tests that the types in ``typings/``, which are written by hand, name what PySpark and pyarrow really have."""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.offenders import for_each
from tools.repository import ROOT

pytestmark = pytest.mark.slow
TYPES = ROOT / "typings"
STUBS = sorted(TYPES.rglob("*.pyi"))


def members(path: Path) -> list[str]:
    """Return the functions, classes and methods of a stub, as dotted names."""
    found: list[str] = []
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.ClassDef):
            found.append(node.name)
            found += [f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)]
        elif isinstance(node, ast.FunctionDef):
            found.append(node.name)
    return [name for name in found if not name.endswith("__getattr__")]


@for_each("stub", STUBS, ids=lambda path: str(path.relative_to(TYPES)))
def test_a_stub_names_only_what_the_library_has(stub: Path) -> None:
    name = ".".join(stub.relative_to(TYPES).with_suffix("").parts).removesuffix(".__init__")
    module = import_module(name)
    missing: list[str] = []
    for member in members(stub):
        value: object = module
        for part in member.split("."):
            value = getattr(value, part, None)
        if value is None:
            missing.append(member)
    assert missing == []
