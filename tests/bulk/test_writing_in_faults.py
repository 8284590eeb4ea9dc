"""Bulk writers that are killed, that lose answers, and whose cluster fails over: each row is stored once."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.bulk import BulkWriter, WriteSummary
from sbredis.bulk import _storing as storing
from sbredis.engine import Outbound
from sbredis.exceptions import BatchInterruptedError
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.aio.scissors import Scissors
from tests.children import child
from tests.waiting import eventually

PROGRAM = """
import asyncio, sys
from sbredis.aio import ServiceBusClient
from sbredis.bulk import BulkWriter, _storing
from sbredis.engine import Outbound

async def main(url, rows):
    _storing.MAXIMUM_CALL_MESSAGES = 20
    async with ServiceBusClient(url) as client, BulkWriter(client, "out", writer="w", batch=3, task=1) as writer:
        for at in range(0, rows, 100):
            await writer.write(Outbound([b"%d" % number for number in range(at, at + 100)]))
            print(at, flush=True)
            sys.stdin.readline()
        print((await writer.finish()).known, flush=True)

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
"""A program that runs a task, in chunks of 20 rows, and waits for a line after each hundred rows."""


async def run(url: str, rows: int, until: int | None) -> int:
    """Run the program, and kill it after ``until`` times a hundred rows. Return the last number that it printed."""
    pipe = asyncio.subprocess.PIPE
    async with child("-W", "error", "-c", PROGRAM, url, str(rows), stdin=pipe, stdout=pipe) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        last = b""
        given = 0
        while given != until and (line := await process.stdout.readline()):
            last, given = line, given + 1
            process.stdin.write(b"\n")
        if until is None:
            await process.wait()
        else:
            assert process.returncode is None, "the program has ended before it could be killed"
        return int(last or b"0")


def bodies(*numbers: int) -> Outbound:
    """Return rows of one partition."""
    return Outbound([b"%d" % number for number in numbers], partition_key=[b"key"] * len(numbers))


async def stored(client: ServiceBusClient) -> list[int]:
    """Return the bodies of all messages, which are numbers, in order."""
    found: list[int] = []
    after = 0
    async with client.get_queue_receiver("out") as receiver:
        while some := await receiver.peek_messages(1000, sequence_number=after):
            found += [int(bytes(message.body)) for message in some]
            after = (some[-1].sequence_number or 0) + 1
    return sorted(found)


@pytest.mark.long("it kills many processes")
@pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)
async def test_a_task_whose_process_is_killed_stores_each_row_once(url: str) -> None:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("out", enable_partitioning=True)
        known: list[int] = []
        for until in (4, 9, 1, 14):
            await run(url, 2000, until)
            known.append(len(await stored(client)))
        assert known == sorted(known)
        assert 0 < known[-1] < 2000
        assert await run(url, 2000, None) >= known[-1]
        assert await stored(client) == list(range(2000))


async def test_a_failover_that_loses_rows_interrupts_the_writer(replicated_cluster: LocalCluster) -> None:
    """The next run stores the rows that were lost, and no others."""
    cluster = replicated_cluster
    async with ServiceBusClient(cluster.url) as client:
        await client.ensure_queue("out", enable_partitioning=True)
        entity = await client._connection.entity("out", asyncio.get_running_loop().time() + 60)
        master = cluster.master_of(key_slot(entity.pinned("key").partition.keys[0]))
        (replica,) = cluster.replicas_of(master)

        async def has(rows: int) -> None:
            async def are_stored() -> bool:
                return len(await stored(client)) == rows

            await eventually(are_stored)

        async with BulkWriter(client, "out", writer="w", batch=3, task=1) as writer:
            await writer.write(bodies(*range(2000)))
            await has(2000)
            replica.pause()  # from here on, the replica gets nothing
            master.ask("CLIENT", "KILL", "TYPE", "replica")
            await writer.write(bodies(*range(2000, 3000)))
            await has(3000)
            await asyncio.to_thread(master.kill)
            replica.resume()
            await asyncio.to_thread(cluster.wait_until_ok, 60)

            async def go_on() -> None:
                await writer.write(bodies(*range(3000, 4000)))
                await writer.finish()

            with pytest.raises(BatchInterruptedError, match="A failover has lost rows of task 1 of batch 3") as lost:
                await go_on()
            assert (lost.value.is_transient, lost.value.entity) == (True, "out")
        left = len(await stored(client))
        assert left < 3000
        async with BulkWriter(client, "out", writer="w", batch=3, task=1) as writer:
            await writer.write(bodies(*range(4000)))
            assert await writer.finish() == WriteSummary(4000 - left, left, 0, ())
        assert await stored(client) == list(range(4000))


@pytest.mark.parametrize("on_the_way", [False, True])
async def test_an_answer_that_is_lost_is_no_second_copy(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch, *, on_the_way: bool
) -> None:
    monkeypatch.setattr(storing, "MAXIMUM_CALL_MESSAGES", 10)
    async with Scissors(server).listening() as network, ServiceBusClient(f"redis://127.0.0.1:{network.port}") as client:
        await client.ensure_queue("out")
        async with BulkWriter(client, "out", writer="w", batch=3, task=1) as writer:
            network.cut("transact", 3, on_the_way=on_the_way)
            for at in range(0, 100, 10):
                await writer.write(bodies(*range(at, at + 10)))
            assert (await writer.finish()).stored == 100
        assert network.cuts == 3
        assert await stored(client) == list(range(100))
