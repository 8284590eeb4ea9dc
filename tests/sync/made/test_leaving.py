"""Leaving ``with receiver``: which errors count as a failed delivery, and for which messages."""

# Made by tools/make_sync from tests/aio/test_leaving.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from contextlib import AbstractContextManager

import pytest

from sbredis.exceptions import MessageLockLostError
from sbredis.model import ServiceBusReceivedMessage, ServiceBusReceiveMode
from tests.sync.queues import HandClock, bodies, both, queue_at, session_queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


class HandlerError(Exception):
    """An error that a message handler raises."""


def leaving_by(kind: type[Exception]) -> AbstractContextManager[object, bool]:
    """Return a context that expects an error of this kind to leave the block."""
    return pytest.raises(kind)


@pytest.mark.slow
@both
@pytest.mark.parametrize("prefetch", [0, 5], ids=["asked for", "fetched ahead"])
def test_a_handler_that_always_fails_reaches_the_delivery_limit(url: str, partitioned: bool, prefetch: int) -> None:
    """The message is dead-lettered. Later messages arrive in order, and each is a first delivery."""
    with session_queue_at(url, partitioned=partitioned, max_delivery_count=3) as queue:
        queue.send_to("a", "1", "2", "3")
        for attempt in (1, 2, 3):
            with leaving_by(HandlerError):
                with queue.session("a", prefetch_count=prefetch) as receiver:
                    for message in receiver:
                        assert (str(message), message.delivery_count) == ("1", attempt)
                        raise HandlerError
        with queue.session("a") as receiver:
            rest = receiver.receive_messages(3, 60)
            assert [(str(each), each.delivery_count) for each in rest] == [("2", 1), ("3", 1)]
            receiver.complete_messages(rest)
        with queue.receiver(sub_queue="deadletter") as dead:
            (buried,) = dead.receive_messages(5, 60)
            assert (str(buried), buried.dead_letter_reason) == ("1", "MaxDeliveryCountExceeded")


@both
def test_an_error_raises_the_delivery_count_of_every_unsettled_message_in_hand(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", *"12345678")
        with leaving_by(ExceptionGroup):
            with queue.session("a") as receiver:
                deferred, completed, released, *_ = receiver.receive_messages(5, 60)
                receiver.defer_message(deferred)
                receiver.complete_message(completed)
                receiver.release_message(released)
                raise ExceptionGroup("handlers", [HandlerError(), HandlerError()])
        with queue.session("a") as receiver:
            counts = {str(each): each.delivery_count for each in receiver.receive_messages(9, 60)}
            assert counts == {"3": 1, "4": 2, "5": 2, "6": 1, "7": 1, "8": 1}


@both
def test_closing_a_receiver_in_its_block_does_not_raise_the_delivery_count(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", "1")
        with leaving_by(HandlerError):
            with queue.session("a") as receiver:
                next(receiver)
                receiver.close()
                raise HandlerError
        with queue.session("a") as receiver:
            assert (next(receiver)).delivery_count == 1


@both
def test_an_error_raises_the_delivery_count_of_a_message_received_by_number(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", "1")
        with queue.session("a") as receiver:
            message = next(receiver)
            receiver.defer_message(message)
        counts: list[int] = []
        for _ in range(2):
            with leaving_by(HandlerError):
                with queue.session("a") as receiver:
                    (again,) = receiver.receive_deferred_messages(message.sequence_number)
                    counts.append(again.delivery_count)
                    raise HandlerError
        assert counts[1] == counts[0] + 1


@both
def test_a_lapsed_session_lock_raises_the_delivery_count_only_once(url: str, partitioned: bool) -> None:
    """The end of the lock has already raised the delivery count, so the handler's error does not."""
    clock = HandClock()
    with session_queue_at(url, partitioned=partitioned, clock=clock, lock_duration=30_000) as queue:
        queue.send_to("a", "1")
        with leaving_by(HandlerError):
            with queue.session("a") as receiver:
                next(receiver)
                clock.move(31)
                raise HandlerError
        with queue.session("a") as receiver:
            assert (next(receiver)).delivery_count == 2


@both
def test_a_receiver_without_a_session_does_not_release_its_messages(url: str, partitioned: bool) -> None:
    """A task that still works on these messages can settle them through another receiver."""
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("1", "2")
        held: list[ServiceBusReceivedMessage] = []
        with leaving_by(HandlerError):
            with queue.receiver() as receiver:
                while len(held) < 2:
                    held += receiver.receive_messages(2, 60)
                raise HandlerError
        assert queue.counts_are(0, 2)
        queue.receiver().complete_message(held[0])
        queue.receiver().abandon_message(held[1])
        (again,) = queue.receiver().receive_messages(1, 60)
        assert (str(again), again.delivery_count) == (str(held[1]), 2)


@both
def test_a_message_that_was_received_and_deleted_is_not_abandoned(url: str, partitioned: bool) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", "1", "2")
        with leaving_by(HandlerError):
            with queue.session("a", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
                assert str(next(receiver)) == "1"
                raise HandlerError
        with queue.session("a") as receiver:
            assert str(next(receiver)) == "2"


# -- releasing a message -----------------------------------------------------------------------------------------------


@both
def test_a_released_message_is_delivered_again_with_the_same_delivery_count(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned, max_delivery_count=2) as queue, queue.receiver() as receiver:
        queue.send("1", at=-1)
        for _ in range(5):
            (message,) = receiver.receive_messages(1, 60)
            assert message.delivery_count == 1
            receiver.release_message(message)
            assert message.lock_token is None
            assert queue.counts_are(1, 0)
            with pytest.raises(ValueError, match="settled"):
                receiver.release_message(message)
        (message,) = receiver.receive_messages(1, 60)
        receiver.complete_message(message)
        assert queue.counts_are(0, 0)


@pytest.mark.slow
@both
@pytest.mark.parametrize("prefetch", [0, 5], ids=["asked for", "fetched ahead"])
def test_a_released_message_of_a_session_is_delivered_before_later_messages(
    url: str, partitioned: bool, prefetch: int
) -> None:
    with session_queue_at(url, partitioned=partitioned) as queue:
        queue.send_to("a", *"1234")
        with queue.session("a", prefetch_count=prefetch) as receiver:
            for text in "1234":
                for _ in range(3):
                    message = next(receiver)
                    assert (str(message), message.delivery_count) == (text, 1)
                    receiver.release_message(message)
                message = next(receiver)
                receiver.complete_message(message)


@both
def test_a_dead_letter_and_a_deferred_message_can_be_released(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        first, _ = queue.send("1", "2", at=-1)
        one, two = receiver.receive_messages(2, 60)
        receiver.defer_message(one)
        receiver.dead_letter_message(two, "bad")
        (one,) = receiver.receive_deferred_messages(first)
        receiver.release_message(one)
        (again,) = receiver.receive_deferred_messages(first)
        assert again.delivery_count == one.delivery_count
        receiver.complete_message(again)
        with queue.receiver(sub_queue="deadletter") as dead:
            (two,) = dead.receive_messages(1, 60)
            dead.release_message(two)
            (again,) = dead.receive_messages(1, 60)
            assert (bodies([again]), again.delivery_count) == (["2"], two.delivery_count)


@both
def test_a_message_with_a_lost_lock_cannot_be_released(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue, queue.receiver() as receiver:
        queue.send("1", at=-1)
        (message,) = receiver.receive_messages(1, 60)
        queue.lose(message)
        (other,) = queue.receiver().receive_messages(1, 60)
        with pytest.raises(MessageLockLostError):
            receiver.release_message(message)
        assert queue.counts_are(0, 1)
        receiver.complete_message(other)
