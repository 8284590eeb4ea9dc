"""A server that takes no writes for a while: clients open and read meanwhile, and go on when the cause ends."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import Timings
from sbredis.exceptions import (
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from tests.waiting import eventually, wait_until


@pytest.fixture
def own_server(binary: str | None) -> Iterator[LocalServer]:
    with LocalServer(binary=binary, config={"enable-protected-configs": "yes"}) as server:
        yield server


def without_replicas(server: LocalServer) -> Callable[[], None]:
    """Let the server want a replica that it does not have. Return a function that ends this."""
    server.ask("CONFIG", "SET", "min-replicas-to-write", 1)

    def end() -> None:
        server.ask("CONFIG", "SET", "min-replicas-to-write", 0)

    return end


def without_snapshots(server: LocalServer) -> Callable[[], None]:
    """Let the server fail to write a snapshot. Return a function that lets it succeed."""
    folder = server.directory / "gone"
    folder.mkdir()
    server.ask("CONFIG", "SET", "dir", str(folder))
    shutil.rmtree(folder)
    server.ask("CONFIG", "SET", "save", "3600 1")
    server.ask("BGSAVE")
    wait_until(lambda: "rdb_last_bgsave_status:err" in str(server.ask("INFO", "persistence")))

    def end() -> None:
        server.ask("CONFIG", "SET", "dir", str(server.directory))
        server.ask("BGSAVE")

    return end


async def refused(sender: ServiceBusSender) -> ServiceBusServerBusyError:
    """Send a message until the server has refused it in time."""
    timeout = 0.5
    while True:
        try:
            await sender.send_messages(ServiceBusMessage("meanwhile"), timeout=timeout)
        except OperationTimeoutError:
            timeout *= 2  # the machine was too busy for an answer
        except ServiceBusServerBusyError as error:
            return error
        else:
            pytest.fail("the message was stored")


@pytest.mark.parametrize("scripts", ["needed", "all"])
@pytest.mark.parametrize(
    ("fault", "code"), [(without_replicas, "NOREPLICAS"), (without_snapshots, "MISCONF")], ids=["replicas", "snapshots"]
)
async def test_a_client_opens_and_reads_and_goes_on_when_writes_are_taken_again(
    own_server: LocalServer, fault: Callable[[LocalServer], Callable[[], None]], code: str, scripts: str
) -> None:
    url = f"{own_server.url}?scripts={scripts}"
    async with ServiceBusClient(url) as client, ServiceBusAdministrationClient(url) as admin:
        await admin.create_queue("orders")
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("before"))
    end = fault(own_server)
    async with ServiceBusClient(url) as client, ServiceBusAdministrationClient(url) as admin:
        async with client.get_queue_receiver("orders") as receiver, client.get_queue_sender("orders") as sender:
            assert [str(message) for message in await receiver.peek_messages()] == ["before"]
            refusal = await refused(sender)
            assert code in str(refusal)
            assert refusal.outcome is Outcome.NEVER_SENT
            waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=60))
            end()
            [message] = await waiting
            assert str(message) == "before"
            await receiver.complete_message(message)
        await eventually(lambda: _is_empty(admin))


async def test_a_server_that_became_a_replica_says_so_to_senders_and_receivers(own_server: LocalServer) -> None:
    timings = Timings(answering=0.1, late=0.05)
    async with ServiceBusClient(own_server.url, _timings=timings) as client:
        await client.ensure_queue("orders")
        async with client.get_queue_receiver("orders") as receiver, client.get_queue_sender("orders") as sender:
            assert await receiver.receive_messages(max_wait_time=0.1) == []
            own_server.ask("REPLICAOF", "127.0.0.1", 1)
            assert "READONLY" in str(await refused(sender))
            with pytest.raises(ServiceBusServerBusyError, match="READONLY") as caught:
                await receiver.receive_messages(max_wait_time=0.1)
            assert (caught.value.outcome, caught.value.is_transient) == (Outcome.UNKNOWN, True)
            own_server.ask("REPLICAOF", "NO", "ONE")
            await sender.send_messages(ServiceBusMessage("after"))
            [message] = await receiver.receive_messages(max_wait_time=60)
            assert str(message) == "after"


async def test_a_receive_says_that_a_killed_server_cannot_be_reached(caplog: pytest.LogCaptureFixture) -> None:
    timings = Timings(answering=0.1, late=0.05)
    with LocalServer() as server:
        async with ServiceBusClient(server.url, _timings=timings) as client:
            await client.ensure_queue("orders")
            async with client.get_queue_receiver("orders") as receiver:
                assert await receiver.receive_messages(max_wait_time=0) == []
                server.kill()

                async def is_said() -> bool:
                    with pytest.raises(ServiceBusError) as caught:
                        await receiver.receive_messages(max_wait_time=0)
                    assert caught.value.is_transient
                    return isinstance(caught.value, ServiceBusConnectionError)

                await eventually(is_said)
    assert "a listener failed" not in caplog.text


async def test_a_receiver_without_a_server_logs_one_line_for_all_its_partitions_when_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with LocalServer() as server:
        async with ServiceBusClient(server.url) as client:
            await client.ensure_queue("orders", enable_partitioning=True)
            async with client.get_queue_receiver("orders") as receiver:
                assert await receiver.receive_messages(max_wait_time=1) == []
                server.kill()
    assert caplog.text.count("a receiver was closed without it") == 1
    assert "more have taken no call" in caplog.text


async def _is_empty(admin: ServiceBusAdministrationClient) -> bool:
    return (await admin.get_queue_runtime_properties("orders")).total_message_count == 0
