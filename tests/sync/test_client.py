"""The effect of every method of the synchronous client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest
import redis

from sbredis import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSubQueue,
    check_connection,
)
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
)
from sbredis.servers import LocalCluster, LocalServer
from tests.waiting import wait_until

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


def receive_one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages()
    return message


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


@pytest.mark.slow
def test_a_batch_is_filled_and_sent(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    batch = sender.create_message_batch(max_size_in_bytes=1000)
    batch.add_message(ServiceBusMessage("first", partition_key="one"))
    batch.add_message({"body": "second", "partition_key": "one"})
    sender.send_messages(batch)
    assert bodies(receiver.receive_messages(2)) == ["first", "second"]


@pytest.mark.slow
def test_an_iteration_ends_after_max_wait_time(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    for number in range(3):
        sender.send_messages(ServiceBusMessage(str(number)))
    found: list[ServiceBusReceivedMessage] = []
    with client.get_queue_receiver("orders", max_wait_time=SOON) as receiver:
        for message in receiver:
            receiver.complete_message(message)
            found.append(message)
            if len(found) == 3:
                break
    assert bodies(found) == ["0", "1", "2"]
    with client.get_queue_receiver("orders", max_wait_time=NOTHING) as receiver:
        assert list(receiver) == []
        with pytest.raises(StopIteration):
            receiver.next()


@pytest.mark.slow
def test_next_returns_one_message(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    sender.send_messages(ServiceBusMessage("a"))
    assert str(receiver.next()) == "a"


@pytest.mark.slow
def test_scheduled_messages_are_cancelled_by_sequence_number(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    (number,) = sender.schedule_messages(ServiceBusMessage("a"), tomorrow)
    (message,) = receiver.peek_messages()
    assert (message.sequence_number, message.scheduled_enqueue_time_utc is not None) == (number, True)
    sender.cancel_scheduled_messages(number)
    assert receiver.peek_messages(sequence_number=1) == []
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages([number])


@pytest.mark.slow
def test_a_message_is_settled_in_each_way(
    client: ServiceBusClient, sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    sender.send_messages(ServiceBusMessage("a"))
    message = receive_one(receiver)
    receiver.abandon_message(message, properties_to_modify={"tries": 1})
    message = receive_one(receiver)
    assert (message.delivery_count, message.application_properties) == (2, {"tries": 1})
    receiver.defer_message(message)
    assert receiver.receive_messages(max_wait_time=NOTHING) == []
    (message,) = receiver.receive_deferred_messages(message.sequence_number)
    until = message.locked_until_utc
    assert until is not None
    assert receiver.renew_message_lock(message) >= until
    receiver.dead_letter_message(message, "Bad", "It was no order.")
    with pytest.raises(MessageAlreadySettled):
        receiver.complete_message(message)
    with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=SOON) as dead:
        assert dead.entity_path == "orders/$DeadLetterQueue"
        letter = dead.next()
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("Bad", "It was no order.")
        dead.complete_message(letter)
        assert dead.peek_messages() == []


@pytest.mark.slow
def test_a_delayed_message_is_not_received_before_its_delay_ends(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    sender.send_messages(ServiceBusMessage("a"))
    receiver.abandon_message(receive_one(receiver), delay=timedelta(hours=1))
    assert receiver.receive_messages(max_wait_time=NOTHING) == []


@pytest.mark.slow
def test_messages_are_deleted_by_count_and_by_enqueued_time(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    for _ in range(5):
        sender.send_messages(ServiceBusMessage("a"))
    assert receiver.delete_messages(2) == 2
    assert receiver.purge_messages(before_enqueued_time_utc=datetime.now(UTC) + timedelta(minutes=1)) == 3
    assert receiver.peek_messages() == []


@pytest.mark.slow
def test_prefetched_messages_are_returned_when_the_receiver_closes(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    for number in range(4):
        sender.send_messages(ServiceBusMessage(str(number)))
    with client.get_queue_receiver("orders", prefetch_count=10, max_wait_time=SOON) as ahead:
        message = ahead.next()
        ahead.complete_message(message)
    with client.get_queue_receiver("orders", max_wait_time=SOON) as receiver:
        rest = [receiver.next() for _ in range(3)]
        assert {message.delivery_count for message in rest} == {1}


@pytest.mark.slow
def test_a_message_received_in_receive_and_delete_mode_is_deleted(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    sender.send_messages(ServiceBusMessage("a"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_queue_receiver("orders", receive_mode=mode, max_wait_time=SOON) as receiver:
        message = receiver.next()
        assert receiver.receive_mode is mode
        assert receiver.peek_messages() == []
        with pytest.raises(ValueError, match="received and deleted"):
            receiver.complete_message(message)


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
def test_an_oversized_batch_is_refused_completely(sender: ServiceBusSender, receiver: ServiceBusReceiver) -> None:
    with pytest.raises(MessageSizeExceededError):
        sender.send_messages([ServiceBusMessage(b"x" * 600_000, partition_key="one") for _ in range(2)])
    assert receiver.peek_messages() == []


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


def test_an_option_of_azures_library_causes_a_warning_at_the_callers_line(client: ServiceBusClient) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.get_queue_sender("orders", keep_alive=30),  # type: ignore[call-arg]
        lambda: client.get_queue_receiver("orders", keep_alive=30),  # type: ignore[call-overload]
        lambda: ServiceBusClient("memory://unused", keep_alive=30),  # type: ignore[call-arg]
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="ignores keywords of Azure's library: keep_alive") as seen:
            call()
        assert [warning.filename for warning in seen] == [__file__]


def test_ensure_queue_creates_only_a_missing_queue(client: ServiceBusClient) -> None:
    assert client.ensure_queue("q", max_delivery_count=3).max_delivery_count == 3
    assert client.ensure_queue("q").max_delivery_count == 3


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


@pytest.mark.slow
def test_a_receive_from_an_empty_queue_waits_for_a_message(
    sender: ServiceBusSender, receiver: ServiceBusReceiver
) -> None:
    wait_until(lambda: receiver.receive_messages(max_wait_time=NOTHING) == [])
    sender.send_messages(ServiceBusMessage("a"))
    assert str(receive_one(receiver)) == "a"
