"""A server at its memory limit can be emptied by programs that start now: nobody needs a client that was open before.

Each kind of entity is filled until the server refuses a send. Then every client is closed, and new clients receive
everything, although the server stays at its limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import read_range, reserve
from sbredis.engine import decode, read_record
from sbredis.exceptions import Outcome, ServiceBusServerBusyError
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusSubQueue
from sbredis.servers import LocalCluster, LocalServer
from sbredis.workers import Context, Retries, Worker
from tests.waiting import eventually

pytestmark = pytest.mark.any_form("a full server may take no library")

SIZE = 20_000
ROOM = 700_000
"""The memory that each server has left when the test begins to send."""
SPREAD = 3
Admin = ServiceBusAdministrationClient


class Servers:
    """Servers whose memory the test limits."""

    def __init__(self, url: str, masters: Sequence[LocalServer]) -> None:
        self.url = url
        self.masters = masters

    def limit(self, to: Callable[[int], int]) -> None:
        """Limit the memory of each server, by a function of the memory that it uses."""
        for each in self.masters:
            each.ask("CONFIG", "SET", "maxmemory", to(used(each)))

    def begin(self) -> None:
        for each in self.masters:
            each.ask("CONFIG", "SET", "maxmemory", 0)
            each.ask("FLUSHALL")

    def restart(self, how: str) -> None:
        for each in self.masters:
            if how == "server":
                each.restart()
            elif how == "scripts":
                each.ask("FUNCTION", "FLUSH", "SYNC")
                each.ask("SCRIPT", "FLUSH", "SYNC")


def used(server: LocalServer) -> int:
    about = str(server.ask("INFO", "memory"))
    return int(next(line for line in about.splitlines() if line.startswith("used_memory:")).partition(":")[2])


def always(used: int) -> int:
    """A limit that is exceeded until the end."""
    del used
    return 1


def slightly(used: int) -> int:
    """A limit that is exceeded by 2 %."""
    return used - used // 50


@pytest.fixture(scope="module")
def own_server(binary: str | None) -> Iterator[LocalServer]:
    with LocalServer(binary=binary, config={"appendonly": "yes"}) as server:
        yield server


@pytest.fixture(scope="module")
def own_cluster(binary: str | None) -> Iterator[LocalCluster]:
    with LocalCluster(3, 0, node_timeout=60_000, binary=binary) as cluster:
        yield cluster


@pytest.fixture(params=["server", "cluster"])
def servers(request: pytest.FixtureRequest) -> Servers:
    running: LocalServer | LocalCluster = request.getfixturevalue(f"own_{request.param}")
    found = Servers(running.url, [running] if isinstance(running, LocalServer) else running.masters)
    found.begin()
    return found


# -- the kinds of entities ---------------------------------------------------------------------------------------------


async def receive(receiver: Any, count: int, settle: Callable[[Any], Awaitable[object]] | None = None) -> list[str]:
    """Receive this number of messages, and settle each of them."""
    found: list[str] = []
    while len(found) < count:
        page = await receiver.receive_messages(count - len(found), max_wait_time=60)
        assert page, f"only {len(found)} of {count} messages came"
        for message in page:
            await (receiver.complete_message(message) if settle is None else settle(message))
            found.append(body_of(message))
    return found


def body_of(message: Any) -> str:
    return str(message).partition(" ")[0]


class Kind:
    """A kind of entity: how it is made, filled and emptied."""

    limit: Callable[[int], int] = staticmethod(always)
    maintenance = False
    entity = "orders"
    copies = 1

    async def create(self, admin: Admin) -> None:
        await admin.create_queue("orders")

    def message(self, number: int) -> ServiceBusMessage:
        return ServiceBusMessage(f"{number} {'x' * SIZE}")

    async def send(self, client: ServiceBusClient, message: ServiceBusMessage) -> None:
        async with client.get_sender(self.entity) as sender:
            await sender.send_messages(message)

    async def begin(self, client: ServiceBusClient) -> None:
        """Prepare the entity while the server has memory."""

    async def prepare(self, client: ServiceBusClient, count: int) -> None:
        """Bring the messages into the state in which they stay while the server is full."""

    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        async with client.get_queue_receiver("orders") as receiver:
            return await receive(receiver, count)

    async def left(self, admin: Admin) -> int:
        found = await admin.get_queue_runtime_properties(self.entity)
        return found.total_message_count


class Patient(Kind):
    """A queue whose messages may fail often."""

    async def create(self, admin: Admin) -> None:
        await admin.create_queue("orders", max_delivery_count=2_000)
        await admin.create_queue("copied")


class Transactions(Kind):
    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        async with client.get_queue_receiver("orders") as receiver:

            async def settle(message: Any) -> None:
                async with client.transaction() as transaction:
                    transaction.complete_message(message)
                    transaction.once(f"key-{body_of(message)}", 60)

            return await receive(receiver, count, settle)


class Sessions(Kind):
    async def create(self, admin: Admin) -> None:
        await admin.create_queue("orders", requires_session=True)

    def message(self, number: int) -> ServiceBusMessage:
        return ServiceBusMessage(f"{number} {'x' * SIZE}", session_id=f"s{number % 3}")

    async def begin(self, client: ServiceBusClient) -> None:
        for number in range(3):
            async with client.get_queue_receiver("orders", session_id=f"s{number}") as receiver:
                await receiver.session.set_state("the state")

    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        found: list[str] = []
        while len(found) < count:
            async with client.get_queue_receiver("orders", session_id=NEXT_AVAILABLE_SESSION) as receiver:
                assert await receiver.session.get_state() == b"the state"
                while page := await receiver.receive_messages(50, max_wait_time=0):
                    await receiver.session.renew_lock()
                    found += [body_of(message) for message in page]
                    await receiver.complete_messages(page)
                await receiver.session.set_state(None)
        return found


class DeadLetters(Kind):
    async def prepare(self, client: ServiceBusClient, count: int) -> None:
        async with client.get_queue_receiver("orders") as receiver:
            await receive(receiver, count, receiver.dead_letter_message)

    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            return await receive(receiver, count)


class Redriven(DeadLetters):
    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        async with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as letters:
            assert (await letters.redrive_messages()).moved == count
        return await super(DeadLetters, self).drain(client, count)


class Deferred(Kind):
    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def prepare(self, client: ServiceBusClient, count: int) -> None:
        async with client.get_queue_receiver("orders") as receiver:

            async def defer(message: Any) -> None:
                self.numbers.append(message.sequence_number)
                await receiver.defer_message(message)

            await receive(receiver, count, defer)

    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        async with client.get_queue_receiver("orders") as receiver:
            found = await receiver.receive_deferred_messages(self.numbers)
            assert len(found) == count
            await receiver.complete_messages(found)
        return [body_of(message) for message in found]


class Reserved(Kind):
    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        reservation = await reserve(client, "orders", consumer="capture")
        found: list[str] = []
        for number in reservation.partitions:
            position = await reservation.begin(number)
            planned = await reservation.plan(number, position, count, 10_000_000)
            async for page in read_range(client, "orders", number, position.birth, position.number, planned.end):
                records = [read_record(each.record).payload for each in page.deliveries]
                found += [decode(each).body.decode().partition(" ")[0] for each in records]
            await reservation.plan(number, planned.committed, 0, 1)
        return found


class Forwarded(Kind):
    """A queue that forwards to another queue in the same slot."""

    maintenance = True

    async def create(self, admin: Admin) -> None:
        await admin.create_queue("to")
        await admin.create_queue("orders", forward_to="to", colocate_with="to")

    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        async with client.get_queue_receiver("to") as receiver:
            return await receive(receiver, count)


class ForwardedFar(Forwarded):
    """A queue that forwards to a queue in another slot, which may be on another master."""

    limit = staticmethod(slightly)

    async def create(self, admin: Admin) -> None:
        await admin.create_queue("to")
        await admin.create_queue("orders", forward_to="to")


class ForwardedFarOnOneServer(ForwardedFar):
    limit = staticmethod(always)


class ForwardedToTopic(Kind):
    maintenance = True
    limit = staticmethod(slightly)
    copies = 2

    async def create(self, admin: Admin) -> None:
        await admin.create_topic("news")
        for name in ("one", "two"):
            await admin.create_subscription("news", name)
        await admin.create_queue("orders", forward_to="news")

    async def drain(self, client: ServiceBusClient, count: int) -> list[str]:
        found: list[str] = []
        for name in ("one", "two"):
            async with client.get_subscription_receiver("news", name) as receiver:
                found += await receive(receiver, count)
        return found


class Scheduled(ForwardedToTopic):
    """A topic whose messages are due, and of which subscriptions get copies."""

    entity = "news"

    async def create(self, admin: Admin) -> None:
        await admin.create_topic("news")
        for name in ("one", "two"):
            await admin.create_subscription("news", name)

    def message(self, number: int) -> ServiceBusMessage:
        due = datetime.now(UTC) + timedelta(seconds=2)
        return ServiceBusMessage(f"{number} {'x' * SIZE}", scheduled_enqueue_time_utc=due)

    async def left(self, admin: Admin) -> int:
        found = await admin.get_topic_runtime_properties("news")
        rest = [
            (await admin.get_subscription_runtime_properties("news", name)).total_message_count
            for name in ("one", "two")
        ]
        return (found.scheduled_message_count or 0) + sum(each or 0 for each in rest)


KINDS: dict[str, Callable[[], Kind]] = {
    "plain": Kind,
    "transactions": Transactions,
    "sessions": Sessions,
    "dead letters": DeadLetters,
    "redriven": Redriven,
    "deferred": Deferred,
    "reserved": Reserved,
    "forwarded": Forwarded,
    "forwarded far": ForwardedFar,
    "forwarded to a topic": ForwardedToTopic,
    "scheduled on a topic": Scheduled,
}


# -- filling -----------------------------------------------------------------------------------------------------------


def client_of(servers: Servers, **options: Any) -> ServiceBusClient:
    return ServiceBusClient(servers.url, namespace="ns", slot_count=SPREAD, **options)


@asynccontextmanager
async def admin_of(servers: Servers) -> AsyncIterator[Admin]:
    async with Admin(servers.url, namespace="ns", slot_count=SPREAD) as admin:
        yield admin


async def fill(servers: Servers, kind: Kind) -> list[str]:
    """Send until a server refuses a message. Return what was stored, which the refusal does not change."""
    sent: list[str] = []
    async with client_of(servers) as client, admin_of(servers) as admin:
        await kind.create(admin)
        await kind.begin(client)
        await kind.send(client, kind.message(0))  # the scripts are loaded now
        sent.append("0")
        servers.limit(lambda used: used + ROOM)
        while True:
            try:
                await kind.send(client, kind.message(len(sent)))
            except ServiceBusServerBusyError:
                break
            sent.append(str(len(sent)))
            assert len(sent) < 500
        assert await kind.left(admin) == len(sent)
        servers.limit(always)
        await is_refused(kind.send(client, kind.message(0)))
        assert await kind.left(admin) == len(sent)
        await kind.prepare(client, len(sent))
    assert len(sent) >= 5
    return sent


async def is_refused(call: Awaitable[object]) -> None:
    with pytest.raises(ServiceBusServerBusyError, match="is at its memory limit") as raised:
        await call
    assert raised.value.outcome is Outcome.REFUSED


# -- emptying ----------------------------------------------------------------------------------------------------------


async def drained(servers: Servers, kind: Kind, sent: Sequence[str]) -> None:
    """Receive everything with a new client, and check that the entity is empty and takes messages again."""
    async with client_of(servers, maintenance=kind.maintenance) as client, admin_of(servers) as admin:
        found = await kind.drain(client, len(sent))
        assert Counter(found) == Counter(dict.fromkeys(sent, kind.copies))
        await eventually(lambda: _is_empty(kind, admin))
        servers.limit(always)
        await is_refused(kind.send(client, kind.message(0)))
        servers.limit(lambda used: used + ROOM)
        await kind.send(client, kind.message(0))


async def _is_empty(kind: Kind, admin: Admin) -> bool:
    return await kind.left(admin) == 0


@pytest.mark.long("it fills a server for each kind of entity")
@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("restarted", ["clients", "scripts"])
async def test_new_clients_empty_a_full_server(servers: Servers, kind: Callable[[], Kind], restarted: str) -> None:
    """If the library is not there, a full server does not take it, and gets single scripts."""
    made = kind()
    sent = await fill(servers, made)
    servers.restart(restarted)
    servers.limit(made.limit)
    await drained(servers, made, sent)


@pytest.mark.parametrize("servers", ["server"], indirect=True)
@pytest.mark.parametrize("kind", [*KINDS.values(), ForwardedFarOnOneServer], ids=[*KINDS, "forwarded at any limit"])
async def test_a_full_server_that_was_restarted_can_be_emptied(servers: Servers, kind: Callable[[], Kind]) -> None:
    made = kind()
    sent = await fill(servers, made)
    servers.restart("server")
    servers.limit(made.limit)
    await drained(servers, made, sent)


# -- what is refused ---------------------------------------------------------------------------------------------------


async def test_a_missing_namespace_is_not_created(servers: Servers) -> None:
    """Opening works if the namespace exists. A missing one would be new data."""
    async with client_of(servers):
        pass
    servers.limit(always)
    keys = [each.ask("DBSIZE") for each in servers.masters]
    client = ServiceBusClient(servers.url, namespace="other")
    with pytest.raises(ServiceBusServerBusyError, match="The namespace 'other' does not exist yet") as raised:
        await client.__aenter__()
    assert raised.value.outcome is Outcome.REFUSED
    assert [each.ask("DBSIZE") for each in servers.masters] == keys
    servers.limit(lambda used: used + 2 * ROOM)  # for the library, too
    async with client:
        pass


async def test_new_data_is_refused_and_changes_nothing(servers: Servers) -> None:
    async with client_of(servers) as client, admin_of(servers) as admin:
        await admin.create_queue("orders", requires_session=True)
        await admin.create_topic("news")
        await admin.create_subscription("news", "all")
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("a", session_id="s"))
        servers.limit(always)
        await is_refused(admin.create_queue("more"))
        await is_refused(admin.ensure_topic("more"))
        await is_refused(admin.create_subscription("news", "more"))
        await is_refused(admin.create_rule("news", "all", "more"))
        assert [each.name async for each in admin.list_queues()] == ["orders"]
        assert [each.name async for each in admin.list_topics()] == ["news"]
        assert [each.name async for each in admin.list_subscriptions("news")] == ["all"]
        assert [each.name async for each in admin.list_rules("news", "all")] == ["$Default"]
        async with client.get_queue_receiver("orders", session_id="s", max_wait_time=60) as receiver:
            [message] = await receiver.receive_messages()
            await is_refused(receiver.session.set_state("new"))
            assert await receiver.session.get_state() is None
            await receiver.complete_message(message)


async def test_what_exists_is_found_and_changed(servers: Servers) -> None:
    """A program that ensures its entities when it starts can start."""
    async with client_of(servers), admin_of(servers) as admin:
        await admin.create_queue("orders", enable_partitioning=True)
        await admin.create_topic("news")
        await admin.create_subscription("news", "all")
    servers.limit(always)
    async with client_of(servers) as client, admin_of(servers) as admin:
        await admin.ensure_queue("orders", enable_partitioning=True)
        await admin.ensure_topic("news")
        await admin.ensure_subscription("news", "all")
        async with client.get_queue_receiver("orders", create_if_missing=True) as receiver:
            assert await receiver.receive_messages(max_wait_time=0.1) == []
            assert await receiver.peek_messages() == []
            assert await receiver.purge_messages() == 0
        await admin.update_queue({"name": "orders", "max_delivery_count": 7})
        assert (await admin.get_queue("orders")).max_delivery_count == 7
        async with client.claim_role("first") as role:
            assert role.fence
        assert await client.tick("daily", every=1)
        await admin.delete_subscription("news", "all")
        await admin.delete_topic("news")
        await admin.delete_queue("orders")
        assert [each.name async for each in admin.list_queues()] == []


async def test_transactions_that_share_a_call_are_told_apart(servers: Servers) -> None:
    """Some settle messages, some also send. The full server takes those that only settle."""
    async with client_of(servers) as client, admin_of(servers) as admin:
        await admin.create_queue("orders")
        async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(20)])
            held = await receiver.receive_messages(20, max_wait_time=60)
            assert len(held) == 20
            servers.limit(always)

            async def settle(number: int) -> None:
                async with client.transaction() as transaction:
                    transaction.complete_message(held[number])
                    transaction.once(f"key {number}", 60)
                    if number % 2:
                        transaction.send_messages(sender, ServiceBusMessage("new"))

            results = await asyncio.gather(*map(settle, range(20)), return_exceptions=True)
            assert [type(result) for result in results] == [type(None), ServiceBusServerBusyError] * 10
            assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 10
            servers.limit(lambda used: used + ROOM)
            await asyncio.gather(*map(settle, range(1, 20, 2)))
            assert (await admin.get_queue_runtime_properties("orders")).total_message_count == 10


# -- a cluster of which one master is full -----------------------------------------------------------------------------


@pytest.mark.parametrize("servers", ["cluster"], indirect=True)
@pytest.mark.parametrize("full", range(3))
async def test_a_full_master_does_not_concern_the_other_masters(servers: Servers, full: int) -> None:
    """One of the masters has the registry, so opening works whichever is full."""
    names = [f"q{number}" for number in range(12)]
    async with client_of(servers) as client, admin_of(servers) as admin:
        for name in names:
            await admin.create_queue(name)
            async with client.get_queue_sender(name) as sender:
                await sender.send_messages(ServiceBusMessage("before"))
        master = servers.masters[full]
        there = {
            name
            for name in names
            async for part in admin.list_partitions(name)
            if part.server == f"{master.host}:{master.port}"
        }
    assert len(there) < len(names)
    servers.restart("scripts")
    master.ask("CONFIG", "SET", "maxmemory", 1)
    async with client_of(servers) as client, admin_of(servers) as admin:
        for name in names:
            async with client.get_queue_sender(name) as sender, client.get_queue_receiver(name) as receiver:
                sending = sender.send_messages(ServiceBusMessage("now"))
                await (is_refused(sending) if name in there else sending)
                assert (
                    await receive(receiver, 1 if name in there else 2) == ["before", "now"][: 1 + (name not in there)]
                )
            assert (await admin.get_queue_runtime_properties(name)).total_message_count == 0


# -- workers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("servers", ["server"], indirect=True)
async def test_a_worker_that_starts_now_empties_a_full_server(servers: Servers) -> None:
    """A handler that sends gets the error, and its message comes again. When there is memory, it is handled."""
    kind = Patient()
    sent = await fill(servers, kind)
    servers.restart("server")
    servers.limit(always)
    worker = Worker(f"{servers.url}?namespace=ns")
    seen: list[str] = []
    sends: set[str] = set(sent[:3])
    attempts: list[int] = []

    @worker.queue("orders", retries=Retries(first_delay=0.01, longest_delay=0.01))
    async def handle(body: str, context: Context) -> None:
        name = body.partition(" ")[0]
        if name in sends:
            attempts.append(context.attempt)
            context.send("copied", name)
        else:
            seen.append(name)

    async with worker.running(), admin_of(servers) as admin:
        await eventually(lambda: len(seen) == len(sent) - 3 and max(attempts) > 1)
        assert await kind.left(admin) == 3
        assert (await admin.get_queue_runtime_properties("copied")).total_message_count == 0
        servers.limit(lambda used: used + ROOM)
        await eventually(lambda: _is_empty(kind, admin))
        assert (await admin.get_queue_runtime_properties("copied")).total_message_count == 3
    assert Counter(seen) == Counter(sent[3:])
