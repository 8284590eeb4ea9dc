"""Tests of the rooms of the asynchronous client: which room may import which, and that no modules import each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tests.house.modules import modules
from tests.offenders import for_each

HOUSE = "sbredis.aio"
# The floors of the client, from the top down. A room may import only rooms on lower floors, even if it needs only their
# types. "" holds the public classes and the modules that belong to them.
FLOORS: list[set[str]] = [
    {"management"},
    {""},
    {"entities", "maintenance", "receiving", "sending"},
    {"calls"},
    {"telemetry"},
    {"core"},
]
MODULES = {module.name: module for module in modules() if f"{module.name}.".startswith(f"{HOUSE}.")}


def room(name: str) -> str:
    parts = name.removeprefix(HOUSE).strip(".").split(".")
    return parts[0] if len(parts) > 1 or not parts[0].startswith("_") else ""


@cache
def known(name: str) -> set[str]:
    """Return the modules of the client that a module imports, even if only for their types."""
    found = {other if other in MODULES else other.rpartition(".")[0] for other in MODULES[name].imports()}
    return {other for other in found if other in MODULES}


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the modules that are part of an import circle, and the modules that import one of these directly or
    indirectly.

    The function repeatedly removes each module that imports none of the remaining modules. It returns the rest.
    """
    left = {name: set(others) for name, others in graph.items()}
    while ends := [name for name, others in left.items() if not others]:
        left = {name: others.difference(ends) for name, others in left.items() if name not in ends}
    return sorted(left)


def test_every_room_has_a_floor() -> None:
    assert {room(name) for name in MODULES} == set().union(*FLOORS)


@for_each("name", sorted(MODULES))
def test_a_room_imports_only_rooms_on_lower_floors(name: str) -> None:
    own = room(name)
    (floor,) = (number for number, rooms in enumerate(FLOORS) if own in rooms)
    allowed = {own}.union(*FLOORS[floor + 1 :])
    assert {other for other in known(name) if room(other) not in allowed} == set()


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert circle({name: known(name) for name in MODULES}) == []


def test_a_circle_of_imports_is_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"], "d": []}) == ["a", "b", "c"]
