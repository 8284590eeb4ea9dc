"""What the tests of a partition share: one partition on a bench, on each target.

On a server and on a cluster the caller is a user who may touch the 30 keys of that partition and use the commands that
stand in the scripts, and nothing else. So whatever a test does is at the same time a proof that the scripts need no
more: a key that was not given to a script would end it in an error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sbredis.engine import Partition, PartitionSettings, load, operations
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Transport, open_transport
from tests.engine.bench import ENTITY, INCARNATION, KEYS, NAMESPACE, SALT, SETTINGS, Bench
from tests.engine.receivers import Receiver, Receivers
from tests.engine.rights import Rights, commands_of, confined, nodes_of

READING = ("type", "hgetall", "zrange")
"""What the bench itself does beside calling scripts, on the keys of its partition."""


@pytest.fixture
def anyio_backend() -> str:
    """Asyncio, not in debug mode: that is for tests of what waits, and costs as much as all the rest here."""
    return "asyncio"


@pytest.fixture
def settings() -> PartitionSettings:
    """How the partition on the bench is set; a test that needs it otherwise parametrizes this."""
    return SETTINGS


@pytest.fixture
def running(target: str, request: pytest.FixtureRequest) -> LocalServer | LocalCluster | None:
    """The server or cluster of the target, empty; None in memory."""
    if target == "memory":
        return None
    found: LocalServer | LocalCluster = request.getfixturevalue(target)
    return found


def _rights() -> Rights:
    return Rights.of_keys(KEYS, NAMESPACE, SALT, (*READING, *commands_of(operations())))


@pytest.fixture(scope="session")
def confined_at_server(shared_server: LocalServer) -> Iterator[str]:
    """The server as a user who is confined to the partition on the bench."""
    with confined(shared_server, "bench", _rights()) as url:
        yield url


@pytest.fixture(scope="session")
def confined_at_cluster(shared_cluster: LocalCluster) -> Iterator[str]:
    """The cluster as a user who is confined to the partition on the bench."""
    with confined(shared_cluster, "bench", _rights()) as url:
        yield url


@pytest.fixture
def confined_url(url: str, target: str, request: pytest.FixtureRequest) -> str:
    """The empty target as a user who is confined to the partition on the bench, where there are users."""
    return url if target == "memory" else str(request.getfixturevalue(f"confined_at_{target}"))


@pytest.fixture
def all_keys(running: LocalServer | LocalCluster | None) -> Callable[[], set[str]] | None:
    """Tells every key there is; None in memory, where only the transport can be asked."""
    if running is None:
        return None
    servers = nodes_of(running)

    def found() -> set[str]:
        replies = [node.ask("KEYS", "*") for node in servers]
        return {str(key) for reply in replies if isinstance(reply, list) for key in reply}

    return found


@pytest.fixture
async def bench(
    confined_url: str, all_keys: Callable[[], set[str]] | None, settings: PartitionSettings
) -> AsyncIterator[Bench]:
    """A partition that has just been made. At the end, nothing may be left outside of its keys."""
    async with await open_transport(confined_url, scripts=[load(name) for name in operations()]) as transport:
        partition = Partition(NAMESPACE, SALT, ENTITY, INCARNATION, 1, settings)
        made = Bench(transport, partition, strips_shebang=all_keys is None)
        await made.tell(partition.configure(create=True))
        yield made
        there = all_keys() if all_keys else await _keys_in_memory(transport)
        assert there <= {key.decode() for key in KEYS}, "keys were left behind outside of the partition"


@pytest.fixture
def listening(bench: Bench) -> Receivers:
    """Makes receivers that listen already."""

    async def made(name: str) -> Receiver:
        receiver = Receiver(bench, name)
        await bench.transport.subscribe(receiver.channel, receiver.ear)
        return receiver

    return made


async def _keys_in_memory(transport: Transport) -> set[str]:
    return {key.decode() for key in await transport.command("KEYS", "*")}
