"""The servers of ``memory://``: what they share, and when they are forgotten."""

from __future__ import annotations

import pytest

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
