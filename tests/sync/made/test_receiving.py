"""Receiving: available messages and later ones, the order of callers, and never more messages than requested."""

# Made by tools/make_sync from tests/aio/test_receiving.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from typing import Any

import pytest

from sbredis import ServiceBusReceiver
from sbredis.model import ServiceBusReceiveMode
from tests.sync.queues import GATHERING, bodies, both, in_memory, queue_at
from tests.waiting import wait_until

pytestmark = [pytest.mark.memory("the asynchronous test runs on servers")]


modes = pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])


# -- how many messages, and how long a receive waits -------------------------------------------------------------------


@pytest.mark.slow
@both
@modes
def test_one_receive_can_return_more_messages_than_one_reply_carries(
    url: str, partitioned: bool, mode: ServiceBusReceiveMode
) -> None:
    with queue_at(url, partitioned=partitioned, partitions=2, timings=GATHERING) as queue:
        for place in range(len(queue.partitions)):
            queue.fill(1250, at=place, start=place * 1250)
        expected = 1250 * len(queue.partitions)
        receiver = queue.receiver(receive_mode=mode)
        messages = receiver.receive_messages(expected, 60)
        assert sorted(map(int, bodies(messages))) == list(range(expected))
        assert len({message.sequence_number for message in messages}) == expected


@both
def test_a_receiver_takes_messages_from_all_partitions_in_turn(url: str, partitioned: bool) -> None:
    """A partition that always has messages does not keep the receiver from the other partitions."""
    with queue_at(url, partitioned=partitioned) as queue:
        for place in range(len(queue.partitions)):
            queue.fill(10, at=place)
        receiver = queue.receiver()
        received = [next(receiver) for _ in range(5 * len(queue.partitions))]
        assert {queue.entity.place(message.sequence_number)[0] for message in received} == {*queue.entity.numbers}


# -- iterating ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
def test_an_iteration_ends_after_the_receivers_max_wait_time(url: str, partitioned: bool) -> None:
    with queue_at(url, partitioned=partitioned) as queue:
        queue.send(*"abc")
        with queue.receiver(max_wait_time=0.5) as receiver:
            assert sorted([str(message) for message in receiver]) == ["a", "b", "c"]
            queue.send("d")
            assert str(next(receiver)) == "d"


# -- credit ------------------------------------------------------------------------------------------------------------


def test_credit_brings_messages_until_it_is_used_up_or_drained(url: str) -> None:
    with queue_at(url) as queue:
        receiver = queue.receiver()
        queue.send(*"abcd")
        receiver.add_credit(2)
        wait_until(lambda: queue.counts_are(2, 2))
        assert receiver.drain() == 2
        receiver.add_credit(1)
        wait_until(lambda: queue.counts_are(1, 3))
        receiver.add_credit(0)
        assert bodies(receiver.receive_messages(3, gather=False)) == ["a", "b", "c"]
        assert queue.counts_are(1, 3)


# -- invalid arguments -------------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"prefetch_count": -1}, ValueError),
        ({"prefetch_count": 50_001}, ValueError),
        ({"prefetch_count": 1.0}, TypeError),
        ({"prefetch_count": True}, TypeError),
        ({"max_wait_time": -1}, ValueError),
        ({"receive_mode": "peeklock?"}, ValueError),
        ({"sub_queue": "x"}, ValueError),
        ({"session_id": "s", "sub_queue": "deadletter"}, ValueError),
        ({"session_id": "s" * 129}, ValueError),
        ({"session_id": 5}, TypeError),
        ({"max_wait_time": True}, TypeError),
        ({"auto_lock_renewer": object()}, TypeError),
    ],
)
def test_invalid_receiver_options_are_refused(url: str, given: dict[str, Any], error: type[Exception]) -> None:
    with queue_at(url) as queue:
        with pytest.raises(error):
            queue.receiver(**given)


@in_memory
def test_receiver_options_of_azures_library_cause_a_warning(url: str) -> None:
    with queue_at(url) as queue:
        with pytest.warns(UserWarning, match="keep_alive"):
            queue.receiver(keep_alive=30)


@in_memory
def test_a_receiver_has_properties_for_its_path_mode_and_state(url: str) -> None:
    with queue_at(url) as queue:
        receiver: ServiceBusReceiver = queue.receiver(client_identifier="me")
        assert (receiver.entity_path, receiver.client_identifier, receiver.session) == ("q", "me", None)
        assert receiver.receive_mode is ServiceBusReceiveMode.PEEK_LOCK
        assert repr(receiver) == "<ServiceBusReceiver 'q' open>"
        receiver.close()
        receiver.close()
        assert repr(receiver) == "<ServiceBusReceiver 'q' closed>"
