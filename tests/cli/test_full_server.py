"""The command at a server that has reached its memory limit: what reads, receives and deletes works."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.model import ServiceBusMessage
from sbredis.servers import LocalServer
from tests.cli.conftest import Bus
from tests.offenders import for_each

pytestmark = [pytest.mark.slow, pytest.mark.any_form("a full server takes no library")]


@pytest.fixture
def full(bus: Bus, server: LocalServer) -> Iterator[Bus]:
    """A full server that has no scripts, with a queue of two messages and two dead letters."""

    async def fill(client: ServiceBusClient) -> None:
        async with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(4)])
            for message in await receiver.receive_messages(2, max_wait_time=60):
                await receiver.dead_letter_message(message)

    bus.queue()
    bus.client(fill)
    server.ask("FUNCTION", "FLUSH", "SYNC")
    server.ask("SCRIPT", "FLUSH", "SYNC")
    server.ask("CONFIG", "SET", "maxmemory", "1")
    try:
        yield bus
    finally:
        server.ask("CONFIG", "SET", "maxmemory", "0")


@for_each(
    "command",
    [
        "queue list",
        "queue show orders",
        "peek orders --count 10",
        "dlq list orders",
        "dlq report orders",
        "purge orders --dry-run",
        "queue update orders --max-delivery-count 7",
    ],
)
def test_a_command_that_takes_in_no_messages_works(full: Bus, command: str) -> None:
    full.did(*command.split())


def test_messages_are_received_redriven_and_deleted(full: Bus) -> None:
    assert full.did("receive", "orders", "--count", "1", "--output", "json").rows[0]["body"] in {"2", "3"}
    full.did("dlq", "redrive", "orders")
    assert len(full.bodies()) == 3
    full.did("receive", "orders", "--count", "1")
    full.did("purge", "orders", "--yes")
    full.did("dlq", "purge", "orders", "--yes")
    assert full.bodies() == []


@for_each("command", ["send orders more", "queue create more", "topic create more"])
def test_a_command_that_takes_in_data_is_refused(full: Bus, command: str) -> None:
    ran = full.run(*command.split())
    assert ran.code != 0
    assert "is at its memory limit and takes no more data" in ran.err
    assert sorted(full.bodies()) == ["2", "3"]
    assert "more" not in full.did("queue", "list").out + full.did("topic", "list").out


def test_the_doctor_says_that_the_server_is_full_and_what_to_do(full: Bus) -> None:
    ran = full.run("doctor")
    assert ran.code == 4
    said = " ".join(ran.out.split())
    assert "It is full: it uses" in said
    assert "purge dead letters that nobody needs (sbredis dlq purge), or raise maxmemory" in said
