"""``sbredis dlq`` and ``sbredis purge``."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Self

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.cli import _dlq
from sbredis.cli import _purge as purging
from sbredis.cli._invocation import Invocation
from sbredis.cli._progress import ProgressCounter
from tests.cli.children import Child
from tests.cli.conftest import Bus
from tests.engine.opening import open_with_scripts
from tests.offenders import for_each
from tests.waiting import wait_until

DEAD = "orders/$DeadLetterQueue"


def filled(bus: Bus) -> list[int]:
    """Make three dead letters, and return their numbers."""
    bus.queue()
    bus.did("send", "orders", "gone")
    bus.did("receive", "orders")
    bus.did("send", "orders", "--lines", "-p", "a:=1", stdin=b"1\n2\n3\n")
    before = [each["sequence_number"] for each in bus.peek()]
    bus.did("receive", "orders", "--count", "2", "--ack", "dead-letter", "--reason", "Timeout")
    bus.did("receive", "orders", "--ack", "dead-letter", "--reason", "Bad")
    letters = bus.peek(DEAD)
    numbers = [each["sequence_number"] for each in letters]
    assert [each["dead_letter_source_sequence_number"] for each in letters] == before != numbers
    return numbers


def lines(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.splitlines()]


def test_dead_letters_are_listed_and_counted(bus: Bus) -> None:
    filled(bus)
    rows = bus.did("dlq", "list", "orders", "-o", "json").rows
    assert [row["body"] for row in rows] == ["1", "2", "3"]
    assert rows == bus.peek(DEAD)
    assert [row["body"] for row in bus.did("dlq", "list", "orders", "--reason", "Bad", "-o", "json").rows] == ["3"]
    assert bus.run("dlq", "list", "orders", "--filter", "a = 2").code == 3
    assert lines(bus.did("dlq", "report", "orders").out) == ["COUNT FINGERPRINT", "2 Timeout", "1 Bad"]
    assert bus.did("dlq", "report", "orders", "--reason", "Bad", "-o", "json").rows == [
        {"matched": 1, "by_reason": {"Bad": 1}, "by_fingerprint": {"Bad": 1}}
    ]
    assert bus.bodies(DEAD) == ["1", "2", "3"]


def test_dead_letters_are_redriven(bus: Bus) -> None:
    numbers = filled(bus)
    bus.queue("repaired")
    assert bus.did("dlq", "redrive", "orders", "--dry-run").out == "3 messages would be moved to orders\n"
    assert bus.bodies() == []
    bus.did("dlq", "redrive", "orders", str(numbers[0]), "--to", "repaired", "--set", "repaired:=true")
    (repaired,) = bus.peek("repaired")
    assert repaired["application_properties"] == {"a": 1, "repaired": True}
    ran = bus.did("dlq", "redrive", DEAD, "--reason", "Timeout", "--rate", "100", "--budget", "0.5", "-o", "json")
    assert ran.rows == [
        {
            "matched": 1, "moved": 1, "skipped": 0, "entity": DEAD, "to": "orders", "died_again": 0,
            "completed": True,
        }
    ]  # fmt: skip
    assert bus.did("dlq", "redrive", "orders", "--filter", "a = 1").out == "moved 1 message to orders\n"
    assert bus.bodies() == ["2", "3"]


def test_what_only_counts_says_that_it_counts(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(bus)
    counts: list[ProgressCounter] = []

    class Noted(ProgressCounter):
        def __enter__(self) -> Self:
            counts.append(self)
            return super().__enter__()

    monkeypatch.setattr(_dlq, "ProgressCounter", Noted)
    bus.did("dlq", "report", "orders")
    bus.did("dlq", "redrive", "orders", "--dry-run", "--reason", "Timeout")
    bus.did("dlq", "redrive", "orders", "--reason", "Timeout")
    assert [str(each) for each in counts] == ["counted 3 messages", "counted 2 messages", "moved 2 messages"]


REFUSED = {
    "Did you mean 'repaired'?": (1, "orders", "--to", "repair"),
    "is not in the range": (2, "orders", "--budget", "1"),
    "are not in the dead-letter queue": (1, "orders", "4711"),
    "leave out `to`": (2, "orders", "--to", "orders"),
    "\n      ^\n": (2, "orders", "--filter", "a = = 1"),
}


@pytest.fixture
def dead(bus: Bus) -> None:
    """Create a queue with three dead letters, and an empty queue."""
    filled(bus)
    bus.queue("repaired")


@pytest.mark.usefixtures("dead")
@for_each("text", REFUSED)
def test_a_wrong_redrive_is_refused(bus: Bus, text: str) -> None:
    code, *words = REFUSED[text]
    ran = bus.run("dlq", "redrive", *map(str, words))
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
    assert (bus.bodies(), bus.bodies("repaired"), bus.bodies(DEAD)) == ([], [], ["1", "2", "3"])


@pytest.mark.long("it redrives many messages in a process")
def test_an_interrupted_redrive_says_how_far_it_came(bus: Bus) -> None:
    filled(bus)
    with Child("dlq", "redrive", "orders", "--rate", "0.5", "--url", bus.url) as child:
        wait_until(lambda: bus.bodies() == ["1"])
        child.signal(signal.SIGINT)
        assert child.end() == (130, "interrupted: moved 1 message\n")
    assert (bus.bodies(), bus.bodies(DEAD)) == (["1"], ["2", "3"])


def test_messages_are_deleted_after_a_confirmation(bus: Bus) -> None:
    filled(bus)
    bus.did("send", "orders", "--lines", stdin=b"4\n5\n")
    bus.did("send", "orders", "later", "--schedule", "1h")
    for words in (("purge", "orders"), ("dlq", "purge", "orders")):
        ran = bus.run(*words)
        assert (ran.code, ran.out) == (2, "")
        assert "Give --yes" in ran.err
    dry = bus.did("purge", "orders", "--dry-run").out
    assert dry == "2 messages of orders would be deleted, except those that receivers hold\n"
    assert bus.did("purge", "orders", "--older-than", "1h", "--yes").out == "deleted 0 messages of orders\n"
    assert len(bus.peek()) == 3
    assert bus.did("purge", "orders", "--yes").out == "deleted 2 messages of orders\n"
    assert bus.bodies() == ["later"]
    ran = bus.did("dlq", "purge", "orders", "--yes", "--output", "json")
    assert ran.rows == [{"deleted": 3, "entity": DEAD}]
    assert bus.bodies(DEAD) == []


def test_messages_that_are_sent_after_the_start_stay(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge of a queue that is being filled ends."""
    bus.queue()
    bus.did("send", "orders", "old", "--count", "3")

    def send_meanwhile(_: Invocation, question: str, *, typed: str, yes: bool) -> None:
        del question, typed, yes
        sending = threading.Thread(target=bus.client, args=(send_new,))
        sending.start()
        sending.join()

    async def send_new(client: ServiceBusClient) -> None:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage("new"))

    monkeypatch.setattr(Invocation, "confirm", send_meanwhile)
    assert bus.did("purge", "orders").out == "deleted 3 messages of orders\n"
    assert bus.bodies() == ["new"]


def test_ages_are_judged_by_the_clocks_of_the_servers(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    bus.queue()
    bus.did("send", "orders", "x")
    assert bus.did("purge", "orders", "--older-than", "30m", "--yes").out == "deleted 0 messages of orders\n"

    clocks = purging.read_clocks

    async def ahead(url: str) -> list[float]:
        return [offset + 3600 for offset in await clocks(url)]

    monkeypatch.setattr(purging, "read_clocks", ahead)
    assert bus.did("purge", "orders", "--older-than", "30m", "--dry-run").out.startswith("1 message of orders would")
    assert bus.did("purge", "orders", "--older-than", "30m", "--yes").out == "deleted 1 message of orders\n"


def test_messages_whose_records_are_lost_are_shown_and_purged(bus: Bus) -> None:
    """Nobody knows when they were enqueued, so they are purged whatever age is given."""
    filled(bus)

    async def damage() -> None:
        async with await open_with_scripts(bus.url) as transport:
            for key in await transport.command("KEYS", "sb:*:m[0-9]*", key=b"x"):
                for number in (await transport.command("HKEYS", key, key=key))[:1]:
                    await transport.command("HDEL", key, number, key=key)

    asyncio.run(damage())
    missing = [each for each in bus.peek(DEAD) if each["dead_letter_reason"] == "RecordMissing"]
    assert len(missing) >= 1
    assert "RecordMissing" in bus.did("dlq", "list", "orders").out
    assert "RecordMissing" in bus.did("dlq", "report", "orders").out
    dry = bus.did("dlq", "purge", "orders", "--older-than", "1h", "--dry-run").out
    assert dry.startswith(f"{len(missing)} message")
    assert bus.did("dlq", "purge", "orders", "--older-than", "1h", "--yes").out.startswith(
        f"deleted {len(missing)} message"
    )


def test_an_age_before_the_calendar_is_refused(bus: Bus) -> None:
    bus.queue()
    for words in (("purge", "orders"), ("dlq", "purge", "orders")):
        ran = bus.run(*words, "--older-than", "1000000d", "--yes")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith("sbredis: --older-than is too long: it begins before the year 1.")
    assert bus.did("purge", "orders", "--older-than", "200000d", "--yes").out == "deleted 0 messages of orders\n"


def test_in_a_protected_context_the_name_is_typed(bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBREDIS_CONTEXTS", str(tmp_path / "contexts.json"))
    bus.queue()
    bus.did("send", "orders", "x")
    assert bus.run_plain("context", "add", "prod", bus.url, "--protected").code == 0
    purge = ("purge", "orders", "--context", "prod", "--yes")
    refused = bus.run_plain(*purge)
    assert (refused.code, "run this on a terminal" in refused.err) == (2, True)
    assert bus.typed("order\n", *purge).code == 1
    assert bus.bodies() == ["x"]
    assert bus.typed("orders\n", *purge).out == "deleted 1 message of orders\n"


def test_the_messages_of_a_protected_entity_are_not_deleted(bus: Bus) -> None:
    bus.queue(protected=True)
    bus.did("send", "orders", "x")
    ran = bus.run("purge", "orders", "--yes")
    assert (ran.code, ran.out) == (1, "")
    assert "is protected" in ran.err
    assert bus.bodies() == ["x"]


def test_only_the_messages_of_a_session_are_deleted(bus: Bus) -> None:
    bus.queue(requires_session=True)
    for name in ("ann", "bob"):
        bus.did("send", "orders", name, "--session", name)
    bus.did("purge", "orders", "--session", "ann", "--yes")
    assert bus.bodies() == ["bob"]
