"""Maintenance visits a partition when work in it is due, even if no sender or receiver uses the partition.

The assertions read the keys directly, because any script call would do the due work itself or hide it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.client import MOVE, ROUTE
from sbredis.engine import PartitionSettings
from sbredis.maintenance import _routing as due_work
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, Calls, Queue, both, on_servers, queue_at
from tests.aio.topics import topic_at
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("the client visits partitions on several nodes")
BRIEF: dict[str, Any] = {"time_to_live": 300, "dead_letter_expired": True}


def loop_time() -> float:
    return asyncio.get_running_loop().time()


def visitor_of(client: ServiceBusClient) -> Any:
    offer: Any = client._offer.maintenance
    return offer.duties[ROUTE].visitor


def mover_of(client: ServiceBusClient) -> Any:
    offer: Any = client._offer.maintenance
    return offer.duties[MOVE].visitor


@asynccontextmanager
async def maintained(queue: Any) -> AsyncIterator[ServiceBusClient]:
    """Open another client that maintains the namespace and has read all partitions."""
    async with queue.other_client(maintenance=True) as client:
        await eventually(lambda: visitor_of(client).at_rest and mover_of(client).at_rest)
        yield client


async def held(queue: Queue, kind: str) -> list[str]:
    """Return the members of the keys of one kind in all partitions, without the sentinel member."""
    found: list[str] = []
    for key, (_, members) in (await queue.contents()).items():
        if key.endswith(f":{kind}"):
            found += [member.decode() for member in members if len(member) < 60]
    return sorted(found)


async def dead_letters(queue: Queue, count: int) -> None:
    """Wait until this number of dead letters exists and no other message is left."""

    async def only_dead_letters() -> bool:
        there = await held(queue, "order")
        return len(there) == count and all(name.startswith("d") for name in there)

    await eventually(only_dead_letters)


@pytest.mark.slow
@both
async def test_maintenance_ends_locks_and_activates_scheduled_messages(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, lock_duration=400) as queue, maintained(queue):
        await queue.send("locked", at=0)
        assert len(await queue.take(at=0)) == 1
        due = round(queue.client._connection.clock.utc() * 1000) + 300
        await queue.send("later", at=-1, due=due)

        async def done() -> bool:
            return await held(queue, "leases") == [] and await held(queue, "due") == []

        await eventually(done)
        assert await queue.counts_are(2, 0)


@pytest.mark.slow
@both
async def test_a_subscription_is_visited_like_a_queue(url: str, partitioned: bool) -> None:
    async with topic_at(url, partitioned=partitioned) as subject, maintained(subject):
        brief: dict[str, Any] = {
            "default_message_time_to_live": timedelta(seconds=1),
            "dead_lettering_on_message_expiration": True,
        }
        await subject.create({"one": None}, **brief)
        await subject.create({"sessions": None}, requires_session=True, **brief)
        async with subject.sender() as sender:
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage(text, session_id=text)) for text in "abc"))
        for name in ("one", "sessions"):
            await dead_letters(await subject.queue_of(name), 3)


@on_servers
@both
async def test_announcements_that_were_missed_without_a_connection_are_caught_up(
    url: str, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unheard(payload: bytes) -> None:
        heard.append(payload)
        raise ValueError

    heard: list[bytes] = []
    async with queue_at(url, partitioned=partitioned, **BRIEF) as queue, maintained(queue) as holder:
        monkeypatch.setattr(due_work, "read_announcement", unheard)
        await queue.send("a", "b", "c")
        await eventually(lambda: len(heard) >= len(queue.partitions))
        transport: Any = holder._connection.transport
        for ear in transport._listening._ears.values():  # the connection is lost
            ear._silent = True
            ear._over.set()
        await dead_letters(queue, 3)


@pytest.mark.slow
@both
async def test_an_unresponsive_partition_does_not_delay_other_entities(url: str, partitioned: bool) -> None:
    settings: Any = PartitionSettings(**BRIEF)
    async with queue_at(url, partitioned=partitioned, **BRIEF) as queue:
        connection = queue.client._connection
        mute = {partition.keys[0] for partition in queue.partitions}
        let: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        others: list[Queue] = []
        for name in "xyz":
            await connection.namespace.create_entity(name, settings, colocate_with="q" if not partitioned else None)
            entity = await connection.entity(name, loop_time() + 60)
            others.append(Queue(queue.client, entity, url, None))
        async with maintained(queue) as holder:
            transport = holder._connection.transport
            through = transport.call

            stuck: list[bytes] = []

            async def call(script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
                if script.name == "due" and keys[0] in mute:
                    stuck.append(keys[0])
                    await let
                return await through(script, keys, *arguments, **options)

            divert(transport, call)
            await queue.send(*"abc"[: len(mute)])  # a second one at a partition would do its due work
            await eventually(lambda: stuck)
            for other in others:
                await other.send("m")
            for other in others:
                await dead_letters(other, 1)
            assert not any(name.startswith("d") for name in await held(queue, "order"))
            let.set_result(None)
            await dead_letters(queue, len(mute))


@pytest.mark.slow
@both
async def test_many_due_messages_take_several_visits(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, **BRIEF) as queue, maintained(queue):
        await queue.fill(1500)
        await dead_letters(queue, 1500)


@pytest.mark.parametrize("target", ["server"], indirect=True)
async def test_idle_entities_cause_almost_no_calls(url: str, server: LocalServer) -> None:
    """Even with many idle entities, almost all calls on the server renew the role."""

    def scripts() -> int:
        text = str(server.ask("INFO", "commandstats"))
        (line,) = (line for line in text.splitlines() if line.startswith("cmdstat_fcall:"))
        return int(line.partition("calls=")[2].partition(",")[0])

    async with queue_at(url, partitions=16, partitioned=True, timings=replace(PATIENT, claiming=6.0)) as queue:
        namespace = queue.client._connection.namespace
        await queue.send("m")
        for number in range(40):
            await namespace.create_entity(f"q{number}", PartitionSettings(), partitioned=True)
        async with maintained(queue) as holder:
            with Calls(holder._connection.transport) as calls:
                before = scripts()
                await eventually(lambda: calls.by_script["hold_role"] >= 8)
                ran = scripts() - before
    assert calls.by_script["due"] == 0
    assert ran <= 8 + 4, calls.by_script


@pytest.mark.slow
@both
async def test_a_partition_whose_messages_are_settled_in_time_gets_no_visits(url: str, partitioned: bool) -> None:
    async with queue_at(url, partitioned=partitioned, lock_duration=60_000) as queue, maintained(queue) as holder:
        with Calls(holder._connection.transport) as calls:
            async with queue.receiver() as receiver:
                for number in range(30):
                    await queue.send(str(number))
                    await receiver.complete_message(await anext(receiver))
        assert calls.by_script["due"] == 0
        assert calls.by_script.total() <= 6, calls.by_script
