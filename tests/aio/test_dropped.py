"""Clients that a program drops without closing them, and clients whose event loop has ended."""

from __future__ import annotations

import asyncio
import gc
import inspect
import subprocess
import sys
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import sbredis
from sbredis._call_site import calling_line
from sbredis.aio import AutoLockRenewer, ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import Connection
from sbredis.model import ServiceBusMessage
from sbredis.registry import Namespace
from sbredis.servers import LocalServer
from sbredis.sync.management import ServiceBusAdministrationClient as SyncAdministrationClient
from tests.complaints import complaints
from tests.waiting import eventually, wait_until
from tools.repository import ROOT

LOOPS = pytest.mark.parametrize("loop", ["asyncio", "uvloop"])


def here() -> int:
    """Return the line number of the caller."""
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def let_go(held: list[Any]) -> None:
    """Drop the last references to these objects."""
    held.clear()
    gc.collect()


@pytest.fixture(autouse=True)
def _no_garbage_of_earlier_tests() -> None:
    """Collect what earlier tests left, because its warnings would be taken for warnings about the clients of a test."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


async def ended(connection: Connection) -> None:
    """Wait until a client is closed, and until its transport has no task that the end of the test would cancel."""

    def has_ended() -> bool:
        names = [task.get_name() for task in asyncio.all_tasks()]
        return connection.transport.closed and not any(name.startswith("sbredis transport") for name in names)

    await eventually(has_ended)


# -- dropped -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [ServiceBusClient, ServiceBusAdministrationClient])
async def test_a_dropped_client_warns_with_its_creation_line_and_is_closed(
    url: str, kind: type[ServiceBusClient | ServiceBusAdministrationClient]
) -> None:
    client, line = kind(url), here()
    await client.ensure_queue("q")
    connection = client._connection
    held = [client]
    del client
    with pytest.warns(ResourceWarning, match="was not closed") as warned:
        let_go(held)
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]
    await ended(connection)
    assert not connection._opened


async def test_a_sender_or_receiver_keeps_its_client_open(url: str) -> None:
    client = ServiceBusClient(url)
    sender = client.get_queue_sender("q", create_if_missing=True)
    await sender.send_messages(ServiceBusMessage("a"))
    receiver = client.get_queue_receiver("q")
    del client
    gc.collect()
    await sender.send_messages(ServiceBusMessage("b"))
    del sender
    gc.collect()
    assert [message.body for message in await receiver.receive_messages(2, 60)] == [b"a", b"b"]
    connection = receiver._connection
    held = [receiver]
    del receiver
    with pytest.warns(ResourceWarning, match="was not closed"):
        let_go(held)
    await ended(connection)


async def _closed_without(held: list[object], connection: Connection) -> None:
    """Drop the objects that keep a client open, and wait until it is closed."""
    while held:
        each = held.pop()
        if isinstance(each, AutoLockRenewer):
            await each.close()
        del each
    await eventually(lambda: gc.collect() >= 0 and connection.closed)


async def test_a_stream_keeps_its_client_open(url: str) -> None:
    client = ServiceBusClient(url)
    stream = client.get_queue_sender("q", create_if_missing=True).send_stream(
        ServiceBusMessage(str(number)) for number in range(6)
    )
    connection = client._connection
    del client
    errors: list[object] = []
    async for result in stream:
        gc.collect()
        errors.append(result.error)
    assert (errors, connection.closed) == ([None] * 6, False)
    held: list[object] = [stream]
    del stream
    with pytest.warns(ResourceWarning, match="was not closed"):
        await _closed_without(held, connection)


async def test_a_renewer_keeps_its_client_open(url: str) -> None:
    client, renewer = ServiceBusClient(url), AutoLockRenewer()
    connection = client._connection
    sender = client.get_queue_sender("q", create_if_missing=True)
    await sender.send_messages(ServiceBusMessage("a"))
    receiver = client.get_queue_receiver("q", auto_lock_renewer=renewer)
    [message] = await receiver.receive_messages(1, 60)
    del client, sender, receiver
    gc.collect()
    assert not connection.closed
    assert message.locked_until_utc is not None
    held: list[object] = [renewer]
    with pytest.warns(ResourceWarning, match="was not closed"):
        await _closed_without(held, connection)


async def test_a_client_dropped_while_connecting_leaves_nothing_behind(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The application cannot close this client any more, so there is no warning."""
    reached, let = asyncio.Event(), asyncio.Event()
    real = Namespace.open

    async def waits(*arguments: Any, **options: Any) -> Namespace:
        reached.set()
        await let.wait()
        return await real(*arguments, **options)

    monkeypatch.setattr(Namespace, "open", waits)
    client = ServiceBusClient(url)
    connection = client._connection
    entering = asyncio.create_task(client.__aenter__())
    await reached.wait()
    entering.cancel()
    await asyncio.wait((entering,))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del client, entering
        gc.collect()
        let.set()
        await eventually(lambda: connection.closed and not connection._opened)
        await ended(connection)


async def test_a_closed_or_unused_client_is_dropped_without_a_warning(url: str) -> None:
    closed, unused = ServiceBusClient(url), ServiceBusClient(url)
    await closed.ensure_queue("q")
    await closed.close()
    unused.get_queue_sender("q")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del closed, unused
        gc.collect()


def test_a_dropped_synchronous_client_warns_with_its_creation_line(url: str) -> None:
    client, line = sbredis.ServiceBusClient(url), here()
    client.ensure_queue("q")
    thread = client._bridge._thread
    assert thread is not None
    held = [client]
    del client
    with pytest.warns(ResourceWarning, match="was not closed") as warned:
        let_go(held)
    assert [(each.filename, each.lineno) for each in warned] == [(__file__, line)]
    thread.join(200)
    assert not thread.is_alive()


# -- after the end of the loop -----------------------------------------------------------------------------------------

OPENED = """
import asyncio, gc, sys, warnings
from sbredis import ServiceBusMessage
from sbredis.aio import AutoLockRenewer, ServiceBusClient
if sys.argv[2] == "uvloop":
    import uvloop
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
held = []

async def used(url):
    client = ServiceBusClient(url, maintenance=True)
    await client.ensure_queue("s", requires_session=True)
    sender = client.get_queue_sender("q", create_if_missing=True)
    await sender.send_messages([ServiceBusMessage("a")] * 3)
    renewer = AutoLockRenewer()
    receiver = client.get_queue_receiver("q", prefetch_count=10, auto_lock_renewer=renewer)
    await receiver.receive_messages(1)
    of_session = await client.get_queue_receiver("s", session_id="1", auto_lock_renewer=renewer).__aenter__()
    waits = [asyncio.ensure_future(each.receive_messages(5, 60)) for each in (receiver, of_session)]
    while not all(each._inbox is not None and each._inbox.callers.demand for each in (receiver, of_session)):
        await asyncio.sleep(0.01)
    stream = sender.send_stream(ServiceBusMessage(str(number)) for number in range(1000))
    await anext(aiter(stream))
    held.extend([sender, receiver, of_session, renewer, client])
"""


ENDED = """
async def closed(in_order):
    for each in in_order:
        await each.close()
        await each.close()
    try:
        held[-1].get_queue_sender("q")  # it is the client
    except ValueError as error:
        assert "closed" in str(error), error

async def collected():
    held.clear()
    gc.collect()

endings = {
    "closed as made": lambda: closed(held),
    "closed client first": lambda: closed(held[::-1]),
    "collected": collected,
}
for namespace, (name, end) in enumerate(endings.items()):
    asyncio.run(used(f"{sys.argv[1]}?namespace={namespace}"))
    asyncio.run(end())
    held.clear()
    gc.collect()
    print(name)
"""


@LOOPS
def test_a_client_is_closed_or_garbage_collected_quietly_after_its_loop_has_ended(
    server: LocalServer, loop: str
) -> None:
    printed, complained = python(OPENED + ENDED, server.url, loop)
    assert complained == ""
    assert printed.splitlines() == ["closed as made", "closed client first", "collected"]


async def test_a_client_cannot_be_closed_in_another_event_loop_while_its_own_loop_runs(url: str) -> None:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("q")

        def elsewhere() -> None:
            with pytest.raises(RuntimeError, match="another event loop"):
                asyncio.run(client.close())

        await asyncio.to_thread(elsewhere)
        await client.ensure_queue("q")  # the client is still open


def python(code: str, *arguments: str) -> tuple[str, str]:
    """Run code in a fresh interpreter with all warnings. Return its output and its standard error."""
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", code, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    return done.stdout.strip(), complaints(done.stderr)


# -- the lines in warnings ---------------------------------------------------------------------------------------------

KEYWORD: Any = {"encoding": "UTF-8"}
"""A keyword that Azure's library has and sbredis does not."""
OF_PIPELINE: Any = {"logging_enable": True}
"""A keyword of Azure's administration client."""

IGNORED: dict[str, Callable[[], object]] = {
    "client": lambda: ServiceBusClient("memory://x", **KEYWORD),
    "client, by Azure's name": lambda: ServiceBusClient.from_connection_string("memory://x", **KEYWORD),
    "sender": lambda: ServiceBusClient("memory://x").get_queue_sender("q", **KEYWORD),
    "topic sender": lambda: ServiceBusClient("memory://x").get_topic_sender("q", **KEYWORD),
    "receiver": lambda: ServiceBusClient("memory://x").get_queue_receiver("q", **KEYWORD),
    "subscription receiver": lambda: ServiceBusClient("memory://x").get_subscription_receiver("t", "s", **KEYWORD),
    "administration": lambda: ServiceBusAdministrationClient("memory://x", **OF_PIPELINE),
    "administration, by Azure's name": lambda: ServiceBusAdministrationClient.from_connection_string(
        "memory://x", **OF_PIPELINE
    ),
    "message": lambda: ServiceBusMessage("", **KEYWORD),
    "synchronous client": lambda: sbredis.ServiceBusClient("memory://x", **KEYWORD),
    "synchronous client, by Azure's name": lambda: sbredis.ServiceBusClient.from_connection_string(
        "memory://x", **KEYWORD
    ),
    "synchronous sender": lambda: sbredis.ServiceBusClient("memory://x").get_queue_sender("q", **KEYWORD),
    "synchronous receiver": lambda: sbredis.ServiceBusClient("memory://x").get_queue_receiver("q", **KEYWORD),
    "synchronous administration": lambda: SyncAdministrationClient("memory://x", **OF_PIPELINE),
}


@pytest.mark.parametrize("name", IGNORED)
def test_a_warning_about_an_ignored_keyword_names_the_line_of_the_caller(name: str) -> None:
    with pytest.warns(UserWarning, match="ignores keywords of Azure's library: (encoding|logging_enable)$") as warned:
        IGNORED[name]()
    assert [each.filename for each in warned] == [__file__]
    first = IGNORED[name].__code__.co_firstlineno
    assert first <= warned[0].lineno <= first + 2


async def test_a_warning_from_an_awaited_call_names_the_line_of_the_caller() -> None:
    async with ServiceBusClient("memory://x") as client:
        await client.ensure_queue("q", requires_session=True)
        with pytest.warns(UserWarning, match="accept_next_session ignores keywords of Azure's library") as warned:
            await client.accept_next_session("q", max_wait_time=0.01, **KEYWORD)
        assert [(each.filename, each.lineno) for each in warned] == [(__file__, here() - 1)]


def test_calling_line_returns_the_line_of_this_test() -> None:
    assert (calling_line().file, calling_line().number) == (__file__, here())


def test_every_warning_uses_the_function_that_finds_the_caller() -> None:
    direct = [
        str(path.relative_to(ROOT))
        for folder in ("sbredis", "workers")
        for path in (ROOT / folder).rglob("*.py")
        if "warnings.warn" in path.read_text("utf-8") and path.name != "_call_site.py"
    ]
    assert direct == []


@pytest.mark.parametrize("session", [None, "a"])
async def test_a_closed_receiver_is_freed_when_nobody_references_it(url: str, session: str | None) -> None:
    """A program may accept many sessions. Their receivers do not wait for the garbage collector."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("q", requires_session=session is not None)
        await client.get_queue_sender("q").send_messages(ServiceBusMessage("a", session_id=session))
        gc.collect()
        gc.disable()
        try:
            async with client.get_queue_receiver("q", session_id=session) as receiver:
                for message in await receiver.receive_messages(max_wait_time=60):
                    await receiver.complete_message(message)
            freed = weakref.ref(receiver)
            del receiver
            await eventually(lambda: freed() is None)
        finally:
            gc.enable()


async def test_a_closed_client_is_freed_although_its_last_error_refers_to_its_user(url: str) -> None:
    """The error that ended its tasks refers to the frames of the event loop, and these refer to all variables of its
    caller.
    """
    client = ServiceBusClient(url)
    await client.ensure_queue("q")
    connection = client._connection
    connection.user = client  # type: ignore[attr-defined]
    await client.close()
    freed = weakref.ref(connection)
    del client, connection
    gc.collect()
    assert freed() is None


def test_a_client_is_freed_after_its_event_loop_has_ended_without_closing_it(url: str) -> None:
    async def use() -> Connection:
        client = ServiceBusClient(url)
        await client.ensure_queue("q")
        client._connection.user = client  # type: ignore[attr-defined]
        return client._connection

    freed = weakref.ref(asyncio.run(use()))
    wait_until(lambda: gc.collect() >= 0 and freed() is None)  # threads that end hold a reference for a moment
