"""Closing a transport: its callers get a result, and it leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import anyio
import pytest

from sbredis.exceptions import Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.servers import LocalServer
from sbredis.transport import Transport, WireLimits, open_transport
from sbredis.transport._resp import PythonParser
from tests.transport.ears import Ear
from tests.transport.hand import turns
from tests.transport.impostors import old_server
from tests.transport.opening import function, opened

pytestmark = pytest.mark.everywhere("each target has a transport of its own")

COUNT = function("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
PATIENT = WireLimits(give_up_after=3600)
"""With these limits the client gives up a silent server only after an hour, so closing must not wait for that."""


@pytest.fixture
def own_server(binary: str | None) -> Iterator[LocalServer]:
    """A server that a test may stop and kill."""
    with LocalServer(binary=binary) as server:
        yield server


async def results_of(calls: list[asyncio.Task[Any]]) -> list[Any]:
    """Return the results of calls, which must end soon."""
    with anyio.fail_after(200):
        return await asyncio.gather(*calls, return_exceptions=True)


def under_way(transport: Transport, count: int = 5, **options: Any) -> list[asyncio.Task[Any]]:
    options.setdefault("timeout", 3600)
    return [asyncio.create_task(transport.call(COUNT, [b"k"], [1], **options)) for _ in range(count)]


@pytest.mark.parametrize("repeatable", [False, True])
async def test_calls_that_were_sent_end_with_an_unknown_outcome(own_server: LocalServer, repeatable: bool) -> None:
    transport = await opened(own_server.url, scripts=[COUNT], limits=PATIENT)
    own_server.pause()
    calls = under_way(transport, repeatable=repeatable)
    await turns(10)
    with anyio.fail_after(200):
        await transport.aclose()
    own_server.resume()
    for end in await results_of(calls):
        assert isinstance(end, ServiceBusError)
        assert end.outcome is Outcome.UNKNOWN


async def test_calls_that_wait_for_a_server_to_return_end_as_never_sent(own_server: LocalServer) -> None:
    transport = await opened(own_server.url, scripts=[COUNT], limits=PATIENT)
    own_server.kill()
    # these calls make the client notice the loss
    await asyncio.gather(*under_way(transport, timeout=0.2), return_exceptions=True)
    calls = under_way(transport)
    await turns(10)
    with anyio.fail_after(200):
        await transport.aclose()
    for end in await results_of(calls):
        assert isinstance(end, ServiceBusConnectionError)
        assert (end.outcome, end.is_transient) == (Outcome.NEVER_SENT, False)


async def test_calls_that_wait_to_be_repeated_end_with_the_outcome_of_the_first_attempt(
    own_server: LocalServer,
) -> None:
    transport = await opened(own_server.url, scripts=[COUNT], limits=PATIENT)
    own_server.pause()
    calls = under_way(transport, repeatable=True)
    await turns(10)
    own_server.kill()  # the calls were sent and got no answer; now they wait for a server
    await turns(50)
    with anyio.fail_after(200):
        await transport.aclose()
    for end in await results_of(calls):
        assert isinstance(end, ServiceBusError)
        assert end.outcome is Outcome.UNKNOWN


async def test_calls_that_wait_for_confirmation_end_with_an_unknown_outcome(binary: str | None) -> None:
    with ExitStack() as running:
        server = running.enter_context(LocalServer(binary=binary))
        config = {"replicaof": f"127.0.0.1 {server.port}"}
        replica = running.enter_context(LocalServer(binary=binary, config=config))
        await anyio.to_thread.run_sync(lambda: server.ask("WAIT", 1, 5000))
        transport = await opened(server.url + "?durability=replicated", scripts=[COUNT], limits=PATIENT)
        assert await transport.call(COUNT, [b"k"], [1]) == 1
        replica.pause()
        first = under_way(transport)
        await turns(50)
        queued = under_way(transport)
        await turns(10)
        with anyio.fail_after(200):
            await transport.aclose()
        replica.resume()
        assert {end.outcome for end in await results_of(first)} == {Outcome.UNKNOWN}
        assert {end.outcome for end in await results_of(queued)} <= {Outcome.UNKNOWN, Outcome.NEVER_SENT}


async def test_a_subscription_that_waits_for_its_confirmation_ends_when_the_transport_closes(
    own_server: LocalServer,
) -> None:
    transport = await open_transport(own_server.url, limits=PATIENT)
    own_server.pause()
    waiting = asyncio.create_task(transport.subscribe(b"c", Ear()))
    await turns(10)
    with anyio.fail_after(200):
        await transport.aclose()
    own_server.resume()
    (end,) = await results_of([waiting])
    assert isinstance(end, ServiceBusConnectionError)
    assert (end.outcome, end.is_transient) == (Outcome.NEVER_SENT, False)


async def test_a_closed_transport_refuses_calls(url: str) -> None:
    transport = await opened(url, scripts=[COUNT])
    await transport.aclose()
    await transport.aclose()
    assert repr(transport).endswith(" closed>")
    for attempt in (
        transport.call(COUNT, [b"k"], [1]),
        transport.call(COUNT, [], [1]),
        transport.call(COUNT, [b"k"], [1], durability="replicated"),
        transport.command("PING"),
        transport.subscribe(b"c", Ear()),
    ):
        with pytest.raises(ServiceBusConnectionError, match="closed") as caught:
            await attempt
        assert not caught.value.is_transient
        assert caught.value.outcome in (None, Outcome.NEVER_SENT)


async def test_closing_a_subscription_after_its_transport_has_no_effect(url: str) -> None:
    transport = await open_transport(url)
    subscription = await transport.subscribe(b"c", Ear())
    await transport.aclose()
    subscription.close()
    subscription.close()


@pytest.mark.filterwarnings("error::ResourceWarning")
async def test_a_closed_transport_leaves_nothing_behind(url: str) -> None:
    before = asyncio.all_tasks()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        transport = await opened(url, scripts=[COUNT])
        await transport.subscribe(b"c", Ear())
        await transport.call(COUNT, [b"k"], [1])
        await transport.aclose()
        assert asyncio.all_tasks() == before
        del transport
        await turns()
        gc.collect()
    assert [str(warning.message) for warning in caught] == []


async def test_a_transport_that_failed_to_open_leaves_nothing_behind(unused_tcp_url: str) -> None:
    before = asyncio.all_tasks()
    with pytest.raises(ServiceBusConnectionError):
        await open_transport(unused_tcp_url, connect_timeout=0.1)
    assert asyncio.all_tasks() == before


async def test_an_opening_that_is_cancelled_drops_what_the_server_has_not_read() -> None:
    stalled, resumed, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()
    received = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        parser = PythonParser()
        asked = False
        while not asked:
            data = await reader.read(65536)
            received += len(data)
            for words in parser.feed(data):
                asked = asked or words[0].upper() == b"INFO"  # the scripts follow in the same write
                writer.write(old_server(words))
        stalled.set()
        await resumed.wait()
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                received += len(data)
        ended.set()
        writer.close()

    size = 12_000_000  # more than the buffers of the two sockets together
    huge = function("huge", "--" + "x" * size)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    async with await asyncio.start_server(serve, sock=listener):
        url = f"redis://127.0.0.1:{listener.getsockname()[1]}"
        opening = asyncio.create_task(opened(url, scripts=[huge], limits=PATIENT))
        with anyio.fail_after(200):
            await stalled.wait()
            await turns(10)
            opening.cancel()
            await asyncio.wait([opening])
            resumed.set()
            await ended.wait()
    assert opening.cancelled()
    assert received < size


async def test_all_concurrent_closes_wait_until_the_transport_is_closed(url: str) -> None:
    transport = await open_transport(url)
    await asyncio.gather(transport.aclose(), transport.aclose())
    assert transport.servers == ()


def test_opening_without_asyncio_fails_immediately() -> None:
    """For example, trio drives coroutines without an event loop of asyncio."""
    with pytest.raises(RuntimeError, match=r"runs on asyncio.*trio is not supported"):
        open_transport("memory://x").send(None)


@pytest.fixture
def unused_tcp_url() -> str:
    """An address at which no server listens."""
    return "redis://127.0.0.1:1"
