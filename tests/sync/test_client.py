"""The client for code without an event loop: one pass over every target, and what the façade itself does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import redis

from sbredis import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSender,
    check_connection,
)
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.servers import LocalCluster, LocalServer

SOON = 5.0
NOTHING = 0.1


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    with client.get_queue_sender("orders", create_if_missing={"enable_partitioning": True}) as sender:
        yield sender


@pytest.fixture
def receiver(client: ServiceBusClient, sender: ServiceBusSender) -> Iterator[ServiceBusReceiver]:
    with client.get_queue_receiver(sender.entity_name, max_wait_time=SOON) as receiver:
        yield receiver


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(map(str, messages))


@pytest.mark.slow
@pytest.mark.everywhere("a client opens every target")
def test_a_sent_message_is_received_and_completed(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    sender.send_messages([ServiceBusMessage(str(number), partition_key="one") for number in range(3)])
    messages = receiver.receive_messages(max_message_count=3)
    assert bodies(messages) == ["0", "1", "2"]
    for message in messages:
        receiver.complete_message(message)
    assert receiver.receive_messages(max_wait_time=NOTHING) == []
    assert receiver.peek_messages() == []


def test_objects_have_a_useful_repr(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("orders", client_identifier="me")
    receiver = client.get_queue_receiver("orders", client_identifier="you")
    assert (sender.entity_name, sender.client_identifier, sender.in_flight) == ("orders", "me", 0)
    assert (receiver.entity_path, receiver.client_identifier, receiver.session) == ("orders", "you", None)
    assert client.namespace == "default"
    assert repr(sender) == "<ServiceBusSender 'orders' open>"
    assert repr(receiver) == "<ServiceBusReceiver 'orders' open>"
    assert repr(client).endswith(", namespace 'default', open>")


def test_an_error_keeps_its_identity_and_its_traceback_shows_the_callers_line(client: ServiceBusClient) -> None:
    with pytest.raises(MessagingEntityNotFoundError, match="'nowhere'") as missing:
        client.get_queue_sender("nowhere").send_messages(ServiceBusMessage("a"))
    names = [entry.name for entry in missing.traceback]
    assert names[0] == "test_an_error_keeps_its_identity_and_its_traceback_shows_the_callers_line"
    assert names.count("send_messages") == 2  # one frame of the synchronous method, and one of the asynchronous method


@pytest.mark.slow
def test_an_unknown_option_is_refused(
    client: ServiceBusClient, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: sender.send_messages([], later=True),  # type: ignore[call-arg]
        lambda: sender.schedule_messages([], datetime.now(UTC), later=True),  # type: ignore[call-arg]
        lambda: sender.cancel_scheduled_messages([], later=True),  # type: ignore[call-arg]
        lambda: receiver.peek_messages(later=True),  # type: ignore[call-arg]
        lambda: receiver.receive_deferred_messages([], later=True),  # type: ignore[call-arg]
        lambda: client.get_queue_sender("orders", later=True),  # type: ignore[call-arg]
        lambda: client.get_queue_receiver("orders", later=True),  # type: ignore[call-overload]
        lambda: ServiceBusClient("memory://unused", later=True),  # type: ignore[call-arg]
    ]
    for call in calls:
        with pytest.raises(TypeError, match="got an unexpected keyword argument 'later'"):
            call()


@pytest.mark.parametrize("wrong", [object(), 5, "a renewer"])
def test_what_is_no_renewer_of_threads_is_refused(client: ServiceBusClient, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"auto_lock_renewer must be a sbredis\.AutoLockRenewer, not a"):
        client.get_queue_receiver("orders", auto_lock_renewer=wrong)


def test_an_option_of_azures_library_causes_a_warning_at_the_callers_line(client: ServiceBusClient) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.get_queue_sender("orders", keep_alive=30),  # type: ignore[call-arg]
        lambda: client.get_queue_receiver("orders", keep_alive=30),  # type: ignore[call-overload]
        lambda: client.get_topic_sender("news", keep_alive=30),  # type: ignore[call-arg]
        lambda: client.get_subscription_receiver("news", "all", keep_alive=30),  # type: ignore[call-overload]
        lambda: ServiceBusClient("memory://unused", keep_alive=30),  # type: ignore[call-arg]
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="ignores keywords of Azure's library: keep_alive") as seen:
            call()
        assert [warning.filename for warning in seen] == [__file__]


def test_a_client_can_be_made_with_from_connection_string(url: str) -> None:
    with ServiceBusClient.from_connection_string(url, namespace="other") as client:
        assert client.namespace == "other"
        client.ensure_queue("q")


@pytest.mark.parametrize("kind", ["server", "cluster"])
def test_a_client_can_be_made_from_a_redis_py_client(kind: str, request: pytest.FixtureRequest) -> None:
    running: LocalServer | LocalCluster = request.getfixturevalue(kind)
    address = running.url.rpartition("//")[2].partition("?")[0].split(",")[0]
    host, _, port = address.partition(":")
    made = redis.Redis if kind == "server" else redis.RedisCluster
    with made(host=host, port=int(port.rstrip("/"))) as borrowed, ServiceBusClient.from_redis(borrowed) as client:
        client.ensure_queue("q")


def test_a_connection_is_checked(url: str) -> None:
    assert check_connection(url).servers
