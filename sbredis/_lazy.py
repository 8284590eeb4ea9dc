"""Packages that import their names when they are first used."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

__all__ = ["lazily"]


def lazily(package: str, modules: Mapping[str, Sequence[str]]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package: its modules, each with the names that it imports from them.

    A module of the package is imported when one of its names is used. Code that uses such a name seldom imports the
    package and writes ``package.name``: then its own import costs nothing.
    """
    places = {name: module for module, names in modules.items() for name in names}
    known = vars(sys.modules[package])

    def import_name(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        found = known[name] = getattr(import_module(f"{package}.{places[name]}"), name)
        return found

    def list_names() -> list[str]:
        return sorted({*known, *places})

    return import_name, list_names
