"""Tests that a package's ``__init__`` is its table of contents: it lists the public names, and each is documented."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import sys
from importlib.util import find_spec

from tests.children import run_program
from tests.house.modules import Module, importable_modules
from tests.offenders import for_each

PACKAGES = [module for module in importable_modules() if module.is_package]


def is_private(module: Module) -> bool:
    return any(part.startswith("_") for part in module.name.split("."))


every_public_module = for_each(
    "module", [module for module in importable_modules() if not is_private(module)], ids=lambda module: module.name
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


def names_for_type_checkers(package: Module) -> dict[str, list[str]]:
    """Return the names that a package imports only for type checkers, by the module that has them."""
    blocks = [
        node for node in package.tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) and node.module]
    return {
        str(node.module).removeprefix(f"{package.name}."): sorted(each.name for each in node.names) for node in imports
    }


def names_for_programs(tree: ast.Module) -> dict[str, list[str]]:
    """Return the names that a package imports when they are first used, by the module that has them."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazily"]
    tables = [ast.literal_eval(call.args[1]) for call in calls]
    return {module: sorted(names) for table in tables for module, names in table.items()}


LAZY = [package for package in PACKAGES if names_for_programs(package.tree)]


@for_each("package", LAZY, ids=lambda module: module.name)
def test_a_package_imports_late_what_type_checkers_see(package: Module) -> None:
    assert names_for_programs(package.tree) == names_for_type_checkers(package)


NOT_NEEDED = [
    *("msgspec", "redis", "sbredis.aio._background_renewer", "sbredis.aio._check"),
    *("sbredis.bulk._writing", "sbredis.cli", "sbredis.maintenance._maintenance"),
    *("sbredis.moving._carrying", "sbredis.renewing._renewal_thread", "sbredis.rules._parser"),
    "sbredis.workers",
]


def test_importing_the_client_loads_nothing_that_few_programs_need() -> None:
    assert loaded_by("from sbredis.aio import ServiceBusClient", NOT_NEEDED) == []


def test_importing_the_administration_client_loads_no_senders_and_receivers() -> None:
    """A command of the program that asks a server needs only this client."""
    not_needed = ["sbredis.aio._client", "sbredis.receiving", "sbredis.renewing", "sbredis.sending", *NOT_NEEDED]
    assert loaded_by("from sbredis.aio.management import ServiceBusAdministrationClient", not_needed) == []


def loaded_by(statement: str, names: list[str]) -> list[str]:
    """Return the modules among these that a new process has loaded after a statement."""
    assert all(find_spec(name) is not None for name in names)  # so that a module of another name is noticed
    code = f"import json, sys; {statement}; print(json.dumps([name for name in {names} if name in sys.modules]))"
    found: list[str] = json.loads(run_program(sys.executable, "-c", code).stdout)
    return found
