"""Many queues that forward a few messages each. A mover sweeps them together, and no source holds up the others."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.engine import NO_CALL_ID, Batch, Content, Destination, Origin, Outgoing, Partition, Request, Taken, encode
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.moving._taking import TakeCalls, TakenBatch
from tests.aio.diverting import divert
from tests.maintenance.test_forwarding import BRIEF_CLAIMS, Flow, Mortal, bodies, flow_at, moving_of, soon, text
from tests.plugins.parts import first
from tests.waiting import eventually

SOURCES = 24


@asynccontextmanager
async def scattered(url: str, *, sinks: tuple[str, ...] = ("to",), count: int = SOURCES) -> AsyncIterator[Flow]:
    """Make queues that forward to the sinks in turn. There are three slots, so many of them share one."""
    async with flow_at(url, timings=BRIEF_CLAIMS) as flow:
        for sink in sinks:
            await flow.admin.create_queue(sink)
        for number in range(count):
            await flow.admin.create_queue(f"from-{number}", forward_to=sinks[number % len(sinks)])
        yield flow


async def send_round(flow: Flow, label: str, count: int = SOURCES) -> list[str]:
    """Send one message to each source. Return their bodies."""
    for number in range(count):
        await flow.send(f"from-{number}", f"{label} {number}")
    return [f"{label} {number}" for number in range(count)]


def counted(client: Any) -> Counter[str]:
    """Count the calls of a client by their scripts."""
    calls: Counter[str] = Counter()
    transport = client._connection.transport
    through = transport.call

    async def call(script: Any, *arguments: Any, **options: Any) -> Any:
        calls[script.name] += 1
        return await through(script, *arguments, **options)

    divert(transport, call)
    return calls


@pytest.mark.everywhere("messages move between nodes")
async def test_the_messages_of_many_sources_share_calls(url: str) -> None:
    async with scattered(url) as flow:
        sent = await send_round(flow, "one")
        async with flow.other_client() as client:
            calls = counted(client)
            async with client.maintain():
                assert sorted(bodies(await flow.take(SOURCES, "to"))) == sorted(sent)
                await eventually(lambda: moving_of(client).visitor.at_rest)
        alone = sum(calls[name] for name in ("outgoing", "freeze", "settle_batch"))
        assert calls["sweep"] <= 2 * SOURCES / 3
        assert alone <= SOURCES  # some are in the slot of their destination


@pytest.mark.slow
@pytest.mark.everywhere("messages move between nodes")
@pytest.mark.parametrize("call", first(1, ["take", "sweep"], "each is killed at six calls"))
async def test_a_killed_mover_loses_and_duplicates_no_message_of_any_source(url: str, call: str) -> None:
    async with scattered(url, sinks=("to", "other")) as flow:
        sent: list[str] = []
        for fatal in range(1, 7):
            sent += await send_round(flow, str(fatal))
            async with flow.other_client() as client:
                mortal = Mortal(client, fatal, frozenset({call}))
                async with client.maintain():
                    duty = moving_of(client)
                    await eventually(lambda: mortal.dead or duty.visitor.at_rest)  # noqa: B023 -- in this round only
        async with flow.mover():
            found = [*await flow.take(len(sent) // 2, "to"), *await flow.take(len(sent) // 2, "other")]
        assert Counter(bodies(found)) == Counter(sent)
        for name in ("to", "other"):
            async with flow.client.get_queue_receiver(name) as receiver:
                assert await receiver.receive_messages(max_wait_time=0) == []


async def test_a_destination_that_refuses_does_not_hold_up_the_others(url: str) -> None:
    async with scattered(url, sinks=("to", "closed")) as flow:
        closed = await flow.admin.get_queue("closed")
        closed.status = "SendDisabled"
        await flow.admin.update_queue(closed)
        sent = await send_round(flow, "one")
        async with flow.mover():
            assert sorted(bodies(await flow.take(SOURCES // 2, "to"))) == sorted(sent[::2])
            for number in range(1, SOURCES, 2):
                (dead,) = await flow.take(1, f"from-{number}", sub_queue="deadletter")
                assert dead.dead_letter_reason == "MessagingEntityDisabled"


async def test_a_destination_that_does_not_answer_does_not_hold_up_the_others(url: str) -> None:
    """The others of a slot move messages again while one destination still says nothing."""
    async with scattered(url, sinks=("to", "silent")) as flow:
        silent = await flow.client._connection.record("silent", asyncio.get_running_loop().time() + 60)
        answers, asked = asyncio.Event(), asyncio.Event()
        async with flow.other_client() as client:
            transport: Any = client._connection.transport
            through = transport.call

            async def call(script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
                if script.name in {"take", "transact"} and any(silent.id.encode() in key for key in keys):
                    asked.set()
                    await answers.wait()
                return await through(script, keys, *arguments, **options)

            divert(transport, call)
            sent = await send_round(flow, "one")
            async with client.maintain():
                await asked.wait()
                assert sorted(bodies(await flow.take(SOURCES // 2, "to"))) == sorted(sent[::2])
                again = await send_round(flow, "two")
                assert sorted(bodies(await flow.take(SOURCES // 2, "to"))) == sorted(again[::2])
                answers.set()
                found = await flow.take(SOURCES, "silent")
                assert Counter(bodies(found)) == Counter([*sent[1::2], *again[1::2]])


async def test_a_source_that_was_deleted_does_not_hold_up_the_others(url: str) -> None:
    deleted = [f"from-{number}" for number in range(0, SOURCES, 3)]
    async with scattered(url) as flow, flow.other_client() as client:
        await send_round(flow, "one")
        async with client.maintain():
            assert len(await flow.take(SOURCES, "to")) == SOURCES
            await flow.nothing_waits(*deleted)
        for name in deleted:
            await flow.admin.delete_queue(name)
        left = [number for number in range(SOURCES) if number % 3]
        for number in left:
            await flow.send(f"from-{number}", f"two {number}")
        async with client.maintain():
            assert sorted(bodies(await flow.take(len(left), "to"))) == sorted(f"two {number}" for number in left)


async def test_sources_that_were_changed_or_made_again_are_swept_as_they_are_now(url: str) -> None:
    async with scattered(url, count=3) as flow, flow.mover():
        sent = await send_round(flow, "first", 3)
        assert sorted(bodies(await flow.take(3, "to"))) == sent
        changed = await flow.admin.get_queue("from-0")
        changed.max_delivery_count = 7
        await flow.admin.update_queue(changed)
        await flow.nothing_waits("from-1")
        await flow.admin.delete_queue("from-1")
        await flow.admin.create_queue("from-1", forward_to="to")
        sent = await send_round(flow, "second", 3)
        assert sorted(bodies(await flow.take(3, "to"))) == sent


async def test_what_a_transaction_has_sent_elsewhere_is_moved_beside_what_is_forwarded(url: str) -> None:
    async with scattered(url, sinks=("to", "elsewhere", "third")) as flow:
        source = "from-0"
        async with (
            flow.client.get_queue_sender(source) as home,
            flow.client.get_queue_sender("elsewhere") as elsewhere,
            flow.client.get_queue_sender("third") as third,
            flow.client.transaction() as tx,
        ):
            tx.send_messages(home, text("forwarded"))
            tx.send_messages(elsewhere, text("elsewhere"))
            tx.send_messages(third, text("third"))
        async with flow.mover():
            for name, body in (("to", "forwarded"), ("elsewhere", "elsewhere"), ("third", "third")):
                assert bodies(await flow.take(1, name)) == [body]


@pytest.mark.slow
async def test_many_messages_of_one_source_keep_their_order(url: str) -> None:
    """A mover carries at most 500 of them at once."""
    async with scattered(url, count=3) as flow:
        async with flow.client.get_queue_sender("from-0") as sender:
            for start in (0, 300):
                await sender.send_messages([text(str(number)) for number in range(start, start + 300)])
        async with flow.mover():
            assert bodies(await flow.take(600, "to")) == [str(number) for number in range(600)]


# -- calls that are shared ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leader", [True, False], ids=["in its call", "before its call"])
async def test_a_caller_that_is_cancelled_leaves_the_batches_of_others(url: str, leader: bool) -> None:
    """The batches that wait during a call share the next one."""
    async with flow_at(url) as flow, flow.other_client() as client:
        await flow.admin.create_queue("to")
        entity = await client._connection.entity("to", soon())
        to, takes = Destination(entity.record.id, entity.numbers[0]), TakeCalls(client._connection)
        transport: Any = client._connection.transport
        through, go_on, calls = transport.call, (asyncio.Event(), asyncio.Event()), list[int]()

        async def call(script: Any, keys: Any, arguments: Any, **options: Any) -> Any:
            calls.append(sum(str(each).startswith("source") for each in arguments))
            if len(calls) <= 2:
                await go_on[len(calls) - 1].wait()
            return await through(script, keys, arguments, **options)

        def batch(number: int) -> TakenBatch:
            def make(partition: Partition) -> Request[Taken]:
                sending = partition.send(NO_CALL_ID, [Outgoing(encode(Content(b"%d" % number)))])
                return partition.take(Origin(f"source{number}", "birth"), Batch(to, "", 1, ("1",)), "", sending)

            return TakenBatch(make, 1, 1)

        divert(transport, call)
        tasks = [asyncio.create_task(takes.take(entity, to, [batch(number)], neutral=False)) for number in range(5)]
        await eventually(lambda: calls == [1])
        gone = tasks.pop(1 if leader else 2)
        if leader:
            go_on[0].set()
            await eventually(lambda: calls == [1, 4])
        gone.cancel()
        await asyncio.wait([gone])
        for event in go_on:
            event.set()
        for (taken,) in await asyncio.gather(*tasks):
            assert taken.verdict == "taken"
        assert calls == ([1, 4, 3] if leader else [1, 3])
        assert len(await flow.take(4, "to")) == 4


async def test_an_error_of_a_shared_call_is_raised_to_all_its_callers(url: str) -> None:
    async with flow_at(url) as flow, flow.other_client() as client:
        await flow.admin.create_queue("to")
        entity = await client._connection.entity("to", soon())
        other = Destination("another-entity", entity.numbers[0])
        takes = TakeCalls(client._connection)
        results = await asyncio.gather(
            *(takes.take(entity, other, [], neutral=False) for _ in range(3)), return_exceptions=True
        )
        assert [type(each) for each in results] == [MessagingEntityNotFoundError] * 3
