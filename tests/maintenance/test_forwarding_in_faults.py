"""Messages that are forwarded over two hops while masters fail over, slots move and movers are killed.

With the durability ``replicated`` no acknowledged message is lost, and each message arrives once.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from itertools import count, cycle, islice
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.children import child
from tests.maintenance.test_forwarding import moving_of
from tests.transport.between import Between
from tests.waiting import eventually

DISTURBANCES = int(os.environ.get("SBREDIS_FORWARD_FAULTS", "4"))
"""The number of disturbances. The long form has 20: four kinds and three queues take turns."""
EACH = 40
"""The number of messages for each disturbance."""
MESSAGES = int(os.environ.get("SBREDIS_FORWARDED", "400"))
KILLS = int(os.environ.get("SBREDIS_FORWARD_KILLS", "4"))
"""The long form has 10,000 messages and 20 kills."""
PATH = ("source", "middle", "end")

MOVER = """
import asyncio, sys
from sbredis.aio import ServiceBusClient
from sbredis.client import Timings

async def main(url):
    timings = Timings(claiming=1.0)  # so that the next mover need not wait for long
    async with ServiceBusClient(url, namespace="ns", maintenance=True, _timings=timings):
        await asyncio.Event().wait()

asyncio.run(main(sys.argv[1]))
"""

DYING_MOVER = """
import asyncio, os, signal, sys
from sbredis.aio import ServiceBusClient
from sbredis.client import Timings

async def main(url, last):
    calls = 0
    async with ServiceBusClient(url, namespace="ns", _timings=Timings(claiming=0.3)) as client:
        through = client._connection.transport.call

        async def call(script, *arguments, **options):
            nonlocal calls
            calls += script.name in {"sweep", "outgoing", "freeze", "take", "settle_batch"}
            if calls < last:
                return await through(script, *arguments, **options)
            if last % 2 == 1:
                await through(script, *arguments, **options)
            os.kill(os.getpid(), signal.SIGKILL)

        client._connection.transport.call = call
        client._connection.transport.begin = lambda *_, **__: False
        async with client.maintain():
            await asyncio.Event().wait()

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""
"""A mover that is killed at one of its calls, if its number is odd after the script has run, else before."""


@asynccontextmanager
async def mover(url: str) -> AsyncIterator[None]:
    """Run a process that moves messages, and kill it at the end."""
    async with child("-W", "error", "-c", MOVER, url, stderr=asyncio.subprocess.DEVNULL) as process:
        yield
        assert process.returncode is None


class Chain:
    """Three queues in different places: the first forwards to the second, and the second to the third."""

    def __init__(self, url: str, client: ServiceBusClient, place: Callable[[int], object] = int) -> None:
        """``place`` returns the place of a slot; without it, each slot is a place of its own."""
        self._url = url
        self._client = client
        self._place = place
        self._permits = asyncio.Semaphore(0)
        self.names: dict[str, str] = {}
        """The name of each queue of ``PATH``."""
        self.slots: dict[str, int] = {}
        self.sent: list[str] = []
        """The bodies of the messages that were acknowledged."""
        self.unknown: list[str] = []
        """The bodies of the messages whose sending failed. The cluster may have them."""

    async def create(self) -> None:
        """Create each queue in a place of its own."""
        forward_to = None
        taken: list[object] = []
        for role in reversed(PATH):
            forward_to = await self._create(role, forward_to, taken)

    async def _create(self, role: str, forward_to: str | None, taken: list[object]) -> str:
        for number in count():
            name = f"{role}-{number}"
            await self._client.ensure_queue(name, forward_to=forward_to)
            entity = await self._client._connection.entity(name, asyncio.get_running_loop().time() + 60)
            slot = key_slot(entity.partition(entity.numbers[0]).keys[0])
            place = self._place(slot)
            if place not in taken:
                taken.append(place)
                self.names[role], self.slots[role] = name, slot
                return name
        raise AssertionError

    # -- messages ------------------------------------------------------------------------------------------------------

    def permit(self, messages: int) -> None:
        for _ in range(messages):
            self._permits.release()

    async def send(self, total: int, by: ServiceBusClient | None = None) -> None:
        """Send as many messages as are permitted, until all are sent."""
        async with (by or self._client).get_queue_sender(self.names["source"]) as sender:
            for number in range(total):
                await self._permits.acquire()
                try:
                    await sender.send_messages(ServiceBusMessage(str(number)))
                except ServiceBusError:
                    self.unknown.append(str(number))
                else:
                    self.sent.append(str(number))

    async def arrived(self) -> list[str]:
        """Return the bodies of the messages that are at the end of the chain."""
        found: list[ServiceBusReceivedMessage] = []
        async with self._client.get_queue_receiver(self.names["end"]) as receiver:
            while page := await receiver.peek_messages(
                1000, sequence_number=1 if not found else (found[-1].sequence_number or 0) + 1
            ):
                found += page
        return [str(message) for message in found]

    async def check(self) -> None:
        """Wait until all messages have arrived, and check that each has arrived once."""

        async def all_are_there() -> bool:
            return set(await self.arrived()) >= set(self.sent)

        await eventually(all_are_there, 240)
        async with ServiceBusAdministrationClient(self._url, namespace="ns") as administration:
            for role in PATH[:2]:

                async def nothing_is_left(name: str = self.names[role]) -> bool:
                    return (await administration.get_queue_runtime_properties(name)).total_message_count == 0

                await eventually(nothing_is_left)
        found = Counter(await self.arrived())
        assert [body for body, times in found.items() if times > 1] == []
        assert set(self.sent) <= set(found) <= {*self.sent, *self.unknown}


class Disturbances:
    """The changes of a cluster that concern one of the queues."""

    def __init__(self, cluster: LocalCluster, slots: dict[str, int]) -> None:
        self._cluster = cluster
        self._slots = slots

    async def fail_over(self, role: str) -> None:
        replica = self._cluster.replicas_of(self._cluster.master_of(self._slots[role]))[0]
        await asyncio.to_thread(self._cluster.failover, replica)

    async def kill(self, role: str) -> None:
        """Kill a master. It comes back as the replica of its own replica."""
        master = self._cluster.master_of(self._slots[role])
        await asyncio.to_thread(master.kill)
        await asyncio.to_thread(self._cluster.wait_until_ok, 60)
        await asyncio.to_thread(master.start)
        await asyncio.to_thread(self._cluster.wait_until_ok, 60)

    async def migrate(self, role: str, *, atomic: bool) -> None:
        """Move a slot to another master."""
        slot = self._slots[role]
        home = self._cluster.master_of(slot)
        target = next(node for node in self._cluster.masters if node is not home)
        if atomic and self._cluster.supports_atomic_migration:
            await asyncio.to_thread(self._cluster.migrate_slot_atomic, slot, target)
        else:
            await asyncio.to_thread(self._cluster.migrate_slot_classic, slot, target)


@pytest.mark.long("it kills a mover many times")
async def test_each_message_arrives_once_however_often_the_mover_is_killed(server: LocalServer) -> None:
    async with ServiceBusClient(server.url, namespace="ns") as client:
        chain = Chain(server.url, client)
        await chain.create()
        sending = asyncio.create_task(chain.send(MESSAGES))
        for last in islice(cycle([2, 3, 4, 5, 6, 7, 8, 1]), KILLS):
            chain.permit(MESSAGES // KILLS)
            async with child("-W", "error", "-c", DYING_MOVER, server.url, str(last)) as process:
                assert await process.wait() == -signal.SIGKILL
        await sending
        async with mover(server.url):
            await chain.check()
        assert len(chain.sent) == MESSAGES


@pytest.mark.long("it kills movers for half a minute")
async def test_each_message_arrives_once_while_a_cluster_changes_and_movers_are_killed(
    replicated_cluster: LocalCluster,
) -> None:
    """Each disturbance is for the source of the first hop, for the destination of the second hop, or for both hops."""
    url = f"{replicated_cluster.url}?durability=replicated"
    async with ServiceBusClient(url, namespace="ns") as client:
        chain = Chain(replicated_cluster.url, client, replicated_cluster.master_of)
        await chain.create()
        disturbances = Disturbances(replicated_cluster, chain.slots)
        sending = asyncio.create_task(chain.send(DISTURBANCES * EACH))
        kinds: list[Callable[[str], Coroutine[Any, Any, None]]] = [
            disturbances.fail_over,
            partial(disturbances.migrate, atomic=True),
            disturbances.kill,
            partial(disturbances.migrate, atomic=False),
        ]
        turns = zip(cycle(kinds), cycle(["source", "end", "end", "source", "middle"]), strict=False)
        for number, (disturb, role) in enumerate(islice(turns, DISTURBANCES), 1):
            async with mover(url):
                before = len(await chain.arrived())
                chain.permit(EACH // 2)

                async def some_have_come(before: int = before) -> bool:
                    return len(await chain.arrived()) > before

                await eventually(some_have_come)
                chain.permit(EACH // 2)
                disturbing = asyncio.create_task(disturb(role))
                if number % 2 == 0:  # this mover is killed after the disturbance, the one before at its beginning
                    await disturbing
            await disturbing
            await eventually(lambda: len(chain.sent) + len(chain.unknown) == number * EACH)  # noqa: B023 -- at once
        await sending
        async with mover(url):
            await chain.check()


@pytest.mark.parametrize("change", ["failover", "atomic migration", "classic migration"])
async def test_a_mover_that_has_nothing_to_do_hears_a_queue_that_is_on_another_node_now(
    replicated_cluster: LocalCluster, change: str
) -> None:
    """The mover makes no call to the partition, and the old node still answers."""
    async with ServiceBusClient(replicated_cluster.url, namespace="ns", maintenance=True) as client:
        chain = Chain(replicated_cluster.url, client, replicated_cluster.master_of)
        await chain.create()
        chain.permit(2)
        await chain.send(1)
        await eventually(lambda: _has_arrived(chain, 1))
        await eventually(lambda: moving_of(client).visitor.at_rest)
        disturbances = Disturbances(replicated_cluster, chain.slots)
        if change == "failover":
            await disturbances.fail_over("source")
        else:
            await disturbances.migrate("source", atomic=change.startswith("atomic"))
        async with ServiceBusClient(replicated_cluster.url, namespace="ns") as other:
            await chain.send(1, by=other)
            await eventually(lambda: _has_arrived(chain, 2))


class Deafening(Between):
    """A network that can cut the connections that listen to channels."""

    def __init__(self, server: LocalServer) -> None:
        super().__init__(server)
        self.deaf = False
        """Whether no connection can begin to listen."""
        self._listening: list[asyncio.StreamWriter] = []

    def deafen(self) -> None:
        self.deaf = True
        for writer in self._listening:
            writer.transport.abort()
        self._listening.clear()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        while data := await reader.read(1 << 20):
            if not answers and b"SSUBSCRIBE" in data:
                if self.deaf:
                    return
                self._listening.append(writer)
            writer.write(data)
            await writer.drain()


async def test_a_mover_that_did_not_listen_when_a_message_was_sent_finds_the_message(server: LocalServer) -> None:
    """The partition says only once that messages wait, so the mover reads this after each gap."""
    async with Deafening(server).listening() as network, ServiceBusClient(server.url, namespace="ns") as client:
        await client.ensure_queue("to")
        await client.ensure_queue("from", forward_to="to")
        async with (
            ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns", maintenance=True) as moving,
            client.get_queue_sender("from") as sender,
            client.get_queue_receiver("to") as receiver,
        ):
            await sender.send_messages(ServiceBusMessage("before"))
            assert [str(message) for message in await receiver.receive_messages(max_wait_time=60)] == ["before"]
            await eventually(lambda: moving_of(moving).visitor.at_rest)
            network.deafen()
            await sender.send_messages(ServiceBusMessage("unheard"))
            network.deaf = False
            assert [str(message) for message in await receiver.receive_messages(max_wait_time=60)] == ["unheard"]


async def _has_arrived(chain: Chain, count: int) -> bool:
    return len(await chain.arrived()) == count
