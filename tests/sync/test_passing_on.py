"""Every made method passes all of its arguments on to its twin, and returns the result of the twin.

The twin is a recorder here, so the tests cover each argument of each method. What the twins do with the arguments is
tested in tests/aio.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sbredis import aio, sync
from sbredis.aio import management as aio_management
from sbredis.sync import management
from sbredis.sync._facade import Facade
from sbredis.sync.management import ItemPaged
from tests.offenders import for_each
from tools.make_sync import rules

RESULT = object()
CLASSES: dict[type[Facade[Any]], type] = {
    sync.ServiceBusClient: aio.ServiceBusClient,
    sync.ServiceBusSender: aio.ServiceBusSender,
    sync.ServiceBusReceiver: aio.ServiceBusReceiver,
    sync.ServiceBusSessionReceiver: aio.ServiceBusSessionReceiver,
    sync.ServiceBusSession: aio.ServiceBusSession,
    sync.ServiceBusSettler: aio.ServiceBusSettler,
    sync.ServiceBusTransaction: aio.ServiceBusTransaction,
    sync.ServiceBusRole: aio.ServiceBusRole,
    management.ServiceBusAdministrationClient: aio_management.ServiceBusAdministrationClient,
}
TWINS: dict[str, type[Facade[Any]]] = {
    "ServiceBusSender": sync.ServiceBusSender,
    "ServiceBusSession": sync.ServiceBusSession,
}
"""The types of arguments that have twins."""


class Twin:
    """Records the call of a method. A property is the result itself."""

    def __init__(self, kind: type) -> None:
        self._kind = kind
        self.called: tuple[str, dict[str, Any]] | None = None

    def __getattr__(self, name: str) -> Any:
        theirs = inspect.getattr_static(self._kind, name)
        if not inspect.isroutine(theirs):
            return RESULT

        def called(*arguments: Any, **options: Any) -> Any:
            bound = inspect.signature(theirs).bind(self, *arguments, **options).arguments
            self.called = name, {key: value for key, value in bound.items() if key != "self"}
            return RESULT

        async def awaited(*arguments: Any, **options: Any) -> Any:
            return called(*arguments, **options)

        return awaited if inspect.iscoroutinefunction(theirs) else called


class PlainBridge:
    """Calls functions in this thread, and records the way in which it was asked to."""

    def __init__(self) -> None:
        self.ways: list[str] = []

    def call(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.ways.append("call")
        return self._ended(function(*arguments, **options))

    def call_undoable(self, undo: object, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        assert callable(undo)
        self.ways.append("call_undoable")
        return self._ended(function(*arguments, **options))

    def run(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.ways.append("run")
        return function(*arguments, **options)

    def make(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        self.ways.append("make")
        return function(*arguments, **options)

    def finish(self, function: Callable[..., Any]) -> None:
        self.ways.append("finish")
        self._ended(function())

    def _ended(self, coroutine: Any) -> Any:
        with pytest.raises(StopIteration) as ended:
            coroutine.send(None)
        return ended.value.value


def made_members() -> Iterator[Any]:
    """Yield the members that the rules make, without those whose text is in the rules."""
    for ours, theirs in CLASSES.items():
        for name, value in inspect.getmembers_static(ours):
            owners = [parent.__name__ for parent in ours.__mro__ if name in vars(parent)]
            if (
                not name.startswith("_")
                and (name, ours) != ("next", sync.ServiceBusReceiver)
                and hasattr(theirs, name)
                and not any(f"{owner}.{name}" in rules.DIFFERENT for owner in owners)
            ):
                yield pytest.param(ours, theirs, name, value, id=f"{ours.__name__}.{name}")


def facade(ours: type[Facade[Any]], twin: Any) -> tuple[Any, PlainBridge]:
    """Return an object of a class with this twin."""
    bridge: Any = PlainBridge()
    if ours in {sync.ServiceBusClient, management.ServiceBusAdministrationClient}:
        made = ours.__new__(ours)
        Facade.__init__(made, bridge, twin)
        return made, bridge
    return ours(bridge, twin), bridge


def given_and_expected(function: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return an argument for each parameter, and what the twin must get."""
    given: dict[str, Any] = {}
    expected: dict[str, Any] = {}
    parameters = inspect.signature(function).parameters
    for name, parameter in list(parameters.items())[1:]:
        kind = str(parameter.annotation)
        if parameter.kind is parameter.VAR_KEYWORD:
            if "client_identifier" in parameters:
                continue  # all keywords that the method takes are named, and it refuses others
            given["max_delivery_count"] = value = object()
            expected[name] = {"max_delivery_count": value}
        elif kind in TWINS:
            expected[name] = object()
            given[name] = TWINS[kind](PlainBridge(), expected[name])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        elif kind.startswith("Iterable["):
            expected[name] = [object()]
            given[name] = iter(expected[name])
        else:
            given[name] = expected[name] = None if name == "auto_lock_renewer" else object()
    return given, expected


def way_of(ours: type, theirs: Any, name: str) -> list[str]:
    """Return the way over the bridge that fits a method."""
    owners = [parent.__name__ for parent in ours.__mro__]
    if name == "close":
        return ["finish"]
    if inspect.iscoroutinefunction(theirs):
        return ["call_undoable"] if any(f"{owner}.{name}" in rules.UNDOABLE for owner in owners) else ["call"]
    if ours.__name__ in rules.RECORDING:
        return ["run"]
    direct = any(f"{owner}.{name}" in rules.DIRECT for owner in owners)
    returned = str(inspect.signature(theirs).return_annotation)
    return [] if direct or returned.startswith("AsyncItemPaged") else ["make"]


@for_each(("ours", "theirs", "name", "value"), list(made_members()))
def test_a_method_passes_its_arguments_on_and_returns_the_result(
    ours: type[Facade[Any]], theirs: type, name: str, value: Any
) -> None:
    twin = Twin(theirs)
    made, bridge = facade(ours, twin)
    if isinstance(value, property):
        assert getattr(made, name) is RESULT
        if value.fset is not None:
            setattr(made, name, 5)
            assert vars(twin)[name] == 5
        return
    given, expected = given_and_expected(value)
    result = getattr(made, name)(**given)
    assert twin.called is not None
    assert twin.called == (name, expected)
    assert bridge.ways == way_of(ours, inspect.getattr_static(theirs, name), name)
    if isinstance(result, ItemPaged):
        result = result._paged
    elif isinstance(result, Facade):
        result = result._aio
    returns_nothing = inspect.signature(value).return_annotation == "None"
    assert result is (None if returns_nothing else RESULT)
