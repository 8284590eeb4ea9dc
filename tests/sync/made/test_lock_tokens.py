"""Settling messages and managing sessions by lock tokens, from another connection and from another process."""

# Made by tools/make_sync from tests/aio/test_lock_tokens.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest

from sbredis import ServiceBusClient, ServiceBusReceiver, ServiceBusSettler
from sbredis.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    SessionLockLostError,
)
from sbredis.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from tests.sync.queues import HandClock, bodies, both, queue_at, receive_exactly, session_queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Way = Callable[[ServiceBusSettler, UUID | str], Any]
OF_SESSIONS: dict[str, Way] = {
    "renew": ServiceBusSettler.renew_session_lock,
    "get": ServiceBusSettler.get_session_state,
    "set": lambda settler, token: settler.set_session_state(token, "other"),
    "release": ServiceBusSettler.release_session,
}


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(1, 60)
    return message


# -- messages ----------------------------------------------------------------------------------------------------------


@both
def test_a_message_is_settled_by_token_from_another_connection(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send("a", "b", "c", "d", "e", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("Q")
        messages = receive_exactly(receiver, 5)
        assert len(messages) == 5
        tokens = [str(message.lock_token) for message in messages]
        assert len(set(tokens)) == 5
        settler.complete_message(tokens[0])
        settler.abandon_message(tokens[1])
        settler.release_message(tokens[2])
        settler.defer_message(tokens[3])
        settler.dead_letter_message(tokens[4], "why", "because")

        again = receive_exactly(receiver, 2)
        assert {str(message): message.delivery_count for message in again} == {"b": 2, "c": 1}
        (deferred,) = receiver.receive_deferred_messages([messages[3].sequence_number])
        assert bodies([deferred]) == ["d"]
        with queue.receiver(sub_queue="deadletter") as letters:
            letter = one(letters)
            assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
            with pytest.raises(ValueError, match="not a dead letter"):
                other.get_settler("q/$DeadLetterQueue").complete_message(tokens[1])
            token = str(letter.lock_token)
            other.get_settler("q/$DeadLetterQueue").complete_message(token)
        counts = queue.counts()
        assert (counts.active, counts.locked, counts.dead_active + counts.dead_locked) == (0, 3, 0)


@both
def test_a_token_stays_valid_after_renewals_by_either_side(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        queue.send("a", "b", "c", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        first, second, third = receiver.receive_messages(3, 60)
        token = str(first.lock_token)
        for _ in range(3):
            clock.move(40)
            receiver.renew_message_lock(second)
            assert settler.renew_message_lock(token) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
            receiver.renew_message_lock(first)
            receiver.renew_message_lock(third)
            assert str(first.lock_token) == token
        clock.move(59)
        settler.complete_message(token)
        receiver.complete_messages([second, third])
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(first)
        assert (queue.counts()).locked == 0


@both
@pytest.mark.parametrize("by_token_first", [True, False])
def test_a_message_renewed_alone_is_settled_once_whoever_settles_it(
    url: str, partitioned: bool, by_token_first: bool
) -> None:
    """The client that received it names it by the message object, and the other one by the token."""
    with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send("a", "b", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        first, second = receiver.receive_messages(2, 60)
        token = str(first.lock_token)
        settler.renew_message_lock(token)
        receiver.renew_message_lock(first)
        by_token, by_message = partial(settler.complete_message, token), partial(receiver.complete_message, first)
        (by_token if by_token_first else by_message)()
        with pytest.raises(MessageLockLostError):
            (by_message if by_token_first else by_token)()
        receiver.complete_message(second)
        assert (queue.counts()).locked == 0
        assert not any(key.endswith((":leases", ":locks")) for key in queue.contents())


@both
def test_earlier_property_changes_are_kept_when_settling_by_token(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send("a", at=-1, properties={"colour": "red", "size": 1})
        receiver, settler = queue.receiver(), other.get_settler("q")
        token = str((one(receiver)).lock_token)
        settler.abandon_message(token, properties_to_modify={"size": 2})
        token = str((one(receiver)).lock_token)
        settler.abandon_message(token)
        token = str((one(receiver)).lock_token)
        settler.dead_letter_message(token, "why", properties_to_modify={"shape": "round"})
        letter = one(queue.receiver(sub_queue="deadletter"))
        assert letter.application_properties == {
            "colour": "red",
            "size": 2,
            "shape": "round",
            "DeadLetterReason": "why",
        }


@both
def test_abandoning_by_token_with_a_delay_delays_the_next_delivery(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        queue.send("a", at=-1)
        receiver = queue.receiver()
        token = str((one(receiver)).lock_token)
        other.get_settler("q").abandon_message(token, delay=600)
        assert (queue.counts()).delayed == 1
        clock.move(600)
        assert (one(receiver)).delivery_count == 2


# -- refused tokens ---------------------------------------------------------------------------------------------------


def test_a_recreated_queue_accepts_only_the_tokens_of_its_own_messages(url: str) -> None:
    with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as other:
        admin.create_queue("q")
        settler = other.get_settler("q").__enter__()
        tokens: list[str] = []
        for _ in range(2):
            with ServiceBusClient(url) as client:
                client.ensure_queue("q")
                with client.get_sender("q") as sender, client.get_receiver("q") as receiver:
                    sender.send_messages(ServiceBusMessage("a"))
                    tokens.append(str((one(receiver)).lock_token))
            if len(tokens) == 1:
                admin.delete_queue("q")
        for _ in range(2):  # by the first refusal the client learns that the queue is a new one
            with pytest.raises(MessageLockLostError):
                settler.complete_message(tokens[0])
        settler.complete_message(tokens[1])
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
            token = str((one(receiver)).lock_token)
        settler = client.get_settler("News/Subscriptions/All")
        with settler:
            settler.dead_letter_message(token)
        with pytest.raises(ValueError, match="closed"):
            settler.complete_message(token)
        with client.get_receiver("news/subscriptions/all/$DeadLetterQueue") as letters:
            assert bodies([one(letters)]) == ["a"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@both
def test_a_session_is_managed_by_token_from_another_connection(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with session_queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        queue.send_to("", "a", "b")
        receiver, settler = queue.session(""), other.get_settler("q")
        first, second = receiver.receive_messages(2, 60)
        token = receiver.session.lock_token
        of_first, of_second = str(first.lock_token), str(second.lock_token)
        settler.set_session_state(token, "half")
        assert settler.get_session_state(token) == b"half"
        clock.move(50)
        assert settler.renew_session_lock(token) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
        clock.move(50)
        assert receiver.session.locked is False, "the receiver does not know of the renewal"
        settler.complete_message(of_first)
        with pytest.raises(ValueError, match="lock of the session"):
            settler.renew_message_lock(of_second)
        settler.release_session(token)
        with pytest.raises(SessionLockLostError):
            settler.complete_message(of_second)
        with queue.session("") as following:
            assert following.session.get_state() == b"half"
            assert [(str(each), each.delivery_count) for each in following.receive_messages(2, 60)] == [("b", 1)]
        assert receiver.session.locked is False


@both
@pytest.mark.parametrize("way", OF_SESSIONS)
def test_a_lost_session_lock_is_reported_when_used_by_token(url: str, partitioned: bool, way: str) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        settler = other.get_settler("q")
        with queue.session("s") as receiver:
            receiver.session.set_state("mine")
            token = receiver.session.lock_token
        with queue.session("s") as receiver:
            with pytest.raises(SessionLockLostError) as raised:
                OF_SESSIONS[way](settler, token)
            assert str(token) not in str(raised.value)
            assert receiver.session.get_state() == b"mine"
            assert receiver.session.lock_token != token


@both
def test_a_session_is_managed_by_the_token_of_one_of_its_messages(url: str, partitioned: bool) -> None:
    """The other process needs neither the name of the session nor a receiver."""
    with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send_to("ann", "a", "b", "c")
        receiver, settler = queue.session("ann"), other.get_settler("q")
        first, second = receiver.receive_messages(2, 60)
        token = str(first.lock_token)
        settler.set_session_state(token, "half")
        settler.renew_session_lock(token)
        settler.defer_message(token)
        with pytest.raises(SessionLockLostError):  # the message is not locked any more, but the session is
            settler.complete_message(token)
        assert settler.get_session_state(token) == b"half"
        (deferred,) = settler.receive_deferred_messages([first.sequence_number], session_lock_token=token)
        assert (str(deferred), deferred.delivery_count, deferred.locked_until_utc) == ("a", 2, None)
        settler.complete_message(str(deferred.lock_token))
        assert [str(each) for each in settler.peek_messages(10, session_id="ann")] == ["b", "c"]
        settler.dead_letter_message(str(second.lock_token), "why")
        settler.release_session(token)
        with pytest.raises(SessionLockLostError):
            settler.receive_deferred_messages([first.sequence_number], session_lock_token=token)


@both
def test_a_settler_peeks_and_receives_deferred_messages(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        queue.send("a", "b", at=-1)
        settler = other.get_settler("q")
        (message,) = queue.receiver().receive_messages(1, 60)
        settler.defer_message(str(message.lock_token))
        assert sorted(str(each) for each in settler.peek_messages(10)) == ["a", "b"]
        assert settler.peek_messages(10) == []
        (deferred,) = settler.receive_deferred_messages(message.sequence_number)
        with pytest.raises(MessageNotFoundError):
            settler.receive_deferred_messages([message.sequence_number])
        settler.renew_message_lock(str(deferred.lock_token))
        settler.abandon_message(str(deferred.lock_token))
        with pytest.raises(ValueError, match="no sessions"):
            settler.receive_deferred_messages([1], session_lock_token=str(deferred.lock_token))
        with pytest.raises(ValueError, match="no sessions"):
            settler.peek_messages(session_id="ann")
