"""Clients: their targets, credentials and options, when they connect, and which errors they raise."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio
from redis.asyncio.cluster import ClusterNode
from redis.credentials import UsernamePasswordCredentialProvider

import sbredis.sync.management as sync_management
from sbredis import sync
from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import every_script
from sbredis.exceptions import (
    InvalidConnectionStringError,
    OperationTimeoutError,
    Outcome,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.servers import LocalCluster, LocalServer, free_port
from tests.aio.gates import Gate
from tests.aio.queues import in_memory, queue_at
from tests.transport.hand import turns
from tests.transport.impostors import answering, never_answering
from tests.transport.test_tls import Encrypted, started, write_certificates
from tests.waiting import eventually


async def works(client: ServiceBusClient) -> None:
    async with client:
        await client.ensure_queue("q")
        await client.get_queue_sender("q").send_messages(ServiceBusMessage("x"))


def lines(server: LocalServer, part: str) -> list[str]:
    """Return the connections of the server whose descriptions contain this text."""
    return [
        line for line in str(server.ask("CLIENT", "LIST")).splitlines() if part in line and "cmd=client" not in line
    ]


# -- targets, credentials and options ----------------------------------------------------------------------------------


@pytest.mark.everywhere("a client opens every target")
async def test_a_client_can_be_opened_with_a_url(url: str) -> None:
    client = ServiceBusClient(url)
    assert client.namespace == "default"
    await works(client)
    await works(ServiceBusClient.from_connection_string(url, namespace="ns"))


@in_memory
async def test_the_namespace_argument_overrides_the_namespace_of_the_url(url: str) -> None:
    assert ServiceBusClient(f"{url}?namespace=a").namespace == "a"
    assert ServiceBusClient(f"{url}?namespace=a", namespace="b").namespace == "b"
    for wrong in ("", "a b", "n" * 51):
        with pytest.raises(ValueError, match="namespace"):
            ServiceBusClient(url, namespace=wrong)
    with pytest.raises(TypeError):
        ServiceBusClient(url, namespace=5)  # type: ignore[arg-type]


@pytest.fixture
def guarded(binary: str | None) -> Iterator[LocalServer]:
    """Start a server with a password and a named user."""
    with LocalServer(binary=binary, config={"requirepass": "hunter2"}) as server:
        server.ask("ACL", "SETUSER", "ann", "on", ">hunter3", "~*", "&*", "+@all")
        yield server


async def test_credentials_may_be_in_the_url_or_passed_separately(guarded: LocalServer) -> None:
    bare = f"redis://{guarded.host}:{guarded.port}"
    await works(ServiceBusClient(f"redis://:hunter2@{guarded.host}:{guarded.port}"))
    await works(ServiceBusClient(bare, (None, "hunter2")))
    await works(ServiceBusClient(bare, ("ann", "hunter3")))
    await works(ServiceBusClient(bare, credential=UsernamePasswordCredentialProvider("ann", "hunter3")))
    await works(
        ServiceBusClient.from_redis(redis.asyncio.Redis(host=guarded.host, port=guarded.port, password="hunter2"))
    )
    provider = UsernamePasswordCredentialProvider("ann", "hunter3")
    borrowed = redis.asyncio.Redis(host=guarded.host, port=guarded.port, credential_provider=provider)
    await works(ServiceBusClient.from_redis(borrowed))
    for wrong in (None, ("ann", "hunter2"), (None, "wrong")):
        with pytest.raises(ServiceBusAuthenticationError) as caught:
            await works(ServiceBusClient(bare, wrong))
        assert "hunter" not in str(caught.value)
        assert not caught.value.is_transient


@pytest.mark.parametrize(
    "client",
    [
        lambda: ServiceBusClient("redis://ann:hunter2@localhost?namespace=ns"),
        lambda: ServiceBusClient("redis://localhost", ("ann", "hunter2")),
        lambda: ServiceBusClient.from_redis(redis.asyncio.Redis(username="ann", password="hunter2")),
    ],
)
def test_the_repr_of_a_client_shows_no_password(client: Any) -> None:
    made = client()
    for shown in (repr(made), str(made), repr(made.get_queue_sender("q")), repr(made._connection.target)):
        assert "hunter2" not in shown
    assert re.fullmatch(r"<ServiceBusClient standalone localhost:6379, namespace '(ns|default)', open>", repr(made))


@pytest.mark.parametrize(
    "kind",
    [
        ServiceBusClient,
        sync.ServiceBusClient,
        ServiceBusAdministrationClient,
        sync_management.ServiceBusAdministrationClient,
    ],
)
def test_a_client_that_could_not_be_made_has_a_repr(kind: Any) -> None:
    """Tools that report errors show the variables of each frame of a traceback."""
    with pytest.raises(InvalidConnectionStringError) as caught:
        kind("redis://:hunter2@")
    made = [frame.frame.f_locals["self"] for frame in caught.traceback if "self" in frame.frame.f_locals]
    clients = [repr(each) for each in made if isinstance(each, kind)]
    assert clients == [f"<{kind.__name__}, not made>"] * len(clients) != []


async def test_a_client_can_use_a_redis_py_client_without_owning_it(server: LocalServer, cluster: LocalCluster) -> None:
    """Closing the ServiceBusClient does not close the redis-py client."""
    borrowed = redis.asyncio.Redis(host=server.host, port=server.port)
    client = ServiceBusClient.from_redis(borrowed, namespace="ns", slot_count=2)
    assert client.namespace == "ns"
    await works(client)
    assert client._connection.namespace.slots == 2
    assert await borrowed.ping()
    await borrowed.aclose()
    node = cluster.masters[0]
    many = redis.asyncio.RedisCluster(startup_nodes=[ClusterNode(node.host, node.port)])
    client = ServiceBusClient.from_redis(many, namespace="ns")
    await works(client)
    assert len(client._connection.transport.masters) == 3
    await many.aclose()
    with pytest.raises(TypeError, match=r"A redis\.asyncio.Redis or RedisCluster is needed, not int"):
        ServiceBusClient.from_redis(5)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Encrypted]:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    yield from started(folder, asks_clients=False)


async def test_tls_settings_of_a_redis_py_client_are_used(encrypted: Encrypted) -> None:
    authority = str(encrypted.folder / "ca.pem")
    await works(ServiceBusClient(encrypted.url(), namespace="a"))
    borrowed = redis.asyncio.Redis(host="localhost", port=encrypted.port, ssl=True, ssl_ca_certs=authority)
    await works(ServiceBusClient.from_redis(borrowed, namespace="b"))
    stranger = redis.asyncio.Redis(
        host="localhost", port=encrypted.port, ssl=True, ssl_ca_certs=str(encrypted.folder / "stranger.pem")
    )
    with pytest.raises(ServiceBusConnectionError, match="certificate"):
        await works(ServiceBusClient.from_redis(stranger, connect_timeout=1))


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"retry_total": -1}, ValueError, "retry_total"),
        ({"retry_total": 1.5}, ValueError, "retry_total"),
        ({"retry_mode": "never"}, ValueError, "retry_mode"),
        ({"retry_backoff_factor": 0}, ValueError, "retry_backoff_factor"),
        ({"retry_backoff_max": "1"}, TypeError, "retry_backoff_max"),
        ({"connect_timeout": 0}, ValueError, "connect_timeout"),
        ({"slot_count": 0}, ValueError, "slot_count"),
        ({"slot_count": 1025}, ValueError, "slot_count"),
        ({"slot_count": "4"}, TypeError, "slot_count"),
        ({"credential": "hunter2"}, TypeError, "credential must be a tuple"),
        ({"credential": ("hunter2",)}, TypeError, "credential must be a tuple of user and password"),
        ({"credential": ("ann", 2)}, TypeError, "credential must be a tuple of user and password"),
    ],
)
def test_options_are_validated_by_the_constructor(options: dict[str, Any], error: Any, said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        ServiceBusClient("redis://localhost", **options)
    assert "hunter2" not in str(caught.value)


# -- connecting --------------------------------------------------------------------------------------------------------


async def test_a_client_connects_only_when_needed() -> None:
    client = ServiceBusClient(f"redis://127.0.0.1:{free_port()}")
    sender = client.get_queue_sender("q")
    assert repr(sender)
    await sender.close()
    await client.close()
    with pytest.raises(ValueError, match="The client is closed"):
        await client.__aenter__()


async def test_many_concurrent_callers_share_one_connection(server: LocalServer) -> None:
    async with queue_at(server.url):
        await turns()
        before = len(lines(server, "name="))
        client = ServiceBusClient(server.url, namespace="ns")
        senders = [client.get_queue_sender("q") for _ in range(30)]
        await asyncio.gather(*(sender.send_messages(ServiceBusMessage("x")) for sender in senders))
        assert len(lines(server, "name=")) == before + 1
        await client.close()


async def test_the_caller_that_started_connecting_may_be_cancelled(server: LocalServer) -> None:
    """The other callers that wait for the connection are not affected."""
    for steps in range(0, 40, 4):
        client = ServiceBusClient(server.url, namespace="ns")
        first = asyncio.create_task(client.ensure_queue("q"))
        others = [asyncio.create_task(client.ensure_queue("q")) for _ in range(3)]
        await turns(steps)
        first.cancel()
        await asyncio.gather(*others)
        await asyncio.wait((first,))
        await client.close()


@pytest.mark.parametrize("steps", range(0, 60, 5))
async def test_a_client_may_be_closed_while_it_connects(server: LocalServer, steps: int) -> None:
    """Callers that wait get an error which says that the client is closed. No task and no connection is left."""
    before, connected = asyncio.all_tasks(), len(lines(server, "name="))
    client = ServiceBusClient(server.url, namespace="ns")
    waiting = [asyncio.create_task(client.ensure_queue("q")) for _ in range(3)]
    await turns(steps)
    await client.close()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    for error in ended:
        closed = isinstance(error, (ValueError, ServiceBusError)) and "closed" in str(error)
        assert closed or not isinstance(error, BaseException), repr(error)
    assert asyncio.all_tasks() == before
    for _ in range(1000):
        if len(lines(server, "name=")) <= connected:
            return
        await asyncio.sleep(0)
    raise AssertionError("a connection is left open")


async def test_a_client_that_could_not_connect_tries_again_later(binary: str | None) -> None:
    server = LocalServer(binary=binary)
    with server:
        server.kill()
        client = ServiceBusClient(server.url, namespace="ns", connect_timeout=1)
        sender = client.get_queue_sender("q", create_if_missing=True)
        for _ in range(2):
            with pytest.raises(ServiceBusConnectionError, match="cannot be reached: connection refused") as caught:
                await sender.send_messages(ServiceBusMessage("x"))
            assert (caught.value.is_transient, caught.value.outcome) == (True, Outcome.NEVER_SENT)
        both = await asyncio.gather(client.ensure_queue("q"), client.ensure_queue("r"), return_exceptions=True)
        assert isinstance(both[0], ServiceBusConnectionError)
        assert isinstance(both[1], ServiceBusConnectionError)
        assert both[0] is not both[1]
        server.restart()
        await sender.send_messages(ServiceBusMessage("x"))
        await client.close()


@pytest.mark.slow
async def test_a_call_times_out_if_connecting_takes_too_long(caplog: pytest.LogCaptureFixture) -> None:
    """The connection attempt fails later. Python does not report its error as one that was never retrieved."""
    async with answering(never_answering) as where:
        client = ServiceBusClient(f"redis://{where}", connect_timeout=3)
        with pytest.raises(OperationTimeoutError, match="was not ready in time") as caught:
            await client.get_queue_sender("q").send_messages(ServiceBusMessage("x"), timeout=0.05)
        assert (caught.value.outcome, caught.value.is_transient) == (Outcome.NEVER_SENT, True)
        with pytest.raises(ServiceBusConnectionError):
            await client.ensure_queue("q", timeout=20)
        with pytest.raises(OperationTimeoutError):
            await client.ensure_queue("q", timeout=0.05)
        opening = client._connection._opening.task
        assert opening is not None
        await asyncio.wait((opening,))
        del opening
        client._connection._opening.task = None
        gc.collect()
        await client.close()
    assert "never retrieved" not in caplog.text


@pytest.mark.any_form("a user has no right to load a library")
async def test_a_connection_loads_few_scripts_unless_it_is_asked_to_load_all(binary: str | None) -> None:
    """Then a user who may not load scripts can use the server."""

    def loaded(server: LocalServer) -> int:
        found = re.search(r"number_of_cached_scripts:(\d+)", str(server.ask("INFO", "memory")))
        assert found is not None
        return int(found[1])

    with LocalServer(binary=binary) as server:
        server.ask("ACL", "SETUSER", "caller", "on", ">pw", "~*", "&*", "+@all", "-script|load", "-function|load")
        caller = server.url.replace("redis://", "redis://caller:pw@")
        with pytest.raises(ServiceBusAuthorizationError, match="Permit SCRIPT LOAD"):
            await works(ServiceBusClient(caller))
        await works(ServiceBusClient(f"{server.url}?scripts=needed"))
        assert 0 < loaded(server) < len(every_script()) / 4
        await works(ServiceBusClient(f"{server.url}?scripts=all"))
        assert loaded(server) == len(every_script())
        await works(ServiceBusClient(caller))


# -- retries -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("total", [0, 2])
async def test_the_retry_limit_counts_all_partitions_together(binary: str | None, total: int, key: str | None) -> None:
    """A message that may go to any of sixteen partitions has one limit for all of them, and not one for each."""
    with LocalServer(binary=binary) as server:
        client = ServiceBusClient(server.url, retry_total=total, retry_backoff_factor=0.001, retry_mode="fixed")
        async with client:
            await client.ensure_queue("p", enable_partitioning=True)
            sender = client.get_queue_sender("p")
            await sender.send_messages(ServiceBusMessage("x"))
            server.kill()
            with Gate(client) as gate:
                with pytest.raises(ServiceBusError) as caught:
                    await sender.send_messages(ServiceBusMessage("y", partition_key=key), timeout=60)
                assert len(gate.arrived) == 1
            assert caught.value.is_transient
            assert (f"{total + 1} attempts" in str(caught.value)) is (total > 0)


async def test_a_large_backoff_does_not_become_a_busy_loop(binary: str | None) -> None:
    """In this test the backoff is longer than the time in which a movable message tries one partition."""
    with LocalServer(binary=binary) as server:
        client = ServiceBusClient(server.url, namespace="ns", retry_backoff_factor=2, retry_backoff_max=2)
        async with client:
            await client.ensure_queue("p", enable_partitioning=True)
            sender = client.get_queue_sender("p")
            await sender.send_messages(ServiceBusMessage("x"))
            server.kill()
            with Gate(client) as gate:
                with pytest.raises(ServiceBusError):
                    await sender.send_messages(ServiceBusMessage("x"), timeout=1)
                assert len(gate.arrived) <= 16  # one attempt at each partition


# -- event loops -------------------------------------------------------------------------------------------------------


def test_a_client_belongs_to_one_event_loop(shared_server: LocalServer) -> None:
    """In another event loop the client raises an error. Otherwise the call would wait for ever.

    A kind of call that the first loop has not made would make a new lane, which would belong to the wrong event loop.
    """
    shared_server.ask("FLUSHALL")
    client = ServiceBusClient(shared_server.url)
    sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")
    ahead = client.get_queue_receiver("q", prefetch_count=1)
    received: list[ServiceBusReceivedMessage] = []
    go, done = threading.Event(), threading.Event()

    async def first() -> None:
        await client.ensure_queue("q")
        await sender.send_messages(ServiceBusMessage("x"))
        received.extend(await receiver.receive_messages(1, 60))
        await sender.send_messages([ServiceBusMessage("ahead"), ServiceBusMessage("ahead")])
        _ = await anext(ahead)
        await eventually(lambda: ahead._inbox and ahead._inbox.buffer)
        go.set()
        await asyncio.to_thread(done.wait, 60)
        await sender.send_messages(ServiceBusMessage("y"))
        await receiver.complete_messages(received)
        await client.close()

    async def second() -> None:
        [message] = received
        for call in (
            lambda: sender.send_messages(ServiceBusMessage("z")),
            lambda: client.ensure_queue("q"),
            lambda: client.get_queue_sender("q").send_messages(ServiceBusMessage("z")),
            client.__aenter__,
            lambda: receiver.complete_message(message),
            lambda: receiver.renew_message_lock(message),
            lambda: receiver.defer_message(message),
            receiver.peek_messages,
            receiver.receive_messages,
            lambda: receiver.receive_messages(1, 0),
            ahead.__anext__,
            lambda: receiver.add_credit(1),
            receiver.drain,
            receiver.close,
        ):
            with pytest.raises(RuntimeError, match="another event loop"):
                await asyncio.wait_for(call(), 60)
        assert sender.in_flight == 0

    thread = threading.Thread(target=lambda: asyncio.run(first(), debug=True))
    thread.start()
    try:
        assert go.wait(60)
        asyncio.run(second(), debug=True)
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("closes", [False, True])
def test_a_client_is_refused_in_a_second_event_loop_after_the_first_has_ended(
    shared_server: LocalServer, closes: bool
) -> None:
    """The error says that the client has ended with its event loop, unless the program itself has closed it."""
    shared_server.ask("FLUSHALL")
    client = ServiceBusClient(shared_server.url)
    sender, receiver = client.get_queue_sender("q"), client.get_queue_receiver("q")

    async def first() -> list[ServiceBusReceivedMessage]:
        await client.ensure_queue("q")
        await sender.send_messages(ServiceBusMessage("x"))
        received = await receiver.receive_messages(1, 60)
        if closes:
            await client.close()
        return received

    [message] = asyncio.run(first())

    async def again() -> None:
        for call in (
            lambda: client.ensure_queue("q"),
            lambda: sender.send_messages(ServiceBusMessage("x")),
            lambda: receiver.receive_messages(1),
            lambda: receiver.complete_message(message),
        ):
            with pytest.raises(
                ValueError if closes else RuntimeError, match="closed" if closes else "another event loop"
            ):
                await asyncio.wait_for(call(), 60)

    asyncio.run(again())


def test_a_client_without_an_event_loop_raises_an_error() -> None:
    sender: ServiceBusSender = ServiceBusClient("memory://x").get_queue_sender("q")
    with pytest.raises(RuntimeError, match="event loop"):
        sender.send_messages(ServiceBusMessage("x")).send(None)


# -- unexpected errors -------------------------------------------------------------------------------------------------


@in_memory
async def test_an_unexpected_error_in_a_background_task_closes_the_client(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_at(url) as queue:
        sender = queue.client.get_queue_sender("q")
        await sender.send_messages([])
        with Gate(queue.client) as gate, caplog.at_level(logging.ERROR, "sbredis"):
            gate.shut = True
            send = asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
            await gate.reached()

            async def broken() -> None:
                raise ZeroDivisionError

            queue.client._connection.start(broken())
            with pytest.raises(ServiceBusConnectionError, match="closed meanwhile") as caught:
                await send
            assert caught.value.outcome is Outcome.UNKNOWN
            with pytest.raises((ValueError, ServiceBusError), match="closed"):
                await sender.send_messages(ServiceBusMessage("x"))
        assert "failed because of a defect" in caplog.text
