"""The transport on uvloop, which has its own implementation of sockets, unix sockets and flow control."""

from __future__ import annotations

import asyncio
import sys

import pytest

from sbredis.servers import LocalServer
from tests.transport.opening import function, opened

COUNT = function("count", "#!lua\nreturn redis.call('HINCRBY', KEYS[1], ARGV[1], 1)")

pytestmark = [
    pytest.mark.everywhere("each target has a transport of its own"),
    pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not exist for Windows"),
    pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True, "debug": True})], ids=["uvloop"]),
]


async def use(url: str) -> None:
    """Make many small calls at the same time, and calls whose replies arrive in many pieces."""
    large = bytes(3_000_000)
    async with await opened(url, scripts=[COUNT]) as transport:
        assert "uvloop" in type(asyncio.get_running_loop()).__module__
        counts = await asyncio.gather(*(transport.call(COUNT, (b"key",), ("field",)) for _ in range(500)))
        assert sorted(counts) == list(range(1, 501))
        await transport.command("SET", "large", large, key=b"large")
        values = await asyncio.gather(*(transport.command("GET", "large", key=b"large") for _ in range(5)))
        assert all(value == large for value in values)


@pytest.mark.slow
async def test_every_target_is_served_on_uvloop(url: str) -> None:
    """The targets are memory, one server, and a cluster."""
    await use(url)


async def test_a_unix_socket_is_served_on_uvloop(binary: str | None) -> None:
    """The server has no port."""
    with LocalServer(binary=binary, unix_socket=True) as server:
        await use(server.url)
