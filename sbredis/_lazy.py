"""Packages that import their names when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package: modules, each with the names that it imports from them.

    A module without a dot in its name is one of the package; another name is the whole one. A module is imported when
    one of its names is used. Code that uses such a name seldom imports the package and writes ``package.name``: then
    its own import costs nothing.
    """
    paths = {
        name: module if "." in module else f"{package}.{module}" for module, names in modules.items() for name in names
    }
    known = vars(sys.modules[package])

    def import_name(name: str) -> Any:
        if name not in paths:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = known[name] = getattr(import_module(paths[name]), name)
        return found

    def list_names() -> list[str]:
        return sorted({*known, *paths})

    return import_name, list_names
