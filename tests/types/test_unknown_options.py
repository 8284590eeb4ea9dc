"""Tests of unknown options at run time: those of Azure's library cause a warning, and all others an error."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

import pytest

import sbredis
from sbredis import aio, management
from sbredis.aio import management as aio_management
from sbredis.aio._client_options import AdministrationClientOptions, ClientOptions

OF_AZURE: dict[str, Any] = {"logging_enable": True, "user_agent": "shop"}
UNKNOWN: dict[str, Any] = {"conect_timeout": 1.0}
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
    return kind("memory://unused", **OF_AZURE)


def by_connection_string(kind: type[Any]) -> object:
    return kind.from_connection_string("memory://unused", **OF_AZURE)


@pytest.mark.parametrize("make", [by_constructor, by_connection_string])
@pytest.mark.parametrize("kind", CLIENTS)
def test_an_option_that_only_azures_client_has_causes_a_warning(
    kind: type[Any], make: Callable[[type[Any]], object]
) -> None:
    said = f"^{kind.__name__} ignores keywords of Azure's library: logging_enable, user_agent$"
    with pytest.warns(UserWarning, match=said) as seen:
        make(kind)
    assert [(warning.filename, warning.lineno) for warning in seen] == [line_of(make)]


@pytest.mark.parametrize("kind", CLIENTS)
def test_an_option_that_no_client_has_is_refused_with_the_nearest_one(kind: type[Any]) -> None:
    text = rf"^{kind.__name__}\(\) got an unexpected keyword argument 'conect_timeout' \(did you mean 'connect_timeout'"
    for make in (kind, kind.from_connection_string):
        with pytest.raises(TypeError, match=text):
            make("memory://unused", **UNKNOWN)
        with pytest.raises(TypeError, match=r"unexpected keyword argument 'nothing_like_it'$"):
            make("memory://unused", nothing_like_it=1)


HANDLERS: dict[str, Callable[..., Any]] = {
    "get_queue_sender": lambda client, **given: client.get_queue_sender("q", **given),
    "get_topic_sender": lambda client, **given: client.get_topic_sender("t", **given),
    "get_sender": lambda client, **given: client.get_sender("q", **given),
    "get_queue_receiver": lambda client, **given: client.get_queue_receiver("q", **given),
    "get_subscription_receiver": lambda client, **given: client.get_subscription_receiver("t", "s", **given),
    "get_receiver": lambda client, **given: client.get_receiver("q", **given),
}


@pytest.mark.parametrize("name", HANDLERS)
@pytest.mark.parametrize("kind", CLIENTS[:2])
def test_options_of_senders_and_receivers_are_refused_or_ignored_alike(kind: type[Any], name: str) -> None:
    client, make = kind("memory://unused"), HANDLERS[name]
    with pytest.warns(UserWarning, match=f"^{name} ignores keywords of Azure's library: keep_alive$"):
        make(client, keep_alive=30)
    for typo, near in {"client_identifer": "client_identifier", "sesion_id": "session_id"}.items():
        hint = f" (did you mean {near!r}?)" if near == "client_identifier" or "receiver" in name else ""
        with pytest.raises(TypeError) as refused:
            make(client, **{typo: "x"})
        assert str(refused.value) == f"{name}() got an unexpected keyword argument {typo!r}{hint}"
    with pytest.raises(TypeError, match="unexpected keyword argument 'logging_enable'"):
        make(client, logging_enable=True)  # Azure's library gives it to its senders and receivers itself


METHODS = {
    aio.ServiceBusSender: ("send_messages", "schedule_messages", "cancel_scheduled_messages"),
    aio.ServiceBusReceiver: ("receive_deferred_messages", "peek_messages", "renew_message_lock"),
    aio.ServiceBusSession: ("renew_lock", "get_state", "set_state"),
    sbredis.ServiceBusSender: ("send_messages", "schedule_messages", "cancel_scheduled_messages"),
    sbredis.ServiceBusReceiver: ("receive_deferred_messages", "peek_messages", "renew_message_lock"),
    sbredis.ServiceBusSession: ("renew_lock", "get_state", "set_state"),
}


@pytest.mark.parametrize(("kind", "names"), METHODS.items(), ids=lambda each: getattr(each, "__module__", ""))
def test_methods_whose_keywords_azures_library_does_not_know_either_take_no_others(
    kind: type[Any], names: tuple[str, ...]
) -> None:
    for name in names:
        kinds = [each.kind for each in inspect.signature(getattr(kind, name)).parameters.values()]
        assert inspect.Parameter.VAR_KEYWORD not in kinds, name


@pytest.mark.parametrize("kind", CLIENTS)
def test_every_client_refuses_durability_as_an_option(kind: type[Any]) -> None:
    """If the client ignored this option, messages would be less safe than they seem."""
    with pytest.raises(ValueError, match="durability belongs in the connection string"):
        kind("memory://unused", durability="fsync")


@pytest.mark.parametrize("kind", CLIENTS)
def test_from_connection_string_accepts_the_options_of_the_constructor(kind: type[Any]) -> None:
    options = ClientOptions if kind.__name__ == "ServiceBusClient" else AdministrationClientOptions
    given_by_name = {"conn_str", "kwargs", "credential_provider", "slot_count", "timeout"}
    named = set(inspect.signature(kind.from_connection_string).parameters)
    assert named <= given_by_name
    known = {*inspect.signature(kind).parameters} - {"fully_qualified_namespace", "kwargs"}
    handed_on = known - named - ({"credential"} if "credential_provider" in named else set())
    assert set(options.__annotations__) == handed_on


def test_the_type_hints_of_options_can_be_resolved() -> None:
    """Programs that generate documentation read these type hints."""
    for options in (management.QueueOptions, management.RuleOptions, management.NewSubscriptionOptions):
        assert get_type_hints(options)
