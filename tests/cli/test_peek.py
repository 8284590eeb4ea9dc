"""``sbredis peek`` and ``sbredis message``."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.cli._invocation import Invocation
from sbredis.exceptions import ServiceBusAuthorizationError, ServiceBusConnectionError, ServiceBusError
from tests.aio.diverting import divert
from tests.cli.children import Child
from tests.cli.conftest import Bus


def filled(bus: Bus) -> dict[str, int]:
    """Fill the queue orders with messages of each state. Return their numbers."""
    bus.queue()
    bus.did("send", "orders", "--lines", "-p", "price:=5", "--subject", "tea", stdin=b"deferred\nactive\ndead\n")
    bus.did("send", "orders", "scheduled", "--schedule", "2h", "-p", "price:=50")

    async def work(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("orders") as receiver:
            deferred, active, dead = await receiver.receive_messages(3)
            await receiver.defer_message(deferred)
            await receiver.release_message(active)
            await receiver.dead_letter_message(dead, "Timeout", "it took 7 s")

    bus.client(work)
    found = bus.peek() + bus.peek("orders/$DeadLetterQueue")
    return {each["body"]: each["sequence_number"] for each in found}


def bodies(bus: Bus, *options: str) -> list[str]:
    return [row["body"] for row in bus.did("peek", "orders", "--output", "json", *options).rows]


def test_a_filter_can_use_what_the_broker_has_set(bus: Bus) -> None:
    """The rules of a topic cannot, because it is set after they are evaluated."""
    bus.queue()
    bus.did("send", "orders", "--lines", "--ttl", "1h", stdin=b"1\n2\n3\n")

    async def abandon_one(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("orders") as receiver:
            (message,) = await receiver.receive_messages(1)
            await receiver.abandon_message(message)

    bus.client(abandon_one)
    bus.did("send", "orders", "lasting")
    bus.did("send", "orders", "later", "--schedule", "1h")
    numbers = {each["body"]: each["sequence_number"] for each in bus.peek()}
    assert bodies(bus, "--filter", f"sys.SequenceNumber < {numbers['2']}") == ["1"]
    assert bodies(bus, "--filter", f"sys.EnqueuedSequenceNumber = {numbers['3']}") == ["3"]
    assert bodies(bus, "--filter", "sys.DeliveryCount = 1") == ["1"]
    assert bodies(bus, "--filter", "sys.ExpiresAtUtc IS NULL") == ["lasting", "later"]
    assert bodies(bus, "--filter", "sys.EnqueuedTime IS NULL") == ["later"]
    bus.queue("old")
    bus.did("move", "orders", "old", "--filter", f"sys.SequenceNumber >= {numbers['3']}")
    assert bus.bodies("old") == ["3", "lasting"]


def test_messages_are_shown_by_state_filter_and_number(bus: Bus) -> None:
    numbers = filled(bus)
    assert sorted(bodies(bus)) == ["active", "deferred", "scheduled"]
    for state in ("active", "deferred", "scheduled"):
        assert bodies(bus, "--state", state) == [state]
    assert bodies(bus, "--filter", "price > 10") == ["scheduled"]
    assert bodies(bus, "--filter", "price < 10 AND sys.Label = 'tea'", "--count", "1") == ["deferred"]
    assert bodies(bus, "--from", str(numbers["active"]))[0] == "active"
    assert bodies(bus, "--dead-letters", "--filter", "sys.DeadLetterReason = 'Timeout'") == ["dead"]
    ran = bus.run("peek", "orders", "--filter", "price = 7")
    assert (ran.code, ran.out, ran.err) == (3, "", "no messages\n")


def test_a_table_has_the_columns_that_have_values(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "two\nlines", "--message-id", "m1")
    bus.did("send", "orders", "x" * 100, "--message-id", "m2")
    assert _masked(bus.did("peek", "orders").out) == [
        "NUMBER STATE ENQUEUED DELIVERIES MESSAGE ID BODY",
        "1 active T 0 m1 two\\nlines",
        f"2 active T 0 m2 {'x' * 100}",
    ]
    bus.did("receive", "orders", "--ack", "dead-letter", "--reason", "Bad")
    assert _masked(bus.did("peek", "orders", "--dead-letters").out) == [
        "NUMBER STATE ENQUEUED DELIVERIES MESSAGE ID REASON BODY",
        "1 active T 0 m1 Bad two\\nlines",
    ]


def test_a_table_says_when_scheduled_messages_are_due(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "later", "--schedule", "2030-01-31T12:00Z", "--message-id", "m1")
    shown = bus.did("peek", "orders", "--state", "scheduled").out
    assert shown.splitlines()[0].split()[:3] == ["NUMBER", "STATE", "DUE"]
    assert "scheduled  2030-01-31 12:00:00+00:00  " in shown


def _masked(table: str) -> list[str]:
    """Return the lines of a table with single blanks and without times."""
    table = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00", "T", table)
    return [" ".join(line.split()) for line in table.splitlines()]


def test_a_remark_says_that_there_are_more_messages_than_are_shown(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "x", "--count", "20")
    assert bus.did("peek", "orders").err == ""
    bus.did("send", "orders", "x", "-p", "last:=1")
    ran = bus.did("peek", "orders", "-o", "json")
    assert len(ran.rows) == 20
    assert ran.err == "only the first 20 messages are shown, and there are more: see --count\n"
    assert bus.did("peek", "orders", "--filter", "last IS NULL").err == (
        "only the first 20 messages are shown, and there may be more: see --count\n"
    )
    assert bus.did("peek", "orders", "--filter", "last = 1").err == ""
    assert bus.did("peek", "orders", "--count", "20").err == "", "this number was asked for"
    bus.did("receive", "orders", "--count", "21", "--ack", "dead-letter", "--reason", "Bad")
    assert bus.did("dlq", "list", "orders").err == (
        "only the first 20 messages are shown, and there are more: see --count\n"
    )
    assert "there may be more" in bus.did("dlq", "list", "orders", "--reason", "Bad").err
    assert bus.did("dlq", "list", "orders", "--count", "21").err == ""


def test_new_messages_are_followed(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "--lines", "-p", "a:=1", stdin=b"first\nsecond\n")
    with Child("peek", "orders", "--follow", "--filter", "a = 1", "-o", "json", "--url", bus.url) as child:
        assert child.process.stdout is not None
        shown = [json.loads(child.process.stdout.readline())["body"] for _ in range(2)]
        bus.did("send", "orders", "other")
        bus.did("send", "orders", "third", "-p", "a:=1")
        shown.append(json.loads(child.process.stdout.readline())["body"])
        child.signal(signal.SIGINT)
        assert child.end() == (130, "")
    assert shown == ["first", "second", "third"]
    assert len(bus.bodies()) == 4, "nothing is received"


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (
            ServiceBusConnectionError("It is away."),
            0,
            "It is away. It is tried again; Ctrl-C ends this.\nThe server answers again.\n",
        ),
        (ServiceBusAuthorizationError("It is forbidden."), 1, "sbredis: It is forbidden.\n"),
    ],
    ids=["an outage", "a refusal"],
)
def test_following_goes_on_after_an_outage_and_not_after_a_refusal(
    bus: Bus, monkeypatch: pytest.MonkeyPatch, error: ServiceBusError, code: int, told: str
) -> None:
    bus.queue()
    bus.did("send", "orders", "x", "--count", "2")
    clients, errors = Invocation.client, [error.twin(), error.twin()]

    @asynccontextmanager
    async def failing_twice(call: Invocation) -> AsyncIterator[ServiceBusClient]:
        async with clients(call) as client:
            transport: Any = client._connection.transport
            through = transport.call

            async def fail_at_first(script: Any, *arguments: Any, **options: Any) -> Any:
                if script.name == "peek" and errors:
                    raise errors.pop()
                return await through(script, *arguments, **options)

            divert(transport, fail_at_first)
            yield client

    monkeypatch.setattr(Invocation, "client", failing_twice)
    ran = bus.run("peek", "orders", "--follow", "--count", "2")
    assert (ran.code, ran.err) == (code, told)
    assert len(ran.out.splitlines()) == (2 if code == 0 else 0)


def test_following_ends_after_a_number_of_messages(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "--lines", stdin=b"1\n2\n3\n")
    numbers = [each["sequence_number"] for each in bus.peek()]
    ran = bus.did("peek", "orders", "--follow", "--count", "2", "--from", str(numbers[1]))
    assert ran.out == f"{numbers[1]}  active     2\n{numbers[2]}  active     3\n"


def test_a_wrong_filter_is_shown_with_a_caret(bus: Bus) -> None:
    bus.queue()
    ran = bus.run("peek", "orders", "--filter", "price > > 3")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines()[1:] == ["  price > > 3", "          ^"]
    assert ran.err.startswith("sbredis: line 1, column 9: ")


def test_a_message_is_shown_by_its_number(bus: Bus) -> None:
    numbers = filled(bus)
    for body in ("active", "deferred", "scheduled"):
        (row,) = bus.did("message", "show", "orders", str(numbers[body]), "-o", "json").rows
        assert (row["body"], row["state"]) == (body, body)
    shown = bus.did("message", "show", "orders", str(numbers["dead"]), "--dead-letters").out
    lines = [line.split() for line in shown.splitlines()]
    assert ["dead", "letter", "reason", "Timeout"] in lines
    assert shown.splitlines()[-1].split() == ["body", "dead"]
    assert '"price": 5' in shown
    ran = bus.run("message", "show", "orders", str(numbers["active"]), "3")
    assert (ran.code, ran.out, ran.err) == (1, "", "sbredis: orders has no message 3.\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("message", "show", "orders", "abc"), "'abc' is not a valid whole number."),
        (("message", "show", "orders", "0"), "0 is not in the range x>=1."),
        (("dlq", "redrive", "orders", "--rate", "abc"), "'abc' is not a valid number."),
    ],
)
def test_what_is_no_number_is_told_in_plain_words(bus: Bus, words: tuple[str, ...], said: str) -> None:
    ran = bus.run(*words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_messages_are_deleted_by_their_numbers(bus: Bus) -> None:
    numbers = filled(bus)
    both = [str(numbers["active"]), str(numbers["deferred"])]
    assert bus.did("message", "delete", "orders", *both, "--dry-run").out.count("\n") == 3
    ran = bus.run("message", "delete", "orders", *both)
    assert (ran.code, ran.out) == (2, "")
    assert "Give --yes" in ran.err
    ran = bus.run("message", "delete", "orders", *both, str(numbers["scheduled"]), "--yes")
    assert "Name them separately" in ran.err
    assert bus.run("message", "delete", "orders", *both, "3", "--yes").code == 1
    assert len(bus.peek()) == 3
    ran = bus.did("message", "delete", "orders", *both, "--yes")
    assert ran.out == f"deleted messages {', '.join(both)} from orders\n"
    assert bus.bodies() == ["scheduled"]
    bus.did("message", "delete", "orders", str(numbers["scheduled"]), "--yes")
    bus.did("message", "delete", "orders", "--dead-letters", str(numbers["dead"]), "--yes")
    assert (bus.bodies(), bus.bodies("orders/$DeadLetterQueue")) == ([], [])


def test_the_messages_of_a_protected_entity_are_not_deleted(bus: Bus) -> None:
    bus.queue(protected=True)
    bus.did("send", "orders", "--lines", stdin=b"a\nb\n")
    bus.did("receive", "orders", "--ack", "dead-letter")
    for options, path in ((), "orders"), (("--dead-letters",), "orders/$DeadLetterQueue"):
        (row,) = bus.peek(path)
        number = str(row["sequence_number"])
        assert bus.run("message", "delete", "orders", number, *options, "--dry-run").code == 0
        ran = bus.run("message", "delete", "orders", number, *options, "--yes")
        assert (ran.code, ran.out) == (1, "")
        assert "orders is protected. To delete its messages, first update it with --no-protected." in ran.err
        assert len(bus.peek(path)) == 1


def test_messages_are_dead_lettered_by_their_numbers(bus: Bus) -> None:
    numbers = filled(bus)
    dry = bus.did("message", "dead-letter", "orders", str(numbers["active"]), "--dry-run", "-o", "json")
    assert [row["body"] for row in dry.rows] == ["active"]
    assert len(bus.peek("orders/$DeadLetterQueue")) == 1
    assert bus.run("message", "dead-letter", "orders", str(numbers["active"]), "4711").code == 1
    ran = bus.run("message", "dead-letter", "orders", str(numbers["scheduled"]))
    assert (ran.code, ran.out) == (2, "")
    assert bus.run("message", "dead-letter", "orders/$DeadLetterQueue", str(numbers["dead"])).code == 2
    assert len(bus.peek("orders/$DeadLetterQueue")) == 1
    bus.did("message", "dead-letter", "orders", str(numbers["active"]), "--reason", "Bad", "--description", "so bad")
    letter = bus.peek("orders/$DeadLetterQueue")[-1]
    assert (letter["body"], letter["dead_letter_reason"], letter["dead_letter_error_description"]) == (
        "active", "Bad", "so bad",
    )  # fmt: skip


def test_a_message_of_a_session_is_changed_through_its_session(bus: Bus) -> None:
    bus.queue(requires_session=True)
    for name in ("ann", "bob"):
        bus.did("send", "orders", name, "--session", name)
    numbers = [str(each["sequence_number"]) for each in bus.peek()]
    assert "several sessions" in bus.run("message", "delete", "orders", *numbers, "--yes").err
    bus.did("message", "delete", "orders", numbers[0], "--yes")
    bus.did("message", "dead-letter", "orders", numbers[1])
    assert (bus.bodies(), bus.bodies("orders/$DeadLetterQueue")) == ([], ["bob"])
