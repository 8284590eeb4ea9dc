"""Transactions of processes that are killed, and in a cluster whose masters and slots move: all or nothing, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSessionReceiver
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage
from sbredis.servers import ClusterNode, LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.aio.queues import bodies_in
from tests.children import child
from tests.waiting import eventually

# -- a process that is killed ------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from sbredis import ServiceBusClient, ServiceBusMessage
with ServiceBusClient(sys.argv[1], namespace="ns") as client:
    receiver, sender = client.get_queue_receiver("inputs"), client.get_queue_sender("outputs")
    for line in sys.stdin:
        (message,) = receiver.receive_messages(1, max_wait_time=60)
        with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage(str(message)))
        print(message, flush=True)
"""
"""A program that completes an input and sends its output for each line that it reads."""


class Program:
    """A process that handles inputs, one for each call of :meth:`go_on`."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    def go_on(self, times: int = 1) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n" * times)

    async def done(self) -> str:
        """Wait until the program has committed a transaction, and return its input."""
        assert self._process.stdout is not None
        return (await self._process.stdout.readline()).decode().strip()


@asynccontextmanager
async def program(url: str) -> AsyncIterator[Program]:
    pipe = asyncio.subprocess.PIPE
    async with child("-W", "error", "-c", PROGRAM, url, stdin=pipe, stdout=pipe) as process:
        yield Program(process)


@asynccontextmanager
async def entities(server: LocalServer, count: int) -> AsyncIterator[ServiceBusClient]:
    """Make a queue with this many inputs, and a queue for the outputs beside it."""
    async with ServiceBusClient(server.url, namespace="ns") as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        async with client.get_queue_sender("inputs") as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(count)])
        yield client


@pytest.mark.long("it kills many processes")
async def test_processes_that_are_killed_at_any_time_leave_no_half_transaction(server: LocalServer) -> None:
    async with entities(server, 200) as client:
        before = _connected(server)
        for commits in (0, 1, 4, 9):
            async with program(server.url) as running:
                running.go_on(40)
                for _ in range(commits):
                    assert await running.done()
        await eventually(lambda: _connected(server) == before)  # the server has handled all that they sent
        inputs, outputs = await bodies_in(client, "inputs"), await bodies_in(client, "outputs")
        assert sorted([*inputs, *outputs], key=int) == [str(number) for number in range(200)]
        assert len(outputs) >= 0 + 1 + 4 + 9


def _connected(server: LocalServer) -> int:
    """Return how many clients the server has."""
    told = server.ask("INFO", "clients")
    assert isinstance(told, str)
    return next(int(line.partition(":")[2]) for line in told.splitlines() if line.startswith("connected_clients:"))


# -- a cluster whose masters and slots move ----------------------------------------------------------------------------

SESSIONS, EACH = 4, 50
AT_ONCE = 40
"""The number of transactions that the test permits for each disturbance."""


class Ledger:
    """Sessions whose inputs are handled in transactions: complete the input, send an output, set the state."""

    def __init__(self, client: ServiceBusClient) -> None:
        self.client = client
        self.permits = asyncio.Semaphore(0)
        self.commits = 0
        self.errors: list[ServiceBusError] = []

    async def fill(self) -> None:
        await self.client.ensure_queue("jobs", requires_session=True, lock_duration=timedelta(seconds=5))
        await self.client.ensure_queue("results", colocate_with="jobs")
        async with self.client.get_queue_sender("jobs") as sender:
            for session in range(SESSIONS):
                await sender.send_messages(
                    [ServiceBusMessage(str(number), session_id=f"s{session}") for number in range(EACH)]
                )

    def permit(self, transactions: int) -> None:
        for _ in range(transactions):
            self.permits.release()

    async def handle(self, session: str) -> None:
        """Handle all inputs of a session, and begin again after an error."""
        while True:
            try:
                async with self.client.get_queue_receiver("jobs", session_id=session, max_wait_time=60) as receiver:
                    if not await receiver.peek_messages(1, sequence_number=1):
                        return
                    await self._handle(receiver)
            except ServiceBusError as error:
                self.errors.append(error)

    async def _handle(self, receiver: ServiceBusSessionReceiver) -> None:
        async with self.client.get_queue_sender("results") as sender:
            while await receiver.peek_messages(1, sequence_number=1):
                for message in await receiver.receive_messages(1):
                    await self.permits.acquire()
                    async with self.client.transaction() as tx:
                        tx.complete_message(message)
                        tx.send_messages(sender, ServiceBusMessage(str(message), subject=receiver.session.session_id))
                        tx.set_session_state(receiver.session, str(message))
                    self.commits += 1

    async def check(self) -> None:
        """Check that each input was handled once, and that the state of each session is that of its last output.

        If a failover has lost transactions that were committed, their inputs were handled again, after others.
        """
        outputs: dict[str | None, list[str]] = {}
        async with self.client.get_queue_receiver("results") as receiver:
            for message in await receiver.peek_messages(1000):
                outputs.setdefault(message.subject, []).append(str(message))
        assert sorted(outputs, key=str) == [f"s{session}" for session in range(SESSIONS)]
        for session, handled in outputs.items():
            assert sorted(handled, key=int) == [str(number) for number in range(EACH)]
            async with self.client.get_queue_receiver("jobs", session_id=session) as receiver:
                assert receiver.session is not None
                assert await receiver.session.get_state() == handled[-1].encode()
                assert await receiver.peek_messages(1, sequence_number=1) == []


async def _kill(cluster: LocalCluster, master: ClusterNode) -> None:
    await asyncio.to_thread(master.kill)
    await asyncio.to_thread(cluster.wait_until_ok, 60)


async def _fail_over(cluster: LocalCluster, master: ClusterNode) -> None:
    await asyncio.to_thread(cluster.failover, cluster.replicas_of(master)[0])


async def _move(cluster: LocalCluster, slot: int, *, atomic: bool) -> None:
    home = cluster.master_of(slot)
    target = next(node for node in cluster.masters if node is not home)
    for node in (target, home):
        if atomic and cluster.supports_atomic_migration:
            await asyncio.to_thread(cluster.migrate_slot_atomic, slot, node)
        else:
            await asyncio.to_thread(cluster.migrate_slot_classic, slot, node)


@pytest.mark.long("a cluster goes through all faults; failovers of sends are in make test")
async def test_transactions_happen_once_while_masters_and_slots_of_a_cluster_move(
    replicated_cluster: LocalCluster,
) -> None:
    cluster = replicated_cluster
    async with ServiceBusClient(cluster.url, namespace="ns") as client:
        ledger = Ledger(client)
        await ledger.fill()
        entity = await client._connection.entity("jobs", asyncio.get_running_loop().time() + 60)
        slot = key_slot(entity.partition(entity.numbers[0]).keys[0])
        workers = [asyncio.create_task(ledger.handle(f"s{session}")) for session in range(SESSIONS)]
        disturb: list[Callable[[], Awaitable[None]]] = [
            lambda: _fail_over(cluster, cluster.master_of(slot)),
            lambda: _move(cluster, slot, atomic=False),
            lambda: _move(cluster, slot, atomic=True),
            lambda: _kill(cluster, cluster.master_of(slot)),
        ]
        for disturbance in disturb:
            goal = ledger.commits + 4
            ledger.permit(AT_ONCE)
            await eventually(lambda: ledger.commits >= goal)  # noqa: B023 -- awaited at once
            await disturbance()
        ledger.permit(100 * SESSIONS * EACH)
        await asyncio.wait_for(asyncio.gather(*workers), 240)
        await ledger.check()
