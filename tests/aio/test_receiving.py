"""Receiving: available messages and later ones, the order of callers, and never more messages than requested."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.client import Clock, Timings
from sbredis.engine import PartitionSettings
from sbredis.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.model import ServiceBusReceiveMode
from sbredis.servers import LocalServer
from tests.aio.gates import Gate
from tests.aio.queues import GATHERING, PATIENT, Calls, HandClock, Queue, bodies, both, in_memory, loop_time, queue_at
from tests.waiting import eventually

modes = pytest.mark.parametrize("mode", list(ServiceBusReceiveMode), ids=["peek-lock", "receive-and-delete"])


def _note(served: list[int], place: int, _: object) -> None:
    served.append(place)


# -- how many messages, and how long a receive waits -------------------------------------------------------------------


@both
async def test_an_empty_list_is_returned_when_no_message_arrives_in_time(queue: Queue) -> None:
    receiver = queue.receiver(max_wait_time=0.15)
    for wait in (0.1, None):
        begun = loop_time()
        assert await receiver.receive_messages(5, wait) == []
        assert loop_time() - begun >= (wait or 0.15) - 0.001


@both
@pytest.mark.parametrize("waiting", [[], ["a"]], ids=["nothing", "a message"])
async def test_a_receive_whose_wait_ends_during_a_call_still_waits_for_the_answer(
    queue: Queue, waiting: list[str]
) -> None:
    """An empty list means that the queue has no message. It never means that the server was slow."""
    await queue.send(*waiting, at=-1)
    receiver = queue.receiver()
    await receiver._open(loop_time() + 60)
    assert receiver._inbox is not None
    callers = receiver._inbox.callers
    with Gate(queue.client, "grant") as gate:
        gate.shut = True
        task = asyncio.create_task(receiver.receive_messages(5, 0.01))
        await gate.reached(len(queue.partitions))
        await eventually(lambda: callers[0].unanswered)  # max_wait_time has passed by now
        gate.open()
        received = await task
    assert bodies(received) == waiting


@in_memory
async def test_if_the_server_does_not_answer_a_receive_raises_an_error(url: str) -> None:
    async with queue_at(url, timings=Timings(late=0.01, answering=0.1)) as queue:
        receiver = queue.receiver()
        with Gate(queue.client, "grant") as gate:
            gate.shut = True
            with pytest.raises(OperationTimeoutError, match="has not answered in time") as caught:
                await receiver.receive_messages(5, 0.01)
            assert (caught.value.entity, caught.value.is_transient) == ("q", True)
            gate.open()
        await queue.send("a")
        assert bodies(await receiver.receive_messages(1, 60)) == ["a"]


@both
async def test_a_receive_gathers_more_messages_only_if_they_arrive_soon(queue: Queue) -> None:
    """The call does not wait for the whole ``max_wait_time`` or for later messages."""
    receiver = queue.receiver()
    await queue.send("a")
    begun = loop_time()
    assert bodies(await receiver.receive_messages(10, 600)) == ["a"]
    assert 0.19 < loop_time() - begun < 300


@both
async def test_a_receive_gathers_messages_that_arrive_soon(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, timings=GATHERING) as queue:
        task = asyncio.create_task(queue.receiver().receive_messages(3, 60))
        await queue.wait_for_waiters()
        for text in "abc":
            await queue.send(text)
        assert bodies(await task) == ["a", "b", "c"]


@both
async def test_concurrent_calls_are_served_in_the_order_in_which_they_were_made(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, timings=GATHERING) as queue:
        receiver = queue.receiver()
        calls = [asyncio.create_task(receiver.receive_messages(wanted, 60)) for wanted in (2, 1, 2)]
        await queue.wait_for_waiters()
        served: list[int] = []
        for place, call in enumerate(calls):
            call.add_done_callback(partial(_note, served, place))
        await queue.fill(5)
        received = [bodies(messages) for messages in await asyncio.gather(*calls)]
        assert received == [["0", "1"], ["2"], ["3", "4"]]
        await eventually(lambda: len(served) == 3)
        assert served == [0, 1, 2]


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@modes
async def test_one_receive_can_return_more_messages_than_one_reply_carries(
    url: str, partitioned: bool, mode: ServiceBusReceiveMode
) -> None:
    async with queue_at(url, partitioned=partitioned, partitions=2, timings=GATHERING) as queue:
        for place in range(len(queue.partitions)):
            await queue.fill(1250, at=place, start=place * 1250)
        expected = 1250 * len(queue.partitions)
        receiver = queue.receiver(receive_mode=mode)
        messages = await receiver.receive_messages(expected, 60)
        assert sorted(map(int, bodies(messages))) == list(range(expected))
        assert len({message.sequence_number for message in messages}) == expected


async def test_large_messages_arrive_in_several_replies(url: str) -> None:
    async with queue_at(url, timings=GATHERING) as queue:
        await queue.fill(12, size=700_000)
        receiver = queue.receiver()
        with Calls(queue.transport) as calls:
            messages = await receiver.receive_messages(12, 60)
        assert bodies(messages) == [str(number) for number in range(12)]
        assert 3 <= calls.by_script["grant"] <= 12


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_a_receiver_takes_messages_from_all_partitions_in_turn(queue: Queue) -> None:
    """A partition that always has messages does not keep the receiver from the other partitions."""
    for place in range(len(queue.partitions)):
        await queue.fill(10, at=place)
    receiver = queue.receiver()
    received = [await anext(receiver) for _ in range(5 * len(queue.partitions))]
    assert {queue.entity.place(message.sequence_number)[0] for message in received} == {*queue.entity.numbers}


@pytest.mark.slow
@in_memory
async def test_the_receiver_looks_at_an_idle_partition_again_while_another_is_busy(url: str) -> None:
    """The idle partitions have forgotten the receiver, so they tell it nothing. It asks them again after some time."""
    clock = HandClock()
    async with queue_at(url, partitioned=True, clock=clock) as queue:
        receiver = queue.receiver()
        await queue.register_waiter(receiver)
        await queue.fill(50, at=0)
        assert bodies(await receiver.receive_messages(1, 60)) == ["0"]
        for partition in queue.partitions[1:]:
            for key in partition.keys:
                if key.endswith((b":words", b":grants")):
                    await queue.transport.command("DEL", key, key=key)
        await queue.send("rare", at=2)
        clock.move(121)
        received = [str(await anext(receiver)) for _ in range(20)]
        assert "rare" in received


# -- iterating ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_an_iteration_ends_after_the_receivers_max_wait_time(queue: Queue) -> None:
    await queue.send(*"abc")
    async with queue.receiver(max_wait_time=1.5) as receiver:
        assert sorted([str(message) async for message in receiver]) == ["a", "b", "c"]
        await queue.send("d")
        assert str(await anext(receiver)) == "d"


# -- closed receivers, disabled and missing queues ---------------------------------------------------------------------


@both
async def test_waiting_calls_fail_when_the_receiver_is_closed(queue: Queue) -> None:
    receiver = queue.receiver()
    tasks = [asyncio.create_task(receiver.receive_messages(1, 60)) for _ in range(2)]
    await queue.wait_for_waiters()
    await asyncio.gather(receiver.close(), receiver.close())
    for task in tasks:
        with pytest.raises(ServiceBusError, match="receiver was closed"):
            await task
    with pytest.raises(ValueError, match="receiver is closed"):
        await receiver.receive_messages(1, 60)
    assert await queue.waiters() == 0


@pytest.mark.slow
@pytest.mark.everywhere("a receiver listens to several nodes")
@both
async def test_closed_receivers_leave_nothing_behind_in_their_client(queue: Queue) -> None:

    async def come_and_go() -> None:
        async with queue.receiver() as receiver:
            await queue.register_waiter(receiver)

    await come_and_go()
    tasks, lanes = len(asyncio.all_tasks()), lanes_of(queue)
    for _ in range(8):
        await come_and_go()
    spare = len(queue.partitions)  # the client keeps the lanes of receivers for later receivers
    await eventually(lambda: len(asyncio.all_tasks()) <= tasks + spare)
    assert lanes_of(queue) <= lanes + spare
    assert not queue.client._children


def lanes_of(queue: Queue) -> int:
    """Return the number of lanes that the client has for calls."""
    return sum(len(queue.entity.partition_client(number)._calling) for number in queue.entity.numbers)


@both
async def test_a_queue_with_receiving_disabled_refuses_every_call(url: str, partitioned: bool) -> None:
    """The queue refuses calls immediately, and accepts them again as soon as its status changes."""
    timings = replace(PATIENT, asking_again=(15.0, 15.0))
    begun = loop_time()
    async with queue_at(url, partitioned=partitioned, timings=timings, status="ReceiveDisabled") as queue:
        await queue.send("a")
        receiver = queue.receiver()
        namespace = queue.client._connection.namespace
        for _ in range(3):
            with pytest.raises(MessagingEntityDisabledError, match="ReceiveDisabled") as raised:
                await receiver.receive_messages(1, 60)
            assert raised.value.entity == "q"
        record = await namespace.get_entity("q")
        await namespace.update_entity(record, PartitionSettings())
        assert bodies(await receiver.receive_messages(1, 60)) == ["a"]
        assert loop_time() - begun < 20


@both
async def test_if_the_server_is_lost_a_receive_raises_an_error(binary: str | None, partitioned: bool) -> None:
    """This also holds for a receiver that waits for a notice and makes no call."""
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with queue_at(server.url, partitioned=partitioned) as queue:
            receiver = queue.receiver()
            task = asyncio.create_task(receiver.receive_messages(1, 4))
            await queue.wait_for_waiters()
            server.kill()
            with pytest.raises((ServiceBusConnectionError, OperationTimeoutError)) as raised:
                await task
            assert raised.value.entity == "q"
            assert raised.value.is_transient
            with pytest.raises((ServiceBusConnectionError, OperationTimeoutError)):
                await receiver.receive_messages(1, 0.3)
            server.restart()
            await queue.counts()  # the client connects again
            task = asyncio.create_task(receiver.receive_messages(1, 60))
            await queue.send("a")
            assert bodies(await task) == ["a"]


# -- invalid arguments -------------------------------------------------------------------------------------------------


NAIVE = datetime(2026, 1, 1)  # noqa: DTZ001  # the missing zone is tested
WRONG: dict[str, list[tuple[dict[str, Any], type[Exception]]]] = {
    "receive_messages": [
        *(({"max_message_count": each}, ValueError) for each in (0, -1)),
        *(({"max_message_count": each}, TypeError) for each in (1.5, True, "1")),
        *(({"max_wait_time": each}, ValueError) for each in (-1, -0.5, float("nan"))),
        ({"max_wait_time": "1"}, TypeError),
    ],
    "peek_messages": [
        *(({"max_message_count": each}, ValueError) for each in (0, -3)),
        ({"max_message_count": "3"}, TypeError),
        ({"sequence_number": -1}, ValueError),
        *(({"sequence_number": each}, TypeError) for each in ("1", True)),
        ({"timeout": 0}, ValueError),
    ],
    "delete_messages": [
        *(({"max_message_count": each}, ValueError) for each in (0, 4001)),
        *(({"max_message_count": each}, TypeError) for each in ("1", True)),
        ({"max_message_count": 1, "before_enqueued_time_utc": NAIVE}, ValueError),
    ],
    "purge_messages": [
        ({"before_enqueued_time_utc": NAIVE}, ValueError),
        ({"before_enqueued_time_utc": 1.0}, TypeError),
        ({"timeout": 0}, ValueError),
    ],
}


@in_memory
@pytest.mark.parametrize(("call", "given", "error"), [(call, *each) for call, every in WRONG.items() for each in every])
async def test_invalid_arguments_are_refused_before_any_call(
    url: str, call: str, given: dict[str, Any], error: type[Exception]
) -> None:
    async with queue_at(url) as queue:
        with Calls(queue.transport) as calls, pytest.raises(error, match=[*given][-1]):
            await getattr(queue.receiver(), call)(**given)
        assert not calls.by_script


@in_memory
@pytest.mark.parametrize("seconds", [float("inf"), 10**400], ids=["infinity", "too large for a float"])
async def test_a_call_may_wait_for_ever(queue: Queue, seconds: float) -> None:
    for call in (
        queue.receiver().receive_messages(1, seconds),
        queue.receiver(max_wait_time=seconds).receive_messages(),
    ):
        waiting = asyncio.create_task(call)
        await eventually(queue.waiters)
        await queue.send("a")
        assert bodies(await waiting) == ["a"]


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
async def test_invalid_receiver_options_are_refused(url: str, given: dict[str, Any], error: type[Exception]) -> None:
    async with queue_at(url) as queue:
        with pytest.raises(error):
            queue.receiver(**given)


@in_memory
async def test_receiver_options_of_azures_library_cause_a_warning(queue: Queue) -> None:
    with pytest.warns(UserWarning, match="keep_alive"):
        queue.receiver(keep_alive=30)


@in_memory
async def test_a_receiver_has_properties_for_its_path_mode_and_state(queue: Queue) -> None:
    receiver: ServiceBusReceiver = queue.receiver(client_identifier="me")
    assert (receiver.entity_path, receiver.client_identifier, receiver.session) == ("q", "me", None)
    assert receiver.receive_mode is ServiceBusReceiveMode.PEEK_LOCK
    assert repr(receiver) == "<ServiceBusReceiver 'q' open>"
    await receiver.close()
    await receiver.close()
    assert repr(receiver) == "<ServiceBusReceiver 'q' closed>"


# -- clocks ------------------------------------------------------------------------------------------------------------


class _Ahead(Clock):
    """The clock of a machine that is an hour ahead of the servers."""

    def utc(self) -> float:
        return super().utc() + 3600


@both
async def test_a_clock_ahead_of_the_servers_does_not_change_lock_times(url: str, partitioned: bool) -> None:
    """Locks, delays and waits use durations. Only times that are shown to the program use the local clock."""
    clock = _Ahead()
    async with queue_at(url, partitioned=partitioned, clock=clock, lock_duration=60_000) as queue:
        receiver = queue.receiver()
        await queue.send("a")
        (message,) = await receiver.receive_messages(1, 60)
        until = message.locked_until_utc
        assert until is not None
        assert 55 < until.timestamp() - clock.utc() <= 60
        renewed = await receiver.renew_message_lock(message)
        assert 55 < renewed.timestamp() - clock.utc() <= 60
        begun = loop_time()
        await receiver.abandon_message(message, delay=0.1)
        (again,) = await receiver.receive_messages(1, 60)
        assert 0.09 < loop_time() - begun < 20
        await receiver.complete_message(again)
