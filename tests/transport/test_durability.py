"""``durability=replicated``: an acknowledged write is on every replica of the shard; the wait for it delays no other
call.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest

from benchmarks.faults import in_thread
from sbredis.exceptions import (
    OperationTimeoutError,
    Outcome,
    ScriptRefusedError,
    ServerUnsuitableError,
    ServiceBusServerBusyError,
)
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot, open_transport
from tests.transport.opening import function, opened
from tests.waiting import eventually, given_time

COUNT = function("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")

APPEND = function("append", "#!lua\nreturn redis.call('RPUSH', KEYS[1], ARGV[1])")


@pytest.fixture
def pair(binary: str | None) -> Iterator[tuple[LocalServer, LocalServer]]:
    """A master and its connected replica."""
    with (
        LocalServer(binary=binary, config={"repl-diskless-sync-delay": "0"}) as master,
        LocalServer(binary=binary, config={"replicaof": f"{master.host} {master.port}"}) as replica,
    ):
        while "master_link_status:up" not in str(replica.ask("INFO", "replication")):
            pass
        yield master, replica


def waits(server: LocalServer) -> int:
    """Return how often the server received WAIT."""
    found = re.search(r"cmdstat_wait:calls=(\d+)", str(server.ask("INFO", "commandstats")))
    return int(found[1]) if found else 0


async def test_an_acknowledged_write_is_on_the_replica(pair: tuple[LocalServer, LocalServer]) -> None:
    """The replica has the write when the call returns."""
    master, replica = pair
    async with await opened(f"{master.url}?durability=replicated", scripts=[APPEND]) as transport:
        for number in range(1, 20):
            assert await transport.call(APPEND, (b"list",), (number,)) == number
            assert replica.ask("LLEN", "list") == number


async def test_one_wait_serves_many_calls(pair: tuple[LocalServer, LocalServer]) -> None:
    """Calls that are sent together are confirmed by the same WAIT."""
    master, _ = pair
    async with await opened(f"{master.url}?durability=replicated", scripts=[APPEND]) as transport:
        before = waits(master)
        lengths = await asyncio.gather(*(transport.call(APPEND, (b"list",), (number,)) for number in range(300)))
        assert sorted(lengths) == list(range(1, 301))
        assert waits(master) - before <= 6


async def test_a_refused_call_does_not_wait_and_affects_no_other_call(pair: tuple[LocalServer, LocalServer]) -> None:
    """Each of the calls that are sent together has its own result."""
    refuse = function("refuse", "#!lua\nreturn redis.error_reply('NOTNOW 7')")
    master, _ = pair
    async with await opened(f"{master.url}?durability=replicated", scripts=[APPEND, refuse]) as transport:
        good = asyncio.create_task(transport.call(APPEND, (b"list",), ("a",)))
        with pytest.raises(ScriptRefusedError, match="NOTNOW"):
            await transport.call(refuse, (b"list",))
        assert await good == 1


async def test_a_stalled_replica_delays_only_the_calls_that_wait_for_it(pair: tuple[LocalServer, LocalServer]) -> None:
    """Calls that need no confirmation continue.

    A call that needs a confirmation ends with an unknown outcome, because the master has executed it.
    """
    master, replica = pair
    async with await opened(f"{master.url}?durability=replicated", scripts=[APPEND]) as transport:
        await transport.call(APPEND, (b"list",), ("confirmed",))
        replica.pause()
        try:
            stalled = asyncio.create_task(transport.call(APPEND, (b"list",), ("stalled",), timeout=10))
            for _ in range(20):
                await transport.call(APPEND, (b"others",), ("x",), durability="master")
            assert not stalled.done()
            with pytest.raises(OperationTimeoutError, match="replicas") as caught:
                await stalled
            assert caught.value.outcome is Outcome.UNKNOWN
            assert master.ask("LLEN", "list") == 2
        finally:
            replica.resume()
        await transport.call(APPEND, (b"list",), ("confirmed again",))
        assert replica.ask("LLEN", "list") == 3


async def test_a_call_waits_for_every_replica_even_for_one_that_is_down(pair: tuple[LocalServer, LocalServer]) -> None:
    """If a shard should have two replicas and has one, it confirms no call: the missing one may be the next master."""
    master, _ = pair
    url = f"{master.url}?durability=replicated&replicas=2"
    async with await opened(url, scripts=[APPEND]) as transport:
        error = await given_time(
            lambda seconds: transport.call(APPEND, (b"list",), ("a",), timeout=seconds), r"[01] of 2 replicas"
        )
        assert isinstance(error, OperationTimeoutError)
        assert error.outcome is Outcome.UNKNOWN


async def test_a_lost_replica_is_a_transient_error(pair: tuple[LocalServer, LocalServer]) -> None:
    """Without its replica the server refuses each call that needs a confirmation, and the error says why.

    When the replica is back, the server accepts such calls again.
    """
    master, replica = pair
    async with await opened(f"{master.url}?durability=replicated", scripts=[APPEND]) as transport:
        await transport.call(APPEND, (b"list",), ("a",))
        replica.kill()
        await eventually(lambda: "connected_slaves:0" in str(master.ask("INFO", "replication")))
        error = await given_time(lambda seconds: transport.call(APPEND, (b"list",), ("b",), timeout=seconds), "replica")
        assert isinstance(error, (OperationTimeoutError, ServiceBusServerBusyError))
        assert error.is_transient
        replica.restart()
        await eventually(lambda: "connected_slaves:1" in str(master.ask("INFO", "replication")))
        await transport.call(APPEND, (b"list",), ("c",))


async def test_a_missing_right_to_wait_is_reported(pair: tuple[LocalServer, LocalServer]) -> None:
    """The master has executed the call, but the client could not ask whether a replica has the write."""
    master, _ = pair
    master.ask("ACL", "SETUSER", "hasty", "on", ">secret", "~*", "&*", "+@all", "-wait")
    url = f"redis://hasty:secret@{master.host}:{master.port}?durability=replicated"
    async with await opened(url, scripts=[APPEND]) as transport:
        with pytest.raises(OperationTimeoutError, match="WAIT was answered with NOPERM") as caught:
            await transport.call(APPEND, (b"list",), ("a",))
        assert caught.value.outcome is Outcome.UNKNOWN


async def test_a_replica_count_that_the_user_may_not_read_is_reported(pair: tuple[LocalServer, LocalServer]) -> None:
    """If the client waited for fewer than all replicas, it would break the promise."""
    master, _ = pair
    master.ask("ACL", "SETUSER", "blind", "on", ">secret", "~*", "&*", "+@all", "-info")
    url = f"redis://blind:secret@{master.host}:{master.port}?durability=replicated"
    with pytest.raises(ServerUnsuitableError, match="replicas=N"):
        await open_transport(url)
    async with await opened(f"{url}&replicas=1", scripts=[APPEND]) as transport:
        assert await transport.call(APPEND, (b"list",), ("a",)) == 1


async def test_a_connection_for_replicated_calls_counts_as_a_connection(replicated_cluster: LocalCluster) -> None:
    """Also at masters that no other call has reached: receivers ask whether they can be woken."""
    keys = [b"k%d" % number for number in range(50)]
    async with await opened(f"{replicated_cluster.url}?durability=replicated", scripts=[COUNT]) as transport:
        for key in keys:
            await transport.call(COUNT, [key], [1])
        assert all(transport.is_in_reach(key) for key in keys)
        assert {facts.endpoint for key in keys if (facts := transport.server_of(key))} == {*transport.masters}
        assert {facts.endpoint for facts in transport.servers} == {*transport.masters}


async def test_a_master_that_lost_its_replica_by_a_failover_is_waited_for(replicated_cluster: LocalCluster) -> None:
    """The user may not read CLUSTER NODES, so only the new master says that it has no replica, and later that it has
    one.
    """
    cluster = replicated_cluster
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "u", "on", ">p", "~*", "&*", "+@all", "-cluster|nodes")
    url = cluster.url.replace("://", "://u:p@") + "?durability=replicated"
    async with await opened(url, scripts=[COUNT]) as transport:
        await transport.call(COUNT, [b"k"], [1])
        slot = key_slot(b"k")
        former = cluster.master_of(slot)
        former.kill()
        await in_thread(cluster.wait_until_ok, 60)
        error = await given_time(
            lambda seconds: transport.call(COUNT, [b"k"], [1], timeout=seconds), "no replica that could confirm", 2
        )
        assert isinstance(error, ServiceBusServerBusyError)
        await in_thread(former.restart)
        assert await transport.call(COUNT, [b"k"], [1]) == 2
