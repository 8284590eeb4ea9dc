"""Fences: each lock of a message or of a session gets a higher number than all earlier locks in its partition."""

# Made by tools/make_sync from tests/aio/test_fences.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from tests.sync.queues import in_memory, queue_at, session_queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


def test_each_lock_of_a_message_has_a_higher_fence(url: str) -> None:
    with queue_at(url) as queue:
        queue.send("a", "b")
        with queue.receiver() as receiver:
            (first,) = receiver.receive_messages(1, 60)
            (message,) = receiver.receive_messages(1, 60)
            fences = [first.fence, message.fence]
            receiver.abandon_message(message)
            (message,) = receiver.receive_messages(1, 60)
            fences.append(message.fence)
            receiver.defer_message(message)
            (message,) = receiver.receive_deferred_messages(message.sequence_number)
            fences.append(message.fence)
            assert fences == [1, 2, 3, 4]


@in_memory
def test_messages_of_one_call_share_a_fence_that_renewing_keeps(url: str) -> None:
    with queue_at(url) as queue:
        queue.send("a", "b")
        with queue.receiver() as receiver:
            one, two = receiver.receive_messages(2, 60)
            before = one.fence
            assert one.fence == two.fence
            receiver.renew_message_lock(one)
            assert one.fence == before


@in_memory
def test_a_message_without_a_lock_has_no_fence(url: str) -> None:
    with queue_at(url) as queue:
        queue.send("a", "b")
        with queue.receiver() as receiver, queue.receiver(receive_mode="receiveanddelete") as deleting:
            (peeked,) = receiver.peek_messages()
            (deleted,) = deleting.receive_messages(1, 60)
            (settled,) = receiver.receive_messages(1, 60)
            receiver.complete_message(settled)
            assert [each.fence for each in (peeked, deleted, settled)] == [None] * 3


def test_a_session_and_its_messages_share_the_fence_of_the_lock_on_the_session(url: str) -> None:
    with session_queue_at(url) as queue:
        queue.send_to("s", "a", "b")
        with queue.session("s") as receiver:
            before = receiver.session.fence
            for _ in range(2):
                (message,) = receiver.receive_messages(1, 60)
                assert message.fence == before
            receiver.session.renew_lock()
            assert receiver.session.fence == before
        with queue.session("s") as receiver:
            assert receiver.session.fence > before
