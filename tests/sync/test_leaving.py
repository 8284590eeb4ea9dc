"""Leaving ``with receiver``: some errors count a failed delivery, others return the message without counting one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from sbredis import ServiceBusClient, ServiceBusMessage, ServiceBusSender, ServiceBusSessionReceiver
from sbredis.management import QueueOptions
from tests.sync.interruptions import interrupted_when

SOON = 20.0


class HandlerError(Exception):
    """The error that the handlers of these tests raise."""


def leaving_by(kind: type[BaseException]) -> AbstractContextManager[object, bool]:
    """Return a context that expects this error to leave the block."""
    return pytest.raises(kind)


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    """A sender to a partitioned queue with sessions."""
    options: QueueOptions = {"requires_session": True, "enable_partitioning": True, "max_delivery_count": 3}
    with client.get_queue_sender("q", create_if_missing=options) as sender:
        yield sender


def send(sender: ServiceBusSender, *texts: str) -> None:
    sender.send_messages([ServiceBusMessage(text, session_id="ann") for text in texts])


@contextmanager
def ann(client: ServiceBusClient) -> Iterator[ServiceBusSessionReceiver]:
    with client.get_queue_receiver("q", session_id="ann", max_wait_time=SOON) as receiver:
        yield receiver


@pytest.mark.slow
def test_a_handler_that_always_fails_reaches_the_delivery_limit(
    client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    send(sender, "1", "2", "3")
    for attempt in (1, 2, 3):
        with leaving_by(HandlerError), ann(client) as receiver:
            message = receiver.next()
            assert (str(message), message.delivery_count) == ("1", attempt)
            raise HandlerError
    with ann(client) as receiver:
        rest = receiver.receive_messages(3)
        assert [(str(each), each.delivery_count) for each in rest] == [("2", 1), ("3", 1)]
        receiver.complete_messages(rest)
    with client.get_queue_receiver("q", sub_queue="deadletter", max_wait_time=SOON) as dead:
        buried = dead.next()
        assert (str(buried), buried.dead_letter_reason) == ("1", "MaxDeliveryCountExceeded")


@pytest.mark.slow
def test_an_interruption_does_not_raise_the_delivery_count(
    client: ServiceBusClient, sender: ServiceBusSender, interrupt: Callable[[], None]
) -> None:
    """This holds for the current message, and for a message that arrives at the moment of the interruption."""
    send(sender, "1")
    with leaving_by(KeyboardInterrupt), ann(client) as receiver:
        receiver.next()
        inbox = receiver._aio._inbox
        assert inbox is not None
        with interrupted_when(lambda: inbox.callers, interrupt):
            receiver.next()
    with ann(client) as receiver:
        assert receiver.next().delivery_count == 1
