"""Sends that share calls: the number of calls, their order, and the error of each caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sbredis.aio import ServiceBusSender
from sbredis.client import SendJob
from sbredis.client._lane import Jobs
from sbredis.client._send_lane import SendLane
from sbredis.engine import Outgoing
from sbredis.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from tests.aio.gates import Gate, stored_bodies
from tests.aio.queues import Calls, Queue, both, in_memory, queue_at
from tests.aio.test_sending import flat
from tests.transport.hand import turns


def sends(sender: ServiceBusSender, *bodies: str | bytes, timeout: float = 20) -> list[asyncio.Task[None]]:
    return [asyncio.create_task(sender.send_messages(ServiceBusMessage(body), timeout=timeout)) for body in bodies]


async def ended(tasks: list[asyncio.Task[None]]) -> list[BaseException | None]:
    return await asyncio.gather(*tasks, return_exceptions=True)


# -- how many calls ----------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the partitions lie on several nodes")
async def test_concurrent_sends_to_many_partitions_take_few_calls(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        with Calls(queue.transport) as calls:
            await asyncio.gather(*sends(sender, *map(str, range(500))))
        assert calls.by_script["send"] <= 16
        assert len(flat(await stored_bodies(queue))) == 500


@in_memory
async def test_the_first_send_is_not_delayed(queue: Queue, sender: ServiceBusSender) -> None:
    """The call of the first send is made within the next turns of the event loop. It does not wait for other sends."""
    with Gate(queue.client) as gate:
        gate.shut = True
        first = sends(sender, "first")
        await turns(4)
        assert len(gate.arrived) == 1
        gate.open()
        await asyncio.gather(*first)


@in_memory
async def test_all_sends_that_wait_share_the_second_call(queue: Queue, sender: ServiceBusSender) -> None:
    """The first call has one send, because the others came later. They are not divided into smaller calls."""
    with Gate(queue.client) as gate:
        gate.shut = True
        tasks = sends(sender, "0")
        await gate.reached()
        tasks += sends(sender, *map(str, range(1, 101)))
        await gate.reached(2)
        gate.open()
        await asyncio.gather(*tasks)
        sizes = [sum(isinstance(each, bytes) for each in call.arguments[6:]) for call in gate.arrived]
        assert sizes == [1, 100]
    assert sorted(map(int, flat(await stored_bodies(queue)))) == list(range(101))


@in_memory
async def test_a_second_call_takes_what_the_first_one_leaves(url: str) -> None:
    """The first call is full. The other messages do not wait until it has ended."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=2000) as sender:
        with Gate(queue.client) as gate:
            gate.shut = True
            tasks = [asyncio.create_task(sender.send_messages([ServiceBusMessage("a")] * 600)) for _ in range(2)]
            await gate.reached(2)
            assert not any(task.done() for task in tasks)
            gate.open()
            await asyncio.gather(*tasks)
        assert (await queue.counts()).active == 1200


@pytest.mark.slow
async def test_a_call_stays_within_the_limits_of_the_script(url: str) -> None:
    """A call carries up to a thousand messages and four megabytes. The next call carries further messages."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q", max_in_flight=10_000) as sender:
        with Gate(queue.client) as gate:
            gate.shut = True
            tasks = sends(sender, *[b"x" * 900_000] * 9) + [
                asyncio.create_task(sender.send_messages([ServiceBusMessage("y")] * 600)) for _ in range(4)
            ]
            await gate.reached()
            gate.open()
            await asyncio.gather(*tasks)
            for call in gate.arrived:
                payloads = [argument for argument in call.arguments[6:] if isinstance(argument, bytes)]
                assert len(payloads) <= 1000
                assert sum(map(len, payloads)) <= 4 * 1024 * 1024
            assert len(gate.arrived) >= 4
        assert (await queue.counts()).active == 2409


@both
async def test_several_senders_share_calls(queue: Queue) -> None:
    senders = [queue.client.get_queue_sender("q") for _ in range(20)]
    await asyncio.gather(*(sender.send_messages([]) for sender in senders))
    with Calls(queue.transport) as calls:
        await asyncio.gather(*(task for sender in senders for task in sends(sender, *"abcdefghij")))
    assert calls.by_script["send"] <= 8
    assert len(flat(await stored_bodies(queue))) == 200


# -- the error of each caller ------------------------------------------------------------------------------------------


async def test_a_message_that_exceeds_the_quota_fails_without_affecting_others(url: str) -> None:
    async with queue_at(url, quota=20_000) as queue, queue.client.get_queue_sender("q") as sender:
        bodies = [b"small", bytes(30_000), b"small", bytes(25_000), *[b"small"] * 20, bytes(40_000)]
        with Gate(queue.client) as gate:
            gate.shut = True
            tasks = sends(sender, b"first", b"second")
            await gate.reached()
            tasks += sends(sender, *bodies)
            await turns(5)
            gate.open()
            found = await ended(tasks)
        large = [error for body, error in zip([b"first", b"second", *bodies], found, strict=True) if len(body) > 100]
        assert [error for error in found if error is not None] == large
        assert all(type(error) is ServiceBusQuotaExceededError for error in large)
        assert len({id(error) for error in large}) == 3
        for error in large:
            assert isinstance(error, ServiceBusError)
            assert (error.entity, error.outcome, error.is_transient) == ("q", Outcome.REFUSED, False)
            assert error.tracking_id in str(error)
            assert "entity 'q'" in str(error)
        assert (await queue.counts()).active == len(found) - 3


@in_memory
async def test_each_caller_gets_an_error_object_of_its_own(url: str) -> None:
    """The same exception object must not be raised in two tasks."""
    async with queue_at(url, status="Disabled") as queue, queue.client.get_queue_sender("q") as sender:
        found = await ended(sends(sender, *"abc"))
        assert [type(error) for error in found] == [MessagingEntityDisabledError] * 3
        assert len({id(error) for error in found}) == 3


@in_memory
async def test_an_unexpected_error_reaches_the_caller_instead_of_leaving_it_waiting(
    queue: Queue, sender: ServiceBusSender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    await sender.send_messages([])
    lane = queue.entity.partition_client(queue.entity.numbers[0]).sending
    with monkeypatch.context() as patched:

        def broken(*_: Any) -> None:
            raise ZeroDivisionError("oh")

        patched.setattr(lane, "answer", broken)
        (error,) = await ended(sends(sender, "a"))
    assert isinstance(error, ServiceBusError)
    assert error.outcome is Outcome.UNKNOWN
    assert "A defect in sbredis: ZeroDivisionError: oh" in str(error)
    assert "failed because of a defect" in caplog.text
    assert sender.in_flight == 0
    await asyncio.gather(*sends(sender, "b"))


@contextmanager
def failing_encoding(lane: SendLane, error: Exception, *bodies: bytes) -> Iterator[None]:
    """Make the encoding of messages with these bodies fail."""
    make = lane.request

    def request(partition: Any, call_id: Any, jobs: Jobs[bytes | SendJob]) -> Any:
        sent = [Outgoing(what) for what in jobs.what if isinstance(what, bytes)]
        sent += [message for what in jobs.what if isinstance(what, SendJob) for message in what.messages]
        if any(message.payload.endswith(body) for message in sent for body in bodies):
            raise error
        return make(partition, call_id, jobs)

    lane.request = request  # type: ignore[method-assign]
    try:
        yield
    finally:
        lane.request = make  # type: ignore[method-assign]


@in_memory
async def test_a_message_that_cannot_be_encoded_fails_without_affecting_others(
    queue: Queue, sender: ServiceBusSender, caplog: pytest.LogCaptureFixture
) -> None:
    """This message is never sent. Its neighbours are sent in their order, and the lane continues normally."""
    await sender.send_messages([])
    lane = queue.entity.partition_client(queue.entity.numbers[0]).sending
    bodies = [f"{number:02}" for number in range(20)]
    with failing_encoding(lane, ZeroDivisionError("oh"), b"03", b"17", b"18"), Calls(queue.transport) as calls:
        found = await ended(sends(sender, *bodies))
    failed = {body: error for body, error in zip(bodies, found, strict=True) if error is not None}
    assert sorted(failed) == ["03", "17", "18"]
    for error in failed.values():
        assert isinstance(error, ServiceBusError)
        assert (error.outcome, error.is_transient, error.entity) == (Outcome.NEVER_SENT, False, "q")
        assert "A defect in sbredis: ZeroDivisionError: oh" in str(error)
    assert len({id(error) for error in failed.values()}) == 3
    assert sender.in_flight == 0
    assert flat(await stored_bodies(queue)) == [body for body in bodies if body not in failed]
    # The log has one line for each shared call, but no line for each attempt.
    assert 1 <= sum("failed because of a defect" in record.getMessage() for record in caplog.records) <= 2
    # No call was refused because its number was out of sequence.
    made = [pipeline._number for pipeline in lane._pipelines]
    assert sum(made) == calls.by_script["send"]


@in_memory
async def test_an_invalid_due_time_is_an_error_for_its_sender_only(url: str, caplog: pytest.LogCaptureFixture) -> None:
    """An action can set such a time. The other senders are not affected."""
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        wrong = ServiceBusMessage("wrong")
        wrong._content.scheduled = 10**13
        alone = asyncio.create_task(sender.send_messages(wrong))
        (error,) = await ended([alone])
        assert type(error) is ValueError
        assert str(error).startswith("due of message 0 must be a whole number")
        tasks = sends(sender, *"ab")
        tasks.append(asyncio.create_task(sender.send_messages([ServiceBusMessage("c"), wrong])))
        tasks += sends(sender, *"de")
        found = await ended(tasks)
        assert [type(error) for error in found] == [type(None)] * 2 + [ValueError] + [type(None)] * 2
        assert str(found[2]).startswith("due of message 1 must be a whole number")
        assert flat(await stored_bodies(queue)) == list("abde")
        assert sender.in_flight == 0
        assert not caplog.records


@in_memory
async def test_an_unexpected_error_after_a_refused_call_is_reported_as_refused(
    queue: Queue, sender: ServiceBusSender, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """In the registry there is a record that this release cannot read. The call was refused, so it did not run."""
    await sender.send_messages([])
    record = queue.entity.record
    async with queue.other_client() as other:
        settings = record.settings.__class__(max_delivery_count=3)
        await other._connection.namespace.update_entity(record, settings)
    with monkeypatch.context() as patched:

        async def broken(*_: Any) -> None:
            raise ZeroDivisionError("oh")

        patched.setattr(queue.entity, "reload", broken)
        (error,) = await ended(sends(sender, "a"))
    assert isinstance(error, ServiceBusError)
    assert error.outcome is Outcome.REFUSED
    assert "A defect in sbredis: ZeroDivisionError: oh" in str(error)
    assert "failed because of a defect" in caplog.text
    await asyncio.gather(*sends(sender, "b"))
    assert flat(await stored_bodies(queue)) == ["b"]


# -- time --------------------------------------------------------------------------------------------------------------


async def test_each_caller_of_a_shared_call_has_its_own_deadline(binary: str | None) -> None:
    """Callers without time left fail. The others get their outcome when the server answers again."""
    with LocalServer(binary=binary) as server:
        async with queue_at(server.url) as queue, queue.client.get_queue_sender("q") as sender:
            await sender.send_messages([])
            server.pause()
            try:
                began = time.monotonic()
                patient = sends(sender, *"ab", timeout=60)
                hasty = sends(sender, *"cd", timeout=2)
                await turns(5)
                late = sends(sender, "e", timeout=2)
                late_too = [asyncio.create_task(sender.cancel_scheduled_messages(1, timeout=2))]
                found = await ended(hasty + late + late_too)
                assert 2 <= time.monotonic() - began < 40
            finally:
                server.resume()
            for error in found:
                assert isinstance(error, OperationTimeoutError)
                assert (error.entity, error.is_transient) == ("q", True)
            outcomes = [error.outcome for error in found if isinstance(error, ServiceBusError)]
            assert outcomes == [Outcome.UNKNOWN] * 2 + outcomes[2:]
            await asyncio.gather(*patient)
            await sender.close()
            bodies = flat(await stored_bodies(queue))
            assert bodies[:4] == list("abcd")
            assert bodies[4:] == ([] if outcomes[2] is Outcome.NEVER_SENT else ["e"])


@in_memory
async def test_a_send_that_times_out_while_it_waits_for_other_calls_was_never_sent(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate:
            gate.shut = True
            first = sends(sender, *"ab")
            await gate.reached()
            first += sends(sender, "c")
            await turns(5)
            (error,) = await ended(sends(sender, "d", timeout=0.05))
            assert isinstance(error, OperationTimeoutError)
            assert error.outcome is Outcome.NEVER_SENT
            assert "the calls before it took all the time" in str(error)
            gate.open()
            await asyncio.gather(*first)
        await sender.close()
        assert flat(await stored_bodies(queue)) == list("abc")
