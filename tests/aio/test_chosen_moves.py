"""Messages that a client has chosen are moved once each, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from sbredis import ServiceBusReceivedMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio._receiver import mover_to
from sbredis.bulk import reserve
from sbredis.exceptions import (
    EntityReservedError,
    MessagingEntityDisabledError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)
from tests.aio.diverting import divert
from tests.maintenance.test_forwarding import BRIEF_CLAIMS, KINDS, Flow, Mortal, bodies, flow_at, text
from tests.waiting import eventually

SCRIPTS = ("outgoing", "freeze", "take", "settle_batch")
DEATHS = [(near, script, runs) for near in (False, True) for script in SCRIPTS for runs in (False, True)]
DEATHS = [(near, script, runs) for near, script, runs in DEATHS if not near or script == "outgoing"]
DEATHS += [(True, "transact", False), (True, "transact", True)]


async def queues(flow: Flow, *, near: bool, kind: str = "plain") -> None:
    """Create the queues "from" and "to", in one slot if ``near``."""
    more: dict[str, Any] = {"colocate_with": "from"} if near else {}
    await flow.admin.create_queue("from", **KINDS[kind])
    await flow.admin.create_queue("to", **KINDS[kind], **more)


async def everything(client: ServiceBusClient, name: str, sub_queue: Any = None) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    async with client.get_queue_receiver(name, sub_queue=sub_queue) as receiver:
        while page := await receiver.peek_messages(100):
            found += page
    return found


async def move(client: ServiceBusClient) -> int:
    """Move all messages that are in the queue "from" now; return how many have left."""
    async with client.get_queue_receiver("from") as receiver:
        mover, left = await mover_to(receiver, "to"), 0
        places: dict[int, list[ServiceBusReceivedMessage]] = {}
        for message in await everything(client, "from"):
            places.setdefault(message.sequence_number >> 48, []).append(message)
        for messages in places.values():
            left += await mover.move_messages(messages)
        return left


@pytest.mark.slow
@pytest.mark.parametrize("again", ["move", "maintain"])
@pytest.mark.parametrize(("near", "script", "runs"), DEATHS)
async def test_a_client_that_dies_at_a_step_loses_and_duplicates_nothing(
    url: str, near: bool, script: str, runs: bool, again: str
) -> None:
    """Its batch is completed by the next client that moves, or by any mover. The messages are in their order."""
    async with flow_at(url, timings=BRIEF_CLAIMS) as flow:
        await queues(flow, near=near)
        await flow.send("from", *"abc")
        async with flow.other_client() as client:
            mortal = Mortal(client, 1 + (script == "outgoing"), frozenset({script}), runs=runs)
            with pytest.raises(ServiceBusConnectionError):
                await move(client)
            assert mortal.dead
        if again == "move":
            await move(flow.client)
        else:
            async with flow.mover():
                await eventually(lambda: nothing_waits(flow))
        there, here = bodies(await everything(flow.client, "to")), bodies(await everything(flow.client, "from"))
        assert sorted(there + here) == ["a", "b", "c"]
        assert there in (["a", "b", "c"], [])
        if again == "move":
            assert there == ["a", "b", "c"]


async def nothing_waits(flow: Flow) -> bool:
    return (await flow.admin.get_queue_runtime_properties("from")).transfer_message_count == 0


@pytest.mark.slow
@pytest.mark.everywhere("messages move between nodes")
@pytest.mark.parametrize(("kind", "near"), [("plain", False), ("plain", True), ("partitioned", False)])
async def test_clients_that_die_again_and_again_lose_and_duplicate_nothing(url: str, kind: str, near: bool) -> None:
    async with flow_at(url, partitions=4, timings=BRIEF_CLAIMS) as flow:
        await queues(flow, near=near, kind=kind)
        sent = [f"{key} {number}" for key in range(5) for number in range(20)]
        await flow.send("from", *(text(each, partition_key=each.split()[0]) for each in sent))
        for fatal in range(1, 12):
            async with flow.other_client() as client:
                Mortal(client, fatal)
                with suppress(ServiceBusError):
                    await move(client)
        await move(flow.client)
        there = bodies(await everything(flow.client, "to"))
        assert Counter(there) == Counter(sent)
        for key in range(5):
            mine = [each for each in there if each.startswith(f"{key} ")]
            assert mine == [f"{key} {number}" for number in range(20)]
        assert await everything(flow.client, "from") == []


async def test_clients_that_move_side_by_side_count_each_message_once(url: str) -> None:
    """Both have read the same messages before one of them freezes them. The other one completes the batch."""
    async with flow_at(url) as flow, flow.other_client() as first, flow.other_client() as second:
        await queues(flow, near=False)
        await flow.send("from", *"abc")
        both = asyncio.Barrier(2)
        for client in first, second:
            transport: Any = client._connection.transport
            divert(transport, partial(_wait_before_the_first_freeze, [both], transport.call))
        counts = await asyncio.gather(move(first), move(second))
        assert bodies(await everything(flow.client, "to")) == ["a", "b", "c"]
        assert sorted(counts) == [0, 3]


async def _wait_before_the_first_freeze(
    barriers: list[asyncio.Barrier], through: Callable[..., Any], script: Any, *arguments: Any, **options: Any
) -> Any:
    if script.name == "freeze" and barriers:
        await barriers.pop().wait()
    return await through(script, *arguments, **options)


@pytest.mark.parametrize("completed", [False, True])
@pytest.mark.parametrize("near", [False, True])
async def test_messages_that_a_receiver_gets_do_not_hold_the_others_up(url: str, near: bool, completed: bool) -> None:
    """The receiver gets one after the client has read it, so the call to move all of them is refused."""
    async with flow_at(url) as flow, flow.other_client() as other:
        await queues(flow, near=near)
        await flow.send("from", *"abcde")
        transport: Any = other._connection.transport
        through: Callable[..., Any] = transport.call
        async with flow.client.get_queue_receiver("from") as receiver:
            held: list[ServiceBusReceivedMessage] = []

            async def call(script: Any, *arguments: Any, **options: Any) -> Any:
                if script.name in {"freeze", "transact"} and not held:
                    held.extend(await receiver.receive_messages(1, 60))
                    if completed:
                        await receiver.complete_message(held[0])
                return await through(script, *arguments, **options)

            divert(transport, call)
            assert await move(other) == 4
            assert bodies(held) == ["a"]
            assert bodies(await everything(flow.client, "to")) == ["b", "c", "d", "e"]
            assert bodies(await everything(flow.client, "from")) == ([] if completed else ["a"])


@pytest.mark.parametrize("near", [False, True])
async def test_deferred_messages_become_active_and_keep_their_contents(url: str, near: bool) -> None:
    async with flow_at(url) as flow:
        await queues(flow, near=near)
        await flow.send("from", text("a", message_id="7", application_properties={"n": 1}, subject="tea"), "b")
        async with flow.client.get_queue_receiver("from") as receiver:
            first, second = [*await receiver.receive_messages(2, 60)]
            await receiver.defer_message(first)
            await receiver.abandon_message(second)
        (before, _) = await everything(flow.client, "from")
        assert await move(flow.client) == 2
        after, _ = await everything(flow.client, "to")
        for name in ("message_id", "subject", "application_properties", "body_type", "partition_key", "time_to_live"):
            assert getattr(after, name) == getattr(before, name), name
        assert (after.delivery_count, after.enqueued_sequence_number) == (0, after.sequence_number)


@pytest.mark.parametrize("near", [False, True])
async def test_messages_that_the_destination_refuses_can_be_sent_there_again(url: str, near: bool) -> None:
    """They are transfer dead letters with the reason, and a redrive of those takes them to the destination."""
    async with flow_at(url) as flow:
        await queues(flow, near=near)
        await flow.send("from", *"ab")
        to = await flow.admin.get_queue("to")
        to.status = "SendDisabled"
        await flow.admin.update_queue(to)
        await move(flow.client)
        dead = await everything(flow.client, "from", "transferdeadletter")
        assert [(str(each), each.dead_letter_reason) for each in dead] == [
            (body, "MessagingEntityDisabled") for body in "ab"
        ]
        to.status = "Active"
        await flow.admin.update_queue(to)
        async with flow.client.get_queue_receiver("from", sub_queue="transferdeadletter") as letters:
            assert (await letters.redrive_messages()).moved == 2
        async with flow.mover():
            assert bodies(await flow.take(2, "to")) == ["a", "b"]


async def test_a_message_that_does_not_fit_into_the_destination_stays(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("from", max_message_size_in_kilobytes=4096)
        await flow.admin.create_queue("to")
        await flow.send("from", "a", "x" * 2_000_000, "b")
        assert await move(flow.client) == 2
        assert bodies(await everything(flow.client, "to")) == ["a", "b"]
        (left,) = await everything(flow.client, "from")
        assert len(str(left)) == 2_000_000


async def test_a_queue_from_which_nobody_may_receive_is_refused(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("from", status="ReceiveDisabled")
        await flow.admin.create_queue("to")
        await flow.send("from", "a")
        async with flow.other_client() as client:
            with pytest.raises(MessagingEntityDisabledError, match="The entity's status is ReceiveDisabled") as caught:
                await mover_to(client.get_queue_receiver("from"), "to")
            assert caught.value.outcome is Outcome.REFUSED
        assert bodies(await everything(flow.client, "from")) == ["a"]


async def test_messages_of_a_reserved_entity_stay_and_the_error_says_for_whom(url: str) -> None:
    async with flow_at(url) as flow, flow.other_client() as other:
        await queues(flow, near=False)
        await flow.send("from", *"abc")
        async with other.get_queue_receiver("from") as receiver:
            mover = await mover_to(receiver, "to")
            await reserve(flow.client, "from", consumer="capture")
            with pytest.raises(EntityReservedError, match="reserved for the consumer 'capture'"):
                await move(flow.client)
            assert await mover.move_messages(await everything(flow.client, "from")) == 0  # it began before
        assert bodies(await everything(flow.client, "from")) == ["a", "b", "c"]
        assert await everything(flow.client, "to") == []
