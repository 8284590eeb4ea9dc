"""Calls of scripts in memory, on one server and on a cluster: their replies, and the outcome if there is no reply."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from sbredis.exceptions import OperationTimeoutError, Outcome, ScriptRefusedError, ServiceBusError
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Transport, WireLimits, open_transport
from tests.plugins.forms import FORM, LIBRARY
from tests.transport.opening import function, opened

pytestmark = pytest.mark.everywhere("each target has a transport of its own")

ECHO = function("echo", "return {KEYS[1], ARGV[1], #KEYS, #ARGV}")
COUNT = function("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
READ = function("read", "return redis.call('GET', KEYS[1])")
BUSY = function(
    "busy",
    # Valkey's TIME does not advance within a script, so the script uses os.clock if it exists. Redis 7.0 lacks it.
    """
    local now = function() local time = redis.call('TIME'); return time[1] + time[2] / 1e6 end
    pcall(function() now = os.clock end)
    local ends = now() + ARGV[1]
    while now() < ends do end
    return redis.call('INCR', KEYS[1])
    """,
)
ABOUT_ITSELF = function("about_itself", "return {ARGV[1], redis.call('INFO', 'server'), ARGV[2]}", takes_run_id=True)
MEGABYTE = bytes(range(256)) * 4096

on_real_servers = pytest.mark.parametrize("target", ["server", "cluster"], indirect=True)


@pytest.mark.parametrize(
    ("key", "argument"),
    [
        (b"k", b"a"),
        (b"", b""),
        (b"\x00\xff\r\n", b"\r\n$5\r\n"),
        (b"k" * 3000, MEGABYTE),
        (b"{}", "\u00e4\u20ac"),
        (b"k", -7),
    ],
    ids=["plain", "empty", "binary", "large", "text", "number"],
)
async def test_keys_and_arguments_arrive_unchanged(url: str, key: bytes, argument: bytes | str | int) -> None:
    expected = argument if isinstance(argument, bytes) else str(argument).encode()
    async with await opened(url, scripts=[ECHO]) as transport:
        assert await transport.call(ECHO, [key], [argument]) == [key, expected, 1, 1]


@pytest.mark.parametrize(
    ("source", "reply"),
    [
        ("return 7", 7),
        ("return 'a'", b"a"),
        ("return false", None),
        ("return true", 1),
        ("return {}", []),
        ("return {1, {2, 'x'}, false}", [1, [2, b"x"], None]),
        ("return redis.status_reply('FINE')", b"FINE"),
    ],
)
async def test_replies_are_returned_as_bytes_numbers_and_lists(url: str, source: str, reply: Any) -> None:
    script = function("reply", source)
    async with await opened(url, scripts=[script]) as transport:
        assert await transport.call(script, [b"k"]) == reply


async def test_a_script_without_keys_runs_on_any_server(url: str) -> None:
    add = function("add", "return ARGV[1] + ARGV[2]")
    async with await opened(url, scripts=[add]) as transport:
        assert await transport.call(add, [], [1, 2]) == 3


async def test_a_script_that_refuses_a_call_changes_nothing_and_gives_the_reason(url: str) -> None:
    refuse = function(
        "refuse", "if true then return redis.error_reply('LOCKLOST 7 of 9') end redis.call('SET', KEYS[1], 1)"
    )
    async with await opened(url, scripts=[refuse, READ]) as transport:
        with pytest.raises(ScriptRefusedError) as caught:
            await transport.call(refuse, [b"k"])
        assert (caught.value.reply_code, caught.value.detail) == ("LOCKLOST", "7 of 9")
        assert (caught.value.outcome, caught.value.is_transient) == (Outcome.REFUSED, False)
        assert await transport.call(READ, [b"k"]) is None


@on_real_servers
async def test_the_outcome_of_a_script_that_fails_after_a_write_is_unknown(url: str) -> None:
    """The earlier writes of the script stay, because a script has no rollback."""
    half = function("half", "redis.call('SET', KEYS[1], 'half'); redis.call('LPUSH', KEYS[1], 1)")
    async with await opened(url, scripts=[half, READ]) as transport:
        with pytest.raises(ServiceBusError, match=r"script half failed halfway.*WRONGTYPE") as caught:
            await transport.call(half, [b"k"])
        assert (caught.value.outcome, caught.value.is_transient) == (Outcome.UNKNOWN, False)
        assert await transport.call(READ, [b"k"]) == b"half"


async def test_a_command_is_sent_to_the_server_of_its_key(url: str) -> None:
    async with await opened(url, scripts=[READ]) as transport:
        for number in range(20):
            key = b"k%d" % number
            assert await transport.command("SET", key, number, key=key) == b"OK"
            assert await transport.call(READ, [key]) == b"%d" % number
        assert await transport.command("PING") == b"PONG"
        with pytest.raises(ScriptRefusedError, match="WRONGTYPE"):
            await transport.command("LPUSH", b"k1", 1, key=b"k1")


async def test_each_of_500_concurrent_calls_gets_its_own_reply(url: str) -> None:
    async with await opened(url, scripts=[ECHO]) as transport:

        async def ask(number: int) -> bool:
            key, argument = b"k%d" % number, b"%d" % number * (number % 7)
            return bool(await transport.call(ECHO, [key], [argument]) == [key, argument, 1, 1])

        assert all(await asyncio.gather(*(ask(number) for number in range(500))))


async def test_scripts_that_the_server_has_forgotten_are_loaded_again_during_calls(url: str, target: str) -> None:
    """A call before, during or after the flush of the scripts is neither lost nor executed twice."""
    what = "FUNCTION" if FORM == LIBRARY and target != "memory" else "SCRIPT"
    async with await opened(url, scripts=[COUNT, READ]) as transport:

        async def forget() -> None:
            await asyncio.gather(*(transport.command(what, "FLUSH", key=b"k%d" % number) for number in range(10)))

        async def count(number: int) -> None:
            await transport.call(COUNT, [b"k%d" % (number % 10)], [1])

        for _ in range(3):
            await asyncio.gather(*(count(number) for number in range(50)), forget(), *(count(n) for n in range(50)))
        counts = [await transport.call(READ, [b"k%d" % number]) for number in range(10)]
        assert counts == [b"30"] * 10


@pytest.mark.any_form("no library has the script")
async def test_a_script_that_was_not_given_at_the_opening_is_loaded_when_it_is_called(url: str) -> None:
    async with await open_transport(url) as transport:
        assert await transport.call(COUNT, [b"k"], [5]) == 5


async def test_the_error_for_a_script_that_is_not_lua_quotes_the_server(server: LocalServer) -> None:
    """The error is not the one for a user without the right to load scripts."""
    async with await open_transport(server.url) as transport:
        with pytest.raises(ScriptRefusedError, match="compiling") as caught:
            await transport.call(function("broken", "#!lua\nreturn return"), (b"key",))
        assert caught.value.outcome is Outcome.REFUSED
        assert await transport.command("PING") == b"PONG"


async def test_a_cancelled_caller_does_not_affect_the_others(url: str) -> None:
    async with await opened(url, scripts=[COUNT]) as transport:
        await asyncio.gather(*(transport.call(COUNT, [b"k%d" % number], [0]) for number in range(100)))
        before = transport.servers
        tasks = [asyncio.create_task(transport.call(COUNT, [b"k%d" % number], [1])) for number in range(100)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
        assert [end for task, end in zip(tasks, ends, strict=True) if not task.cancelled() and end != 1] == []
        assert sum(task.cancelled() for task in tasks) == 34
        assert await transport.call(COUNT, [b"other"], [1]) == 1
        assert transport.servers == before


# -- run ids -----------------------------------------------------------------------------------------------------------


@on_real_servers
async def test_a_script_gets_the_run_id_of_the_server_process_that_runs_it(url: str) -> None:
    async with await opened(url, scripts=[ABOUT_ITSELF]) as transport:
        for number in range(10):
            key = b"k%d" % number
            run_id, info, argument = await transport.call(ABOUT_ITSELF, [key], [b"a"])
            assert b"run_id:" + run_id + b"\r\n" in info
            assert argument == b"a"
            facts = transport.server_of(key)
            assert facts is not None
            assert facts.run_id == run_id
            assert facts.endpoint == transport.endpoint_of(key)


@pytest.mark.parametrize("target", ["memory"], indirect=True)
async def test_all_connections_to_a_server_in_memory_see_the_same_run_id(url: str) -> None:
    script = function("run_id", "return ARGV[1]", takes_run_id=True)
    async with await open_transport(url) as transport, await open_transport(url) as other:
        found = await transport.call(script, [b"k"])
        assert re.fullmatch(rb"[0-9a-f]{40}", found)
        assert await other.call(script, [b"k"]) == found


# -- deadlines ---------------------------------------------------------------------------------------------------------


@on_real_servers
async def test_a_deadline_that_passes_while_the_server_is_busy_leaves_the_outcome_unknown(url: str) -> None:
    """The script still runs, and the connection stays usable for other calls."""
    async with await opened(url, scripts=[BUSY, READ], limits=WireLimits(give_up_after=60)) as transport:
        assert await transport.call(READ, [b"k"]) is None  # so that it is connected to the server of the key
        before = transport.servers
        seconds, outcome = 0.05, None
        while outcome is not Outcome.UNKNOWN:  # with another outcome there was no time to send the call
            with pytest.raises(OperationTimeoutError, match="script busy did not end in time") as caught:
                await transport.call(BUSY, [b"k"], [str(4 * seconds)], timeout=seconds)
            assert caught.value.is_transient
            seconds, outcome = 3 * seconds, caught.value.outcome
            assert seconds < 5
        assert await transport.call(READ, [b"k"]) == b"1"
        assert {*before} <= {*transport.servers}  # others may have been asked about the silent one


@pytest.mark.parametrize("timeout", [0, -1, -0.001])
async def test_a_call_without_time_left_is_never_sent(url: str, timeout: float) -> None:
    async with await opened(url, scripts=[COUNT, READ]) as transport:
        with pytest.raises(OperationTimeoutError) as caught:
            await transport.call(COUNT, [b"k"], [1], timeout=timeout)
        assert caught.value.outcome is Outcome.NEVER_SENT
        assert await transport.call(READ, [b"k"]) is None


async def test_a_call_may_wait_without_a_time_limit(url: str) -> None:
    async with await opened(url, scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, [b"k"], [1], timeout=float("inf")) == 1


# -- mistakes of the caller --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "arguments"), [(["text"], []), ([b"k"], [None]), ([b"k"], [1.5]), ([b"k", None], []), (None, [])]
)
async def test_an_argument_that_cannot_be_sent_is_refused_before_sending(url: str, keys: Any, arguments: Any) -> None:
    async with await opened(url, scripts=[COUNT]) as transport:
        with pytest.raises(TypeError):
            await transport.call(COUNT, keys, arguments)
        assert await transport.call(COUNT, [b"k"], [1]) == 1


@pytest.mark.parametrize("target", ["cluster"], indirect=True)
async def test_keys_of_several_slots_in_one_call_are_refused_by_the_cluster(url: str) -> None:
    async with await opened(url, scripts=[ECHO]) as transport:
        with pytest.raises(ScriptRefusedError, match="CROSSSLOT"):
            await transport.call(ECHO, [b"a", b"b"], [1])


# -- the repr of a transport -------------------------------------------------------------------------------------------


async def test_the_repr_of_a_transport_names_its_servers(
    transport_and_servers: tuple[Transport, list[LocalServer]],
) -> None:
    transport, servers = transport_and_servers
    assert {str(endpoint) for endpoint in transport.masters} == {f"127.0.0.1:{server.port}" for server in servers}
    assert {facts.endpoint for facts in transport.servers} <= set(transport.masters)
    assert all(facts.version and facts.role == "master" and facts.scripts == "allowed" for facts in transport.servers)
    assert repr(transport).endswith(" open>")


@pytest.fixture(params=["server", "cluster"])
async def transport_and_servers(request: pytest.FixtureRequest) -> Any:
    running: LocalServer | LocalCluster = request.getfixturevalue(request.param)
    servers = running.masters if isinstance(running, LocalCluster) else [running]
    async with await open_transport(running.url) as transport:
        yield transport, servers
