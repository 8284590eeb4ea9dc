"""Tests that a package's ``__init__`` is its table of contents: it lists the public names, and each is documented."""

from __future__ import annotations

import ast
import importlib
import inspect

from tests.house.modules import Module, importable_modules
from tests.offenders import for_each

PACKAGES = [module for module in importable_modules() if module.is_package]


def is_private(module: Module) -> bool:
    return any(part.startswith("_") for part in module.name.split("."))


every_public_module = for_each(
    "module",
    [module for module in importable_modules() if not is_private(module)],
    ids=lambda module: module.name,
)


@every_public_module
def test_a_public_module_has_an_all_list(module: Module) -> None:
    names = getattr(importlib.import_module(module.name), "__all__", None)
    assert isinstance(names, list), f"{module.name} has no __all__"
    assert sorted(set(names)) == sorted(names)


@every_public_module
def test_every_public_name_exists_and_has_a_docstring(module: Module) -> None:
    imported = importlib.import_module(module.name)
    assert inspect.getdoc(imported), f"{module.name} has no docstring"
    bare: list[str] = []
    for name in imported.__all__:
        value = getattr(imported, name)
        if not (inspect.isclass(value) or inspect.isroutine(value)):
            continue
        if not value.__doc__:
            bare.append(name)
        if inspect.isclass(value):
            bare += [f"{name}.{method}" for method in undocumented_methods(value)]
    assert bare == []


def undocumented_methods(cls: type) -> list[str]:
    """Return the public methods and properties that the class defines, and that neither it nor a parent documents."""
    return [
        name
        for name, value in vars(cls).items()
        if not name.startswith("_")
        and (inspect.isroutine(value) or isinstance(value, property))
        and not inspect.getdoc(getattr(cls, name))
    ]


@for_each("package", PACKAGES, ids=lambda module: module.name)
def test_a_package_module_defines_nothing_except_its_table_of_contents(package: Module) -> None:
    """The table may include the function ``__getattr__``, which imports an entry when it is first used."""
    things = [
        node for node in package.tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    ]
    assert {thing.name for thing in things} <= {"__getattr__", "__dir__"}
