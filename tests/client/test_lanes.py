"""Lanes: outdated settings, lost entities, failed calls and cancelled callers, and the error that each caller gets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sbredis.aio import ServiceBusSender
from sbredis.client._lane import Lane
from sbredis.engine import SettingsStaleError, perform
from sbredis.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import ServiceBusMessage
from sbredis.registry import EntityRecord, Namespace
from tests.aio.gates import Gate, stored_bodies
from tests.aio.queues import Calls, Queue, both, in_memory, queue_at
from tests.aio.test_sending import flat
from tests.stored_settings import settings_of
from tests.transport.hand import turns

pytestmark = pytest.mark.everywhere("a call is sent again where its partition lives by then")

SOON = datetime(2030, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def begun(
    url: str, *, partitioned: bool = False, **settings: Any
) -> AsyncIterator[tuple[Queue, ServiceBusSender]]:
    """Create a queue to which messages were sent and from which all of them were received."""
    async with (
        queue_at(url, partitioned=partitioned, **settings) as queue,
        queue.client.get_queue_sender("q") as sender,
    ):
        for key in "abcdefgh":
            await sender.send_messages(ServiceBusMessage("before", partition_key=key))
        for place in range(len(queue.partitions)):
            token = (await queue.take(1000, at=place)) if (await counted(queue, place)) else []
            for lock in token:
                await perform(queue.transport, queue.partitions[place].complete(queue.call_id, [lock]))
        yield queue, sender


async def counted(queue: Queue, place: int) -> int:
    return (await perform(queue.transport, queue.partitions[place].count(queue.call_id))).active


def namespace_of(queue: Queue) -> Namespace:
    return queue.client._connection.namespace


async def changed(queue: Queue, **settings: Any) -> EntityRecord:
    """Change the settings without the client's knowledge."""
    record = await namespace_of(queue).get_entity("q")
    return await namespace_of(queue).update_entity(record, replace(record.settings, **settings))


async def send_to_all(sender: ServiceBusSender) -> None:
    await asyncio.gather(*(sender.send_messages(ServiceBusMessage(key, partition_key=key)) for key in "abcdefgh"))


# -- outdated settings -------------------------------------------------------------------------------------------------


@both
async def test_settings_changed_by_another_client_are_loaded(url: str, *, partitioned: bool) -> None:
    async with begun(url, partitioned=partitioned) as (queue, sender):
        await changed(queue, max_delivery_count=3)
        with Calls(queue.transport) as calls:
            await send_to_all(sender)
        assert calls.by_script["read_entity"] == 1  # one read serves all partitions
        assert queue.entity.record.version == 2
        assert flat(await stored_bodies(queue)) == list("abcdefgh")
        await changed(queue, status="SendDisabled")
        with pytest.raises(MessagingEntityDisabledError):
            await send_to_all(sender)
        await changed(queue, status="Active", largest_message=2000)
        await send_to_all(sender)
        assert (await sender.create_message_batch()).max_size_in_bytes == 2000


@both
async def test_a_partition_with_outdated_settings_is_updated(url: str, *, partitioned: bool) -> None:
    """A change is written to the registry before the partitions. So a client may know new settings before a partition
    does.
    """
    async with begun(url, partitioned=partitioned) as (queue, sender):
        record = await namespace_of(queue).get_entity("q")
        revised = replace(record, version=2, settings=replace(record.settings, max_delivery_count=3))
        steps = namespace_of(queue)._steps
        queue.entity.adopt(
            await steps.ask(steps.registry.revise(revised, "x" * 12), asyncio.get_running_loop().time() + 9)
        )
        await send_to_all(sender)
        assert flat(await stored_bodies(queue)) == list("abcdefgh")
        if not partitioned:
            state = queue.partitions[0].keys[0]
            stored = settings_of(await queue.transport.command("HGET", state, "settings", key=state))
            assert (stored["version"], stored["deliveries"]) == (b"2", b"3")


async def test_a_registry_that_lost_a_change_is_reported_after_few_calls(url: str) -> None:
    """A failover may lose the change in the registry while a partition keeps it."""
    async with begun(url) as (queue, sender):
        record = queue.entity.record
        ahead = namespace_of(queue).partition(replace(record, version=7), record.partitions[0])
        await perform(queue.transport, ahead.configure())
        with (
            Calls(queue.transport) as calls,
            pytest.raises(SettingsStaleError, match="make the change again") as caught,
        ):
            await sender.send_messages(ServiceBusMessage("x"))
        assert sum(calls.by_script.values()) <= 3
        assert (caught.value.outcome, caught.value.entity) == (Outcome.REFUSED, "q")
        for _ in range(6):
            record = await changed(queue, max_delivery_count=record.settings.max_delivery_count + 1)
        await sender.send_messages(ServiceBusMessage("y"))
        assert flat(await stored_bodies(queue)) == ["y"]


@both
async def test_a_queue_that_was_deleted_is_not_found(url: str, *, partitioned: bool) -> None:
    async with begun(url, partitioned=partitioned) as (queue, sender):
        await namespace_of(queue).delete_entity("q")
        for _ in range(2):
            with pytest.raises(MessagingEntityNotFoundError, match=r"ensure_queue.*create_if_missing") as caught:
                await sender.send_messages(ServiceBusMessage("x"))
            assert (caught.value.outcome, caught.value.entity, caught.value.is_transient) == (
                Outcome.REFUSED,
                "q",
                False,
            )
        with pytest.raises(MessagingEntityNotFoundError):
            await sender.cancel_scheduled_messages(1)
        assert sender.in_flight == 0


async def test_create_if_missing_recreates_a_deleted_queue(url: str) -> None:
    async with begun(url) as (queue, plain):
        async with queue.client.get_queue_sender("q", create_if_missing=True) as sender:
            await namespace_of(queue).delete_entity("q")
            with pytest.raises(MessagingEntityNotFoundError):
                await plain.send_messages(ServiceBusMessage("x"))
            with pytest.raises(MessagingEntityNotFoundError):
                await plain.send_messages(ServiceBusMessage("x"))
            await sender.send_messages(ServiceBusMessage("y"))
            await plain.send_messages(ServiceBusMessage("z"))
        assert flat(await stored_bodies(queue)) == ["y", "z"]


@both
async def test_a_partition_lost_in_a_failover_is_recreated(
    url: str, caplog: pytest.LogCaptureFixture, *, partitioned: bool
) -> None:
    async with begun(url, partitioned=partitioned) as (queue, sender):
        for partition in queue.partitions:
            for key in partition.keys:
                await queue.transport.command("DEL", key, key=key)
        with caplog.at_level(logging.WARNING, "sbredis"):
            await send_to_all(sender)
        assert flat(await stored_bodies(queue)) == list("abcdefgh")
        assert "created again, empty" in caplog.text


@both
async def test_a_lane_that_the_partition_has_forgotten_begins_again(url: str, *, partitioned: bool) -> None:
    """A partition forgets a lane that was unused for a quarter of an hour. A failover may lose a lane too."""
    async with begun(url, partitioned=partitioned) as (queue, sender):
        for partition in queue.partitions:
            await queue.transport.command("DEL", partition.keys[7], key=partition.keys[7])
        await send_to_all(sender)
        assert flat(await stored_bodies(queue)) == list("abcdefgh")
        for partition in queue.partitions:
            await queue.transport.command("DEL", partition.keys[7], key=partition.keys[7])
        numbers = await sender.schedule_messages(ServiceBusMessage("i"), SOON)
        await sender.cancel_scheduled_messages(numbers)


# -- failed calls ------------------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize(("partitioned", "keyed"), [(False, False), (True, True)])
async def test_a_send_bound_to_an_unreachable_partition_fails_with_its_error(
    url: str, *, partitioned: bool, keyed: bool
) -> None:
    async with begun(url, partitioned=partitioned) as (queue, sender):
        with Gate(queue.client) as gate:
            gate.fates.append("never arrives")
            with pytest.raises(ServiceBusConnectionError, match="simulated by the test") as caught:
                await sender.send_messages(ServiceBusMessage("x", partition_key="k" if keyed else None))
            assert len(gate.arrived) == 1
        assert (caught.value.outcome, caught.value.is_transient, caught.value.entity) == (Outcome.NEVER_SENT, True, "q")
        await sender.send_messages(ServiceBusMessage("y", partition_key="k" if keyed else None))
        assert flat(await stored_bodies(queue)) == ["y"]


@in_memory
async def test_a_send_that_has_not_run_moves_to_another_partition(url: str) -> None:
    async with begun(url, partitioned=True) as (queue, sender):
        with Gate(queue.client) as gate:
            gate.fates.extend(("never arrives", "never arrives"))
            await sender.send_messages(ServiceBusMessage("x"))
            assert len(gate.arrived) == 3
        assert flat(await stored_bodies(queue)) == ["x"]


@in_memory
async def test_a_refused_call_stays_refused_if_the_registry_does_not_answer(url: str) -> None:
    """Although the registry does not answer, the outcome of the refused call is known."""
    async with begun(url) as (queue, sender):
        await changed(queue, max_delivery_count=3)
        with Gate(queue.client, "read_entity") as gate:
            gate.fates.append("is lost")
            with pytest.raises(ServiceBusCommunicationError, match="simulated by the test") as caught:
                await sender.send_messages(ServiceBusMessage("x"))
        assert (caught.value.outcome, caught.value.entity) == (Outcome.REFUSED, "q")
        await sender.send_messages(ServiceBusMessage("y"))
        assert flat(await stored_bodies(queue)) == ["y"]


@in_memory
async def test_closing_the_client_does_not_end_a_send_that_has_already_ended(url: str) -> None:
    """The client is closed while it divides a refused call to find the message that caused the refusal."""
    async with begun(url, quota=3000) as (queue, sender):
        with Gate(queue.client) as gate:
            gate.shut = True
            bodies = (bytes(5000), b"small")
            sends = [asyncio.create_task(sender.send_messages(ServiceBusMessage(body))) for body in bodies]
            for calls in (1, 2):
                await gate.reached(calls)
                gate.let_one()
            await gate.reached(3)
            assert sender.in_flight == 1
            await queue.client._connection.aclose()
            ended = await asyncio.gather(*sends, return_exceptions=True)
        assert [type(error) for error in ended] == [ServiceBusQuotaExceededError, ServiceBusConnectionError]
        assert sender.in_flight == 0


# -- cancelled callers -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
@in_memory
@pytest.mark.parametrize("connected", [False, True])
async def test_a_send_may_be_cancelled_at_every_step(queue: Queue, connected: bool) -> None:
    """The message is sent once or not at all. Nothing stays reserved, and later messages are sent."""
    sent = 0
    for steps in range(31):
        client = queue.client if connected else queue.other_client()
        sender = client.get_queue_sender("q", max_in_flight=1)
        task = asyncio.create_task(sender.send_messages(ServiceBusMessage(f"x{steps}")))
        behind = asyncio.create_task(sender.send_messages(ServiceBusMessage(f"y{steps}")))
        await turns(steps)
        task.cancel()
        await asyncio.wait((task,))
        sent += not task.cancelled()
        await behind
        await sender.close()
        assert sender.in_flight == 0
        if not connected:
            await client.close()
    found = flat(await stored_bodies(queue))
    assert len(found) == len(set(found))
    assert [body for body in found if body.startswith("y")] == sorted(f"y{steps}" for steps in range(31))
    assert len([body for body in found if body.startswith("x")]) >= sent


@in_memory
async def test_lists_schedules_and_cancellations_may_be_cancelled_at_every_step(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        for steps in range(12):
            (number,) = await sender.schedule_messages(ServiceBusMessage("s"), SOON)
            tasks = [
                asyncio.create_task(sender.send_messages([ServiceBusMessage("x")] * 3)),
                asyncio.create_task(sender.schedule_messages(ServiceBusMessage("y"), SOON)),
                asyncio.create_task(sender.cancel_scheduled_messages(number)),
            ]
            await turns(steps)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        await sender.close()
        assert sender.in_flight == 0
        assert flat(await stored_bodies(queue)).count("x") % 3 == 0


@in_memory
async def test_a_cancelled_close_can_be_repeated(queue: Queue) -> None:
    sender = queue.client.get_queue_sender("q")
    await sender.send_messages([])
    with Gate(queue.client) as gate:
        gate.shut = True
        send = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
        await gate.reached()
        closing = asyncio.create_task(sender.close())
        await turns()
        closing.cancel()
        await asyncio.wait((closing,))
        with pytest.raises(ValueError, match="closed"):
            await sender.send_messages(ServiceBusMessage("y"))
        gate.open()
        await sender.close()
        assert send.done()
        await send


@in_memory
async def test_a_send_that_times_out_at_any_stage_leaves_nothing_in_flight(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate:
            gate.shut = True
            for body in "abc":
                with pytest.raises(OperationTimeoutError):
                    await sender.send_messages(ServiceBusMessage(body), timeout=0.01)
            gate.open()
        await sender.close()
        assert sender.in_flight == 0


@in_memory
async def test_lane_names_of_a_client_are_unique(queue: Queue) -> None:
    """Names stay unique after many restarts. Otherwise a call could be mistaken for the repetition of a call in another
    lane.
    """
    partition_client = queue.entity.partition_client(queue.entity.numbers[0])
    lanes: list[Lane[Any, Any]] = [
        partition_client.sending,
        partition_client.renewing,
        partition_client.settling("complete"),
    ]
    lanes += [partition_client.calling(letter) for letter in ("i1", "i11", "i111", "y1", "q")]
    names: list[str] = []
    for lane in lanes:
        for pipeline in lane._pipelines:
            for _ in range(120):
                names.append(pipeline._name)
                pipeline._start_lane()
    assert len(set(names)) == len(names)
