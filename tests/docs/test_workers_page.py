"""Tests that the handlers of the guide to workers do what its pages say, and that its tables are complete."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, get_type_hints

import pytest

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Context, SyncContext, Worker
from sbredis.workers.declaring._options import EntityOptions, HandlerOptions
from sbredis.workers.declaring._worker_options import WorkerSettings
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.supervising._commands import read_command
from tests.waiting import eventually
from tools.repository import ROOT
from tools.run_page import python_blocks

DOCS = ROOT / "docs"
PAGES = {path: path.read_text("utf-8") for path in [DOCS / "workers.md", *sorted((DOCS / "workers").glob("*.md"))]}


@pytest.fixture
def guide() -> dict[str, Any]:
    """The names that the pages define. The first program is not run, because it runs only as a program.

    Each page has a worker of its own, so ``declared`` has the handlers of all of them.
    """
    names: dict[str, Any] = {"__name__": "guide"}
    declared: list[Any] = []
    for path, text in PAGES.items():
        for block in python_blocks(text):
            exec(compile(block.code, str(path), "exec", dont_inherit=True), names)  # noqa: S102 -- our own documents
        declared += names["worker"]._declared
    names["declared"] = declared
    return names


def part(guide: dict[str, Any], bus: Bus, *paths: str, **options: Any) -> Worker:
    """Return a worker with the guide's handlers of these entities only."""
    worker = Worker(bus.url, **options)
    worker._declared = [each for each in guide["declared"] if each.source.path in paths]
    assert {each.source.path for each in worker._declared} == set(paths)
    return worker


async def bodies(bus: Bus, *queues: str) -> list[list[str]]:
    return [[str(message) for message in await bus.sent(queue)] for queue in queues]


async def done(bus: Bus, *queues: str) -> None:
    """Wait until these queues, or subscriptions as "topic/subscription", have no message to handle."""

    async def empty() -> bool:
        return not any([await bus.active(*queue.split("/")) for queue in queues])

    await eventually(empty)


async def dead(bus: Bus, queue: str) -> list[tuple[str, str | None]]:
    return [(str(message), message.dead_letter_reason) for message in await bus.dead_lettered(queue)]


async def send(worker: Worker, queue: str, values: Sequence[Any], **options: Any) -> None:
    for value in values:
        await worker.send(queue, value, **options)


@pytest.mark.slow
async def test_the_first_worker_works(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = part(guide, sbredis_bus, "cakes")
    async with worker.running():
        await worker.send("cakes", guide["Cake"]("cherry", 2))
        await worker.send("cakes", {"kind": "cherry", "layers": "two"})
        await done(sbredis_bus, "cakes")
    assert capsys.readouterr().out == "attempt 1: a cherry cake with 2 layers\n"
    (letter,) = await sbredis_bus.dead_lettered("cakes")
    assert letter.dead_letter_reason == "MessageBody"
    assert "$.layers" in str(letter.dead_letter_error_description)
    assert "two" not in str(letter.dead_letter_error_description)


async def test_parameters_get_their_values(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    await sbredis_bus.create_queue("deliveries")
    worker = part(guide, sbredis_bus, "deliveries")
    async with worker.running():
        await worker.send("deliveries", "1 Mill Lane", message_id="m", application_properties={"tenant": "ann"})
        await worker.send("deliveries", "2 Mill Lane", message_id="n")
        await done(sbredis_bus, "deliveries")
    assert capsys.readouterr().out == "ann: 1 Mill Lane, floor 0, m, from deliveries\n"
    assert await dead(sbredis_bus, "deliveries") == [("2 Mill Lane", "MessageProperty")]


async def test_a_dependency_lives_as_long_as_its_scope_and_can_be_exchanged(
    guide: dict[str, Any], sbredis_bus: Bus
) -> None:
    await sbredis_bus.create_queue("sales")
    worker = part(guide, sbredis_bus, "sales")
    till: list[str] = []
    worker.override(guide["get_till"], lambda: till)
    async with worker.running():
        await send(worker, "sales", ["cup", "cup"])
        await done(sbredis_bus, "sales")
    assert till == ["cup", "cup"]
    made = guide["get_till"]()
    assert [await anext(made), await anext(made, None)] == [["closed"], None]


async def test_messages_go_to_the_handler_that_takes_them(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    await sbredis_bus.create_queue("counter")
    worker = part(guide, sbredis_bus, "counter")
    async with worker.running():
        await worker.send("counter", "a", subject="order.placed", application_properties={"urgent": True})
        await worker.send("counter", "b", subject="order.placed")
        await worker.send("counter", "c", subject="order.lost")
        await done(sbredis_bus, "counter")
    assert sorted(capsys.readouterr().out.splitlines()) == ["placed: b", "urgent: a"]
    assert await dead(sbredis_bus, "counter") == [("c", "Unknown")]


async def test_the_handlers_of_a_router_are_included(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    await sbredis_bus.create_topic("news")
    await sbredis_bus.create_subscription("news", "all")
    worker = part(guide, sbredis_bus, "news/subscriptions/all")
    async with worker.running():
        await worker.send("news", "rain")
        await done(sbredis_bus, "news/all")
    assert capsys.readouterr().out == "read: rain\n"


async def test_outcomes_and_failures_settle_messages(guide: dict[str, Any], sbredis_bus: Bus) -> None:
    for queue in "letters", "charges":
        await sbredis_bus.create_queue(queue)
    worker = part(guide, sbredis_bus, "letters", "charges")
    async with worker.running():
        await send(worker, "letters", ["here", "nowhere", "on holiday"])
        await send(worker, "charges", [1.5, -1.0])
        await done(sbredis_bus, "charges")
        await eventually(lambda: _delayed(sbredis_bus, "letters"))
    assert await dead(sbredis_bus, "letters") == [("nowhere", "NoSuchPlace")]
    assert await dead(sbredis_bus, "charges") == [("-1.0", "ValueError")]


async def _delayed(bus: Bus, queue: str) -> bool:
    counts = await bus.counts(queue)
    return (counts.active_message_count, counts.dead_letter_message_count) == (1, 1) and not await bus.locked(queue)


@pytest.mark.slow
async def test_sends_go_out_with_the_completion(guide: dict[str, Any], sbredis_bus: Bus) -> None:
    for queue in "carts", "invoices", "parcels", "numbers", "squares", "reports", "printer", "orders-to-bill", "bills":
        await sbredis_bus.create_queue(queue)
    queues = "carts", "numbers", "reports", "orders-to-bill"
    worker = part(guide, sbredis_bus, *queues)
    async with worker.running():
        await worker.send("carts", "c-1")
        await worker.send("numbers", 12)
        await worker.send("reports", [1, 2, 3])
        await send(worker, "orders-to-bill", ["o-1", "o-1"], message_id="o-1")
        await done(sbredis_bus, *queues)
    found = await bodies(sbredis_bus, "invoices", "parcels", "squares", "printer")
    assert found == [['{"cart":"c-1"}'], ["c-1"], ["144"], ["the sum is 6"]]
    assert [str(each) for each in await sbredis_bus.active("bills")] == ["bill for o-1"]


@pytest.mark.slow
async def test_sessions_keep_their_state(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    await sbredis_bus.create_queue("accounts", requires_session=True)
    worker = part(guide, sbredis_bus, "accounts")
    async with worker.running():
        await send(worker, "accounts", [100, -30], session_id="ann")
        await done(sbredis_bus, "accounts")
    assert capsys.readouterr().out.splitlines() == ["ann has 100", "ann has 70"]


async def test_a_batch_has_an_outcome_for_each_message(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    await sbredis_bus.create_queue("readings")
    async with sbredis_bus.client.get_queue_sender("readings") as sender:
        await sender.send_messages([ServiceBusMessage(text) for text in ("21.5", "-300.0", "warm", "19")])
    worker = part(guide, sbredis_bus, "readings")
    async with worker.running():
        await done(sbredis_bus, "readings")
    assert capsys.readouterr().out == "inserted 2\n"
    assert sorted(await dead(sbredis_bus, "readings")) == [("-300.0", "TooCold"), ("warm", "MessageBody")]


@pytest.mark.slow
@pytest.mark.slow
async def test_schedules_run_at_their_times(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    worker = part(guide, sbredis_bus, "nightly_report", "upkeep")
    noon = (sbredis_bus.clock.now + timedelta(days=1)).replace(hour=12, minute=1, second=0)
    sbredis_bus.clock.move_to(noon)
    async with sbredis_bus.running(worker) as run:
        await run.idle()
        next_night = (noon + timedelta(days=1)).replace(hour=3, minute=30)
        sbredis_bus.clock.move_to(next_night)
        await run.idle()
    printed = capsys.readouterr().out.splitlines()
    assert f"report of {next_night.date()}" in printed
    assert printed.count("cleaned up") == 1


async def test_a_request_gets_its_reply(guide: dict[str, Any], sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("prices")
    async with part(guide, sbredis_bus, "prices").running():
        assert await guide["ask"](sbredis_bus.client) == 9.0


async def test_middleware_surrounds_handlers(
    guide: dict[str, Any], sbredis_bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    for queue in "songs", "transfers":
        await sbredis_bus.create_queue(queue)
    worker = part(guide, sbredis_bus, "songs", "transfers", lifespan=guide["lifespan"])
    async with worker.running():
        await worker.send("songs", "Home")
        await done(sbredis_bus, "songs")
        await worker.send("transfers", 2.5)
        await done(sbredis_bus, "transfers")
    assert capsys.readouterr().out.splitlines() == [
        "opened",
        "sang Home",
        "songs took a while: False",
        "transferred 2.5",
        "closed",
    ]


async def test_a_web_application_runs_the_worker(guide: dict[str, Any], sbredis_bus: Bus) -> None:
    guide["worker"] = part(guide, sbredis_bus, "cakes")
    async with guide["app_lifespan"](None):
        assert "running" in repr(guide["worker"])


async def test_the_handler_of_a_process_sends_its_result(guide: dict[str, Any]) -> None:
    """Here it is only called: a page cannot be imported by a process."""
    sent: list[Any] = []
    context: Any = type("Sending", (), {"send": lambda _, *given: sent.append(given)})()
    for number in (7, 9):
        guide["is_prime"](number, context)
    assert sent == [("primes", {"number": 7, "prime": True}), ("primes", {"number": 9, "prime": False})]


# -- the tables --------------------------------------------------------------------------------------------------------


def names_in(header: str) -> set[str]:
    """Return the names in the first column of the table with this header."""
    lines = "\n".join(PAGES.values()).split(header, 1)[1].splitlines()[2:]
    rows = lines[: next(place for place, line in enumerate(lines) if not line.startswith("|"))]
    return {name for row in rows for name in re.findall(r"`(?:await )?([-\w/]+)", row.split("|")[1])}


def test_the_page_names_every_option_of_a_worker() -> None:
    assert names_in("| option of `Worker` |") == {each.name for each in fields(WorkerSettings)}


def test_the_page_names_every_option_of_an_entity_and_of_a_handler() -> None:
    of_entities = set(get_type_hints(EntityOptions))
    assert names_in("| option of an entity |") == of_entities
    assert names_in("| option of a handler |") == set(HandlerOptions.__annotations__) - of_entities


def test_the_page_names_everything_that_a_context_has() -> None:
    public = {name for name in dir(Context) if not name.startswith("_")}
    assert names_in("| `context` has |") == public
    assert {name for name in dir(SyncContext) if not name.startswith("_")} == public


def test_the_page_names_every_option_of_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        read_command(["--help"])
    options = set(re.findall(r"^  (--[-\w]+)", capsys.readouterr().out, re.MULTILINE))
    named = names_in("| `python -m sbredis.workers MODULE:WORKER` |")
    assert {name for name in named if name.startswith("--")} == options


def test_the_page_names_every_metric() -> None:
    made = set(re.findall(r"^# TYPE (\w+)", prometheus("default", {}), re.MULTILINE))
    assert names_in("| metric |") == made
