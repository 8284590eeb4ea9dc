"""Settling: only the holder of the lock can complete, abandon, defer or dead-letter a message, and only once."""

# Made by tools/make_sync from tests/aio/test_settling.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from sbredis import ServiceBusReceiver
from sbredis.exceptions import (
    MessageLockLostError,
    Outcome,
)
from sbredis.model import ServiceBusReceivedMessage
from tests.sync.queues import bodies, both, in_memory, queue_at

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


Settle = Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Any]
WAYS: dict[str, Settle] = {
    "complete": lambda receiver, message: receiver.complete_message(message),
    "abandon": lambda receiver, message: receiver.abandon_message(message),
    "defer": lambda receiver, message: receiver.defer_message(message),
    "dead-letter": lambda receiver, message: receiver.dead_letter_message(message),
}
SETTLEMENTS = WAYS | {"renew": lambda receiver, message: receiver.renew_message_lock(message)}


def one(receiver: ServiceBusReceiver) -> ServiceBusReceivedMessage:
    (message,) = receiver.receive_messages(1, 60)
    return message


# -- the four ways to settle -------------------------------------------------------------------------------------------


@both
def test_an_abandoned_message_is_delivered_again_with_changed_properties(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("a", at=-1, properties={"colour": "red", "size": 1})
        receiver = queue.receiver()
        receiver.abandon_message(one(receiver), properties_to_modify={"size": 2, "shape": "round"})
        message = one(receiver)
        assert message.delivery_count == 2
        assert message.application_properties == {"colour": "red", "size": 2, "shape": "round"}
        receiver.abandon_message(message, properties_to_modify={"colour": "blue"})
        message = one(receiver)
        receiver.abandon_message(message)
        message = one(receiver)
        assert message.delivery_count == 4
        assert message.application_properties == {"colour": "blue", "size": 2, "shape": "round"}
        receiver.dead_letter_message(message, "why", "because", properties_to_modify={"size": 3})
        letter = one(queue.receiver(sub_queue="deadletter"))
        assert (letter.dead_letter_reason, letter.dead_letter_error_description) == ("why", "because")
        assert letter.application_properties == {
            "colour": "blue",
            "size": 3,
            "shape": "round",
            "DeadLetterReason": "why",
            "DeadLetterErrorDescription": "because",
        }
        assert bodies([letter]) == ["a"]


# -- refusals, in Azure's order ----------------------------------------------------------------------------------------


@both
def test_a_lock_is_lost_if_another_receiver_has_locked_the_message(url: str, partitioned: bool) -> None:
    """The server refuses the settlement, although the lock has not ended by the local clock."""
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send("a", at=-1)
        receiver = queue.receiver()
        message = one(receiver)
        queue.lose(message)
        (other,) = queue.take(at=-1)
        for settle in SETTLEMENTS.values():  # the refusal does not settle the message, so a program can try again
            with pytest.raises(MessageLockLostError, match="has ended, or the message is gone") as raised:
                settle(receiver, message)
            assert (raised.value.outcome, raised.value.entity) == (Outcome.REFUSED, "q")
        assert queue.locked() == 1
        queue.abandon([other], at=-1)


@both
def test_a_message_can_be_settled_through_another_receiver(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        for settle in SETTLEMENTS.values():
            queue.send("a", at=-1)
            with queue.receiver() as receiver:
                message = one(receiver)
            settle(queue.receiver(), message)
            queue.clear()


@in_memory
def test_a_copy_of_a_message_has_no_lock(url: str) -> None:
    with queue_at(url) as queue:
        queue.send("a")
        receiver = queue.receiver()
        message = one(receiver)
        with pytest.raises(ValueError, match="no lock"):
            receiver.complete_message(copy.copy(message))
        receiver.complete_message(message)
