"""Sentinel: the client finds the master, follows it in a failover, and connects to no other server."""

from __future__ import annotations

from collections.abc import Iterator

import anyio
import pytest

from sbredis.exceptions import ServerUnsuitableError, ServiceBusAuthenticationError
from sbredis.servers import LocalSentinel
from sbredis.transport import open_transport
from tests.transport.opening import function, opened

COUNT_ONCE = function(
    "count_once",
    "if redis.call('SADD', KEYS[1], ARGV[1]) == 1 then redis.call('INCR', KEYS[2]) end "
    "return redis.call('GET', KEYS[2])",
)
PASSWORD = "secret"


@pytest.fixture(scope="module")
def watched(binary: str | None) -> Iterator[LocalSentinel]:
    """A master with a replica and a password, watched by three sentinels."""
    with LocalSentinel(1, 3, binary=binary, config={"requirepass": PASSWORD}) as deployment:
        yield deployment


def url_of(deployment: LocalSentinel, password: str = PASSWORD) -> str:
    return deployment.url.replace("://", f"://:{password}@")


async def test_a_sentinel_addressed_as_a_server_is_refused_with_the_right_scheme(watched: LocalSentinel) -> None:
    sentinel = watched.sentinels[0]
    with pytest.raises(ServerUnsuitableError, match=r"is a Sentinel.*use redis\+sentinel://") as caught:
        await open_transport(sentinel.url)
    assert "EVALSHA" not in str(caught.value)


async def test_the_error_names_a_master_that_no_sentinel_knows(watched: LocalSentinel) -> None:
    with pytest.raises(ServerUnsuitableError, match=r"named the master 'other': .*knows no such master"):
        await open_transport(url_of(watched).replace("/mymaster", "/other"))


async def test_a_wrong_password_of_the_master_is_reported(watched: LocalSentinel) -> None:
    with pytest.raises(ServiceBusAuthenticationError, match=f"127.0.0.1:{watched.master.port}") as caught:
        await open_transport(url_of(watched, "hunter2hunter2"))
    assert "hunter2" not in str(caught.value)


async def test_the_password_of_the_sentinels_is_sent_to_no_other_server(watched: LocalSentinel) -> None:
    """A wrong password of the sentinels is reported as such. With the right one the client connects to both."""
    for sentinel in watched.sentinels:
        sentinel.ask("ACL", "SETUSER", "asker", "on", ">pw", "+@all")
    async with await open_transport(url_of(watched) + "?sentinel_username=asker&sentinel_password=pw") as transport:
        assert transport.masters[0].port == watched.master.port
    with pytest.raises(ServiceBusAuthenticationError, match="no Sentinel named") as caught:
        await open_transport(url_of(watched) + "?sentinel_username=asker&sentinel_password=hunter2hunter2")
    assert "hunter2" not in str(caught.value)


async def test_calls_follow_the_master_through_a_failover(watched: LocalSentinel) -> None:
    """One sentinel is down as well, and no call is executed twice."""
    first = watched.master
    watched.sentinels[0].kill()
    async with await opened(url_of(watched), scripts=[COUNT_ONCE]) as transport:

        async def count(operation: str) -> int:
            return int(await transport.call(COUNT_ONCE, [b"{k}done", b"{k}count"], [operation], repeatable=True))

        assert await count("a") == 1
        assert transport.masters[0].port == first.port
        await anyio.to_thread.run_sync(lambda: first.ask("WAIT", 1, 5000))
        await anyio.to_thread.run_sync(first.kill)
        assert await count("b") == 2
        assert await count("b") == 2
        assert transport.masters[0].port != first.port
