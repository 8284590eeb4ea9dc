"""Settling messages and managing sessions by lock tokens, from another connection and from another process."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import StatusCode

from sbredis.aio import ServiceBusClient, ServiceBusSettler
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import LockToken, lease_place, lease_token, new_token, read_lock_token
from sbredis.exceptions import (
    MessageLockLostError,
    MessageNotFoundError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    SessionLockLostError,
)
from sbredis.model import ServiceBusMessage
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, one, queue_at, receive_exactly
from tests.aio.session_queues import session_queue_at
from tests.telemetry.telemetry_listener import Listener, listener

__all__ = ["listener"]

Way = Callable[[ServiceBusSettler, UUID | str], Awaitable[Any]]
WAYS: dict[str, Way] = {
    "complete": ServiceBusSettler.complete_message,
    "abandon": ServiceBusSettler.abandon_message,
    "release": ServiceBusSettler.release_message,
    "defer": ServiceBusSettler.defer_message,
    "dead-letter": ServiceBusSettler.dead_letter_message,
    "dead-letter with a reason": lambda settler, token: settler.dead_letter_message(token, "why"),
    "renew": ServiceBusSettler.renew_message_lock,
}
OF_SESSIONS: dict[str, Way] = {
    "renew": ServiceBusSettler.renew_session_lock,
    "get": ServiceBusSettler.get_session_state,
    "set": lambda settler, token: settler.set_session_state(token, "other"),
    "release": ServiceBusSettler.release_session,
}


async def refused(
    queue: Queue, other: ServiceBusClient, done: Awaitable[Any], text: str, error: type[Exception] = ValueError
) -> Exception:
    """Check that a call raises an error, runs no script except ``read_entity``, and changes nothing."""
    before = await queue.stored()
    with Calls(other._connection.transport) as calls, pytest.raises(error, match=text) as raised:
        await done
    assert set(calls.by_script) <= {"read_entity"}
    assert await queue.stored() == before
    return raised.value


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.conformance
@both
async def test_a_message_is_settled_by_token_from_another_connection(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        await queue.send(*"abcdef", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("Q")
        messages = await receive_exactly(receiver, 6)
        tokens = [str(message.lock_token) for message in messages]
        assert len(set(tokens)) == 6
        await settler.complete_message(tokens[0])
        await settler.abandon_message(tokens[1])
        await settler.release_message(tokens[2])
        await settler.defer_message(tokens[3])
        await settler.dead_letter_message(tokens[4], "why", "because")
        await settler.abandon_message(tokens[5], delay=600)

        again = await receive_exactly(receiver, 2)
        assert {str(message): message.delivery_count for message in again} == {"b": 2, "c": 1}
        (deferred,) = await receiver.receive_deferred_messages([messages[3].sequence_number])
        assert bodies([deferred]) == ["d"]
        async with queue.receiver(sub_queue="deadletter") as letters:
            letter = await one(letters)
            assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
            with pytest.raises(ValueError, match="not a dead letter"):
                await other.get_settler("q/$DeadLetterQueue").complete_message(tokens[1])
            token = str(letter.lock_token)
            await other.get_settler("q/$DeadLetterQueue").complete_message(token)
        counts = await queue.counts()
        assert (counts.delayed, counts.locked, counts.dead_active + counts.dead_locked) == (1, 3, 0)


@both
async def test_a_token_stays_valid_after_renewals_by_either_side(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send("a", "b", "c", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        first, second, third = await receiver.receive_messages(3, 60)
        token = str(first.lock_token)
        for _ in range(3):
            clock.move(40)
            await receiver.renew_message_lock(second)
            assert await settler.renew_message_lock(token) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
            await receiver.renew_message_lock(first)
            await receiver.renew_message_lock(third)
            assert str(first.lock_token) == token
        clock.move(59)
        await settler.complete_message(token)
        await receiver.complete_messages([second, third])
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(first)
        assert (await queue.counts()).locked == 0


@both
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fate", ["lapsed", "settled", "taken"])
async def test_a_lost_message_lock_is_reported_when_settling_by_token(
    url: str, partitioned: bool, fate: str, way: str
) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send("a", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        message = await one(receiver)
        token = str(message.lock_token)
        if fate == "settled":
            await receiver.complete_message(message)
        else:
            clock.move(61)
            await queue.process_due()
        if fate == "taken":
            await one(queue.receiver())
        before = await queue.counts()
        with pytest.raises(MessageLockLostError) as raised:
            await WAYS[way](settler, token)
        assert raised.value.entity == "q"
        assert token not in str(raised.value)
        after = await queue.counts()
        assert after._replace(used=before.used) == before  # a call that loses its lock is a use, too


# -- refused tokens ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize("way", WAYS)
async def test_an_invalid_or_foreign_token_is_refused(url: str, way: str) -> None:
    async with queue_at(url) as queue, queue.other_client() as other:
        await queue.send("a")
        await queue.client.ensure_queue("r")
        async with queue.client.get_sender("r") as sender:
            await sender.send_messages(ServiceBusMessage("a"))
        receiver, settler = queue.receiver(), other.get_settler("q")
        token = (await one(receiver)).lock_token
        foreign = (await one(queue.client.get_receiver("r"))).lock_token
        assert token is not None
        assert foreign is not None
        of_another_form = UUID(int=token.int ^ 1)
        for wrong in (
            "",
            "a",
            "ä",
            str(token)[:-3],
            str(token) + "A",
            "A" * 5000,
            str(of_another_form),
            of_another_form,
        ):
            error = await refused(queue, other, WAYS[way](settler, wrong), "not a lock token")
            assert len(str(wrong)) < 2 or str(wrong) not in str(error)
            assert error.__context__ is None
        parts = read_lock_token(token)
        elsewhere = parts._replace(partition=999).uuid()
        await refused(queue, other, WAYS[way](settler, elsewhere), "not one of 'q'", MessageLockLostError)
        await refused(queue, other, WAYS[way](settler, parts._replace(name="d1").uuid()), "it belongs to a dead letter")
        letters = other.get_settler("q/$DeadLetterQueue")
        await refused(queue, other, WAYS[way](letters, token), "that is not a dead letter")
        of_session = parts._replace(name="").uuid()
        await refused(queue, other, WAYS[way](settler, of_session), "lock token of a session")
        with pytest.raises(TypeError, match="not bytes"):
            await WAYS[way](settler, token.bytes)  # type: ignore[arg-type]
        with pytest.raises((MessageLockLostError, ValueError)):
            await WAYS[way](settler, foreign)
        counts = await queue.counts()
        assert (counts.locked, counts.active) == (1, 0)


@in_memory
@pytest.mark.parametrize("sessions", [False, True])
async def test_a_lock_is_lost_with_the_partition_that_its_queue_has_left(url: str, sessions: bool) -> None:
    """A settler that has known the old queue learns this by its first call."""
    async with queue_at(url, partitioned=True, sessions=sessions) as queue, queue.other_client() as other:
        numbers, name = queue.entity.numbers, queue.entity.name
        tokens = [LockToken(new_token(), number, "1").uuid() for number in numbers]
        lost = SessionLockLostError if sessions else MessageLockLostError
        knew = other.get_settler(name)
        await knew.peek_messages()
        await queue.client._connection.namespace.delete_entity(name)
        async with queue.other_client() as fresh:
            await fresh.ensure_queue(name, requires_session=sessions, enable_partitioning=False)
            (kept,) = (await fresh._connection.entity(name, math.inf)).numbers
            left = [token for token in tokens if read_lock_token(token).partition != kept]
            assert len(left) == len(tokens) - 1
            with pytest.raises(MessagingEntityNotFoundError, match="created in other partitions"):
                await knew.complete_message(left[0])
            for client, settler in ((other, knew), (fresh, fresh.get_settler(name))):
                for token in left:
                    error = await refused(queue, client, settler.complete_message(token), "deleted", lost)
                    assert isinstance(error, ServiceBusError)
                    assert (error.outcome, error.entity) == (Outcome.REFUSED, name)
                    if sessions:
                        renewing = settler.renew_session_lock(token)
                        await refused(queue, client, renewing, "deleted", SessionLockLostError)


async def test_a_recreated_queue_accepts_only_the_tokens_of_its_own_messages(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as other:
        await admin.create_queue("q")
        settler = await other.get_settler("q").__aenter__()
        tokens: list[str] = []
        for _ in range(2):
            async with ServiceBusClient(url) as client:
                await client.ensure_queue("q")
                async with client.get_sender("q") as sender, client.get_receiver("q") as receiver:
                    await sender.send_messages(ServiceBusMessage("a"))
                    tokens.append(str((await one(receiver)).lock_token))
            if len(tokens) == 1:
                await admin.delete_queue("q")
        for _ in range(2):  # by the first refusal the client learns that the queue is a new one
            with pytest.raises(MessageLockLostError):
                await settler.complete_message(tokens[0])
        await settler.complete_message(tokens[1])
        assert (await admin.get_queue_runtime_properties("q")).total_message_count == 0


async def test_a_settler_needs_an_existing_queue_or_subscription(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as client:
        await admin.create_topic("news")
        await admin.create_subscription("news", "all")
        for path in ("news", "nothing"):
            with pytest.raises(MessagingEntityNotFoundError):
                await client.get_settler(path).__aenter__()
        async with client.get_sender("news") as sender, client.get_receiver("news/subscriptions/all") as receiver:
            await sender.send_messages(ServiceBusMessage("a"))
            token = str((await one(receiver)).lock_token)
        settler = client.get_settler("News/Subscriptions/All")
        async with settler:
            await settler.dead_letter_message(token)
        with pytest.raises(ValueError, match="closed"):
            await settler.complete_message(token)
        async with client.get_receiver("news/subscriptions/all/$DeadLetterQueue") as letters:
            assert bodies([await one(letters)]) == ["a"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@both
async def test_a_session_is_managed_by_token_from_another_connection(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with session_queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send_to("", "a", "b")
        receiver, settler = queue.session(""), other.get_settler("q")
        first, second = await receiver.receive_messages(2, 60)
        token = receiver.session.lock_token
        of_first, of_second = str(first.lock_token), str(second.lock_token)
        await settler.set_session_state(token, "half")
        assert await settler.get_session_state(token) == b"half"
        clock.move(50)
        assert await settler.renew_session_lock(token) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
        clock.move(50)
        assert receiver.session.locked is False, "the receiver does not know of the renewal"
        await settler.complete_message(of_first)
        with pytest.raises(ValueError, match="lock of the session"):
            await settler.renew_message_lock(of_second)
        await settler.release_session(token)
        with pytest.raises(SessionLockLostError):
            await settler.complete_message(of_second)
        async with queue.session("") as following:
            assert await following.session.get_state() == b"half"
            assert [(str(each), each.delivery_count) for each in await following.receive_messages(2, 60)] == [("b", 1)]
        assert receiver.session.locked is False


@both
@pytest.mark.parametrize("way", OF_SESSIONS)
async def test_a_lost_session_lock_is_reported_when_used_by_token(url: str, partitioned: bool, way: str) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        settler = other.get_settler("q")
        async with queue.session("s") as receiver:
            await receiver.session.set_state("mine")
            token = receiver.session.lock_token
        async with queue.session("s") as receiver:
            with pytest.raises(SessionLockLostError) as raised:
                await OF_SESSIONS[way](settler, token)
            assert str(token) not in str(raised.value)
            assert await receiver.session.get_state() == b"mine"
            assert receiver.session.lock_token != token


@in_memory
@pytest.mark.parametrize("way", OF_SESSIONS)
async def test_an_invalid_session_token_is_refused(url: str, way: str) -> None:
    async with session_queue_at(url) as queue, queue.other_client() as other, queue.session("s") as receiver:
        settler = other.get_settler("q")
        token = receiver.session.lock_token
        await refused(queue, other, OF_SESSIONS[way](settler, str(token)[:-1]), "not a lock token")
        letters = other.get_settler("q/$DeadLetterQueue")
        await refused(queue, other, OF_SESSIONS[way](letters, token), "has no sessions")
        await queue.client.ensure_queue("plain")
        await refused(queue, other, OF_SESSIONS[way](other.get_settler("plain"), token), "has no sessions|not belong")
        with pytest.raises(TypeError, match="the state of a session"):
            await settler.set_session_state(token, 5)  # type: ignore[arg-type]
        assert await receiver.session.get_state() is None


@both
async def test_a_session_is_managed_by_the_token_of_one_of_its_messages(url: str, partitioned: bool) -> None:
    """The other process needs neither the name of the session nor a receiver."""
    async with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        await queue.send_to("ann", "a", "b", "c")
        receiver, settler = queue.session("ann"), other.get_settler("q")
        first, second = await receiver.receive_messages(2, 60)
        token = str(first.lock_token)
        await settler.set_session_state(token, "half")
        await settler.renew_session_lock(token)
        await settler.defer_message(token)
        with pytest.raises(SessionLockLostError):  # the message is not locked any more, but the session is
            await settler.complete_message(token)
        assert await settler.get_session_state(token) == b"half"
        (deferred,) = await settler.receive_deferred_messages([first.sequence_number], session_lock_token=token)
        assert (str(deferred), deferred.delivery_count, deferred.locked_until_utc) == ("a", 2, None)
        await settler.complete_message(str(deferred.lock_token))
        assert [str(each) for each in await settler.peek_messages(10, session_id="ann")] == ["b", "c"]
        await settler.dead_letter_message(str(second.lock_token), "why")
        await settler.release_session(token)
        with pytest.raises(SessionLockLostError):
            await settler.receive_deferred_messages([first.sequence_number], session_lock_token=token)


@both
async def test_a_settler_peeks_and_receives_deferred_messages(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        await queue.send("a", "b", at=-1)
        settler = other.get_settler("q")
        (message,) = await queue.receiver().receive_messages(1, 60)
        await settler.defer_message(str(message.lock_token))
        assert sorted(str(each) for each in await settler.peek_messages(10)) == ["a", "b"]
        assert await settler.peek_messages(10) == []
        (deferred,) = await settler.receive_deferred_messages(message.sequence_number)
        with pytest.raises(MessageNotFoundError):
            await settler.receive_deferred_messages([message.sequence_number])
        await settler.renew_message_lock(str(deferred.lock_token))
        await settler.abandon_message(str(deferred.lock_token))
        with pytest.raises(ValueError, match="no sessions"):
            await settler.receive_deferred_messages([1], session_lock_token=str(deferred.lock_token))
        with pytest.raises(ValueError, match="no sessions"):
            await settler.peek_messages(session_id="ann")


# -- logs, tokens as text, and spans ----------------------------------------------------------------------------------


@in_memory
async def test_no_handle_or_token_appears_in_logs_and_errors(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sbredis"):
        async with session_queue_at(url) as queue, queue.other_client() as other, queue.session("s") as receiver:
            await queue.send_to("s", "a")
            message = await one(receiver)
            token, of_session = str(message.lock_token), receiver.session.lock_token
            settler = other.get_settler("q")
            await settler.abandon_message(token)
            await settler.release_session(of_session)
            with pytest.raises(SessionLockLostError) as raised:
                await settler.complete_message(token)
    assert f"abandon q: 1 message ({message.sequence_number}) in" in caplog.text
    assert "release_session q" in caplog.text
    shown = f"{caplog.text} {settler!r} {raised.value!r} {raised.value}"
    secret = read_lock_token(token).lease
    assert [each for each in (token, str(of_session), secret) if each in shown] == []


@given(
    lease=st.integers(0, (1 << 66) - 1),
    partition=st.integers(0, 1023),
    number=st.integers(1, (1 << 48) - 1),
    side=st.sampled_from(["", "d", "t"]),
)
def test_a_lock_token_carries_all_its_fields(lease: int, partition: int, number: int, side: str) -> None:
    for name in (f"{side}{number}", ""):
        token = LockToken(new_token(), partition, name)
        assert read_lock_token(token.uuid()) == token
        assert read_lock_token(str(token.uuid())) == token
    made = UUID(int=lease << 62 | number << 14 | partition << 4 | ("", "d", "t").index(side) << 2 | 1)
    assert read_lock_token(made).uuid() == made


def _read(text: str) -> LockToken | None:
    with suppress(ValueError):
        return read_lock_token(text)
    return None


@given(st.text() | st.uuids().map(str))
def test_a_random_text_is_refused_as_a_lock_token(text: str) -> None:
    if (found := _read(text)) is not None:
        assert found.uuid() == UUID(text)
        return
    with pytest.raises(ValueError, match="not a lock token") as raised:
        read_lock_token(text)
    assert raised.value.__context__ is None


def test_the_leases_of_a_prefix_are_in_order() -> None:
    prefix = new_token()[:8]
    serials = [0, 1, 63, 64, 4095, 4096, (1 << 18) - 1]
    made = [lease_token(prefix, serial) for serial in serials]
    assert {token[:8] for token in made} == {prefix}
    assert [lease_place(token) for token in made] == [(prefix, serial) for serial in serials]
    leases = [read_lock_token(LockToken(token, 0, "1").uuid()) for token in made]
    assert [lease.uuid().int >> 62 & (1 << 18) - 1 for lease in leases] == serials


@in_memory
async def test_a_failed_settler_call_leaves_a_failed_span(url: str, listener: Listener) -> None:
    listener.set_up_tracing()
    async with queue_at(url) as queue, queue.other_client() as other:
        await queue.send("a")
        receiver, settler = queue.receiver(), other.get_settler("q")
        message = await one(receiver)
        token = str(message.lock_token)
        await receiver.complete_message(message)
        for way in WAYS.values():
            with pytest.raises(MessageLockLostError):
                await way(settler, token)
        missing = other.get_settler("missing")
        with pytest.raises(MessagingEntityNotFoundError):
            await missing.complete_message(token)
    failed = {span.name for span in listener.all_spans if span.status.status_code is StatusCode.ERROR}
    kinds = ("complete", "abandon", "release", "defer", "dead_letter", "renew_message_lock")
    assert failed == {*(f"{kind} q" for kind in kinds), "complete missing"}
    assert not any(token in str(span.to_json()) for span in listener.all_spans)
