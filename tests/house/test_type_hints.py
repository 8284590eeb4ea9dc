"""Tests that documentation tools and dependency injection can read the type hints of all public functions."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import is_dataclass
from typing import Any, get_type_hints

import sbredis.aio
from sbredis import ServiceBusClient, management, testing
from sbredis.aio import ServiceBusClient as AsyncServiceBusClient
from sbredis.aio import management as aio_management
from tests.offenders import for_each

CLASSES: list[type] = [
    ServiceBusClient,
    AsyncServiceBusClient,
    management.ServiceBusAdministrationClient,
    aio_management.ServiceBusAdministrationClient,
    testing.Bus,
    testing.SyncBus,
    testing.SyncWorkerRun,
    testing.TestClock,
]


def public_functions(cls: type) -> Iterator[Any]:
    for name, value in inspect.getmembers_static(cls):
        if (name == "__init__" or not name.startswith("_")) and inspect.isroutine(value):
            yield getattr(cls, name)


@for_each("function", [each for cls in CLASSES for each in public_functions(cls)], ids=lambda each: each.__qualname__)
def test_the_type_hints_of_a_function_can_be_resolved(function: Any) -> None:
    get_type_hints(function)


DATACLASSES = [
    value
    for package in (sbredis, sbredis.aio, management, testing)
    for name in package.__all__
    if isinstance(value := getattr(package, name), type) and is_dataclass(value)
]


@for_each("cls", DATACLASSES, ids=lambda each: f"{each.__module__}.{each.__qualname__}")
def test_the_type_hints_of_a_dataclass_can_be_resolved(cls: type) -> None:
    get_type_hints(cls)
