"""The servers of ``memory://``: what they share, and when they are forgotten."""

from __future__ import annotations

import asyncio
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from sbredis.exceptions import ServiceBusError
from sbredis.transport import Script, forget_memory, open_transport
from sbredis.transport._memory import memory_server

COUNT = Script("count", "#!lua\nreturn redis.call('INCR', KEYS[1])")


async def test_in_memory_servers_share_only_the_scripts() -> None:
    """So a process with thousands of in-memory servers, such as a test run, stores and compiles each script once."""
    async with await open_transport("memory://one", scripts=[COUNT]) as one:
        assert await one.call(COUNT, (b"a",)) == 1
        async with await open_transport("memory://two") as two:
            assert await two.command("SCRIPT", "EXISTS", COUNT.without_shebang().sha) == [1]
            assert await two.call(COUNT, (b"a",)) == 1
        assert await one.call(COUNT, (b"a",)) == 2
    assert memory_server("one")._lua_runtime is not memory_server("two")._lua_runtime


async def test_a_script_is_compiled_once_even_if_many_clients_load_it() -> None:
    sha = COUNT.without_shebang().sha.encode()
    found: list[bytes] = []
    for number in range(3):
        async with await open_transport("memory://one", scripts=[COUNT]) as transport:
            await transport.call(COUNT, (b"a",))
        found.append(memory_server(f"new {number}").script_cache[sha])
    assert found[0].startswith(b"\x1bLua")
    assert all(each is found[0] for each in found)


async def test_the_first_call_of_a_script_in_the_process_is_not_overtaken_by_a_later_call() -> None:
    """A server that lacks the script would refuse the call once, and answer the later one meanwhile."""
    texts = (f"#!lua\nreturn redis.call('INCR', KEYS[1]) + {number} - {number}" for number in range(2))
    known, new = (Script("count", text) for text in texts)
    async with await open_transport("memory://one", scripts=[known]) as transport:
        assert await transport.call(known, (b"a",)) == 1
        assert tuple(await asyncio.gather(transport.call(new, (b"a",)), transport.call(known, (b"a",)))) == (2, 3)


async def test_arguments_of_any_bytes_arrive_also_in_calls_that_are_written_together() -> None:
    given = [b"", b"\r\n", b"$3\r\nabc\r\n", b"*1\r\n", bytes(range(256)), b"x" * 100_000]
    echo = Script("echo", "#!lua\nreturn ARGV")
    async with await open_transport("memory://one") as transport:
        calls = (transport.call(echo, (b"a",), [*given[number:], number]) for number in range(len(given)))
        replies = await asyncio.gather(*calls)
    assert replies == [[*given[number:], b"%d" % number] for number in range(len(given))]


async def test_scripts_read_fields_of_hashes_as_on_any_server() -> None:
    """The server answers these commands itself, and leaves to fakeredis what it does not know."""
    reads = Script("reads", "#!lua\nreturn redis.call(ARGV[1], KEYS[1], unpack(ARGV, 2))")
    types = Script(
        "types", "#!lua\nreturn type(redis.call('HGET', KEYS[1], 'no')) .. #redis.call('HMGET', KEYS[1], 1, 2)"
    )
    async with await open_transport("memory://one") as transport:
        await transport.command("HSET", "h", "a", "1", "2", "", "c", "3")
        assert await transport.call(reads, (b"h",), ["HMGET", "c", "no", "2", "c"]) == [b"3", None, b"", b"3"]
        assert await transport.call(reads, (b"h",), ["HGET", "a"]) == b"1"
        assert await transport.call(types, (b"h",)) == b"boolean2"
        assert await transport.call(types, (b"none",)) == b"boolean2"
        assert await transport.call(reads, (b"none",), ["HMGET", "a", "b"]) == [None, None]
        await transport.command("SET", "text", "a")
        for wrong in ["HGET"], ["HGET", "a", "b"], ["HMGET"]:
            with pytest.raises(ServiceBusError, match="number of arg"):
                await transport.call(reads, (b"h",), wrong)
        for name in "HGET", "HMGET":
            with pytest.raises(ServiceBusError, match="WRONGTYPE"):
                await transport.call(reads, (b"text",), [name, "a"])


async def test_a_command_that_fails_does_not_disturb_the_next_one() -> None:
    async with await open_transport("memory://one") as transport:
        wrong, right = transport.command("NOSUCH", "a"), transport.command("PING")
        found = await asyncio.gather(wrong, right, return_exceptions=True)
    assert isinstance(found[0], ServiceBusError)
    assert found[1] in (b"PONG", "PONG")


async def test_an_in_memory_server_lives_until_it_is_forgotten() -> None:
    """The next client finds the data of the server, as it would on a real server."""
    for expected in (1, 2):
        async with await open_transport("memory://kept") as transport:
            assert await transport.call(COUNT, (b"a",)) == expected
    forget_memory("kept")
    async with await open_transport("memory://kept") as transport:
        assert await transport.call(COUNT, (b"a",)) == 1


async def test_a_script_is_compiled_once_for_servers_that_follow_each_other() -> None:
    """A suite makes a server for each test. To compile the scripts for each of them takes longer than to run them."""
    lua = set[object]()
    for _ in range(5):
        async with await open_transport("memory://one") as transport:
            assert await transport.call(COUNT, (b"a",)) == 1
            lua.add(memory_server("one")._lua_runtime)
        forget_memory("one")
    assert len(lua) == 1


async def test_the_memory_of_many_servers_is_freed_when_they_are_forgotten() -> None:
    """Python's garbage collector does not see how much memory Lua has. So this does not wait for it."""
    names = [f"many-{number}" for number in range(5)]
    left: list[weakref.ref[object]] = []
    for name in names:
        async with await open_transport(f"memory://{name}") as transport:
            await transport.call(COUNT, (b"a",))
        left.append(weakref.ref(memory_server(name)._lua_runtime))
    for name in names:
        forget_memory(name)
    assert sum(each() is not None for each in left) == 1


async def test_a_client_of_a_forgotten_server_still_calls_scripts() -> None:
    async with await open_transport("memory://one") as old:
        assert await old.call(COUNT, (b"a",)) == 1
        forget_memory("one")
        async with await open_transport("memory://one") as new:
            assert await new.call(COUNT, (b"a",)) == 1
            assert await old.call(COUNT, (b"a",)) == 2
            assert await new.call(COUNT, (b"a",)) == 2


async def test_a_global_variable_of_a_script_is_refused_and_does_not_reach_the_next_server() -> None:
    careless = Script("careless", "#!lua\nleft = KEYS[1]\nreturn redis.call('INCR', KEYS[1])")
    async with await open_transport("memory://one") as transport:
        with pytest.raises(ServiceBusError, match="left"):
            await transport.call(careless, (b"a",))
        with pytest.raises(ServiceBusError, match="left"):
            await transport.call(COUNT, (b"a",))
    forget_memory("one")
    async with await open_transport("memory://one") as transport:
        assert await transport.call(COUNT, (b"a",)) == 1
        seen = Script("seen", "#!lua\nreturn tostring(left) .. tostring(next(KEYS)) .. tostring(ARGV[1])")
        assert await transport.call(seen, (b"b",)) == b"nil1nil"


@pytest.mark.parametrize("change", ["string.rep = nil", "string.more = 1", "tostring = tonumber"])
async def test_a_function_that_a_script_has_changed_is_as_before_in_the_next_server(change: str) -> None:
    careless = Script("careless", f"#!lua\n{change}")
    seen = Script("seen", "#!lua\nreturn tostring(string.rep('a', 2)) .. tostring(string.more)")
    async with await open_transport("memory://one") as transport:
        await transport.call(careless, (b"a",))
    forget_memory("one")
    async with await open_transport("memory://one") as transport:
        assert await transport.call(seen, (b"a",)) == b"aanil"


def test_two_threads_use_two_servers_at_once() -> None:
    """Each server has a Lua of its own. Each of these scripts gives the other thread time to call its own."""
    slow = Script("slow", "#!lua\nfor _ = 1, 20 do redis.call('INCR', KEYS[1]) end\nreturn redis.call('GET', KEYS[1])")
    together = threading.Barrier(2)

    async def count(name: str) -> list[object]:
        async with await open_transport(f"memory://{name}") as transport:
            together.wait()
            return [await transport.call(slow, (b"a",)) for _ in range(50)]

    with ThreadPoolExecutor() as threads:
        results = list(threads.map(lambda name: asyncio.run(count(name)), ["one", "two"]))
    assert results == [[b"%d" % (20 * (turn + 1)) for turn in range(50)]] * 2


@pytest.mark.parametrize(
    ("text", "error"),
    [("local x = 1\nreturn x.y.z", 'python>"]:3: attempt to index'), ("return (", "unexpected symbol near '<eof>'")],
)
async def test_the_error_of_a_faulty_script_names_its_line(text: str, error: str) -> None:
    faulty = Script("faulty", f"#!lua\n{text}")
    async with await open_transport("memory://one") as transport:
        with pytest.raises(ServiceBusError) as raised:
            await transport.call(faulty, (b"a",))
        assert error in str(raised.value)
