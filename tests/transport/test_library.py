"""Calls as functions of a library, which is loaded when needed; a server that refuses it gets single scripts."""

from __future__ import annotations

import asyncio
import logging
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from sbredis.exceptions import (
    Outcome,
    ScriptRefusedError,
    ServerUnsuitableError,
    ServiceBusAuthorizationError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Library, Script, Transport, WireLimits, key_slot, open_transport
from tests.transport.opening import as_library
from tests.waiting import eventually

pytestmark = pytest.mark.any_form("the tests choose forms")


def script(name: str, code: str, flags: str = "") -> Script:
    """Return a script that also says in which form it ran."""
    return Script(name, f"#!lua{flags}\nlocal form = 'script'\n{code}\n", takes_run_id=True, function=name)


COUNT = script("count", "return { form, redis.call('INCRBY', KEYS[1], ARGV[2]), #ARGV }", " flags=allow-oom")
READ = script("read", "return { form, redis.call('GET', KEYS[1]) }", " flags=no-writes")
BREAK = script("break", "redis.call('SET', KEYS[1], 1)\nredis.call('NOTHING')", " flags=allow-oom")
OTHER = Script("other", "return 'other'")
"""A script that is in no library."""


def saying_so(scripts: Sequence[Script], name: str) -> Library:
    """Return the library of these scripts, which says that it is one."""
    made = as_library(scripts, name)
    return replace(made, source=made.source.replace("'script'", "'library'"))


OWN = saying_so([COUNT, READ, BREAK], "sb_own")
NEXT = saying_so([COUNT, READ], "sb_next")


async def opened(url: str, form: str = "auto", library: Library = OWN, **options: Any) -> Transport:
    return await open_transport(
        f"{url}{'&' if '?' in url else '?'}scripts={form}", scripts=[COUNT], library=library, **options
    )


async def count(transport: Transport, key: bytes = b"k", by: int = 1) -> tuple[str, int]:
    form, total, arguments = await transport.call(COUNT, [key], [by])
    assert arguments == 2
    return form.decode(), total


def loads(server: LocalServer) -> dict[str, int]:
    """Return how often libraries and scripts were loaded."""
    text = str(server.ask("INFO", "commandstats"))
    found = dict(re.findall(r"cmdstat_(function\|load|script\|load):calls=(\d+)", text))
    return {name: int(times) for name, times in found.items()}


@pytest.fixture
def fresh(server: LocalServer) -> LocalServer:
    """The server without data, scripts, libraries and statistics."""
    for words in (("FUNCTION", "FLUSH"), ("SCRIPT", "FLUSH"), ("CONFIG", "RESETSTAT")):
        server.ask(*words)
    return server


@contextmanager
def configured(server: LocalServer, name: str, value: str, before: str) -> Iterator[None]:
    server.ask("CONFIG", "SET", name, value)
    try:
        yield
    finally:
        server.ask("CONFIG", "SET", name, before)


@contextmanager
def running(work: Callable[[], object]) -> Iterator[None]:
    """Do something in a thread again and again while the block runs."""
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.mark.parametrize("form", ["auto", "library"])
async def test_nothing_is_loaded_before_a_call_needs_the_library(fresh: LocalServer, form: str) -> None:
    async with await opened(fresh.url, form) as transport:
        assert loads(fresh) == {}
        assert await count(transport) == ("library", 1)
        assert await count(transport) == ("library", 2)
        assert await transport.call(READ, [b"k"]) == [b"library", b"2"]
        assert loads(fresh) == {"function|load": 1}
    async with await opened(fresh.url, form) as another:
        assert await count(another) == ("library", 3)
        assert loads(fresh) == {"function|load": 1}


@pytest.mark.parametrize("form", ["needed", "all"])
async def test_with_single_scripts_no_library_is_loaded(fresh: LocalServer, form: str) -> None:
    async with await opened(fresh.url, form) as transport:
        assert await count(transport) == ("script", 1)
    assert "function|load" not in loads(fresh)


async def test_a_script_that_the_library_lacks_is_a_single_script(fresh: LocalServer) -> None:
    async with await opened(fresh.url) as transport:
        assert await transport.call(OTHER, [b"k"]) == b"other"
        assert await count(transport) == ("library", 1)


async def test_many_calls_at_once_load_the_library_once_and_keep_their_order(fresh: LocalServer) -> None:
    async with await opened(fresh.url) as transport:
        found = await asyncio.gather(*(count(transport) for _ in range(200)))
        assert sorted(total for _, total in found) == list(range(1, 201))
        assert {form for form, _ in found} == {"library"}
        assert loads(fresh) == {"function|load": 1}


async def test_calls_survive_the_loss_of_the_library_under_load(fresh: LocalServer) -> None:
    async with await opened(fresh.url) as transport:
        assert await count(transport) == ("library", 1)
        calls = [asyncio.create_task(count(transport)) for _ in range(50)]
        for number in range(5):
            fresh.ask(*("FUNCTION", "FLUSH") if number % 2 else ("FUNCTION", "DELETE", OWN.name))
            calls += [asyncio.create_task(count(transport)) for _ in range(50)]
            await calls[-1]
        found = await asyncio.gather(*calls)
        assert sorted(total for _, total in found) == list(range(2, 302))
        assert {form for form, _ in found} == {"library"}


async def test_no_call_fails_while_the_library_is_deleted_again_and_again(fresh: LocalServer) -> None:
    with running(lambda: fresh.ask("FUNCTION", "FLUSH")):
        async with await opened(fresh.url) as transport:
            found = [await count(transport) for _ in range(300)]
    assert [total for _, total in found] == list(range(1, 301))


async def test_two_releases_use_one_server_side_by_side(fresh: LocalServer) -> None:
    async with await opened(fresh.url) as old, await opened(fresh.url, library=NEXT) as new:
        assert [await count(each) for each in (old, new, old, new)] == [("library", number) for number in range(1, 5)]
        assert loads(fresh) == {"function|load": 2}


async def test_a_full_server_gets_single_scripts(fresh: LocalServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "sbredis.transport")
    async with await opened(fresh.url) as transport:
        with configured(fresh, "maxmemory", "1", "0"):
            found = await asyncio.gather(*(count(transport) for _ in range(20)))
            assert sorted(found) == [("script", number) for number in range(1, 21)]
            assert await count(transport) == ("script", 21)
        assert await count(transport) == ("script", 22)  # until the pause has passed
        (said,) = [record.getMessage() for record in caplog.records if "single scripts" in record.getMessage()]
        assert "OOM" in said
    async with await opened(fresh.url) as another:
        assert await count(another) == ("library", 23)


async def test_a_server_that_takes_the_library_again_gets_it(fresh: LocalServer) -> None:
    async with await opened(fresh.url, limits=WireLimits(without_library=0.05)) as transport:
        with configured(fresh, "maxmemory", "1", "0"):
            assert {(await count(transport))[0] for _ in range(20)} == {"script"}
        total = 20
        while (await count(transport))[0] == "script":
            total += 1
        assert await count(transport) == ("library", total + 2)
        form = transport.form_of(b"k")
        assert form is not None
        assert form.refusal is None


async def test_a_full_server_that_has_the_library_gets_no_scripts(fresh: LocalServer) -> None:
    async with await opened(fresh.url) as transport:
        assert await count(transport) == ("library", 1)
        with configured(fresh, "maxmemory", "1", "0"):
            assert await count(transport) == ("library", 2)


async def test_a_server_with_too_few_replicas_gets_single_scripts_for_calls_that_read(fresh: LocalServer) -> None:
    with configured(fresh, "min-replicas-to-write", "1", "0"):
        async with await opened(fresh.url) as transport:
            assert await transport.call(READ, [b"k"]) == [b"script", None]


async def test_a_call_that_writes_waits_until_a_server_has_enough_replicas(fresh: LocalServer) -> None:
    def refused() -> bool:
        return "errorstat_NOREPLICAS" in str(fresh.ask("INFO", "errorstats"))

    async with await opened(fresh.url) as transport:
        with configured(fresh, "min-replicas-to-write", "1", "0"):
            writing = asyncio.create_task(count(transport))
            await eventually(refused)
        assert await writing == ("script", 1)  # until the pause has passed
    async with await opened(fresh.url) as another:
        assert await count(another) == ("library", 2)


@pytest.mark.parametrize(
    ("rights", "form"),
    [
        ("+fcall +function|load +evalsha +script|load", "library"),
        ("+fcall +function|load", "library"),
        ("+fcall +evalsha +script|load", "script"),
        ("+evalsha +script|load", "script"),
        ("+evalsha +script|load +function|load", "script"),
    ],
)
async def test_a_user_gets_the_form_for_which_it_has_the_rights(fresh: LocalServer, rights: str, form: str) -> None:
    fresh.ask("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "-@all", "+incrby", "+info", *rights.split())
    try:
        async with await opened(fresh.url.replace("://", "://few:pw@")) as transport:
            assert [await count(transport) for _ in range(3)] == [(form, 1), (form, 2), (form, 3)]
    finally:
        fresh.ask("ACL", "DELUSER", "few")


async def test_a_user_who_may_not_load_uses_the_library_that_is_there(
    fresh: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sbredis.transport")
    fresh.ask("FUNCTION", "LOAD", OWN.source)
    fresh.ask("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "-@all", "+incrby", "+info", "+fcall")
    try:
        async with await opened(fresh.url.replace("://", "://few:pw@")) as transport:
            assert await count(transport) == ("library", 1)
    finally:
        fresh.ask("ACL", "DELUSER", "few")
    assert not [record for record in caplog.records if "single scripts" in record.getMessage()]


async def test_a_user_who_may_not_load_gets_single_scripts_and_one_line_in_the_log(
    fresh: LocalServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sbredis.transport")
    rights = "+incrby +get +info +fcall +fcall_ro +evalsha +evalsha_ro +script|load +config|get"
    fresh.ask("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "-@all", *rights.split())
    try:
        async with await opened(fresh.url.replace("://", "://few:pw@")) as transport:
            found = await asyncio.gather(*(count(transport) for _ in range(20)))
            assert sorted(found) == [("script", number) for number in range(1, 21)]
            assert await transport.call(READ, [b"k"]) == [b"script", b"20"]
    finally:
        fresh.ask("ACL", "DELUSER", "few")
    (said,) = [record for record in caplog.records if "single scripts" in record.getMessage()]
    assert said.levelno == logging.INFO
    assert "function|load" in said.getMessage()


async def test_a_server_without_functions_gets_single_scripts(binary: str | None) -> None:
    config = {"rename-command": ['FCALL ""', 'FCALL_RO ""', 'FUNCTION ""']}
    with LocalServer(binary=binary, config=config) as server:
        async with await opened(server.url) as transport:
            assert [await count(transport) for _ in range(2)] == [("script", 1), ("script", 2)]


async def test_without_a_fallback_the_refusal_is_the_error_and_nothing_has_run(fresh: LocalServer) -> None:
    async with await opened(fresh.url, "library") as transport:
        with configured(fresh, "maxmemory", "1", "0"):
            with pytest.raises(ServiceBusServerBusyError, match="memory limit") as caught:
                await count(transport)
            assert caught.value.outcome is Outcome.NEVER_SENT
        assert await count(transport) == ("library", 1)
    fresh.ask("FUNCTION", "FLUSH")
    fresh.ask("ACL", "SETUSER", "few", "reset", "on", ">pw", "~*", "-@all", "+incrby", "+info", "+fcall", "+evalsha")
    try:
        async with await opened(fresh.url.replace("://", "://few:pw@"), "library") as transport:
            with pytest.raises(ServiceBusAuthorizationError, match=r"function\|load"):
                await count(transport)
    finally:
        fresh.ask("ACL", "DELUSER", "few")
    assert fresh.ask("GET", "k") == "1"


async def test_another_library_of_the_same_name_is_not_used(fresh: LocalServer) -> None:
    fresh.ask("FUNCTION", "LOAD", saying_so([READ], OWN.name).source)
    async with await opened(fresh.url) as transport:
        assert await count(transport) == ("script", 1)
    fresh.ask("CONFIG", "RESETSTAT")
    async with await opened(fresh.url, "library") as transport:
        with pytest.raises(
            ServerUnsuitableError, match=r"The library sb_own .*lacks the function for script count.*FUNCTION DELETE"
        ) as caught:
            await count(transport)
        assert caught.value.outcome is Outcome.NEVER_SENT
        assert loads(fresh) == {"function|load": 2}  # both were refused, because there is a library of this name
    fresh.ask("FUNCTION", "DELETE", OWN.name)
    async with await opened(fresh.url, "library") as transport:
        assert await count(transport) == ("library", 2)


async def test_a_refusal_is_forgotten_when_the_library_is_loaded(fresh: LocalServer) -> None:
    async with await opened(fresh.url, "library") as transport:
        with configured(fresh, "maxmemory", "1", "0"), pytest.raises(ServiceBusServerBusyError, match="memory limit"):
            await count(transport)
        assert await count(transport) == ("library", 1)
        fresh.ask("FUNCTION", "LOAD", "REPLACE", saying_so([READ], OWN.name).source)
        with pytest.raises(ServerUnsuitableError, match="FUNCTION DELETE"):
            await count(transport)


async def test_a_function_that_breaks_halfway_has_an_unknown_outcome(fresh: LocalServer) -> None:
    async with await opened(fresh.url) as transport:
        with pytest.raises(ServiceBusError, match="script break failed halfway") as caught:
            await transport.call(BREAK, [b"k"])
        assert caught.value.outcome is Outcome.UNKNOWN
        assert await count(transport) == ("library", 2)  # one is from the function that broke


async def test_each_master_of_a_cluster_gets_the_library_when_a_call_needs_it(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        node.ask("FUNCTION", "FLUSH")
    async with await opened(cluster.url) as transport:
        found = await asyncio.gather(*(count(transport, b"k%d" % number) for number in range(60)))
        assert found == [("library", 1)] * 60
        cluster.nodes[0].ask("FUNCTION", "FLUSH")
        found = await asyncio.gather(*(count(transport, b"k%d" % number) for number in range(60)))
        assert found == [("library", 2)] * 60


async def test_a_restarted_server_still_has_the_library(binary: str | None) -> None:
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        async with await opened(server.url) as transport:
            assert await count(transport) == ("library", 1)
        server.restart()
        async with await opened(server.url) as transport:
            assert await count(transport) == ("library", 2)
        assert loads(server) == {}


async def test_a_slot_moves_to_a_node_without_the_library(cluster: LocalCluster) -> None:
    slot = key_slot(b"{moving}")
    source = cluster.master_of(slot)
    to = next(node for node in cluster.masters if node is not source)
    for node in cluster.nodes:
        node.ask("FUNCTION", "FLUSH")
    async with await opened(cluster.url) as transport:
        keys = [b"{moving}%d" % number for number in range(20)]
        assert await asyncio.gather(*(count(transport, key) for key in keys)) == [("library", 1)] * 20
        try:
            # A new key of the slot is asked for at the target as soon as the slot is moving.
            for total, _ in enumerate(cluster.migrate_slot_classic_steps(slot, to), 1):
                assert await count(transport, b"{moving}new") == ("library", total)
            assert await asyncio.gather(*(count(transport, key) for key in keys)) == [("library", 2)] * 20
            assert OWN.name in str(to.ask("FUNCTION", "LIST"))
        finally:
            cluster.migrate_slot_classic(slot, source)


@pytest.mark.long("it starts a cluster with replicas")
async def test_a_promoted_replica_has_the_library(replicated_cluster: LocalCluster) -> None:
    slot = key_slot(b"k")
    master = replicated_cluster.master_of(slot)
    (replica,) = replicated_cluster.replicas_of(master)
    async with await opened(f"{replicated_cluster.url}?durability=replicated&replicas=1") as transport:
        assert await count(transport) == ("library", 1)
        before = loads(replica)  # it may count what its master has sent
        replicated_cluster.failover(replica)
        assert await count(transport) == ("library", 2)
        assert loads(replica) == before


async def test_a_valkey_without_a_lua_engine_is_reported(binary: str | None) -> None:
    """Neither form can run there. Valkey can be built without this engine, or unload it."""
    with LocalServer(binary=binary, config={"enable-module-command": "yes"}) as server:
        try:
            server.ask("MODULE", "UNLOAD", "lua")
        except ScriptRefusedError:
            pytest.skip("the engine of this server is no module")
        for form in ("auto", "library", "needed", "all"):
            async with await opened(server.url, form) as transport:
                with pytest.raises(ServerUnsuitableError, match="has no Lua engine") as caught:
                    await count(transport)
                assert caught.value.outcome is Outcome.NEVER_SENT
