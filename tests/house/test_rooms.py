"""Tests of the rooms inside a folder: which room may import which, and that no modules import each other when they are
loaded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from tests.house.modules import modules
from tests.offenders import for_each

# The floors of each house, from the top down. A room may import only rooms on lower floors, even if it needs only their
# types. "" holds the public classes and the modules that belong to them.
HOUSES: dict[str, list[set[str]]] = {
    "sbredis.aio": [{"management", "shared_sessions"}, {""}],
    "sbredis.workers": [{""}, {"supervising"}, {"running"}, {"included", "schedules"}, {"observing"}, {"declaring"}],
}
MODULES = {
    module.name: module for module in modules() if any(f"{module.name}.".startswith(f"{house}.") for house in HOUSES)
}
# The parts of sbredis that workers use. All other modules of the client are private to it.
PUBLIC = (
    "sbredis.aio",
    "sbredis.codec",
    "sbredis.exceptions",
    "sbredis.management",
    "sbredis.model",
    "sbredis.workers",
)
BELOW_ALL_FLOORS = (
    *("sbredis._arguments", "sbredis._counting", "sbredis._http_server"),
    *("sbredis._loop_thread", "sbredis._prometheus_text", "sbredis._nearest"),
    *("sbredis._quick_enum", "sbredis._quoting", "sbredis._server_url"),
    *("sbredis._tasks", "sbredis._unreadable", "sbredis._version"),
)


def house_of(name: str) -> str:
    return next(house for house in HOUSES if f"{name}.".startswith(f"{house}."))


def room(name: str) -> str:
    parts = name.removeprefix(house_of(name)).strip(".").split(".")
    return parts[0] if len(parts) > 1 or not parts[0].startswith("_") else ""


@cache
def known(name: str) -> set[str]:
    """Return the modules of its house that a module imports, even if only for their types."""
    found = {other if other in MODULES else other.rpartition(".")[0] for other in MODULES[name].imports()}
    return {other for other in found if other in MODULES and house_of(other) == house_of(name)}


def circle(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the modules that are part of an import circle, and the modules that import one of these directly or
    indirectly.

    The function repeatedly removes each module that imports none of the remaining modules. It returns the rest.
    """
    left = {name: set(others) for name, others in graph.items()}
    while ends := [name for name, others in left.items() if not others]:
        left = {name: others.difference(ends) for name, others in left.items() if name not in ends}
    return sorted(left)


@for_each("house", HOUSES)
def test_every_room_has_a_floor(house: str) -> None:
    assert {room(name) for name in MODULES if house_of(name) == house} == set().union(*HOUSES[house])


@for_each("name", sorted(MODULES))
def test_a_room_imports_only_rooms_on_lower_floors(name: str) -> None:
    own, floors = room(name), HOUSES[house_of(name)]
    (floor,) = (number for number, rooms in enumerate(floors) if own in rooms)
    allowed = {own}.union(*floors[floor + 1 :])
    assert {other for other in known(name) if room(other) not in allowed} == set()


@for_each("name", [name for name in sorted(MODULES) if house_of(name) == "sbredis.workers"])
def test_workers_use_only_the_public_api_of_the_client(name: str) -> None:
    private = [
        other
        for other in MODULES[name].imports()
        if other.startswith("sbredis.")
        and not other.startswith(("sbredis.workers.", *BELOW_ALL_FLOORS))
        and (not other.startswith(PUBLIC) or any(part.startswith("_") for part in other.split(".")))
    ]
    assert private == []


def test_no_modules_load_each_other_in_a_circle() -> None:
    """Inside a folder, two modules may know each other's types. They may not need each other to be loaded."""
    everywhere = {module.name: module for module in modules()}

    def loaded(name: str) -> set[str]:
        found = {other if other in everywhere else other.rpartition(".")[0] for other in everywhere[name].loads()}
        return {other for other in found if other in everywhere and other != name}

    assert circle({name: loaded(name) for name in everywhere}) == []


def test_a_circle_of_imports_is_found() -> None:
    assert circle({"a": ["b"], "b": ["c"], "c": ["b"], "d": []}) == ["a", "b", "c"]
