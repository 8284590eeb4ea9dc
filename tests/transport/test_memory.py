"""The servers of ``memory://``: what they share, and when they are forgotten."""

from __future__ import annotations

import pytest

from sbredis.exceptions import ServiceBusError
from sbredis.transport import Script, forget_memory, open_transport
from sbredis.transport._memory import memory_server

pytestmark = pytest.mark.anyio

COUNT = Script("count", "#!lua\nreturn redis.call('INCR', KEYS[1])")


async def test_in_memory_servers_share_only_the_source_texts_of_scripts() -> None:
    """So a process with thousands of in-memory servers, such as a test run, stores each script only once."""
    async with await open_transport("memory://one", scripts=[COUNT]) as one:
        assert await one.call(COUNT, (b"a",)) == 1
        async with await open_transport("memory://two") as two:
            assert memory_server("two").script_cache == {}
            assert await two.call(COUNT, (b"a",)) == 1
        assert await one.call(COUNT, (b"a",)) == 2
    (first,), (second,) = (memory_server(name).script_cache.values() for name in ("one", "two"))
    assert first is second


async def test_an_in_memory_server_lives_until_it_is_forgotten() -> None:
    """The next client finds the data of the server, as it would on a real server."""
    for expected in (1, 2):
        async with await open_transport("memory://kept") as transport:
            assert await transport.call(COUNT, (b"a",)) == expected
    forget_memory("kept")
    async with await open_transport("memory://kept") as transport:
        assert await transport.call(COUNT, (b"a",)) == 1


async def test_an_in_memory_server_finds_scripts_compiled() -> None:
    async with await open_transport("memory://one", scripts=[COUNT]) as transport:
        await transport.call(COUNT, (b"a",))
        ((sha, source),) = memory_server("one").script_cache.items()
        assert source.endswith(b"return redis.call('INCR', KEYS[1])")
        assert memory_server("one").script_cache[sha].startswith(b"\x1bLua")
        assert list(memory_server("one").script_cache) == [sha]


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
