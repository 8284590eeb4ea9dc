"""Opening a transport: the errors if a server cannot be reached or its configuration is unsuitable."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import anyio
import pytest

from sbredis.exceptions import (
    Outcome,
    ServerUnsuitableError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.servers import LocalCluster, LocalServer, free_port
from sbredis.transport import Backoff, Transport, open_transport
from tests.transport.impostors import answering, never_answering, node_of_cluster
from tests.transport.opening import function, opened
from tests.waiting import eventually, given_time

COUNT = function("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
ADD = function("add", "return redis.call('INCRBY', KEYS[1], ARGV[1] + 0)")


@pytest.fixture
def own_server(binary: str | None) -> Iterator[LocalServer]:
    """A server for one test that is unsuitable because it evicts keys."""
    with LocalServer(binary=binary, config={"maxmemory-policy": "allkeys-lru"}) as server:
        yield server


# -- unreachable servers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_the_error_names_a_port_without_a_listener_and_the_time_spent(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{free_port()}" + ("/m" if scheme == "redis+sentinel" else "")
    error = await given_time(
        lambda seconds: open_transport(url, connect_timeout=seconds), r"refused.* \d+ attempts in \d+\.\d s"
    )
    assert isinstance(error, ServiceBusConnectionError)
    said = str(error)
    assert url.partition("://")[2].removesuffix("/m") in said
    assert (error.is_transient, error.outcome) == (True, Outcome.NEVER_SENT)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_the_error_names_a_server_that_never_answers_and_the_time_waited(scheme: str) -> None:
    async with answering(never_answering) as address:
        url = f"{scheme}://{address}" + ("/m" if scheme == "redis+sentinel" else "")
        with pytest.raises(ServiceBusConnectionError, match=f"{address} did not answer within") as caught:
            await open_transport(url, connect_timeout=0.3)
    assert (type(caught.value), caught.value.is_transient) == (ServiceBusConnectionError, True)


@pytest.mark.slow
async def test_the_error_names_an_unknown_host() -> None:
    with pytest.raises(ServiceBusConnectionError, match=r"no-such-host\.invalid:6379"):
        await open_transport("redis://no-such-host.invalid", connect_timeout=0.3)


@pytest.mark.slow
async def test_the_error_names_a_missing_socket(tmp_path: Path) -> None:
    url, expected = f"unix://{tmp_path}/none.sock", r"unix:/.*/none\.sock cannot be reached: no such file"
    error = await given_time(lambda seconds: open_transport(url, connect_timeout=seconds), expected)
    assert isinstance(error, ServiceBusConnectionError)


async def test_the_client_waits_for_a_server_that_starts_within_the_time_to_connect(binary: str | None) -> None:
    with LocalServer(binary=binary) as server:
        server.kill()
        opening = asyncio.create_task(opened(server.url, scripts=[COUNT], connect_timeout=20))
        await asyncio.sleep(0)
        await anyio.to_thread.run_sync(server.start)
        async with await opening as transport:
            assert await transport.call(COUNT, [b"k"], [1]) == 1


async def test_a_server_that_speaks_another_protocol_is_refused() -> None:
    async with answering(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n") as address:
        with pytest.raises(ServiceBusConnectionError, match=address):
            await open_transport(f"redis://{address}", connect_timeout=0.3)


# -- unsuitable servers ------------------------------------------------------------------------------------------------


async def test_the_client_waits_for_a_replica_and_then_names_its_master(
    binary: str | None, server: LocalServer
) -> None:
    config = {"replicaof": f"127.0.0.1 {server.port}"}
    expected = f"read-only replica of 127.0.0.1:{server.port}"
    with LocalServer(binary=binary, config=config) as replica:
        error = await given_time(lambda seconds: open_transport(replica.url, connect_timeout=seconds), expected)
        assert isinstance(error, ServiceBusServerBusyError)
        assert (error.is_transient, error.outcome) == (True, Outcome.NEVER_SENT)


async def test_a_replica_that_is_promoted_meanwhile_is_used(binary: str | None, server: LocalServer) -> None:
    """The replica becomes a master while the client waits."""
    with LocalServer(binary=binary, config={"replicaof": f"127.0.0.1 {server.port}"}) as replica:
        opening = asyncio.create_task(opened(replica.url, scripts=[COUNT], connect_timeout=60))
        await eventually(lambda: _connections(replica) > 1)  # by now the client has tried at least once
        await anyio.to_thread.run_sync(lambda: replica.ask("REPLICAOF", "NO", "ONE"))
        async with await opening as transport:
            assert await transport.call(COUNT, [b"k"], [1]) == 1


def _connections(server: LocalServer) -> int:
    """Return the number of connections that the server accepted before this call."""
    info = server.ask("INFO", "stats")
    assert isinstance(info, str)
    return int(next(line for line in info.splitlines() if "total_connections_received" in line).split(":")[1]) - 1


async def test_all_problems_are_reported_together(own_server: LocalServer) -> None:
    with pytest.raises(ServerUnsuitableError, match=r"maxmemory-policy.*appendfsync always"):
        await open_transport(own_server.url + "?durability=fsync")


async def test_replicated_durability_without_replicas_is_refused_at_once(server: LocalServer) -> None:
    with pytest.raises(ServerUnsuitableError, match="has no replica, so nothing can confirm"):
        await open_transport(server.url + "?durability=replicated")


async def test_a_missing_replica_that_the_url_promises_is_reported_immediately(server: LocalServer) -> None:
    with pytest.raises(ServerUnsuitableError, match=r"names 2 replicas \(replicas=2\): connect them to the server"):
        await open_transport(server.url + "?durability=replicated&replicas=2")


# -- the wrong scheme --------------------------------------------------------------------------------------------------


async def test_a_cluster_node_addressed_as_a_server_is_refused_with_the_right_scheme(cluster: LocalCluster) -> None:
    node = cluster.nodes[0]
    with pytest.raises(ServerUnsuitableError, match=rf"use redis\+cluster://127\.0\.0\.1:{node.port}"):
        await open_transport(node.url)


async def test_a_server_addressed_as_a_cluster_is_refused_with_the_right_scheme(server: LocalServer) -> None:
    with pytest.raises(ServerUnsuitableError, match=f"use redis://127.0.0.1:{server.port}"):
        await open_transport(f"redis+cluster://127.0.0.1:{server.port}")


async def test_a_server_addressed_as_a_sentinel_is_refused(server: LocalServer) -> None:
    with pytest.raises(ServerUnsuitableError, match=f"127.0.0.1:{server.port} is not a Sentinel"):
        await open_transport(f"redis+sentinel://127.0.0.1:{server.port}/m")


# -- where to connect --------------------------------------------------------------------------------------------------


async def test_one_reachable_seed_of_a_cluster_is_enough(cluster: LocalCluster) -> None:
    node = cluster.nodes[1]
    url = f"redis+cluster://127.0.0.1:{free_port()},{node.host}:{node.port},127.0.0.1:{free_port()}"
    async with await opened(url, scripts=[COUNT]) as transport:
        assert len(transport.masters) == 3
        for number in range(20):
            assert await transport.call(COUNT, [b"k%d" % number], [1]) == 1


async def reached_by(transport: Transport, cluster: LocalCluster) -> dict[int, bytes]:
    """Return a key of each master, by its port, in the order in which calls will need them."""
    keys: dict[int, bytes] = {}
    for number in range(100):
        key = b"k%d" % number
        endpoint = transport.endpoint_of(key)
        assert endpoint is not None
        keys.setdefault(endpoint.port, key)
    assert keys.keys() == {node.port for node in cluster.nodes}
    return keys


async def test_a_client_connects_to_a_master_when_a_call_first_needs_it(cluster: LocalCluster) -> None:
    async with await opened(cluster.url, scripts=[COUNT]) as transport:
        (first,) = transport.servers
        keys = await reached_by(transport, cluster)
        assert await transport.call(COUNT, [keys.pop(first.endpoint.port)], [1]) == 1
        assert len(transport.servers) == 1
        for number, key in enumerate(keys.values(), 2):
            assert await transport.call(COUNT, [key], [1]) == 1
            assert len(transport.servers) == number


async def test_scripts_all_reaches_all_masters(cluster: LocalCluster) -> None:
    """Such a client loads the scripts on each master for users who may not load them."""
    async with await open_transport(f"{cluster.url}?scripts=all", scripts=[COUNT]) as transport:
        assert len(transport.servers) == 3


async def test_a_cluster_is_used_where_it_can_be_reached(cluster: LocalCluster) -> None:
    """The other masters are silent. A call to one of them ends with an error, or waits until the master answers."""
    answers, *silent = cluster.nodes
    with ExitStack() as resuming:
        for node in silent:
            node.pause()
            resuming.callback(node.resume)
        async with await opened(cluster.url, scripts=[COUNT], connect_timeout=20) as transport:
            keys = await reached_by(transport, cluster)
            assert await transport.call(COUNT, [keys[answers.port]], [1]) == 1
            with pytest.raises(ServiceBusError) as caught:
                await transport.call(COUNT, [keys[silent[0].port]], [1], timeout=0.5)
            assert caught.value.outcome is Outcome.NEVER_SENT
            waiting = [asyncio.ensure_future(transport.call(COUNT, [keys[node.port]], [1])) for node in silent]
            await asyncio.sleep(0)
            resuming.close()
            assert await asyncio.gather(*waiting) == [1, 1]


async def test_one_master_is_enough_to_open_however_many_others_are_silent() -> None:
    """Only a replica is named, so no connection to a master is open when the client knows the masters."""
    async with AsyncExitStack() as running:
        silent = [await running.enter_async_context(answering(never_answering)) for _ in range(8)]
        masters = [*silent, await running.enter_async_context(answering(node_of_cluster("master", [])))]
        replica = await running.enter_async_context(answering(node_of_cluster("slave", masters)))
        async with await open_transport(f"redis+cluster://{replica}", connect_timeout=2) as transport:
            assert len(transport.masters) == 9
            (reached,) = (each for each in transport.servers if str(each.endpoint) != replica)
            assert str(reached.endpoint) == masters[-1]


async def test_a_master_that_is_unsuitable_is_refused_when_a_call_first_needs_it(cluster: LocalCluster) -> None:
    """With the error that a client gets whose only server is unsuitable."""
    suitable, unsuitable, _ = cluster.nodes
    unsuitable.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    try:
        async with await opened(cluster.url, scripts=[COUNT]) as transport:
            keys = await reached_by(transport, cluster)
            assert await transport.call(COUNT, [keys[suitable.port]], [1]) == 1
            with pytest.raises(ServerUnsuitableError, match="evicts keys") as caught:
                await transport.call(COUNT, [keys[unsuitable.port]], [1])
            assert caught.value.outcome is Outcome.NEVER_SENT
    finally:
        unsuitable.ask("CONFIG", "SET", "maxmemory-policy", "noeviction")


async def test_a_database_other_than_the_first_is_used(server: LocalServer) -> None:
    for url in (server.url + "/3", server.url + "?db=3"):
        async with await opened(url, scripts=[COUNT]) as transport:
            await transport.call(COUNT, [b"k"], [1])
    assert "db3:keys=1" in str(server.ask("INFO", "keyspace"))
    assert server.ask("DBSIZE") == 0


async def test_a_missing_database_is_reported(server: LocalServer) -> None:
    with pytest.raises(ServerUnsuitableError, match=r"setting 'databases'.*or none for database 0"):
        await open_transport(server.url + "/9999")


async def test_a_unix_socket_can_be_used(binary: str | None) -> None:
    with LocalServer(binary=binary, unix_socket=True) as server:
        async with await opened(server.url, scripts=[COUNT]) as transport:
            assert await transport.call(COUNT, [b"k"], [1]) == 1
            assert str(transport.masters[0]) == f"unix:{server.address}"


async def test_a_process_logs_once_what_a_server_may_lose(binary: str | None, caplog: pytest.LogCaptureFixture) -> None:
    """The log has a text again if something has changed: another process of the server, or other settings."""

    def said() -> list[str]:
        texts = [each.getMessage() for each in caplog.records if each.getMessage().startswith("durability=")]
        caplog.clear()
        return texts

    with caplog.at_level(logging.INFO, "sbredis"), LocalServer(binary=binary) as server:
        for together in (False, True):
            if together:
                transports = await asyncio.gather(*(open_transport(server.url) for _ in range(8)))
            else:
                transports = [await open_transport(server.url) for _ in range(8)]
            for transport in transports:
                await transport.aclose()
        (text,) = said()
        assert "writes no append-only file" in text
        server.ask("CONFIG", "SET", "appendonly", "yes")
        await (await open_transport(server.url)).aclose()
        (text,) = said()
        assert "appendfsync everysec" in text
        server.ask("CONFIG", "SET", "appendonly", "no")
        await (await open_transport(server.url)).aclose()
        assert "writes no append-only file" in said()[0]
        await anyio.to_thread.run_sync(server.restart)
        await (await open_transport(server.url)).aclose()
        assert len(said()) == 1


async def test_a_server_is_described_when_the_log_shows_it(
    server: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR, "sbredis"):
        await (await open_transport(server.url)).aclose()
    with caplog.at_level(logging.WARNING, "sbredis"):
        await (await open_transport(server.url)).aclose()
    assert caplog.text.count("durability=master on") == 1


async def test_the_log_has_a_line_for_the_beginning_of_an_outage_and_one_for_its_end(
    binary: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "sbredis.transport"), LocalServer(binary=binary) as server:
        async with await opened(server.url, scripts=[COUNT], retry=Backoff(repetitions=0)) as transport:

            async def served() -> bool:
                try:
                    await transport.call(COUNT, [b"k"], [1])
                except ServiceBusConnectionError:
                    return False
                return True

            server.kill()
            await eventually(lambda: not transport.servers)
            caplog.clear()
            assert not any([await served() for _ in range(8)])
            (begins,) = caplog.messages
            assert "cannot be reached" in begins
            await anyio.to_thread.run_sync(server.restart)
            await eventually(served)
            found = re.search(r"can be reached again; (\d+) calls had failed meanwhile", caplog.text)
            assert found is not None
            assert int(found[1]) >= 8


async def test_an_outage_ends_for_the_log_when_the_server_has_no_slots_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The outage of another server goes on, so its next failed call has no line of its own."""
    replaced, lost = (f"127.0.0.1:{free_port()}" for _ in range(2))
    masters: list[str] = []
    last = 16383

    def answer(words: list[bytes]) -> bytes:
        return node_of_cluster("master", masters)(words)

    async with answering(answer) as living:
        masters[:] = [living, replaced, lost]
        url = f"redis+cluster://{living}"
        with caplog.at_level(logging.INFO, "sbredis.transport"):
            async with await open_transport(url, retry=Backoff(repetitions=0)) as transport:
                caplog.clear()
                for slot in (last // 2, last, last):
                    with pytest.raises(ServiceBusConnectionError):
                        await transport.command("PING", slot=slot)
                masters[:] = [living, lost]
                await eventually(lambda: len(transport.masters) == 2)
                with pytest.raises(ServiceBusConnectionError):
                    await transport.command("PING", slot=last)
    begins, begins_too, ends = caplog.messages
    assert f"{replaced} cannot be reached" in begins
    assert f"{lost} cannot be reached" in begins_too
    assert ends == f"{replaced} is not used any more; 1 call had failed meanwhile"


async def test_each_call_that_is_held_up_is_told_of_in_its_own_words(binary: str | None) -> None:
    """A call that ends says nothing about the others with keys in the same slot."""
    with LocalServer(binary=binary) as server:
        async with await opened(server.url, scripts=[COUNT, ADD]) as transport:
            for script in (COUNT, ADD):
                await transport.call(script, [b"k"], [1])
            server.ask("REPLICAOF", "127.0.0.1", 1)
            calls = [asyncio.create_task(transport.call(script, [b"k"], [1])) for script in (COUNT, ADD)]

            def told(key: bytes = b"k") -> list[str | None]:
                said = [transport.obstacle(key, script.name) for script in (COUNT, ADD)]
                found = [None if error is None else re.search(r"script (\S+?)[:,]", str(error)) for error in said]
                return [None if each is None else each[1] for each in found]

            await eventually(lambda: told() == [COUNT.name, ADD.name])
            assert told(b"another slot") == [None, None]
            for call, left in zip(reversed(calls), (COUNT.name, None), strict=True):
                call.cancel()
                await asyncio.wait((call,))
                assert told() == [left, left]


async def test_a_lost_server_that_returns_serves_calls_again(binary: str | None) -> None:
    """While the server is away, each call fails with this reason within its own timeout."""
    with LocalServer(binary=binary) as server:
        async with await opened(server.url, scripts=[COUNT]) as transport:
            server.kill()
            with pytest.raises(ServiceBusError) as caught:
                await transport.call(COUNT, [b"k"], [1], timeout=0.3)
            assert caught.value.is_transient
            patient = asyncio.create_task(transport.call(COUNT, [b"k"], [1]))
            await anyio.to_thread.run_sync(server.start)
            assert await patient == 1


async def test_a_server_at_its_limit_of_connections_is_reported(binary: str | None) -> None:
    with LocalServer(binary=binary, config={"maxclients": "1"}) as server:
        async with await open_transport(server.url):
            error = await given_time(
                lambda seconds: open_transport(server.url, connect_timeout=seconds), "max number of clients"
            )
            assert isinstance(error, ServiceBusConnectionError)
            assert error.is_transient
        await eventually(lambda: server.ask("PING") == "PONG")
