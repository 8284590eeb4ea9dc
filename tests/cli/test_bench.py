"""``sbredis bench``: it measures, and leaves nothing behind."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest

from sbredis.aio import ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.cli._bench import Result, summary_of
from sbredis.exceptions import OperationTimeoutError, ServiceBusConnectionError
from tests.cli.children import Child
from tests.cli.conftest import Bus
from tests.waiting import wait_until


def queues(bus: Bus) -> list[str]:
    rows: list[dict[str, str]] = bus.did("queue", "list", "-o", "json").json
    return [row["name"] for row in rows]


def test_a_summary_has_the_rate_and_the_times() -> None:
    times = [number / 1000 for number in range(1, 101)]
    assert summary_of(Result(500, 2.0, times[::-1])) == {
        "messages_per_second": 250,
        "calls": 100,
        "median": 50.0,
        "p99": 99.0,
        "longest": 100.0,
    }
    assert summary_of(Result(1, 1.0, [0.002]))["p99"] == 2.0
    assert summary_of(Result(0, 1.0, []))["median"] is None


@pytest.mark.parametrize("partitioned", [False, True])
def test_each_measurement_has_a_row_and_the_queue_is_deleted(bus: Bus, partitioned: bool) -> None:
    bus.queue()
    options = ["--partitioned"] if partitioned else []
    rows = bus.did("bench", "--time", "0.02", "--size", "10", "-o", "json", *options).json
    assert [row["measurement"] for row in rows] == [
        "send, one by one",
        "send, 50 tasks",
        "send, batches of 100",
        "receive and complete, one by one",
        "receive and complete, 50 tasks",
        "receive and complete, batches of 100",
        "round trip to a waiting receiver",
    ]
    assert all(row["messages_per_second"] > 0 and row["longest"] >= row["p99"] >= row["median"] > 0 for row in rows)
    assert queues(bus) == ["orders"]


def test_it_is_a_table_for_people(bus: Bus) -> None:
    ran = bus.did("bench", "--time", "0.01")
    heading, first, *_ = ran.out.splitlines()
    assert heading.split() == ["MEASUREMENT", "MESSAGES", "PER", "SECOND", "CALLS", "MEDIAN", "P99", "LONGEST"]
    assert re.fullmatch(r"send, one by one( +[\d,.]+){5}", first.rstrip())
    assert "100 bytes" in ran.err
    for option, value in (("--size", "-1"), ("--time", "0")):
        ran = bus.run("bench", option, value)
        assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("reachable", [True, False])
def test_a_server_that_stops_answering_is_told_in_one_line(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, reachable: bool
) -> None:
    """Tasks fail then, and so asyncio raises a group of errors."""
    bus.queue()
    send, sent = ServiceBusSender.send_messages, 0

    async def send_some(sender: ServiceBusSender, *given: Any, **options: Any) -> None:
        nonlocal sent
        sent += 1
        if sent > 100:
            raise ServiceBusConnectionError("The server cannot be reached.")
        await send(sender, *given, **options)

    async def fail(*_: object, **__: object) -> None:
        raise OperationTimeoutError("No answer came.")

    monkeypatch.setattr(ServiceBusSender, "send_messages", send_some)
    with monkeypatch.context() as patch:
        if not reachable:
            patch.setattr(ServiceBusAdministrationClient, "delete_queue", fail)
        ran = bus.run("bench", "--time", "1h")
    assert (ran.code, ran.out) == (5, "")
    *before, last = ran.err.splitlines()
    assert last == "sbredis: The server cannot be reached."
    assert [line.partition(" may be left: ")[2] for line in before] == (
        [] if reachable else ["a client with maintenance deletes it after 5 minutes"]
    )
    assert len(queues(bus)) == (1 if reachable else 2)


@pytest.mark.long("it measures until it is interrupted")
def test_an_interrupted_measurement_deletes_its_queue(bus: Bus) -> None:
    bus.queue()
    with Child("bench", "--time", "1h", "--url", bus.url) as child:
        wait_until(lambda: len(queues(bus)) == 2)
        child.signal(signal.SIGINT)
        assert child.end() == (130, "interrupted: made 0 of 7 measurements\n")
    assert queues(bus) == ["orders"]
