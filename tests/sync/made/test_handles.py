"""Settling messages and managing sessions by lock handle, from another connection and from another process."""

# Made by tools/make_sync from tests/aio/test_handles.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sbredis import ServiceBusClient, ServiceBusReceiver, ServiceBusSettler
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    SessionLockLostError,
)
from sbredis.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode
from tests.sync.queues import (
    HandClock,
    bodies,
    both,
    queue_at,
    receive_exactly,
    session_queue_at,
)

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Way = Callable[[ServiceBusSettler, str], Any]
OF_SESSIONS: dict[str, Way] = {
    "renew": ServiceBusSettler.renew_session_lock,
    "get": ServiceBusSettler.get_session_state,
    "set": lambda settler, handle: settler.set_session_state(handle, "other"),
    "release": ServiceBusSettler.release_session,
}


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(1, 60)
    return message


# -- messages ----------------------------------------------------------------------------------------------------------


@both
def test_a_message_is_settled_by_handle_from_another_connection(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send("a", "b", "c", "d", "e", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("Q")
        messages = receive_exactly(receiver, 5)
        assert len(messages) == 5
        handles = [receiver.get_lock_handle(message) for message in messages]
        assert len(set(handles)) == 5
        settler.complete_message(handles[0])
        settler.abandon_message(handles[1])
        settler.release_message(handles[2])
        settler.defer_message(handles[3])
        settler.dead_letter_message(handles[4], "why", "because")

        again = receive_exactly(receiver, 2)
        assert {str(message): message.delivery_count for message in again} == {"b": 2, "c": 1}
        (deferred,) = receiver.receive_deferred_messages([messages[3].sequence_number])
        assert bodies([deferred]) == ["d"]
        with queue.receiver(sub_queue="deadletter") as letters:
            letter = one(letters)
            assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
            with pytest.raises(ValueError, match="not a dead letter"):
                other.get_settler("q/$DeadLetterQueue").complete_message(handles[1])
            handle = letters.get_lock_handle(letter)
            other.get_settler("q/$DeadLetterQueue").complete_message(handle)
        counts = queue.counts()
        assert (counts.active, counts.locked, counts.dead_active + counts.dead_locked) == (0, 3, 0)


@both
def test_a_handle_stays_valid_after_renewals_by_either_side(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        queue.send("a", "b", "c", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        first, second, third = receive_exactly(receiver, 3)
        handle = receiver.get_lock_handle(first)
        for _ in range(3):
            clock.move(40)
            receiver.renew_message_lock(second)
            assert settler.renew_message_lock(handle) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
            receiver.renew_message_lock(first)
            receiver.renew_message_lock(third)
            assert receiver.get_lock_handle(first) == handle
        clock.move(59)
        settler.complete_message(handle)
        receiver.complete_messages([second, third])
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        assert (queue.counts()).locked == 0


@both
def test_earlier_property_changes_are_kept_when_settling_by_handle(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send("a", at=-1, properties={"colour": "red", "size": 1})
        receiver, settler = queue.receiver(), other.get_settler("q")
        handle = receiver.get_lock_handle(one(receiver))
        settler.abandon_message(handle, properties_to_modify={"size": 2})
        handle = receiver.get_lock_handle(one(receiver))
        settler.abandon_message(handle)
        handle = receiver.get_lock_handle(one(receiver))
        settler.dead_letter_message(handle, "why", properties_to_modify={"shape": "round"})
        letter = one(queue.receiver(sub_queue="deadletter"))
        assert letter.application_properties == {
            "colour": "red",
            "size": 2,
            "shape": "round",
            "DeadLetterReason": "why",
        }


@both
def test_abandoning_by_handle_with_a_delay_delays_the_next_delivery(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        queue.send("a", at=-1)
        receiver = queue.receiver()
        handle = receiver.get_lock_handle(one(receiver))
        other.get_settler("q").abandon_message(handle, delay=600)
        assert (queue.counts()).delayed == 1
        clock.move(600)
        assert (one(receiver)).delivery_count == 2


# -- refused handles ---------------------------------------------------------------------------------------------------


@both
def test_a_message_without_a_lock_has_no_handle(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("a", "b", at=-1)
        receiver = queue.receiver()
        (peeked,) = receiver.peek_messages(1)
        settled = one(receiver)
        receiver.complete_message(settled)
        deleted = one(queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE))
        with pytest.raises(ValueError, match="peeked"):
            receiver.get_lock_handle(peeked)
        with pytest.raises(ValueError, match="deleted"):
            receiver.get_lock_handle(deleted)
        with pytest.raises(MessageAlreadySettled):
            receiver.get_lock_handle(settled)


def test_a_recreated_queue_accepts_only_the_handles_of_its_own_messages(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as other:
        admin.create_queue("q")
        settler = other.get_settler("q").__enter__()
        handles: list[str] = []
        for _ in range(2):
            with ServiceBusClient(url) as client:
                client.ensure_queue("q")
                with client.get_sender("q") as sender, client.get_receiver("q") as receiver:
                    sender.send_messages(ServiceBusMessage("a"))
                    handles.append(receiver.get_lock_handle(one(receiver)))
            if len(handles) == 1:
                admin.delete_queue("q")
        with pytest.raises(MessageLockLostError):  # by this refusal the client learns that the queue is a new one
            settler.complete_message(handles[0])
        settler.complete_message(handles[1])
        with pytest.raises(ValueError, match="has been deleted"):
            settler.complete_message(handles[0])
        assert (admin.get_queue_runtime_properties("q")).total_message_count == 0


def test_a_settler_needs_an_existing_queue_or_subscription(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        admin.create_topic("news")
        admin.create_subscription("news", "all")
        for path in ("news", "nothing"):
            with pytest.raises(MessagingEntityNotFoundError):
                client.get_settler(path).__enter__()
        with client.get_sender("news") as sender, client.get_receiver("news/subscriptions/all") as receiver:
            sender.send_messages(ServiceBusMessage("a"))
            handle = receiver.get_lock_handle(one(receiver))
        settler = client.get_settler("News/Subscriptions/All")
        with settler:
            settler.dead_letter_message(handle)
        with pytest.raises(ValueError, match="closed"):
            settler.complete_message(handle)
        with client.get_receiver("news/subscriptions/all/$DeadLetterQueue") as letters:
            assert bodies([one(letters)]) == ["a"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("way", OF_SESSIONS)
def test_a_lost_session_lock_is_reported_when_used_by_handle(url: str, partitioned: bool, way: str) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        settler = other.get_settler("q")
        with queue.session("s") as receiver:
            receiver.session.set_state("mine")
            handle = receiver.session.lock_handle
        with queue.session("s") as receiver:
            with pytest.raises(SessionLockLostError) as raised:
                OF_SESSIONS[way](settler, handle)
            assert handle not in str(raised.value)
            assert receiver.session.get_state() == b"mine"
            assert receiver.session.lock_handle != handle
