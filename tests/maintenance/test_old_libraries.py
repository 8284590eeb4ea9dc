"""Libraries of functions: clients name the one that they call, and the maintaining client deletes old ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.client import Timings
from sbredis.engine import AccessTo, entity_rules, library_keys, namespace_rules, whole_library
from sbredis.registry import read_libraries
from sbredis.servers import LocalCluster, LocalServer
from tests.access.users import nodes_of, set_user, url_of, without_libraries
from tests.waiting import eventually

pytestmark = pytest.mark.any_form("some clients send single scripts on purpose")

Running = LocalServer | LocalCluster
OWN = whole_library().name
OLD = [f"sb_{letter * 16}" for letter in "abcdef"]
KEY = library_keys("ns")[0]
DAY = 86_400_000


@pytest.fixture(params=["server", "cluster"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server and a cluster, on which there are no libraries before and after."""
    found: Running = request.getfixturevalue(request.param)
    with without_libraries(found):
        yield found


def client_of(
    url: str, timings: Timings | None = None, *, scripts: str = "auto", maintenance: bool = False
) -> ServiceBusClient:
    return ServiceBusClient(
        f"{url}?namespace=ns&scripts={scripts}", slot_count=4, maintenance=maintenance, _timings=timings
    )


async def named(client: ServiceBusClient) -> dict[str, int]:
    """Return the libraries that the registry knows."""
    return dict((await read_libraries(client._connection.transport, "ns")).named)


async def write(client: ServiceBusClient, times: dict[str, int]) -> None:
    """Let the registry have these times."""
    fields = [str(part) for pair in times.items() for part in pair]
    await client._connection.transport.command("HSET", KEY, *fields, key=KEY)


def load_old(running: Running) -> None:
    """Load libraries of six other releases on all masters."""
    for node in nodes_of(running):
        for name in OLD:
            node.ask("FUNCTION", "LOAD", f"#!lua name={name}\nredis.register_function('{name}_x', function() end)")


def loaded(running: Running) -> list[set[str]]:
    """Return the libraries on each master."""
    texts = [str(node.ask("FUNCTION", "LIST")) for node in nodes_of(running)]
    return [{name for name in (OWN, *OLD) if f"'{name}'" in text} for text in texts]


async def test_a_client_names_its_library_when_it_opens_and_again_later(running: Running) -> None:
    async with client_of(running.url, Timings(naming=0.02)) as client:
        await client.ensure_queue("q")

        async def is_named() -> bool:
            return OWN in await named(client)

        await eventually(is_named)
        await write(client, {OWN: 5})

        async def is_named_again() -> bool:
            return (await named(client))[OWN] > 5

        await eventually(is_named_again)


async def test_a_client_that_sends_single_scripts_names_no_library(server: LocalServer) -> None:
    async with client_of(server.url, Timings(naming=0.001), scripts="needed") as client:
        await client.ensure_queue("q")
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("m"))
        assert await named(client) == {}


async def test_a_user_who_may_only_read_the_registry_names_no_library(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    for node in nodes_of(running):
        node.ask("FUNCTION", "LOAD", whole_library().source)
    async with client_of(running.url, scripts="needed") as client:
        await client.ensure_queue("q")
        entity = await client.describe_entity("q")
    set_user(running, "few", entity_rules("ns", [AccessTo(entity.id)]))
    caplog.set_level(logging.INFO, "sbredis")
    caplog.clear()
    async with client_of(url_of(running, "few"), Timings(naming=0.001)) as client:
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("m"))
        assert await named(client) == {}
    (said,) = [record for record in caplog.records if "librar" in record.getMessage()]
    assert (said.name, said.levelno) == ("sbredis.transport", logging.INFO), "as the transport says of each refusal"


async def test_the_maintaining_client_deletes_what_is_old_from_every_master(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sbredis.maintenance")
    load_old(running)
    async with client_of(running.url) as client:
        now = (await read_libraries(client._connection.transport, "ns")).now
        # The fifth one was named a moment ago, and the registry does not know the sixth one.
        await write(client, {name: now - (10 - age) * DAY for age, name in enumerate(OLD[:3])} | {OLD[4]: now})
    timings = Timings(deleting_libraries=0.02)
    async with client_of(running.url, timings, maintenance=True) as client:
        await client.ensure_queue("q", enable_partitioning=True)  # so that every master has the library of this release
        kept = {OWN, OLD[3], OLD[4], OLD[5]}
        await eventually(lambda: loaded(running) == [kept] * len(nodes_of(running)))
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("m"))
    said = [record.getMessage() for record in caplog.records if "was deleted from" in record.getMessage()]
    assert len(said) == 3 * len(nodes_of(running))


@pytest.mark.parametrize("missing", ["function|list", "function|delete"])
async def test_a_maintaining_client_without_the_right_deletes_nothing_and_says_so_once(
    running: Running, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    load_old(running)
    async with client_of(running.url) as client:
        await client.ensure_queue("q")
        await write(client, dict.fromkeys(OLD, 1))
    set_user(running, "few", [*namespace_rules("ns", "library"), f"-{missing}"])
    caplog.set_level(logging.INFO, "sbredis.maintenance")
    timings = Timings(deleting_libraries=0.001, claiming=0.2)
    async with client_of(url_of(running, "few"), timings, maintenance=True):

        def said() -> list[str]:
            return [
                record.getMessage()
                for record in caplog.records
                if "left to users with more rights" in record.getMessage()
            ]

        await eventually(lambda: len(said()) > 0)
        async with client_of(running.url) as other, other.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("m"))
        assert len(said()) == 1
        assert missing in said()[0]
    assert all(found >= set(OLD) for found in loaded(running))


async def test_a_client_whose_library_was_deleted_loads_it_again(running: Running) -> None:
    async with client_of(running.url) as client:
        await client.ensure_queue("q")
        for node in nodes_of(running):
            node.ask("FUNCTION", "FLUSH")
        async with client.get_queue_sender("q") as sender:
            await sender.send_messages(ServiceBusMessage("m"))
        async with client.get_queue_receiver("q") as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=20)
            await receiver.complete_message(message)
    assert any(OWN in found for found in loaded(running))
