"""A class name has one meaning in the whole house."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from tests.house.modules import Module, modules

PUBLIC_TWICE = {"Outcome": "public names of two packages: the outcome of a failed call, and that of a handler"}


def meanings(house: Iterable[Module]) -> dict[str, set[str]]:
    """Return the modules that define each class at their top. A class of ``sync`` that mirrors one of ``aio`` is the
    same one, and a leading underscore makes no other name.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for module in house:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].add(module.name.replace("sbredis.sync", "sbredis.aio"))
    return found


def test_a_class_name_has_one_meaning() -> None:
    doubled = {name: sorted(where) for name, where in meanings(modules()).items() if len(where) > 1}
    assert set(doubled) == set(PUBLIC_TWICE), doubled
