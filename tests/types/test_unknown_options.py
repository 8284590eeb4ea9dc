"""Tests that an unknown option causes a warning at run time, at the line of the caller."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import sbredis
from sbredis import aio, management
from sbredis.aio import management as aio_management
from sbredis.aio._client_options import AdministrationClientOptions, ClientOptions

UNKNOWN: dict[str, Any] = {"later": True}
CLIENTS: list[type[Any]] = [
    aio.ServiceBusClient,
    sbredis.ServiceBusClient,
    aio_management.ServiceBusAdministrationClient,
    management.ServiceBusAdministrationClient,
]


def line_of(function: Callable[..., object]) -> tuple[str, int]:
    """Return the file and the line of the code of a one-line function."""
    return __file__, inspect.getsourcelines(function)[1] + 1


def by_constructor(kind: type[Any]) -> object:
    return kind("memory://unused", **UNKNOWN)


def by_connection_string(kind: type[Any]) -> object:
    return kind.from_connection_string("memory://unused", **UNKNOWN)


@pytest.mark.parametrize("make", [by_constructor, by_connection_string])
@pytest.mark.parametrize("kind", CLIENTS)
def test_an_unknown_option_of_a_client_causes_a_warning(kind: type[Any], make: Callable[[type[Any]], object]) -> None:
    with pytest.warns(UserWarning, match=f"{kind.__name__} ignores unknown arguments: later") as seen:
        make(kind)
    assert [(warning.filename, warning.lineno) for warning in seen] == [line_of(make)]


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_client_refuses_durability_as_an_option(kind: type[Any]) -> None:
    """If the client ignored this option, messages would be less safe than they seem."""
    with pytest.raises(ValueError, match="durability belongs in the connection string"):
        kind("memory://unused", durability="fsync")


@pytest.mark.parametrize("kind", CLIENTS)
def test_from_connection_string_accepts_the_options_of_the_constructor(kind: type[Any]) -> None:
    options = ClientOptions if kind.__name__ == "ServiceBusClient" else AdministrationClientOptions
    given_by_name = {"conn_str", "kwargs", "credential_provider", "partition_count", "timeout"}
    named = set(inspect.signature(kind.from_connection_string).parameters)
    assert named <= given_by_name
    known = {*inspect.signature(kind).parameters} - {"fully_qualified_namespace", "kwargs"}
    handed_on = known - named - ({"credential"} if "credential_provider" in named else set())
    assert set(options.__annotations__) == handed_on


def test_the_type_hints_of_options_can_be_resolved() -> None:
    """Programs that generate documentation read these type hints."""
    for options in (management.QueueOptions, management.RuleOptions, management.NewSubscriptionOptions):
        assert get_type_hints(options)
