"""Releasing a message in the middle of the work on it: the next delivery knows."""

# Made by tools/make_sync from tests/aio/test_interrupted.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import pytest

from sbredis.model import ServiceBusReceivedMessage
from tests.sync.queues import both, in_memory, queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


@both
def test_the_next_delivery_sees_the_interruption_and_later_ones_do_not(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("a")
        receiver = queue.receiver()

        def receive() -> ServiceBusReceivedMessage:
            (message,) = receiver.receive_messages(1, 60)
            return message

        message = receive()
        assert not message.interrupted
        receiver.release_message(message, interrupted=True)
        message = receive()
        assert (message.interrupted, message.delivery_count, message.application_properties) == (True, 1, None)
        receiver.abandon_message(message)
        message = receive()
        assert (message.interrupted, message.delivery_count) == (False, 2)
        receiver.release_message(message, interrupted=True)
        message = receive()
        receiver.release_message(message)
        message = receive()
        assert (message.interrupted, message.delivery_count) == (True, 2)  # nobody has worked on it in between
        receiver.abandon_message(message)
        assert not (receive()).interrupted


@in_memory
def test_a_settler_can_report_an_interruption(url: str) -> None:
    with queue_at(url) as queue:
        queue.send("a")
        receiver = queue.receiver()
        (message,) = receiver.receive_messages(1, 60)
        token = str(message.lock_token)
        with queue.client.get_settler("q") as settler:
            settler.release_message(token, interrupted=True)
        (message,) = receiver.receive_messages(1, 60)
        assert message.interrupted
