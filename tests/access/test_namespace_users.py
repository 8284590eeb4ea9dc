"""A user of a namespace may do what a service does there, and nothing that harms others on the server."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

import pytest
import redis

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import Loads, every_script, namespace_rules, whole_library
from sbredis.exceptions import ServiceBusAuthorizationError
from sbredis.servers import LocalCluster, LocalSentinel, LocalServer
from tests.access.users import OF_TESTS, set_user, url_of
from tests.plugins.parts import first
from tools.repository import ROOT

pytestmark = pytest.mark.any_form("some users may not load the library")

HOSTILE = """
ACL LIST
ACL SETUSER orders allcommands
ACL WHOAMI
BGREWRITEAOF
BGSAVE
CLIENT KILL ID 1
CLIENT LIST
CLIENT NO-EVICT on
CLIENT PAUSE 100
CLUSTER FAILOVER
CLUSTER FORGET x
CLUSTER RESET
CLUSTER SETSLOT 0 STABLE
COMMAND COUNT
CONFIG GET masterauth
CONFIG GET requirepass
CONFIG RESETSTAT
CONFIG REWRITE
CONFIG SET maxmemory 1
DBSIZE
DEBUG SLEEP 0
DEL sb:orders:{a}:x
DUMP sb:orders:{a}:x
EVAL return(1) 0
EVAL_RO return(1) 0
FAILOVER
FLUSHALL
FLUSHDB
FUNCTION DELETE x
FUNCTION DUMP
FUNCTION FLUSH
FUNCTION LIST
FUNCTION LOAD #!lua
FUNCTION LOAD REPLACE #!lua
FUNCTION RESTORE x
GET sb:orders:{a}:x
KEYS *
LATENCY RESET
MEMORY USAGE sb:orders:{a}:x
MIGRATE h 1 k 0 1
MODULE LIST
MONITOR
MOVE sb:orders:{a}:x 1
OBJECT ENCODING sb:orders:{a}:x
PSUBSCRIBE *
PSYNC ? -1
PUBLISH sb:orders:x y
PUBSUB CHANNELS
PUBSUB SHARDCHANNELS
RANDOMKEY
RENAME sb:orders:{a}:x sb:orders:{a}:y
REPLCONF listening-port 1
REPLICAOF no one
RESTORE sb:orders:{a}:x 0 y
SAVE
SCAN 0
SCRIPT FLUSH
SCRIPT KILL
SHUTDOWN NOSAVE
SLAVEOF no one
SLOWLOG GET
SORT sb:orders:{a}:x
SUBSCRIBE x
SWAPDB 0 1
SYNC
""".strip().splitlines()
"""Commands that show or harm what belongs to others, or that no script needs."""
OF_LOADERS = {"FUNCTION DELETE x", "FUNCTION LIST", "FUNCTION LOAD #!lua", "FUNCTION LOAD REPLACE #!lua"}
"""The hostile commands that a user has who may load libraries. So all users of the server must trust it."""
ELSEWHERE = """
HGET sb:other:{a}:x f
HSET sb:other:{a}:x f v
HSET sb:ordersx:{a}:x f v
HSET foreign f v
SPUBLISH sb:other:{a}:wake:x y
SSUBSCRIBE sb:other:{a}:wake:x
""".strip().splitlines()


USERS: dict[str, Loads] = {"orders": "scripts", "called": "nothing", "loader": "library"}
"""The users with rights to the namespace orders, and what they may load."""


@pytest.fixture(scope="module")
def guarded(binary: str | None) -> Iterator[LocalServer]:
    """A server with the users."""
    with LocalServer(binary=binary, config={"appendonly": "yes"}) as server:
        for user, loads in USERS.items():
            set_user(server, user, namespace_rules("orders", loads))
        yield server


def load_scripts(server: LocalServer) -> None:
    """Load all scripts, as an administrator does for users that may load none."""
    for script in every_script():
        server.ask("SCRIPT", "LOAD", script.source)


def load_library(server: LocalServer) -> None:
    """Load the library, as an administrator does for users that may not load it."""
    server.ask("FUNCTION", "LOAD", "REPLACE", whole_library().source)


def refusal(server: LocalServer, user: str, *words: str) -> str:
    """Let a user send a command. Return the server's error, or nothing."""
    with redis.Redis(host=server.host, port=server.port, username=user, password=f"{user}-pw") as connection:
        try:
            connection.execute_command(*words)
        except redis.ResponseError as error:
            return type(error).__name__
    return ""


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("line", [*HOSTILE, *ELSEWHERE])
def test_a_hostile_command_is_refused(guarded: LocalServer, line: str, user: str) -> None:
    permitted = user == "loader" and line in OF_LOADERS
    assert (refusal(guarded, user, *line.split()) == "NoPermissionError") is not permitted


def test_a_user_that_only_calls_can_bring_in_no_scripts_and_functions(guarded: LocalServer) -> None:
    other = hashlib.sha1(b"return 1", usedforsecurity=False).hexdigest()
    guarded.ask("FUNCTION", "LOAD", "REPLACE", "#!lua name=x\nredis.register_function('x', function() return 1 end)")
    for words in (
        *(["SCRIPT", "LOAD", "return 1"], ["EVALSHA", other, "0"], ["EVALSHA_RO", other, "0"]),
        *(["FCALL", "x", "0"], ["FCALL_RO", "x", "0"]),
    ):
        assert refusal(guarded, "called", *words) == "NoPermissionError"


def test_a_script_or_function_cannot_do_more_than_the_user_that_calls_it(guarded: LocalServer) -> None:
    """A user that may load scripts can run any Lua, but with its own rights."""
    guarded.ask("HSET", "sb:other:{a}:x", "f", "secret")
    refused = r"(?i)permission|NOPERM|ACL|can't access|not allowed from script"
    with redis.Redis(host=guarded.host, port=guarded.port, username="orders", password="orders-pw") as connection:
        for command in ("redis.call('HGET', 'sb:other:{a}:x', 'f')", "redis.call('CONFIG', 'GET', 'requirepass')"):
            loaded = connection.script_load(f"return {command}")
            with pytest.raises(redis.ResponseError, match=refused):
                connection.evalsha(loaded, 0)
            function = f"redis.register_function('x', function() return {command} end)"
            guarded.ask("FUNCTION", "LOAD", "REPLACE", f"#!lua name=x\n{function}")
            with pytest.raises(redis.ResponseError, match=refused):
                connection.fcall("x", 0)


async def serve(url: str) -> None:
    """Use the product as a service does."""
    async with ServiceBusClient(url, maintenance=True) as client:
        await client.ensure_queue("q", requires_session=True, enable_partitioning=True)
        async with ServiceBusAdministrationClient(url) as administration:
            await administration.ensure_topic("t")
            await administration.ensure_subscription("t", "s")
        sender = client.get_queue_sender("q")
        await sender.send_messages(ServiceBusMessage("a", session_id="s"))
        async with client.get_queue_receiver("q", session_id="s") as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=20)
            await receiver.session.set_state("b")
            async with client.transaction() as tx:
                tx.send_messages(sender, ServiceBusMessage("c", session_id="s"))
                tx.complete_message(message)
            (message,) = await receiver.receive_messages(max_wait_time=20)
            await receiver.dead_letter_message(message)
        async with client.get_queue_receiver("q", sub_queue="deadletter") as letters:
            assert (await letters.redrive_messages()).moved == 1
            await letters.purge_messages()
        async with client.get_queue_receiver("q", session_id="s") as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=20)
            await receiver.complete_message(message)
        async with client.get_topic_sender("t") as topic:
            await topic.send_messages(ServiceBusMessage("d"))
        async with client.get_subscription_receiver("t", "s") as subscription:
            (message,) = await subscription.receive_messages(max_wait_time=20)
            await subscription.complete_message(message)


@pytest.mark.parametrize("form", ["needed", "library"])
@pytest.mark.parametrize("user", USERS)
async def test_the_rights_are_enough_for_a_service(guarded: LocalServer, user: str, form: str) -> None:
    for words in (["FLUSHALL"], ["FUNCTION", "FLUSH"], ["SCRIPT", "FLUSH"]):
        guarded.ask(*words)
    if form == "library" and user != "loader":
        load_library(guarded)
    elif form == "needed" and user == "called":
        load_scripts(guarded)
    await serve(f"{url_of(guarded, user)}?namespace=orders&scripts={form}")
    with pytest.raises(ServiceBusAuthorizationError):
        async with ServiceBusClient(f"{url_of(guarded, user)}?namespace=other") as client:
            await client.ensure_queue("q")
    assert guarded.ask("KEYS", "sb:other:*") == []


@pytest.mark.parametrize("user", first(1, ["called", "orders"], "a user who may also load has more rights"))
async def test_the_rights_are_enough_behind_sentinel_and_after_a_failover(binary: str | None, user: str) -> None:
    with LocalSentinel(1, 3, binary=binary, config={"appendonly": "yes"}) as watched:
        for server in watched.servers:
            set_user(server, user, namespace_rules("orders", USERS[user]))
            load_scripts(server)
        url = watched.url.replace("://", f"://{user}:{user}-pw@") + "?namespace=orders&durability=replicated"
        await serve(url)
        watched.kill_master()
        await serve(url.replace("&durability=replicated", ""))


@pytest.mark.parametrize("user", first(1, ["called", "orders"], "a user who may also load has more rights"))
async def test_the_rights_are_enough_on_a_cluster_with_replicas(replicated_cluster: LocalCluster, user: str) -> None:
    for node in replicated_cluster.nodes:
        set_user(node, user, namespace_rules("orders", USERS[user]))
        load_scripts(node)
    await serve(f"{url_of(replicated_cluster, user)}?namespace=orders&durability=replicated")


def test_tests_have_no_command_besides_that_sbredis_uses() -> None:
    """The users of tests may also look into servers and damage them. sbredis has none of these commands."""
    granted = {rule.removeprefix("+") for rule in namespace_rules("ns", "library") if rule.startswith("+")}
    assert not granted & set(OF_TESTS)
    named = re.compile(r'(?:\.command\(|_asked\([a-z]+, |pack\(\(b|Command\(b?)"([A-Z]+)"')
    texts = [file.read_text("utf-8") for file in (ROOT / "sbredis").rglob("*.py") if file.parent.name != "servers"]
    used = {word.lower() for text in texts for word in named.findall(text)}
    elsewhere = {"acl", "config", "cluster", "sentinel"}  # of doctor, and of Sentinels
    elsewhere |= {"client"}  # tells the server who connects, and need not be permitted
    assert {"spublish", "info", "script"} <= used
    assert used - elsewhere <= {each.partition("|")[0] for each in granted}
