"""The progress of long calls: a stream, a purge and a redrive call a function with the number that is done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusSender
from sbredis.engine import MAXIMUM_CALL_MESSAGES
from tests.aio.queues import Queue, both, in_memory, receive_exactly

COUNT = 2 * MAXIMUM_CALL_MESSAGES + 1
"""Messages of which an unpartitioned queue needs three calls."""


class Stopped(Exception):  # noqa: N818 - it is no error of sbredis
    """Ends a call from its progress."""


def stop_after(told: list[int], number: int) -> Any:
    def progress(done: int) -> None:
        told.append(done)
        if done >= number:
            raise Stopped

    return progress


def numbered(count: int) -> Iterator[ServiceBusMessage]:
    return (ServiceBusMessage(str(number)) for number in range(count))


def sender(queue: Queue) -> ServiceBusSender:
    return queue.client.get_queue_sender(queue.entity.name)


async def bury(queue: Queue, count: int) -> None:
    receiver = queue.receiver()
    await sender(queue).send_stream(numbered(count))
    for message in await receive_exactly(receiver, count):
        await receiver.dead_letter_message(message)


@in_memory
async def test_a_stream_tells_how_many_messages_were_accepted_before_each_result(queue: Queue) -> None:
    told: list[int] = []
    bodies: list[str | bytes] = ["a", b"x" * 2_000_000, "b"]
    stream = sender(queue).send_stream(
        [ServiceBusMessage(body) for body in bodies], errors="return", progress=told.append
    )
    seen = [(result.index, list(told)) async for result in stream]
    assert seen == [(0, [1]), (1, [1]), (2, [1, 2])]
    assert await sender(queue).send_stream(numbered(3), progress=told.append) == 3
    assert told == [1, 2, 1, 2, 3]


@both
async def test_a_purge_tells_after_each_call_how_many_messages_it_has_deleted(queue: Queue) -> None:
    await sender(queue).send_stream(numbered(20))
    told: list[int] = []
    assert await queue.receiver().purge_messages(progress=told.append) == 20
    assert told == sorted(told)
    assert told[-1] == 20


@in_memory
async def test_an_error_of_the_progress_ends_a_purge_and_the_rest_stays(queue: Queue) -> None:
    await sender(queue).send_stream(numbered(COUNT))
    told: list[int] = []
    with pytest.raises(Stopped):
        await queue.receiver().purge_messages(progress=stop_after(told, MAXIMUM_CALL_MESSAGES))
    assert told == [MAXIMUM_CALL_MESSAGES]
    assert (await queue.counts()).active == COUNT - MAXIMUM_CALL_MESSAGES


@in_memory
async def test_a_redrive_tells_how_many_messages_it_has_counted_or_moved(queue: Queue) -> None:
    await bury(queue, 5)
    letters = queue.receiver(sub_queue="deadletter")
    told: list[int] = []
    assert (await letters.redrive_messages(dry_run=True, progress=told.append)).matched == 5
    assert told[-1] == 5
    told.clear()
    assert (await letters.redrive_messages(progress=told.append)).moved == 5
    assert told == sorted(told)
    assert told[-1] == 5


@in_memory
async def test_an_error_of_the_progress_ends_a_redrive_and_frees_the_queue(queue: Queue) -> None:
    await bury(queue, 3)
    letters = queue.receiver(sub_queue="deadletter")
    told: list[int] = []
    with pytest.raises(Stopped):
        await letters.redrive_messages(rate=1, progress=stop_after(told, 1))
    assert told[-1] >= 1
    moved = (await queue.counts()).active
    assert moved == told[-1]
    assert (await letters.redrive_messages()).moved == 3 - moved


@in_memory
async def test_an_error_of_the_progress_ends_a_stream(queue: Queue) -> None:
    told: list[int] = []
    with pytest.raises(Stopped):
        await sender(queue).send_stream(numbered(10), progress=stop_after(told, 3))
    assert told == [1, 2, 3]


@in_memory
async def test_a_progress_that_is_no_function_is_refused_and_nothing_is_done(queue: Queue) -> None:
    await bury(queue, 1)
    await queue.send("a")
    wrong: Any = 5
    with pytest.raises(TypeError, match="progress must be a function that takes a number, not int"):
        _ = sender(queue).send_stream(numbered(1), progress=wrong)
    with pytest.raises(TypeError, match="progress must be a function"):
        await queue.receiver().purge_messages(progress=wrong)
    with pytest.raises(TypeError, match="progress must be a function"):
        await queue.receiver(sub_queue="deadletter").redrive_messages(progress=wrong)
    counts = await queue.counts()
    assert (counts.active, counts.dead_active) == (1, 1)
