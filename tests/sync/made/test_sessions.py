"""Sessions: the order of their messages, their locks, their state, lists of sessions, and many sessions."""

# Made by tools/make_sync from tests/aio/test_sessions.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis import AutoLockRenewer
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)
from sbredis.model import (
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from tests.sync.queues import (
    HandClock,
    bodies,
    both,
    in_memory,
    queue_at,
    session_of,
    session_queue_at,
)
from tests.waiting import wait_until

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
@pytest.mark.parametrize("prefetch", [0, 3], ids=["asked for", "fetched ahead"])
def test_an_abandoned_message_is_delivered_again_before_later_messages(
    url: str, partitioned: bool, prefetch: int
) -> None:
    with session_queue_at(url, partitioned=partitioned, max_delivery_count=100) as queue:
        queue.send_to("a", *"123456")
        with queue.session("a", prefetch_count=prefetch) as receiver:
            seen: list[tuple[str, int]] = []
            for _ in range(9):
                message = next(receiver)
                seen.append((str(message), message.delivery_count))
                if message.delivery_count == 1 and str(message) in "135":
                    receiver.abandon_message(message)
                else:
                    receiver.complete_message(message)
            expected = [("1", 1), ("1", 2), ("2", 1), ("3", 1), ("3", 2), ("4", 1), ("5", 1), ("5", 2), ("6", 1)]
            assert seen == expected


# -- the lock ----------------------------------------------------------------------------------------------------------


@both
def test_completing_messages_of_several_sessions_fails_only_for_lost_sessions(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with session_queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        mine, other = queue.sessions_in(0, 2)
        queue.send_to(mine, "1", "2")
        queue.send_to(other, "1")
        lapsed, held = queue.session(mine), queue.session(other)
        messages = lapsed.receive_messages(2, 60)
        clock.move(20)
        messages += held.receive_messages(1, 60)
        clock.move(11)
        with pytest.raises(SessionLockLostError) as caught:
            held.complete_messages(messages)
        assert caught.value.sequence_numbers == tuple(message.sequence_number for message in messages[:2])
        counts = queue.counts()
        assert (counts.active, counts.locked, counts.held) == (2, 0, 0)


@both
def test_a_message_of_a_session_has_no_separate_lock(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue, AutoLockRenewer() as renewer:
        queue.send_to("a", "1")
        with queue.session("a") as receiver:
            message = next(receiver)
            assert message.locked_until_utc is None
            assert message.lock_token is not None
            with pytest.raises(TypeError, match="Renew the lock of the session"):
                receiver.renew_message_lock(message)
            with pytest.raises(ValueError, match="register its session"):
                renewer.register(receiver, message)
            receiver.complete_message(message)
            with pytest.raises(MessageAlreadySettled):
                receiver.complete_message(message)


@both
def test_a_session_keeps_its_messages_when_it_is_renewed(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with session_queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        queue.send_to("a", *"12")
        with queue.session("a") as receiver:
            session = session_of(receiver)
            message = next(receiver)
            for _ in range(5):
                clock.move(20)
                until = session.renew_lock()
                assert until == session.locked_until_utc
                assert 29 < until.timestamp() - clock.utc() <= 30
            receiver.complete_message(message)
            assert bodies(receiver.receive_messages(5, 60)) == ["2"]
            clock.move(31)
            for call in (session.renew_lock, session.get_state, session.dead_letter_messages):
                with pytest.raises(SessionLockLostError) as caught:
                    call()
                assert caught.value.outcome is Outcome.NEVER_SENT
            with pytest.raises(SessionLockLostError):
                receiver.receive_messages(1, 5)


@both
def test_a_session_cannot_be_used_after_its_receiver_was_closed(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", "1")
        receiver = queue.session("a").__enter__()
        session, message = session_of(receiver), next(receiver)
        receiver.close()
        before = queue.contents()
        for call in (session.renew_lock, session.get_state, session.dead_letter_messages):
            with pytest.raises(ValueError, match="given back"):
                call()
        with pytest.raises(ValueError, match="given back"):
            session.set_state("x")
        with pytest.raises(ValueError, match="receiver is closed"):
            receiver.complete_message(message)
        assert session.session_id == "a"
        assert "given back" in repr(session)
        with pytest.raises(ValueError, match="no lock"):
            AutoLockRenewer().register(receiver, session)
        assert queue.contents() == before
        with queue.session("a") as other:
            with pytest.raises(SessionLockLostError):
                other.complete_message(message)
            (again,) = other.receive_messages(1, 60)
            assert again.delivery_count == 1


# -- renewers ----------------------------------------------------------------------------------------------------------


@both
def test_a_session_can_be_registered_with_a_renewer(url: str, partitioned: bool) -> None:
    clock = HandClock()
    with session_queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        with AutoLockRenewer() as renewer:
            receiver = queue.session("a").__enter__()
            session = session_of(receiver)
            renewer.register(receiver, session, max_lock_renewal_duration=100)
            for _ in range(4):
                clock.move(22)
                wait_until(lambda: session.locked_until_utc.timestamp() - clock.utc() > 25)
            clock.move(22)
            wait_until(lambda: session.auto_renew_error)


# -- prefetching -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_messages_of_a_session_can_be_received_and_deleted(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", *"12345")
        mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
        with queue.session("a", receive_mode=mode) as receiver:
            first = receiver.receive_messages(2, 60)
            assert bodies(first) == ["1", "2"]
            assert first[0].lock_token is None
            with pytest.raises(ValueError, match="received and deleted"):
                receiver.complete_message(first[0])
            with pytest.raises(SessionCannotBeLockedError):
                queue.session("a").__enter__()
        assert queue.counts_are(3, 0)
        with queue.session("a") as receiver:
            (message,) = receiver.receive_messages(1, 60)
            receiver.defer_message(message)
        with queue.session("a", receive_mode=mode) as receiver:
            assert bodies(receiver.receive_deferred_messages([message.sequence_number])) == ["3"]
            assert bodies(receiver.receive_messages(5, 60)) == ["4", "5"]
        assert queue.counts_are(0, 0)


# -- the state ---------------------------------------------------------------------------------------------------------


@both
def test_a_session_state_outlives_its_messages(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned, largest_message=1000) as queue:
        queue.send_to("a", "1")
        with queue.session("a") as receiver:
            session = session_of(receiver)
            assert session.get_state() is None
            for given, kept in (
                ("grün", "grün".encode()),
                (b"\x00\xff", b"\x00\xff"),
                (bytearray(b"x"), b"x"),
                ("", b""),
            ):
                session.set_state(given)
                assert session.get_state() == kept
            session.set_state("kept")
            with pytest.raises(MessageSizeExceededError):
                session.set_state(b"x" * 1001)
            wrong: Any = 5
            with pytest.raises(TypeError):
                session.set_state(wrong)
            assert session.get_state() == b"kept"
            receiver.complete_message(next(receiver))
        with queue.session("a") as receiver:
            assert session_of(receiver).get_state() == b"kept"
            session_of(receiver).set_state(None)
            assert session_of(receiver).get_state() is None
        with queue.session("b") as receiver:
            assert session_of(receiver).get_state() is None
        assert [name for name in queue.client.list_queue_sessions("q")] == []


@both
def test_the_state_of_a_session_is_shown_whoever_holds_it(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        client = queue.client
        assert client.peek_session_state("q", "a") is None
        with queue.session("a") as receiver:
            session_of(receiver).set_state(b"\x00kept")
            before = queue.contents()
            assert client.peek_session_state("q", "a") == b"\x00kept"
            assert client.peek_session_state("Q", "b") is None
            assert queue.contents() == before
        assert client.peek_session_state("q", "a") == b"\x00kept"
        client.ensure_queue("plain")
        for path, session, error in (
            ("plain", "a", ServiceBusError),
            ("q/$DeadLetterQueue", "a", ValueError),
            ("q", "x" * 129, ValueError),
            ("missing", "a", MessagingEntityNotFoundError),
        ):
            with pytest.raises(error):
                client.peek_session_state(path, session)


# -- finding sessions --------------------------------------------------------------------------------------------------


@in_memory
def test_listing_the_sessions_of_a_plain_queue_is_refused(url: str) -> None:
    with queue_at(url) as queue:
        with pytest.raises(ServiceBusError, match="no sessions"):
            [name for name in queue.client.list_queue_sessions("q")]


# -- peeking and deferred messages -------------------------------------------------------------------------------------


@both
def test_a_session_receiver_peeks_only_at_messages_of_its_session(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = queue.sessions_in(0, 2)
        for text in "123":
            queue.send_to(mine, text)
            queue.send_to(other, f"not mine {text}")
        queue.send_to(mine, "later", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))
        with queue.session(mine) as receiver:
            first = next(receiver)
            receiver.defer_message(first)
            assert bodies(receiver.peek_messages(2, sequence_number=1)) == ["1", "2"]
            assert bodies(receiver.peek_messages(10)) == ["3", "later"]
            assert receiver.peek_messages(10) == []
        anybody = queue.receiver()
        shown: list[str] = []
        while page := anybody.peek_messages(3):
            shown += bodies(page)
        assert len(shown) == 7


@both
def test_a_message_deferred_by_another_session_is_not_found(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = queue.sessions_in(0, 2)
        numbers: list[int] = []
        for name in (mine, other):
            queue.send_to(name, name)
            with queue.session(name) as receiver:
                message = next(receiver)
                numbers.append(message.sequence_number)
                receiver.defer_message(message)
        with queue.session(mine) as receiver:
            for asked in ([numbers[1]], numbers):
                with pytest.raises(MessageNotFoundError, match=str(numbers[1])):
                    receiver.receive_deferred_messages(asked)
            (message,) = receiver.receive_deferred_messages(numbers[0])
            receiver.abandon_message(message)
            (message,) = receiver.receive_deferred_messages(numbers[0])
            assert message.delivery_count == 3


# -- dead-lettering a whole session ------------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_all_messages_of_a_session_can_be_dead_lettered_at_once(url: str, partitioned: bool) -> None:
    """There are over a thousand messages, with received and prefetched ones. Other sessions keep their messages."""
    with session_queue_at(url, partitioned=partitioned) as queue:
        mine, other = queue.sessions_in(0, 2)
        with queue.client.get_queue_sender("q") as sender:
            for name, count in ((mine, 1300), (other, 5)):
                for start in range(0, count, 500):
                    texts = range(start, min(start + 500, count))
                    sender.send_messages([ServiceBusMessage(str(text), session_id=name) for text in texts])
        with queue.session(mine, prefetch_count=20) as receiver:
            one, two = receiver.receive_messages(2, 60)
            receiver.defer_message(one)
            assert session_of(receiver).dead_letter_messages("because", "of this") == 1300
            with pytest.raises(SessionLockLostError):
                receiver.complete_message(two)
            assert receiver.receive_messages(5, 0.1) == []
            assert session_of(receiver).dead_letter_messages() == 0
        with queue.receiver(sub_queue="deadletter") as dead:
            found: list[ServiceBusReceivedMessage] = []
            while len(found) < 1300:
                part = dead.receive_messages(2000, 60)
                assert part, f"only {len(found)} came"
                found += part
            assert {
                (each.session_id, each.dead_letter_reason, each.dead_letter_error_description) for each in found
            } == {(mine, "because", "of this")}
            assert sorted(map(int, bodies(found))) == list(range(1300))
        with queue.session(other) as receiver:
            assert len(receiver.receive_messages(10, 60)) == 5


# -- sending -----------------------------------------------------------------------------------------------------------


@both
def test_a_batch_keeps_the_session_id_that_a_message_had_when_it_was_added(url: str, partitioned: bool) -> None:
    """If the session id of the message changes later, the batch does not change."""
    with session_queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        mine, other = queue.sessions_in(0)[0], queue.sessions_in(len(queue.partitions) - 1)[0]
        message = ServiceBusMessage("1", session_id=mine)
        batch = sender.create_message_batch()
        batch.add_message(message)
        message.session_id = other
        batch.add_message(ServiceBusMessage("2", session_id=mine))
        sender.send_messages(batch)
        batch = sender.create_message_batch()
        message.session_id = mine
        batch.add_message(message)
        message.session_id = None
        sender.send_messages(batch)
        with queue.session(mine) as receiver:
            assert bodies(receiver.receive_messages(3, 60)) == ["1", "2", "1"]
