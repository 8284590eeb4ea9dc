"""Clients and messages whose stored records are missing: one such message stops no other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.engine import perform
from sbredis.exceptions import Outcome, ServiceBusConnectionError
from sbredis.maintenance._moving import destinations_of
from sbredis.model import ServiceBusMessage
from sbredis.moving import Carrier
from tests.aio.diverting import divert
from tests.aio.queues import HandClock
from tests.aio.topics import topic_at
from tests.maintenance.test_forwarding import bodies, flow_at, shared_of, text

UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
LOST = ("RecordMissing", "The stored record of the message was missing or damaged, so its content is lost.")


async def lose_all(client: ServiceBusClient) -> int:
    """Delete all stored records of a server, and return their number."""
    return await lose_in(client, await client._connection.transport.command("KEYS", "sb:*:m[0-9]*", key=b"x"))


async def lose_in(client: ServiceBusClient, keys: Iterable[bytes]) -> int:
    """Delete the stored records in these keys, and return their number.

    One script reads all records, and the tests of the scripts show that it takes a damaged record for a missing one.
    """
    transport, count = client._connection.transport, 0
    for key in keys:
        numbers = await transport.command("HKEYS", key, key=key)
        count += len(numbers)
        await transport.command("DEL", key, key=key)
    return count


async def test_a_receiver_gets_the_messages_behind_a_lost_one(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("q")
        await flow.send("q", "lost")
        assert await lose_all(flow.client) == 1
        await flow.send("q", "a", "b")
        async with flow.client.get_queue_receiver("q") as receiver:
            (peeked, *_) = await receiver.peek_messages(3)
            assert (peeked.dead_letter_reason, bytes(peeked.body), peeked.enqueued_time_utc) == (LOST[0], b"", UNKNOWN)
        assert bodies(await flow.take(2, "q")) == ["a", "b"]
        (dead,) = await flow.take(1, "q", sub_queue="deadletter")
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == LOST
        assert (dead.body, dead.enqueued_time_utc, dead.message_id) == (b"", UNKNOWN, None)
        assert (await flow.admin.get_queue_runtime_properties("q")).total_message_count == 0


async def test_a_receiver_gets_past_many_lost_messages(url: str) -> None:
    """One call sets aside a hundred of them."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("q")
        async with flow.client.get_queue_sender("q") as sender:
            await sender.send_messages([text("lost")] * 250)
        assert await lose_all(flow.client) == 250
        await flow.send("q", "a")
        assert bodies(await flow.take(1, "q")) == ["a"]
        assert (await flow.admin.get_queue_runtime_properties("q")).dead_letter_message_count == 250


async def test_a_redrive_ends_although_it_cannot_move_a_lost_message(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("q")
        await flow.admin.create_queue("other")
        await flow.send("q", "lost")
        async with flow.client.get_queue_receiver("q") as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            await receiver.dead_letter_message(message, reason="mine")
            assert await lose_all(flow.client) == 1
            await flow.send("q", "a")
            (message,) = await receiver.receive_messages(1, 60)
            await receiver.dead_letter_message(message, reason="mine")
        async with flow.client.get_queue_receiver("q", sub_queue="deadletter") as letters:
            assert (await letters.redrive_messages(to="other")).moved == 1
            assert (await letters.redrive_messages()).moved == 0
            (left,) = await letters.peek_messages(3)
            assert left.dead_letter_reason == LOST[0]
        assert bodies(await flow.take(1, "other")) == ["a"]


@pytest.mark.parametrize("near", [True, False], ids=["same slot", "other slot"])
async def test_a_lost_message_is_not_forwarded_and_the_others_are(url: str, near: bool) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to", colocate_with="to" if near else None)
        await flow.send("from", "lost")
        assert await lose_all(flow.client) == 1
        await flow.send("from", "a", "b")
        async with flow.mover():
            assert bodies(await flow.take(2, "to")) == ["a", "b"]
            (dead,) = await flow.take(1, "from", sub_queue="deadletter")
        assert (dead.dead_letter_reason, dead.dead_letter_error_description) == LOST


@pytest.mark.parametrize("last", ["freeze", "take"])
async def test_a_batch_whose_record_is_lost_is_settled_by_what_its_destination_knows(url: str, last: str) -> None:
    """A mover has died after it has frozen the batch, or after the destination has taken it."""

    async def call(script: Any, *arguments: Any, **options: Any) -> Any:
        reply = await through(script, *arguments, **options)
        if script.name == last:
            raise ServiceBusConnectionError("The process is dead.", outcome=Outcome.UNKNOWN)
        return reply

    async with flow_at(url) as flow, flow.other_client() as other:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        await flow.send("from", "lost")
        shared = await shared_of(other)
        source = await shared.connection.entity("from", asyncio.get_running_loop().time() + 60)
        (number,) = source.numbers
        waiting = await perform(shared.connection.transport, source.partition(number).outgoing())
        destinations = destinations_of(shared, source, number)
        ((heap,), _) = await destinations.sorted(waiting.messages, waiting.now)
        transport: Any = other._connection.transport
        through = transport.call
        divert(transport, call)
        carrier = Carrier(source, number, waiting.birth, destinations)
        with pytest.raises(ServiceBusConnectionError):
            await carrier.carry(heap.destination, heap.entity, heap.moves)
        divert(transport, through)
        assert await lose_in(flow.client, source.partition(number).keys[10:26]) == 1
        await flow.send("from", "a")
        async with flow.mover():
            expected = ["lost", "a"] if last == "take" else ["a"]
            assert sorted(bodies(await flow.take(len(expected), "to"))) == sorted(expected)
            if last == "freeze":
                (dead,) = await flow.take(1, "from", sub_queue="deadletter")
                assert (dead.dead_letter_reason, dead.dead_letter_error_description) == LOST
        counts = await flow.admin.get_queue_runtime_properties("from")
        assert (counts.total_message_count, counts.transfer_message_count) == (0, 0)


async def test_a_lost_dead_letter_is_not_forwarded_and_the_others_are(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_dead_lettered_messages_to="to")
        async with flow.client.get_queue_receiver("from") as receiver:
            for body in ("lost", "a"):
                await flow.send("from", body)
                (message,) = await receiver.receive_messages(1, 60)
                await receiver.dead_letter_message(message)
                if body == "lost":
                    assert await lose_all(flow.client) == 1
        async with flow.mover():
            assert bodies(await flow.take(1, "to")) == ["a"]
            (dead,) = await flow.take(1, "from", sub_queue="deadletter")
        assert dead.dead_letter_reason == LOST[0]


async def test_a_lost_message_of_a_transaction_goes_to_the_transfer_dead_letter_queue(url: str) -> None:
    async with flow_at(url, partitions=16) as flow:
        await flow.transfer(text("lost"))
        async with flow.client.get_queue_receiver("home") as receiver:
            await receiver.complete_message((await receiver.receive_messages(1, 60))[0])
        assert await lose_all(flow.client) == 1
        async with flow.mover():
            (dead,) = await flow.take(1, "home", sub_queue="transferdeadletter")
        assert dead.dead_letter_reason == LOST[0]


async def test_a_lost_message_that_is_scheduled_on_a_topic_is_removed_and_logged(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    async with topic_at(url, {"one": None}, clock=clock) as subject, subject.sender() as sender:
        due = datetime.fromtimestamp(clock.utc(), UTC) + timedelta(hours=1)
        (number,) = await sender.schedule_messages(ServiceBusMessage("lost"), due)
        assert await lose_all(subject.client) == 1
        await sender.schedule_messages(ServiceBusMessage("a"), due)
        clock.move(3601)
        with caplog.at_level(logging.ERROR, "sbredis.maintenance"):
            async with subject.other_client(maintenance=True):
                await subject.wait_for_count("one", 1)
        assert f"the scheduled message {number} is removed, because its stored record is missing" in caplog.text
        async with subject.receiver("one") as receiver:
            assert bodies(await receiver.receive_messages(2, 60)) == ["a"]
        assert await subject.scheduled() == 0
