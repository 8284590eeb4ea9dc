"""Promises in rare situations: a reloaded script, a replica that was added or removed, a deadline, a slow network."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.exceptions import OperationTimeoutError, Outcome, ServerUnsuitableError, ServiceBusError
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import WireLimits, key_slot, open_transport
from tests.transport.between import Between
from tests.transport.opening import function, opened
from tests.waiting import eventually, wait_until
from tests.workers.virtual import VirtualLoop

KEY = b"{promise}"
SLOT = key_slot(KEY)
COUNT = function("count", "#!lua\nreturn redis.call('INCR', KEYS[1])")
REPLICATED = "?durability=replicated"


async def test_a_call_whose_script_had_to_be_loaded_again_is_confirmed_too(replicated_cluster: LocalCluster) -> None:
    """The script runs only after it was loaded again. So it writes after the WAIT that was sent with the call."""
    master = replicated_cluster.master_of(SLOT)
    (replica,) = replicated_cluster.replicas_of(master)
    async with await opened(replicated_cluster.url + REPLICATED, scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, (KEY,)) == 1
        master.ask("SCRIPT", "FLUSH")
        replica.pause()
        try:
            with pytest.raises(OperationTimeoutError, match="replicas") as caught:
                await transport.call(COUNT, (KEY,), timeout=3)
            assert caught.value.outcome is Outcome.UNKNOWN
        finally:
            replica.resume()
        assert await transport.call(COUNT, (KEY,)) == 3


async def test_a_durable_call_follows_a_slot_in_the_middle_of_its_move(replicated_cluster: LocalCluster) -> None:
    """A durable call follows an ASK redirection like any other call."""
    cluster = replicated_cluster
    home = cluster.master_of(SLOT)
    away = next(master for master in cluster.masters if master is not home)
    async with await opened(cluster.url + REPLICATED, scripts=[COUNT]) as transport:
        away.ask("CLUSTER", "SETSLOT", SLOT, "IMPORTING", home.id)
        home.ask("CLUSTER", "SETSLOT", SLOT, "MIGRATING", away.id)
        assert await transport.call(COUNT, (KEY,), timeout=60) == 1
        assert cluster.replicas_of(away)[0].ask("DBSIZE") == 1


async def test_the_client_also_waits_for_a_replica_that_was_added_later(replicated_cluster: LocalCluster) -> None:
    """The client no longer waits for a replica that was removed, once the cluster has forgotten this replica."""
    cluster = replicated_cluster
    master = cluster.master_of(SLOT)
    donor = next(other for other in cluster.masters if other is not master)
    (late,) = cluster.replicas_of(donor)
    async with await opened(cluster.url + REPLICATED, scripts=[COUNT]) as transport:
        await transport.call(COUNT, (KEY,))
        late.ask("CLUSTER", "REPLICATE", master.id)
        wait_until(lambda: str(master.ask("INFO", "replication")).count("state=online") == 2)
        late.pause()
        with pytest.raises(OperationTimeoutError, match="1 of 2 replicas"):
            await transport.call(COUNT, (KEY,), timeout=4)
        late.resume()
        late.kill()
        for node in cluster.nodes:
            if node is not late:
                node.ask("CLUSTER", "FORGET", late.id)

        async def is_confirmed() -> bool:
            try:
                await transport.call(COUNT, (KEY,), timeout=3)
            except OperationTimeoutError:
                return False
            return True

        await eventually(is_confirmed)


@pytest.mark.parametrize("anyio_backend", [("asyncio", {"loop_factory": VirtualLoop})], ids=["virtual"])
async def test_the_wait_for_room_counts_towards_the_deadline_of_the_call(server: LocalServer) -> None:
    """The call ends after its timeout, not after twice that time. The time of the loop passes only by jumps."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    limits = WireLimits(calls=1, bytes=100, give_up_after=60)
    async with await opened(server.url, scripts=[COUNT], limits=limits) as transport:
        server.pause()
        try:
            first = asyncio.create_task(transport.call(COUNT, (KEY,), timeout=60))
            await eventually(lambda: not first.done() and any(node.wires[0].owes for node in transport._nodes))
            with loop.jumping(lambda _: None):
                started = loop.time()
                with pytest.raises(ServiceBusError) as caught:
                    await transport.call(COUNT, (KEY,), timeout=6)
                took = loop.time() - started
            assert took == pytest.approx(6)
            assert caught.value.outcome is Outcome.NEVER_SENT
        finally:
            server.resume()
        assert await first == 1


async def test_many_durable_calls_wait_in_line(replicated_cluster: LocalCluster) -> None:
    """The calls exceed what one flush can carry, and none of them is refused."""
    async with await opened(replicated_cluster.url + REPLICATED, scripts=[COUNT]) as transport:
        counts = await asyncio.gather(*(transport.call(COUNT, (KEY,)) for _ in range(6000)))
        assert sorted(counts) == list(range(1, 6001))
        body = bytes(1_000_000)
        await asyncio.gather(*(transport.call(COUNT, (KEY,), (body,)) for _ in range(12)))


@pytest.mark.parametrize("durability", ["fsync", "nonsense"])
async def test_a_call_with_an_unsupported_durability_is_refused_before_sending(
    server: LocalServer, durability: str
) -> None:
    async with await opened(server.url, scripts=[COUNT]) as transport:
        with pytest.raises(ValueError, match="durability"):
            await transport.call(COUNT, (KEY,), durability=durability)  # type: ignore[arg-type]
        assert server.ask("DBSIZE") == 0


@pytest.mark.parametrize("command", ["SUBSCRIBE", b"multi", "Select", "CLIENT", "MONITOR"])
async def test_a_shared_connection_is_not_changed_by_one_caller(server: LocalServer, command: str | bytes) -> None:
    """A command like SELECT is refused, because it would change the connection for all callers."""
    async with await open_transport(server.url) as transport:
        with pytest.raises(ValueError, match="all callers share"):
            await transport.command(command, "x")
        assert await transport.command("PING") == b"PONG"


async def test_a_server_that_is_unsuitable_after_a_restart_is_refused(binary: str | None) -> None:
    """A restarted server may have another configuration, so the client checks each new connection like the first."""
    with LocalServer(binary=binary) as server:
        async with await opened(server.url, scripts=[COUNT]) as transport:
            assert await transport.call(COUNT, (KEY,)) == 1
            server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            with pytest.raises(ServerUnsuitableError, match="noeviction"):
                await transport.call(COUNT, (KEY,), repeatable=True, timeout=60)


class Trickle(Between):
    """Once a test makes it slow, passes only a limited number of bytes at a time."""

    slow = False

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:  # noqa: ARG002  # the same both ways
        while data := await reader.read(200_000):
            if self.slow:
                await asyncio.sleep(0.1)
            writer.write(data)
            await writer.drain()


async def test_a_slow_network_is_not_mistaken_for_a_silent_server(server: LocalServer) -> None:
    """As long as the network accepts data, the client waits, even longer than the limits for a silent server."""
    limits = WireLimits(suspect_after=0.5, give_up_after=5)
    async with (
        Trickle(server).listening() as network,
        await open_transport(f"redis://127.0.0.1:{network.port}", limits=limits) as transport,
    ):
        network.slow = True
        assert await transport.command("SET", "large", bytes(12_000_000), key=b"large", timeout=60) == b"OK"
