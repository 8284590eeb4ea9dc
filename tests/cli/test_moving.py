"""``sbredis move``, ``dump`` and ``load``: messages go from one entity to another, none lost and none twice."""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from sbredis.aio import EntityInfo, ServiceBusClient
from sbredis.cli import _move
from sbredis.cli._invocation import Invocation
from sbredis.model import AmqpAnnotatedMessage, PartitionRuntimeProperties, ServiceBusMessage
from tests.children import run_program
from tests.cli.children import Child
from tests.cli.conftest import Bus
from tests.maintenance.test_forwarding import Mortal
from tests.offenders import for_each
from tests.waiting import wait_until


def filled(bus: Bus, count: int, *options: str) -> None:
    bus.did("send", "orders", "--lines", *options, stdin=b"".join(b"%d\n" % number for number in range(1, count + 1)))


def numbers(count: int, first: int = 1) -> list[str]:
    return [str(number) for number in range(first, first + count)]


@pytest.mark.parametrize("count", [1, 3])
def test_messages_of_few_partitions_are_moved(bus: Bus, count: int) -> None:
    """The numbers of a single partition of a partitioned entity have the number of the partition, too."""
    bus.queue(enable_partitioning=True, partition_count=count)
    bus.queue("old")
    filled(bus, 20)
    assert bus.did("move", "orders", "old", "--dry-run").out == "20 messages would be moved from orders to old\n"
    assert bus.did("move", "orders", "old").out == "moved 20 messages from orders to old\n"
    assert bus.peek() == []
    assert sorted(each["body"] for each in bus.peek("old")) == sorted(numbers(20))


# -- move --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioned", [False, True])
def test_messages_are_moved_with_their_contents(bus: Bus, partitioned: bool) -> None:
    """The destination is in other partitions, so the messages go there as transfers."""
    bus.queue(enable_partitioning=partitioned)
    bus.queue("old", enable_partitioning=partitioned)
    filled(bus, 120, "--ttl", "1h", "--subject", "tea", "-p", "n:=3")
    before = {each["body"]: each for each in bus.peek()}
    assert bus.did("move", "orders", "old", "--dry-run").out == "120 messages would be moved from orders to old\n"
    assert len(bus.peek()) == 120
    assert bus.did("move", "orders", "old").out == "moved 120 messages from orders to old\n"
    assert bus.peek() == []
    after = bus.peek("old")
    assert sorted(each["body"] for each in after) == sorted(before)
    if not partitioned:
        assert [each["body"] for each in after] == numbers(120)
    for each in after:
        old = before[each["body"]]
        assert [each[name] for name in ("message_id", "subject", "application_properties", "delivery_count")] == [
            old["message_id"], "tea", {"n": 3}, 0,
        ]  # fmt: skip
        ends = [datetime.fromisoformat(one["expires_at_utc"]) for one in (each, old)]
        assert abs(ends[0] - ends[1]) < timedelta(seconds=30)


def test_messages_keep_their_keys_in_a_partitioned_destination(bus: Bus) -> None:
    bus.queue()
    bus.queue("old", enable_partitioning=True)
    for key in ("k", "l"):
        filled(bus, 3, "--partition-key", key)
    bus.did("move", "orders", "old")
    found = [(each["partition_key"], each["body"]) for each in bus.peek("old")]
    assert [body for key, body in found if key == "k"] == [body for key, body in found if key == "l"] == numbers(3)


def test_only_matching_messages_are_moved_and_scheduled_and_held_ones_stay(bus: Bus) -> None:
    bus.queue()
    bus.queue("old", colocate_with="orders")
    filled(bus, 4, "-p", "a:=1")
    bus.did("send", "orders", "other", "-p", "a:=2")
    bus.did("send", "orders", "later", "-p", "a:=1", "--schedule", "1h")

    async def hold(client: ServiceBusClient) -> None:
        async with client.get_queue_receiver("orders") as receiver:
            held, deferred = await receiver.receive_messages(2)
            assert str(held) == "1"  # its lock goes on when the receiver is closed
            await receiver.defer_message(deferred)

    bus.client(hold)
    ran = bus.did("move", "orders", "old", "--filter", "a = 1", "--output", "json")
    assert ran.rows == [{"moved": 3, "stay": 2, "waiting": 0, "refused": 0}]
    assert bus.bodies("old") == ["2", "3", "4"]
    assert bus.bodies() == ["1", "other", "later"]


def test_messages_of_sessions_are_moved_in_their_order(bus: Bus) -> None:
    bus.queue(requires_session=True)
    bus.queue("old", requires_session=True)
    for name in ("ann", ""):  # the id of a session may be empty
        filled(bus, 3, "--session", name)
    assert bus.did("move", "orders", "old", "--count", "5").out.startswith("moved 5 messages")
    found = [(each["session_id"], each["body"]) for each in bus.peek("old")]
    assert sorted(found) == [("", "1"), ("", "2"), ("ann", "1"), ("ann", "2"), ("ann", "3")]
    assert [(each["session_id"], each["body"]) for each in bus.peek()] == [("", "3")]


def put_clock(patch: pytest.MonkeyPatch, ahead: timedelta) -> None:
    """Let the clock of this machine be ahead of that of the server, for all who could look at it."""
    real = time.time

    patch.setattr(time, "time", lambda: real() + ahead.total_seconds())


def test_the_end_of_the_life_is_kept_if_the_clock_of_this_machine_is_wrong(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If it is ahead, messages would seem to have expired, and if it is behind, they would live for longer."""
    bus.queue()
    bus.queue("old", colocate_with="orders")
    for ahead in (timedelta(days=1), timedelta(days=-1)):
        filled(bus, 2, "--ttl", "1h")
        before = bus.peek()
        with monkeypatch.context() as patch:
            put_clock(patch, ahead)
            assert bus.did("move", "orders", "old").out == "moved 2 messages from orders to old\n"
        after = bus.did("receive", "old", "--count", "2", "--output", "json").rows
        ends = [[datetime.fromisoformat(each["expires_at_utc"]) for each in some] for some in (before, after)]
        assert all(abs(old - new) < timedelta(seconds=30) for old, new in zip(*ends, strict=True))


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_a_move_does_no_maintenance(bus: Bus, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintenance moves forwarded messages, publishes scheduled ones, and deletes entities that were idle for long."""
    bus.queue()
    bus.queue("old")
    filled(bus, 2)
    asked = list[bool]()
    maintain = ServiceBusClient.maintain

    def noted(client: ServiceBusClient) -> AbstractAsyncContextManager[None]:
        asked.append(True)
        return maintain(client)

    monkeypatch.setattr(ServiceBusClient, "maintain", noted)
    bus.did("move", "orders", "old", *options)
    assert asked == []
    assert len(bus.bodies("old")) == (0 if options else 2)


def test_many_large_messages_are_moved(bus: Bus) -> None:
    """Their properties count too: together they have more than one call takes."""
    bus.queue()
    bus.queue("old", colocate_with="orders")
    properties = {f"p{number}": "y" * 1000 for number in range(60)}
    line = json.dumps({"body": "x" * 60_000, "application_properties": properties}).encode() + b"\n"
    bus.did("send", "orders", "--json-lines", stdin=line * 50)
    assert bus.did("move", "orders", "old").out == "moved 50 messages from orders to old\n"
    assert [len(each["body"]) for each in bus.peek("old")] == [60_000] * 50


def test_a_message_that_is_too_large_for_the_destination_stays(bus: Bus) -> None:
    bus.queue(max_message_size_in_kilobytes=8 * 1024)
    bus.queue("old", colocate_with="orders")
    for size in (1, 2_000_000, 2, 5_000_000, 3):
        bus.did("send", "orders", stdin=b"x" * size)
    ran = bus.run("move", "orders", "old")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == (
        "moved 3 messages from orders to old; 2 stay, because they are scheduled, held, gone, or too large\n"
    )
    assert [len(each["body"]) for each in bus.peek("old")] == [1, 2, 3]
    assert [(len(each["body"]), each["delivery_count"]) for each in bus.peek()] == [(2_000_000, 0), (5_000_000, 0)]


def test_dead_letters_are_moved_by_a_redrive(bus: Bus) -> None:
    bus.queue()
    bus.queue("old")
    filled(bus, 3)
    bus.did("receive", "orders", "--count", "2", "--ack", "dead-letter", "--reason", "Bad")
    assert bus.did("move", "orders/$DeadLetterQueue", "old").out == "moved 2 messages to old\n"
    assert (bus.bodies("orders/$DeadLetterQueue"), bus.bodies("old"), bus.bodies()) == ([], ["1", "2"], ["3"])


@pytest.mark.parametrize("partitioned", [False, True])
def test_messages_that_come_after_the_start_of_a_move_stay(
    bus: Bus, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus.queue(enable_partitioning=partitioned)
    bus.queue("old", enable_partitioning=partitioned)
    filled(bus, 40)
    count = _move._partitions

    async def count_and_send(call: Invocation, origin: EntityInfo) -> list[PartitionRuntimeProperties]:
        counted = await count(call, origin)
        if not _move._transfers(counted):
            async with call.client() as client, client.get_sender("orders") as sender:
                await sender.send_messages([ServiceBusMessage("late") for _ in range(40)])
        return counted

    monkeypatch.setattr(_move, "_partitions", count_and_send)
    bus.did("move", "orders", "old")
    assert sorted(bus.bodies("old")) == sorted(numbers(40))
    assert {*bus.bodies()} == {"late"}


def test_messages_that_the_destination_refuses_do_not_count_as_moved(bus: Bus) -> None:
    bus.queue()
    bus.queue("old", status="SendDisabled")
    filled(bus, 3)
    ran = bus.run("move", "orders", "old")
    queue = "orders/$Transfer/$DeadLetterQueue"
    assert ran == (
        3,
        "moved 0 messages from orders to old\n",
        f"old did not take 3 messages: see sbredis peek '{queue}'.\n",
    )
    assert bus.bodies(queue) == numbers(3)
    assert (bus.bodies(), bus.bodies("old")) == ([], [])


MOVES_REFUSED = {
    "cannot be the destination": (2, "orders", "ORDERS"),
    "to a dead-letter queue": (2, "orders", "old/$DeadLetterQueue"),
    "is a topic": (2, "news", "old"),
    "--count is not for": (2, "orders/$DeadLetterQueue", "old", "--count", "1"),
    "Did you mean 'old'?": (1, "orders", "olds"),
    "\n      ^\n": (2, "orders", "old", "--filter", "a = = 1"),
}


@pytest.fixture
def one(bus: Bus) -> None:
    """Create a queue with one message, an empty queue, and a topic."""
    bus.queue()
    bus.queue("old")
    bus.administration(lambda administration: administration.create_topic("news"))
    filled(bus, 1)


@pytest.mark.usefixtures("one")
@for_each("text", MOVES_REFUSED)
def test_a_move_that_makes_no_sense_is_refused(bus: Bus, text: str) -> None:
    code, *words = MOVES_REFUSED[text]
    ran = bus.run("move", *map(str, words))
    assert (ran.code, ran.out) == (code, "")
    assert text in ran.err
    assert (bus.bodies(), bus.bodies("old")) == (["1"], [])


@pytest.mark.long("it moves many messages in a process")
@pytest.mark.parametrize("colocated", [True, False])
def test_an_interrupted_move_has_moved_each_message_once_or_not(bus: Bus, colocated: bool) -> None:
    """If the destination is in another partition, the messages have arrived there when the command ends."""
    bus.queue()
    bus.queue("old", **({"colocate_with": "orders"} if colocated else {}))
    filled(bus, 3000)
    with Child("move", "orders", "old", "--url", bus.url) as child:
        wait_until(lambda: bus.bodies("old"))
        child.signal(signal.SIGINT)
        code, shown = child.end()
    moved, left = bus.did("dump", "old").rows, bus.did("dump", "orders").rows
    said = re.fullmatch(r"interrupted: moved ([\d,]+) messages\n(?:([\d,]+) of them (?:is|are) still .*\n)?", shown)
    waiting = int(said[2].replace(",", "")) if said and said[2] else 0  # the servers were slow
    assert len(moved) + len(left) + waiting == 3000
    assert {each["delivery_count"] for each in left} <= {0}
    if waiting == 0:
        assert sorted(each["body"] for each in moved + left) == sorted(numbers(3000))
    if left:  # otherwise it was faster than the signal
        assert code == 130
        assert said is not None
        assert int(said[1].replace(",", "")) == len(moved) + waiting


def test_a_move_that_fails_says_which_messages_are_still_on_their_way(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client loses the connection before the destination has taken the messages."""
    bus.queue()
    bus.queue("old")
    filled(bus, 3)
    clients = Invocation.client

    @asynccontextmanager
    async def mortal(call: Invocation) -> AsyncIterator[ServiceBusClient]:
        async with clients(call) as client:
            Mortal(client, 1, frozenset({"take"}), runs=False)
            yield client

    with monkeypatch.context() as patch:
        patch.setattr(Invocation, "client", mortal)
        ran = bus.run("move", "orders", "old")
    assert (ran.code, ran.out) == (5, "")
    remark = "3 of them are still on the way to another partition, in orders: 'sbredis maintain' moves them.\n"
    assert ran.err.startswith(remark), ran.err
    assert bus.bodies("old") == []

    async def maintain(client: ServiceBusClient) -> None:
        async with client.maintain(), client.get_queue_receiver("old") as receiver:
            await receiver.receive_messages(1, 60)

    bus.client(maintain)
    assert bus.bodies("old") == numbers(3)


# -- dump and load -----------------------------------------------------------------------------------------------------


def test_a_loaded_dump_has_the_same_messages(bus: Bus, tmp_path: Path) -> None:
    bus.queue()
    bus.queue("copy")

    async def send(client: ServiceBusClient) -> None:
        async with client.get_queue_sender("orders") as sender:
            await sender.send_messages(
                [
                    ServiceBusMessage(
                        b"\xff",
                        message_id=UUID(int=7),
                        application_properties={"at": datetime(2030, 1, 1, tzinfo=UTC), "b": b"\0", "n": 1 << 63},
                        time_to_live=timedelta(hours=1),
                        partition_key="k",
                        correlation_id="c",
                    ),
                    ServiceBusMessage("text", scheduled_enqueue_time_utc=datetime(2040, 1, 1, tzinfo=UTC)),
                ]
            )
            value = AmqpAnnotatedMessage(value_body={"a": [1, None]}, annotations={"x": 2}, header={"priority": 3})
            await sender.send_messages(value)

    bus.client(send)
    path = tmp_path / "orders.jsonl"
    ran = bus.did("dump", "orders", "--file", str(path))
    assert ran.out == f"wrote 3 messages to {path}\n"
    assert path.read_text("utf-8") == bus.did("dump", "orders").out
    assert [each.name for each in tmp_path.iterdir()] == ["orders.jsonl"]
    assert bus.did("load", "copy", "--file", str(path), "--dry-run").out == "3 messages would be sent to copy\n"
    assert bus.peek("copy") == []
    assert bus.did("load", "copy", "--file", str(path)).out == "sent 3 messages to copy\n"
    told = {"sequence_number", "enqueued_sequence_number", "enqueued_time_utc", "expires_at_utc"}

    def contents(name: str) -> list[dict[str, object]]:
        rows = [{field: value for field, value in each.items() if field not in told} for each in bus.peek(name)]
        return sorted(rows, key=lambda row: str(row["message_id"]))

    assert contents("copy") == contents("orders")


@pytest.mark.parametrize("partitioned", [False, True])
def test_a_load_that_is_repeated_stores_each_line_once(bus: Bus, tmp_path: Path, partitioned: bool) -> None:
    bus.queue(enable_partitioning=partitioned)
    lines = b"".join(b'{"body": "%d"}\n' % number for number in range(1, 31))
    path = tmp_path / "lines"
    path.write_bytes(lines)
    assert bus.did("load", "orders", "--file", str(path), "-o", "json").rows[0]["sent"] == 30
    ran = bus.did("load", "orders", stdin=lines)
    assert ran.out == "sent 0 messages to orders; 30 were stored by an earlier run\n"
    assert sorted(bus.bodies(), key=int) == numbers(30)
    assert bus.did("load", "orders", "--id", "again", stdin=lines).out == "sent 30 messages to orders\n"
    assert len(bus.bodies()) == 60


def test_lines_are_checked_before_the_first_is_sent(bus: Bus) -> None:
    bus.queue()
    bus.queue("chats", requires_session=True)
    good = b'{"body": "x"}\n'
    for name, line, problem in [
        ("orders", b"[]\n", "stdin, line 2: a message is a JSON object"),
        ("orders", b'{"subject": "x"}\n', "line 2: the message has no 'body'"),
        ("chats", b"", "line 1: it has no session_id, and chats has sessions"),
    ]:
        ran = bus.run("load", name, stdin=good + line)
        assert (ran.code, ran.out) == (2, "")
        assert problem in ran.err
        assert bus.peek(name) == []
    assert bus.run("load", "orders/$DeadLetterQueue", stdin=good).code == 2
    assert bus.run("load", "orders", "--id", "a b", stdin=good).code == 2
    assert "Did you mean 'orders'?" in bus.run("load", "order", stdin=good).err
    assert bus.run("dump", "order").code == 1


def test_a_dump_chooses_messages(bus: Bus) -> None:
    bus.queue()
    filled(bus, 2, "-p", "a:=1")
    bus.did("send", "orders", "later", "--schedule", "1h")
    bus.did("receive", "orders", "--ack", "dead-letter")
    assert [row["body"] for row in bus.did("dump", "orders", "--state", "scheduled").rows] == ["later"]
    assert [row["body"] for row in bus.did("dump", "orders", "--filter", "a = 1").rows] == ["2"]
    assert [row["body"] for row in bus.did("dump", "orders", "--dead-letters").rows] == ["1"]


def test_a_dump_whose_reader_has_gone_ends_without_a_word(bus: Bus) -> None:
    bus.queue()
    bus.did("send", "orders", "x" * 1000, "--count", "500")
    line = f"{shlex.quote(sys.executable)} -m sbredis.cli dump orders --url {shlex.quote(bus.url)} | head -1 | wc -l"
    ran = run_program("/bin/bash", "-c", f"{line}; exit ${{PIPESTATUS[0]}}")
    assert (ran.returncode, ran.stdout.strip(), ran.stderr) == (141, "1", "")


@pytest.mark.long("it starts a process and interrupts it")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_dump_whose_reader_takes_nothing_can_be_interrupted(bus: Bus, number: signal.Signals) -> None:
    bus.queue()
    bus.did("send", "orders", "x" * 1000, "--count", "500")
    read, write = os.pipe()
    with Child("dump", "orders", "--url", bus.url, stdout=write) as child:
        wait_until(lambda: not select.select([], [write], [], 0)[1], what="the pipe is full")
        child.signal(number)
        code, shown = child.end()
    assert code == 128 + number
    assert re.fullmatch(r"interrupted: written \d\d messages\n", shown)
    os.close(read)
    os.close(write)
