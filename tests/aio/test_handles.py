"""Settling messages and managing sessions by lock handle, from another connection and from another process."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.trace import StatusCode

from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSettler
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessagingEntityNotFoundError,
    SessionLockLostError,
)
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusReceiveMode, hold_of
from sbredis.receiving import LockHandle, read_handle
from tests.aio.queues import Calls, HandClock, Queue, bodies, both, in_memory, on_servers, queue_at, receive_exactly
from tests.aio.session_queues import session_queue_at
from tests.aio.telemetry_listener import Listener, listener
from tests.complaints import complaints
from tools.repository import ROOT

__all__ = ["listener"]
pytestmark = pytest.mark.anyio

Way = Callable[[ServiceBusSettler, str], Awaitable[Any]]
WAYS: dict[str, Way] = {
    "complete": ServiceBusSettler.complete_message,
    "abandon": ServiceBusSettler.abandon_message,
    "release": ServiceBusSettler.release_message,
    "defer": ServiceBusSettler.defer_message,
    "dead-letter": ServiceBusSettler.dead_letter_message,
    "dead-letter with a reason": lambda settler, handle: settler.dead_letter_message(handle, "why"),
    "renew": ServiceBusSettler.renew_message_lock,
}
OF_SESSIONS: dict[str, Way] = {
    "renew": ServiceBusSettler.renew_session_lock,
    "get": ServiceBusSettler.get_session_state,
    "set": lambda settler, handle: settler.set_session_state(handle, "other"),
    "release": ServiceBusSettler.release_session,
}


async def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = await receiver.receive_messages(1, 60)
    return message


async def refused(queue: Queue, other: ServiceBusClient, done: Awaitable[Any], text: str) -> ValueError:
    """Check that a call raises ValueError, runs no script except ``read_entity``, and changes nothing."""
    before = await queue.contents()
    with Calls(other._connection.transport) as calls, pytest.raises(ValueError, match=text) as raised:
        await done
    assert set(calls.by_script) <= {"read_entity"}
    assert await queue.contents() == before
    return raised.value


# -- messages ----------------------------------------------------------------------------------------------------------


@pytest.mark.conformance
@both
async def test_a_message_is_settled_by_handle_from_another_connection(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        await queue.send("a", "b", "c", "d", "e", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("Q")
        messages = await receive_exactly(receiver, 5)
        assert len(messages) == 5
        handles = [await receiver.get_lock_handle(message) for message in messages]
        assert len(set(handles)) == 5
        await settler.complete_message(handles[0])
        await settler.abandon_message(handles[1])
        await settler.release_message(handles[2])
        await settler.defer_message(handles[3])
        await settler.dead_letter_message(handles[4], "why", "because")

        again = await receive_exactly(receiver, 2)
        assert {str(message): message.delivery_count for message in again} == {"b": 2, "c": 1}
        (deferred,) = await receiver.receive_deferred_messages([messages[3].sequence_number])
        assert bodies([deferred]) == ["d"]
        async with queue.receiver(sub_queue="deadletter") as letters:
            letter = await one(letters)
            assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
            with pytest.raises(ValueError, match="not a dead letter"):
                await other.get_settler("q/$DeadLetterQueue").complete_message(handles[1])
            handle = await letters.get_lock_handle(letter)
            await other.get_settler("q/$DeadLetterQueue").complete_message(handle)
        counts = await queue.counts()
        assert (counts.active, counts.locked, counts.dead_active + counts.dead_locked) == (0, 3, 0)


@both
async def test_a_handle_stays_valid_after_renewals_by_either_side(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send("a", "b", "c", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        first, second, third = await receive_exactly(receiver, 3)
        handle = await receiver.get_lock_handle(first)
        for _ in range(3):
            clock.move(40)
            await receiver.renew_message_lock(second)
            assert await settler.renew_message_lock(handle) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
            await receiver.renew_message_lock(first)
            await receiver.renew_message_lock(third)
            assert await receiver.get_lock_handle(first) == handle
        clock.move(59)
        await settler.complete_message(handle)
        await receiver.complete_messages([second, third])
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(first)
        assert (await queue.counts()).locked == 0


@both
async def test_handles_made_concurrently_are_independent(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send("a", "b", "c", "d", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        messages = await receive_exactly(receiver, 4)
        making = [receiver.get_lock_handle(message) for message in messages[:3]]
        *handles, _ = await asyncio.gather(*making, receiver.renew_message_lock(messages[3]))
        tokens = [read_handle(str(handle), "message").token for handle in handles]
        assert len({*tokens, lease.token if (lease := hold_of(messages[3]).lease) else ""}) == 4
        clock.move(40)
        await receiver.renew_message_lock(messages[0])
        await settler.renew_message_lock(str(handles[1]))
        for handle in handles:
            await settler.complete_message(str(handle))
        assert (await queue.counts()).locked == 1


@both
async def test_earlier_property_changes_are_kept_when_settling_by_handle(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        await queue.send("a", at=-1, properties={"colour": "red", "size": 1})
        receiver, settler = queue.receiver(), other.get_settler("q")
        handle = await receiver.get_lock_handle(await one(receiver))
        await settler.abandon_message(handle, properties_to_modify={"size": 2})
        handle = await receiver.get_lock_handle(await one(receiver))
        await settler.abandon_message(handle)
        handle = await receiver.get_lock_handle(await one(receiver))
        await settler.dead_letter_message(handle, "why", properties_to_modify={"shape": "round"})
        letter = await one(queue.receiver(sub_queue="deadletter"))
        assert letter.application_properties == {
            "colour": "red",
            "size": 2,
            "shape": "round",
            "DeadLetterReason": "why",
        }


@both
async def test_abandoning_by_handle_with_a_delay_delays_the_next_delivery(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send("a", at=-1)
        receiver = queue.receiver()
        handle = await receiver.get_lock_handle(await one(receiver))
        await other.get_settler("q").abandon_message(handle, delay=600)
        assert (await queue.counts()).delayed == 1
        clock.move(600)
        assert (await one(receiver)).delivery_count == 2


@both
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fate", ["lapsed", "settled", "taken"])
async def test_a_lost_message_lock_is_reported_when_settling_by_handle(
    url: str, partitioned: bool, fate: str, way: str
) -> None:
    clock = HandClock()
    async with queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send("a", at=-1)
        receiver, settler = queue.receiver(), other.get_settler("q")
        message = await one(receiver)
        handle = await receiver.get_lock_handle(message)
        if fate == "settled":
            await receiver.complete_message(message)
        else:
            clock.move(61)
            await queue.process_due()
        if fate == "taken":
            await one(queue.receiver())
        before = await queue.counts()
        with pytest.raises(MessageLockLostError) as raised:
            await WAYS[way](settler, handle)
        assert raised.value.entity == "q"
        assert handle not in str(raised.value)
        after = await queue.counts()
        assert after._replace(used=before.used) == before  # a call that loses its lock is a use, too


# -- refused handles ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@in_memory
@pytest.mark.parametrize("way", WAYS)
async def test_an_invalid_or_foreign_message_handle_is_refused(url: str, way: str) -> None:
    async with queue_at(url) as queue, queue.other_client() as other:
        await queue.send("a")
        await queue.client.ensure_queue("r")
        async with queue.client.get_sender("r") as sender:
            await sender.send_messages(ServiceBusMessage("a"))
        receiver, settler = queue.receiver(), other.get_settler("q")
        handle = await receiver.get_lock_handle(await one(receiver))
        receiver = queue.client.get_receiver("r")
        foreign = await receiver.get_lock_handle(await one(receiver))
        parts = read_handle(handle, "message")
        packed = urlsafe_b64decode(handle + "==")
        flipped = urlsafe_b64encode(bytes([packed[0] ^ 1]) + packed[1:]).rstrip(b"=")
        for wrong in (
            "",
            "a",
            "ä",
            handle[:-3],
            handle + "A",
            handle + "=",
            " " + handle,
            flipped.decode(),
            "A" * 5000,
        ):
            error = await refused(queue, other, WAYS[way](settler, wrong), "not a lock handle")
            assert not wrong or len(wrong) < 2 or wrong not in str(error)
            assert error.__context__ is None
        await refused(queue, other, WAYS[way](settler, foreign), "made for another entity")
        await refused(queue, other, WAYS[way](settler, parts._replace(partition=99).text()), "made for another entity")
        await refused(queue, other, WAYS[way](settler, parts._replace(name="d1").text()), "it belongs to a dead letter")
        letters = other.get_settler("q/$DeadLetterQueue")
        await refused(queue, other, WAYS[way](letters, handle), "that is not a dead letter")
        of_session = parts._replace(name="", session="s").text()
        await refused(queue, other, WAYS[way](settler, of_session), "not the handle of a message")
        with pytest.raises(TypeError, match="not bytes"):
            await WAYS[way](settler, handle.encode())  # type: ignore[arg-type]
        assert (await queue.counts()).locked == 1


@both
async def test_a_message_without_a_lock_has_no_handle(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned) as queue:
        await queue.send("a", "b", at=-1)
        receiver = queue.receiver()
        (peeked,) = await receiver.peek_messages(1)
        settled = await one(receiver)
        await receiver.complete_message(settled)
        deleted = await one(queue.receiver(receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE))
        with pytest.raises(ValueError, match="peeked"):
            await receiver.get_lock_handle(peeked)
        with pytest.raises(ValueError, match="deleted"):
            await receiver.get_lock_handle(deleted)
        with pytest.raises(MessageAlreadySettled):
            await receiver.get_lock_handle(settled)


async def test_a_recreated_queue_accepts_only_the_handles_of_its_own_messages(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin, ServiceBusClient(url) as other:
        await admin.create_queue("q")
        settler = await other.get_settler("q").__aenter__()
        handles: list[str] = []
        for _ in range(2):
            async with ServiceBusClient(url) as client:
                await client.ensure_queue("q")
                async with client.get_sender("q") as sender, client.get_receiver("q") as receiver:
                    await sender.send_messages(ServiceBusMessage("a"))
                    handles.append(await receiver.get_lock_handle(await one(receiver)))
            if len(handles) == 1:
                await admin.delete_queue("q")
        with pytest.raises(MessageLockLostError):  # by this refusal the client learns that the queue is a new one
            await settler.complete_message(handles[0])
        await settler.complete_message(handles[1])
        with pytest.raises(ValueError, match="has been deleted"):
            await settler.complete_message(handles[0])
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
            handle = await receiver.get_lock_handle(await one(receiver))
        settler = client.get_settler("News/Subscriptions/All")
        async with settler:
            await settler.dead_letter_message(handle)
        with pytest.raises(ValueError, match="closed"):
            await settler.complete_message(handle)
        async with client.get_receiver("news/subscriptions/all/$DeadLetterQueue") as letters:
            assert bodies([await one(letters)]) == ["a"]


# -- sessions ----------------------------------------------------------------------------------------------------------


@both
async def test_a_session_is_managed_by_handle_from_another_connection(url: str, partitioned: bool) -> None:
    clock = HandClock()
    async with session_queue_at(url, partitioned=partitioned, clock=clock) as queue, queue.other_client() as other:
        await queue.send_to("", "a", "b")
        receiver, settler = queue.session(""), other.get_settler("q")
        first, second = await receiver.receive_messages(2, 60)
        handle = receiver.session.lock_handle
        with Calls(queue.transport) as calls:
            of_first, of_second = [await receiver.get_lock_handle(message) for message in (first, second)]
        assert not calls.by_script
        await settler.set_session_state(handle, "half")
        assert await settler.get_session_state(handle) == b"half"
        clock.move(50)
        assert await settler.renew_session_lock(handle) == datetime.fromtimestamp(clock.utc() + 59.998, UTC)
        clock.move(50)
        assert receiver.session.locked is False, "the receiver does not know of the renewal"
        await settler.complete_message(of_first)
        with pytest.raises(ValueError, match="lock of the session"):
            await settler.renew_message_lock(of_second)
        await settler.release_session(handle)
        with pytest.raises(SessionLockLostError):
            await settler.complete_message(of_second)
        async with queue.session("") as following:
            assert await following.session.get_state() == b"half"
            assert [(str(each), each.delivery_count) for each in await following.receive_messages(2, 60)] == [("b", 1)]
        assert receiver.session.locked is False


@both
@pytest.mark.parametrize("way", OF_SESSIONS)
async def test_a_lost_session_lock_is_reported_when_used_by_handle(url: str, partitioned: bool, way: str) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue, queue.other_client() as other:
        settler = other.get_settler("q")
        async with queue.session("s") as receiver:
            await receiver.session.set_state("mine")
            handle = receiver.session.lock_handle
        async with queue.session("s") as receiver:
            with pytest.raises(SessionLockLostError) as raised:
                await OF_SESSIONS[way](settler, handle)
            assert handle not in str(raised.value)
            assert await receiver.session.get_state() == b"mine"
            assert receiver.session.lock_handle != handle


@in_memory
@pytest.mark.parametrize("way", OF_SESSIONS)
async def test_an_invalid_session_handle_is_refused(url: str, way: str) -> None:
    async with session_queue_at(url) as queue, queue.other_client() as other, queue.session("s") as receiver:
        await queue.send_to("s", "a")
        settler = other.get_settler("q")
        message = await receiver.get_lock_handle(await one(receiver))
        handle = receiver.session.lock_handle
        await refused(queue, other, OF_SESSIONS[way](settler, message), "not the handle of a session")
        await refused(queue, other, OF_SESSIONS[way](settler, handle[:-1]), "not a lock handle")
        letters = other.get_settler("q/$DeadLetterQueue")
        await refused(queue, other, OF_SESSIONS[way](letters, handle), "has no sessions")
        with pytest.raises(TypeError, match="the state of a session"):
            await settler.set_session_state(handle, 5)  # type: ignore[arg-type]
        assert await receiver.session.get_state() is None


# -- logs, handles as text, and spans ----------------------------------------------------------------------------------


@in_memory
async def test_no_handle_or_token_appears_in_logs_and_errors(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "sbredis"):
        async with session_queue_at(url) as queue, queue.other_client() as other, queue.session("s") as receiver:
            await queue.send_to("s", "a")
            message = await one(receiver)
            handle, of_session = await receiver.get_lock_handle(message), receiver.session.lock_handle
            settler = other.get_settler("q")
            await settler.abandon_message(handle)
            await settler.release_session(of_session)
            with pytest.raises(SessionLockLostError) as raised:
                await settler.complete_message(handle)
    assert f"abandon q: 1 message ({message.sequence_number}) in" in caplog.text
    assert "release_session q" in caplog.text
    shown = f"{caplog.text} {settler!r} {raised.value!r} {raised.value}"
    secret = read_handle(handle, "message").token
    assert [each for each in (handle, of_session, secret) if each in shown] == []


def test_a_handle_is_url_safe_text_that_carries_all_its_fields() -> None:
    for session in (None, "", "ä/ö", "x" * 128):
        handle = LockHandle("i" * 20, 1023, "abcdefghij-_", "d281474976710655", session)
        assert read_handle(handle.text(), "message") == handle
        assert set(handle.text()) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


@given(st.text() | st.binary().map(lambda packed: urlsafe_b64encode(packed).rstrip(b"=").decode()))
def test_a_random_text_is_refused_as_a_handle(text: str) -> None:
    with pytest.raises(ValueError, match="not a lock handle") as raised:
        read_handle(text, "message")
    assert raised.value.__context__ is None


@given(st.integers(0, 200), st.integers(0, 7))
def test_a_handle_with_a_changed_bit_is_never_taken_for_the_original(place: int, bit: int) -> None:
    handle = LockHandle("i" * 20, 3, "abcdefghij-_", "17", "ann").text()
    packed = bytearray(urlsafe_b64decode(handle + "=" * (-len(handle) % 4)))
    packed[place % len(packed)] ^= 1 << bit
    try:
        read = read_handle(urlsafe_b64encode(bytes(packed)).rstrip(b"=").decode(), "message")
    except ValueError:
        return
    assert read != read_handle(handle, "message")


@in_memory
async def test_a_failed_settler_call_leaves_a_failed_span(url: str, listener: Listener) -> None:
    listener.set_up_tracing()
    async with queue_at(url) as queue, queue.other_client() as other:
        await queue.send("a")
        receiver, settler = queue.receiver(), other.get_settler("q")
        message = await one(receiver)
        handle = await receiver.get_lock_handle(message)
        await receiver.complete_message(message)
        for way in WAYS.values():
            with pytest.raises(MessageLockLostError):
                await way(settler, handle)
        missing = other.get_settler("missing")
        with pytest.raises(MessagingEntityNotFoundError):
            await missing.complete_message(handle)
    failed = {span.name for span in listener.all_spans if span.status.status_code is StatusCode.ERROR}
    kinds = ("complete", "abandon", "release", "defer", "dead_letter", "renew_message_lock")
    assert failed == {*(f"{kind} q" for kind in kinds), "complete missing"}
    assert not any(handle in str(span.to_json()) for span in listener.all_spans)


# -- another process ---------------------------------------------------------------------------------------------------

SECOND = """
import json, sys
from sbredis import ServiceBusClient
given = json.load(sys.stdin)
with ServiceBusClient(sys.argv[1]) as client, client.get_settler("orders") as settler:
    settler.renew_message_lock(given["message"])
    settler.complete_message(given["message"])
with ServiceBusClient(sys.argv[1]) as client, client.get_settler("payments") as settler:
    state = settler.get_session_state(given["session"])
    settler.set_session_state(given["session"], state + b" and counted there")
    settler.complete_message(given["payment"])
    settler.release_session(given["session"])
"""


@pytest.mark.everywhere("the partitions lie on several nodes")
@on_servers
async def test_another_process_settles_messages_that_this_process_received(url: str) -> None:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("orders")
        await client.ensure_queue("payments", requires_session=True)
        for queue in ("orders", "payments"):
            async with client.get_sender(queue) as sender:
                await sender.send_messages(ServiceBusMessage("a", session_id="ann" if queue == "payments" else None))
        async with client.get_receiver("orders") as orders, client.get_receiver("payments", session_id="ann") as ann:
            message, payment = await one(orders), await one(ann)
            await ann.session.set_state("received here")
            given = {
                "message": await orders.get_lock_handle(message),
                "payment": await ann.get_lock_handle(payment),
                "session": ann.session.lock_handle,
            }
            done = subprocess.run(  # noqa: ASYNC221  # nothing else shall happen meanwhile
                [sys.executable, "-c", SECOND, url],
                input=json.dumps(given),
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                timeout=280,
            )
            assert (done.returncode, complaints(done.stderr)) == (0, "")
            with pytest.raises(MessageLockLostError):
                await orders.complete_message(message)
        async with client.get_receiver("payments", session_id="ann") as ann:
            assert await ann.session.get_state() == b"received here and counted there"
            assert await ann.peek_messages() == []
        async with client.get_receiver("orders") as orders:
            assert await orders.peek_messages() == []
