"""The scripts use only the keys that they are given and the commands that their text names.

The tests of the fundamentals show that the scripts use only the keys of their partition:
the bench makes its calls as a user who may touch no other key (see conftest.py).
This file tests the rest: that this user is really confined, and which calls work when the memory of the server is full.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.engine import Lock, Partition, bucket_keys, perform, push_channel, slot_salt
from sbredis.engine._keys import KINDS, STORE_KINDS, partition_keys
from sbredis.engine._scripts import operations
from sbredis.exceptions import ServiceBusAuthorizationError, ServiceBusError, ServiceBusServerBusyError
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import SLOTS, Script, Transport, key_slot
from tests.engine.bench import ENTITY, INCARNATION, KEYS, NAMESPACE, SALT, SETTINGS, Bench
from tests.engine.contracts import contract_of
from tests.engine.holding import of_session
from tests.engine.opening import open_with_scripts
from tests.engine.rights import Rights, commands_of, confined
from tests.engine.taking import first_token
from tests.engine.test_contracts import READS
from tests.engine.test_repetition import ARRANGED, Arrange
from tests.engine.topics import Topic
from tests.transport.ears import Ear

real_servers = pytest.mark.parametrize("target", ["server", "cluster"])
one_server = pytest.mark.parametrize("target", ["server"])
SALTS = [slot_salt("ns", number, 64) for number in range(64)]
ELSEWHERE = partition_keys(NAMESPACE, SALT, "e2")
"""The keys of another entity, in the same slot."""


# -- slots of keys -----------------------------------------------------------------------------------------------------


def test_all_keys_and_channels_of_a_partition_lie_in_one_slot() -> None:
    """One slot has the keys of the partition, its store and its subscriptions, and the channels of its receivers."""
    for salt in SALTS:
        keys = (
            *partition_keys("ns", salt, "e1"),
            *partition_keys("ns", salt, "zz9", "e1"),
            *bucket_keys("other-ns", salt),
            push_channel("ns", salt, "q", "c1"),
        )
        assert {key_slot(key) for key in keys} == {key_slot(salt.encode())}
    assert len({key_slot(salt.encode()) for salt in SALTS}) == 64
    assert all(0 <= key_slot(salt.encode()) < SLOTS for salt in SALTS)


def test_only_a_topic_and_its_subscriptions_share_keys() -> None:
    """A topic and its subscriptions share the store of the topic, and nothing else."""
    topic, other = partition_keys("ns", SALT, "t"), partition_keys("ns", SALT, "s")
    subscription = partition_keys("ns", SALT, "s", "t")
    assert len(set(topic)) == len(KINDS)
    assert not set(topic) & set(other)
    assert set(topic) & set(subscription) == {
        key for key, kind in zip(topic, KINDS, strict=True) if kind in STORE_KINDS
    }
    for elsewhere in (partition_keys("ns2", SALT, "t"), partition_keys("ns", "abd", "t"), bucket_keys("ns", SALT)):
        assert not set(topic) & set(elsewhere)


# -- confined users ----------------------------------------------------------------------------------------------------


@real_servers
@pytest.mark.any_form("one script is in no library")
async def test_the_user_of_the_bench_can_access_only_the_keys_of_its_partition(bench: Bench) -> None:
    """A command on another key fails, and so does a script that is given another key or builds its name."""
    with pytest.raises(ServiceBusAuthorizationError):
        await bench.transport.command("HGETALL", ELSEWHERE[0], key=ELSEWHERE[0])
    with pytest.raises(ServiceBusAuthorizationError):
        await bench.tell(Partition(NAMESPACE, SALT, "e2", "i", 1, SETTINGS).configure(create=True))
    stray = Script("stray", f"#!lua\nreturn redis.call('HSET', '{ELSEWHERE[0].decode()}', 'a', 'b')\n")
    with pytest.raises(ServiceBusError, match="stray failed halfway"):
        await bench.transport.call(stray, KEYS)


@real_servers
@pytest.mark.any_form("one script is in no library")
async def test_the_user_of_the_bench_may_use_only_its_own_commands_and_channels(bench: Bench) -> None:
    """Without these limits the tests on the bench would prove nothing."""
    key = KEYS[0]
    for command in (("DEL", key), ("HKEYS", key), ("FLUSHALL",), ("ACL", "LIST")):
        with pytest.raises(ServiceBusAuthorizationError):
            await bench.transport.command(*command, key=key)
    with pytest.raises(ServiceBusAuthorizationError):
        await bench.transport.subscribe(f"sb:other:{{{SALT}}}:wake:x".encode(), Ear())
    stray = Script("stray", "#!lua\nreturn redis.call('HKEYS', KEYS[1])\n")
    with pytest.raises(ServiceBusError, match="stray failed halfway"):
        await bench.transport.call(stray, KEYS)


async def test_the_commands_of_the_scripts_are_known_to_the_server_and_not_dangerous(server: LocalServer) -> None:
    """The server knows all of these commands, and agrees which of them only read. The others write or publish."""
    commands = commands_of(operations())
    dangerous = server.ask("ACL", "CAT", "dangerous")
    assert isinstance(dangerous, list)
    assert not set(commands) & {str(name) for name in dangerous}
    for name in commands:
        (about,) = as_list(server.ask("COMMAND", "INFO", name))
        flags = {str(flag) for flag in as_list(as_list(about)[2])}
        if name in {"time", "spublish"}:
            assert "write" not in flags
        else:
            assert ("readonly" in flags, "write" in flags) == (name in READS, name not in READS), name


def as_list(reply: Any) -> list[Any]:
    assert isinstance(reply, list)
    return reply


# -- a user of a namespace ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def user(running: LocalServer | LocalCluster, rights: Rights) -> AsyncIterator[Transport]:
    """Open a transport for a user with these rights; a user who may not load scripts finds them loaded already."""
    with confined(running, "tried", rights) as url:
        async with await open_with_scripts(url) as transport:
            yield transport


@one_server
@pytest.mark.parametrize("arrange", ARRANGED, ids=lambda arrange: arrange.__name__)
async def test_a_script_needs_rights_to_the_commands_in_its_text(
    bench: Bench, server: LocalServer, arrange: Arrange
) -> None:
    """The rights of a role can therefore be derived from the scripts that the role uses."""
    request = await arrange(bench)
    rights = Rights.of_keys(KEYS, NAMESPACE, SALT, commands_of([request.script.name]))
    async with user(server, rights) as transport:
        await perform(transport, request)


# -- topics ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic_first", [True, False])
async def test_a_destroyed_topic_and_its_subscriptions_leave_no_keys(topic: Topic, topic_first: bool) -> None:
    await topic.publish((b"for two", (0, 1)), (b"for one", (0,)), (of_session("s"), (3,)))
    token = first_token()
    name = (await topic.take(topic.one, token, 1)).messages[0].name
    await topic.tell(topic.one.abandon(topic.call_id(), [Lock(token, name, b"changed")]))
    for partition in (topic.topic, *topic.subscriptions) if topic_first else (*topic.subscriptions, topic.topic):
        while await topic.tell(partition.destroy()):
            pass
    assert await topic.everything() == {}


# -- encodings on the server -------------------------------------------------------------------------------------------


@one_server
async def test_even_an_empty_queue_is_not_stored_as_a_listpack(bench: Bench, server: LocalServer) -> None:
    """A new queue, a queue that became empty, and a lost queue that is made again are not stored as a listpack."""

    def held() -> list[Any]:
        return [server.ask("OBJECT", "ENCODING", key.decode()) for key in bench.partition.keys[1:3]]

    assert held() == ["skiplist", "hashtable"]
    await bench.send(*[b"m"] * 200)
    await bench.complete(*await bench.receive(200))
    assert held() == ["skiplist", "hashtable"]
    server.ask("DEL", *(key.decode() for key in KEYS))
    await bench.tell(bench.partition.configure(create=True))
    assert held() == ["skiplist", "hashtable"]


# -- full memory -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bounded(binary: str | None) -> Iterator[LocalServer]:
    """A server with limited memory that evicts no keys."""
    config = {"maxmemory": "100mb", "maxmemory-policy": "noeviction"}
    with LocalServer(binary=binary, config=config) as server:
        yield server


@pytest.fixture
async def scarce(bounded: LocalServer) -> AsyncIterator[Bench]:
    """A partition on the server with limited memory."""
    bounded.ask("FLUSHALL")
    async with await open_with_scripts(bounded.url) as transport:
        bench = Bench(transport, Partition(NAMESPACE, SALT, ENTITY, INCARNATION, 1, SETTINGS))
        await bench.tell(bench.partition.configure(create=True))
        yield bench


@asynccontextmanager
async def no_memory_left(server: LocalServer) -> AsyncIterator[None]:
    server.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        yield
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "100mb")


@pytest.mark.parametrize("arrange", ARRANGED, ids=lambda arrange: arrange.__name__)
async def test_a_server_with_full_memory_runs_only_calls_that_read_or_free_memory(
    scarce: Bench, bounded: LocalServer, arrange: Arrange
) -> None:
    """A call is refused before its first write, so it changes nothing. The same call succeeds when memory is free."""
    request = await arrange(scarce)
    before = await scarce.whole()
    flags = contract_of(request.script.name).flags
    refused = not flags and not request.at_limit
    async with no_memory_left(bounded):
        if refused:
            with pytest.raises(ServiceBusServerBusyError, match="OOM"):
                await scarce.tell(request)
            assert await scarce.whole() == before
        else:
            await scarce.tell(request)
            # `configure` gets the settings that the partition already has, `outgoing` finds that messages wait, and
            # `touch` finds that the partition was used a moment ago.
            unchanging = flags == ("no-writes",) or request.script.name in {"configure", "outgoing", "touch"}
            assert (await scarce.whole() == before) is unchanging
    if refused:
        await scarce.tell(request)


async def test_a_queue_can_be_emptied_when_the_memory_of_the_server_is_full(
    scarce: Bench, bounded: LocalServer
) -> None:
    """Sending is refused, but receiving, completing and changing settings work. After that, sending works again."""
    await scarce.send(*(b"x" * 1000 for _ in range(100)))
    async with no_memory_left(bounded):
        await scarce.change(max_delivery_count=5)
        with pytest.raises(ServiceBusServerBusyError):
            await scarce.send(b"more")
        held = await scarce.receive(50)
        assert (await scarce.renew(*held[:10])).lost == ()
        assert (await scarce.complete(*held[10:])).lost == ()
        scarce.later(SETTINGS.lock_duration)
        assert not (await scarce.due()).more
        await scarce.dead_letter(*await scarce.receive(10))
        assert (await scarce.purge()).count == 50
        assert (await scarce.purge(side="d")).count == 10
    assert (await scarce.count()).bytes == 0
    await scarce.send(b"more")


async def test_a_server_whose_memory_fills_up_refuses_further_messages(scarce: Bench, bounded: LocalServer) -> None:
    """The test sends messages until the memory of the server is really full."""
    about = str(bounded.ask("INFO", "memory"))
    used = int(next(line for line in about.splitlines() if line.startswith("used_memory:")).partition(":")[2])
    bounded.ask("CONFIG", "SET", "maxmemory", used + 4_000_000)
    sent = 0

    async def send_on() -> None:
        nonlocal sent
        while sent < 100:
            await scarce.send(b"x" * 500_000)
            sent += 1

    try:
        with pytest.raises(ServiceBusServerBusyError, match="OOM"):
            await send_on()
        counts = await scarce.count()
        assert (counts.active, counts.last) == (sent, sent)
        assert 0 < sent < 100
        assert (await scarce.purge()).count == sent
        await scarce.send(b"x" * 500_000)
    finally:
        bounded.ask("CONFIG", "SET", "maxmemory", "100mb")
