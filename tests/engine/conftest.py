"""Fixtures for the tests of a partition: one partition on a bench, on each target.

On a server and on a cluster, the scripts have the form of the run (tests/plugins/forms.py).
On a server and on a cluster the caller is a confined user.
That user may touch only the keys of the partition, and may use only the commands that the scripts name.
So each test also proves that the scripts need no more: a key that was not given to a script would make it fail.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from sbredis.engine import Partition, PartitionSettings
from sbredis.engine._scripts import operations
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import Transport
from tests.access.users import nodes_of
from tests.engine.bench import ENTITY, INCARNATION, KEYS, NAMESPACE, SALT, SETTINGS, Bench
from tests.engine.granting import Grantors, grantors
from tests.engine.moves import Town
from tests.engine.opening import open_with_scripts
from tests.engine.rights import Rights, commands_of, confined
from tests.engine.topics import Topic
from tests.engine.transactions import World

READING = ("eval", "type", "hgetall", "zrange", "xrange")
"""The commands that the bench itself uses on the keys of its partition, besides calling scripts."""


@pytest.fixture
def anyio_backend() -> str:
    """Use asyncio without debug mode, which helps only tests that wait and would double the time of these tests."""
    return "asyncio"


@pytest.fixture
def settings() -> PartitionSettings:
    """Return the settings of the partition on the bench; a test that needs others parametrizes this fixture."""
    return SETTINGS


@pytest.fixture
def running(target: str, request: pytest.FixtureRequest) -> LocalServer | LocalCluster | None:
    """Return the server or cluster of the target, empty; None in memory."""
    if target == "memory":
        return None
    found: LocalServer | LocalCluster = request.getfixturevalue(target)
    return found


def _rights() -> Rights:
    return Rights.of_keys(KEYS, NAMESPACE, SALT, (*READING, *commands_of(operations())))


@pytest.fixture(scope="session")
def confined_at_server(shared_server: LocalServer) -> Iterator[str]:
    """Return the URL of the server for a user who is confined to the partition on the bench."""
    with confined(shared_server, "bench", _rights()) as url:
        yield url


@pytest.fixture(scope="session")
def confined_at_cluster(shared_cluster: LocalCluster) -> Iterator[str]:
    """Return the URL of the cluster for a user who is confined to the partition on the bench."""
    with confined(shared_cluster, "bench", _rights()) as url:
        yield url


@pytest.fixture
def confined_url(url: str, target: str, request: pytest.FixtureRequest) -> str:
    """Return the URL of the empty target, for the confined user if the target has users."""
    return url if target == "memory" else str(request.getfixturevalue(f"confined_at_{target}"))


@pytest.fixture
def all_keys(running: LocalServer | LocalCluster | None) -> Callable[[], set[str]] | None:
    """Return a function that lists every key of the target; None in memory, where a test must use the transport."""
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
    """A new partition on a bench. After the test, no keys but those of the partition may exist."""
    async with await open_with_scripts(confined_url) as transport:
        partition = Partition(NAMESPACE, SALT, ENTITY, INCARNATION, 1, settings)
        made = Bench(transport, partition)
        await made.tell(partition.configure(create=True))
        yield made
        there = all_keys() if all_keys else await _keys_in_memory(transport)
        assert there <= {key.decode() for key in KEYS}, "keys were left behind outside of the partition"


@pytest.fixture
async def receiver(bench: Bench) -> Grantors:
    """A maker of receivers of the partition on the bench."""
    return await grantors(bench)


async def _keys_in_memory(transport: Transport) -> set[str]:
    return {key.decode() for key in await transport.command("KEYS", "*")}


@pytest.fixture
async def topic(url: str) -> AsyncIterator[Topic]:
    """A new partition of a topic and of its subscriptions."""
    async with await open_with_scripts(url) as transport:
        yield await Topic(transport).create()


@pytest.fixture
async def town(url: str) -> AsyncIterator[Town]:
    """New partitions of entities in several slots."""
    async with await open_with_scripts(url) as transport:
        yield await Town(transport).create()


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    """New partitions of entities in one slot."""
    async with await open_with_scripts(url) as transport:
        yield await World(transport).create()
