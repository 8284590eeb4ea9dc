"""Tests of handlers in processes, and of what crosses to them."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Context, Proceed, Retries, Router, Worker
from sbredis.workers.declaring._handlers import Defaults, plan_of
from sbredis.workers.running._frames import Answer, Asked, SentFrame, read_answer, read_asked, write_answer, write_asked
from sbredis.workers.running._processes import HandlerProcessDied, HandlerProcesses
from tests.children import run_program
from tests.waiting import eventually
from tests.workers import slow_to_start
from tests.workers.looking import empty, worker_of
from tests.workers.process_handlers import (
    LoudGreeting,
    SoldOutError,
    facts_of,
    fake_name,
    get_greeting,
    get_name,
    give,
    greet,
    keep,
    leave_a_thread,
    start_others,
    stay_first,
    tell,
    tell_facts,
    work,
)
from tests.workers.worker_programs import has_ended
from tools.repository import ROOT

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    *(TEXT, st.integers(-(2**63), 2**64), st.booleans(), st.floats(allow_nan=False), st.binary(max_size=8), st.uuids()),
    *(st.datetimes(timezones=st.just(UTC)), st.timedeltas(), st.none()),
)
PROPERTIES = st.none() | st.dictionaries(TEXT, VALUES | st.dictionaries(TEXT, VALUES, max_size=2), max_size=3)

SENT = st.builds(SentFrame, TEXT, st.binary(), st.dictionaries(TEXT, VALUES))


@given(st.binary(), st.none() | TEXT, PROPERTIES, st.dictionaries(TEXT, VALUES))
def test_a_message_crosses_as_it_is(body: bytes, content_type: str | None, properties: Any, facts: Any) -> None:
    asked = Asked(body, content_type, properties, facts)
    assert read_asked(write_asked(asked)) == asked


@given(
    st.none() | st.tuples(TEXT, st.dictionaries(TEXT, VALUES)),
    st.none() | st.tuples(TEXT, TEXT, TEXT, st.booleans()),
    st.lists(SENT),
    st.none() | SENT,
)
def test_an_answer_crosses_as_it_is(outcome: Any, error: Any, sends: list[SentFrame], result: SentFrame | None) -> None:
    answer = Answer(outcome, error, sends, result)
    assert read_answer(write_answer(answer)) == answer


def test_a_value_of_another_type_does_not_cross() -> None:
    with pytest.raises(TypeError, match="x has a value of the type complex"):
        write_asked(Asked(b"", None, {"x": 1j}, {}))


def test_the_types_of_properties_survive() -> None:
    values = {"a": 1.0, "b": True, "c": UUID(int=5), "d": datetime(2026, 1, 1, tzinfo=UTC), "e": timedelta(days=1)}
    read = read_asked(write_asked(Asked(b"", None, values, {}))).properties
    assert read == values
    assert [type(value) for value in (read or {}).values()] == [float, bool, UUID, datetime, timedelta]


@pytest.mark.slow
async def test_a_process_handles_messages_and_its_death_is_a_failed_delivery(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=3)
    errors: list[str] = []
    worker = await worker_of(
        sbredis_bus, "out", retries=Retries(first_delay=0), on_error=lambda _, error: errors.append(str(error))
    )
    worker.queue("orders", execution="process", max_concurrent_calls=1)(work)
    texts = ["plain", "die", "exit", "fail", "reject"]
    async with worker.running():
        for text in texts:
            await worker.send("orders", text, application_properties={"tenant": "t"})
        await eventually(lambda: empty(sbredis_bus))
    done = sorted(json.loads(bytes(message.body)) for message in await sbredis_bus.active("out"))
    assert done == [["die", 2, True, "t"], ["exit", 2, True, "t"], ["plain", 1, True, "t"]]
    letters = {dead.dead_letter_reason: dead.dead_letter_error_description for dead in await dead(sbredis_bus)}
    assert letters == {"LookupError": "no such thing", "Rejected": "by the handler"}
    assert sorted(errors) == [
        "The process of the handler ended with the exit code 7.",
        "The process of the handler ended with the signal SIGKILL.",
        *["no such thing"] * 3,
    ]


@pytest.mark.slow
async def test_a_process_knows_the_errors_after_which_a_message_does_not_come_again(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=3)
    errors: list[str] = []
    retries = Retries(first_delay=0, no_retry=(SoldOutError,))
    worker = Worker(sbredis_bus.url, retries=retries, on_error=lambda _, error: errors.append(str(error)))
    worker.queue("orders", execution="process", max_concurrent_calls=1)(work)
    async with worker.running():
        await worker.send("orders", "sold out")
        await eventually(lambda: dead(sbredis_bus))
    assert errors == ["tea"]


@pytest.mark.slow
async def test_the_process_of_a_call_that_takes_too_long_is_gone_and_the_message_gets_another(
    sbredis_bus: Bus, tmp_path: Path
) -> None:
    file, errors = tmp_path / "process", list[str]()
    worker = await worker_of(
        sbredis_bus,
        "orders",
        "out",
        retries=Retries(first_delay=0),
        on_error=lambda _, error: errors.append(repr(error)),
    )
    worker.queue("orders", execution="process", max_concurrent_calls=1, timeout=0.5)(stay_first)
    async with worker.running():
        await worker.send("orders", str(file))
        await eventually(lambda: has_written(file))
        await eventually(lambda: has_ended(int(file.read_text())))
        await results(sbredis_bus, 1)
    assert errors == ["TimeoutError('The handler ran longer than 0.5 s.')"]


@pytest.mark.slow
async def test_the_process_of_a_call_that_outlasts_the_worker_is_gone(sbredis_bus: Bus, tmp_path: Path) -> None:
    file = tmp_path / "process"
    worker = await worker_of(sbredis_bus, "orders", shutdown_timeout=0)
    worker.queue("orders", execution="process", max_concurrent_calls=1)(stay_first)
    async with worker.running():
        await worker.send("orders", str(file))
        await eventually(lambda: has_written(file))
    await eventually(lambda: has_ended(int(file.read_text())))
    (message,) = await sbredis_bus.active("orders")
    assert (message.delivery_count, message.interrupted) == (0, True)


@pytest.mark.long("it starts processes for a handler")
async def test_idle_processes_are_used_again_and_are_gone_when_their_worker_has_ended(sbredis_bus: Bus) -> None:
    """Each handler has its own."""
    worker = await worker_of(sbredis_bus, "orders", "out")
    for subject in ("a", "b"):
        worker.queue("orders", subject=subject, execution="process", max_concurrent_calls=1)(tell)
    pids: set[int] = set()
    async with worker.running():
        for number, subject in enumerate("ababab"):
            await worker.send("orders", "one", subject=subject)
            pids = {pid for pid, _ in await results(sbredis_bus, number + 1)}
    assert len(pids) == 2
    assert all(map(has_ended, pids))


@pytest.mark.slow
async def test_a_process_that_does_not_end_by_itself_is_killed_when_its_worker_ends(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", "out")
    worker.queue("orders", execution="process", max_concurrent_calls=1)(leave_a_thread)
    async with worker.running():
        await worker.send("orders", b"")
        ((pid, _),) = await results(sbredis_bus, 1)
    assert has_ended(pid)


async def test_a_process_that_the_system_has_no_room_for_is_not_ready_and_raises_nothing() -> None:
    """The consumer that prepares it goes on, and the call of a message fails instead."""
    router = Router()
    router.queue("orders", execution="process")(work)
    (plan,) = plan_of(router._declared, Defaults(entity={}, by_path={}, retries=Retries(), overrides={}))
    processes = HandlerProcesses(plan.handlers[0], 1)
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))  # so no file can be opened
        with pytest.raises(OSError, match="Too many open files"):
            os.close(os.open(os.devnull, os.O_RDONLY))
        await processes.prepare()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert not processes.ready
    await processes.close()


async def test_a_process_that_hangs_in_its_start_is_killed_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The consumer that prepares it goes on, and the call of a message fails with an error that says why."""
    monkeypatch.setenv("STARTING", str(tmp_path))  # nobody lets it go on
    router = Router()
    errors = (slow_to_start.TooLateError,)  # for this, the process imports the module before it does anything else
    router.queue("orders", execution="process", no_retry=errors)(slow_to_start.quick)
    (plan,) = plan_of(router._declared, Defaults(entity={}, by_path={}, retries=Retries(), overrides={}))
    processes = HandlerProcesses(plan.handlers[0], 1, starting=0)
    await processes.prepare()
    assert not processes.ready
    with pytest.raises(HandlerProcessDied, match="was not ready 0 s after its start, and was killed"):
        async with processes._used(None):
            raise AssertionError("it has not started")
    await eventually(lambda: not [one for one in multiprocessing.active_children() if "quick" in one.name])
    await processes.close()


@pytest.mark.slow
async def test_the_start_of_a_process_takes_no_part_of_a_timeout_and_survives_the_signals_of_a_group(
    sbredis_bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STARTING", str(tmp_path))
    worker = await worker_of(sbredis_bus, "orders", "out")
    errors = (slow_to_start.TooLateError,)  # for this, the process imports the module before it does anything else
    worker.queue("orders", execution="process", max_concurrent_calls=1, timeout=2, no_retry=errors)(slow_to_start.quick)
    async with worker.running():
        await worker.send("orders", "tea")
        begun = tmp_path / "begun"
        await eventually(lambda: begun.exists() and begun.read_text())
        began = time.monotonic()
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(int(begun.read_text()), number)
        await eventually(lambda: time.monotonic() > began + 2.5)
        (tmp_path / "go").touch()
        assert await results(sbredis_bus, 1) == [["tea", 1]]


@pytest.mark.long("it starts processes for a handler")
async def test_a_process_that_died_while_it_was_idle_costs_no_attempt(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", "out")
    worker.queue("orders", execution="process", max_concurrent_calls=1)(tell)
    async with worker.running():
        await worker.send("orders", "one")
        ((first, _),) = await results(sbredis_bus, 1)
        os.kill(first, signal.SIGKILL)
        await eventually(lambda: first not in {each.pid for each in multiprocessing.active_children()})
        await worker.send("orders", "two")
        _, (second, attempt) = await results(sbredis_bus, 2)
    assert attempt == 1
    assert second != first


@pytest.mark.long("it starts processes for a handler")
async def test_a_process_that_dies_is_noticed_although_a_fork_of_it_lives(sbredis_bus: Bus, tmp_path: Path) -> None:
    errors: list[str] = []
    worker = await worker_of(
        sbredis_bus,
        "orders",
        "out",
        retries=Retries(first_delay=0),
        on_error=lambda _, error: errors.append(str(error)),
    )
    worker.queue("orders", execution="process", max_concurrent_calls=1)(tell)
    async with worker.running():
        await worker.send("orders", str(tmp_path / "fork"))
        ((_, attempt),) = await results(sbredis_bus, 1)
    os.kill(int((tmp_path / "fork").read_text()), signal.SIGKILL)
    assert (attempt, errors) == (2, ["The process of the handler ended with the exit code 7."])


@pytest.mark.long("it starts processes for a handler")
@pytest.mark.parametrize("of_a_tick", [False, True])
async def test_a_process_is_told_what_the_worker_knows_of_its_message(sbredis_bus: Bus, of_a_tick: bool) -> None:
    """Among that is that the handler before it was interrupted, and the fence of the lock."""
    known: list[list[Any]] = []

    async def noting(context: Context, proceed: Proceed) -> Any:
        known.append(facts_of(context))
        return await proceed()

    worker = await worker_of(sbredis_bus, "orders", "out", middleware=[noting])
    if of_a_tick:
        options: Any = {"every": timedelta(seconds=1), "tz": "Asia/Tokyo", "missed": "all"}
        worker.cron(queue="orders", execution="process", max_concurrent_calls=1, **options)(tell_facts)
    else:
        worker.queue("orders", execution="process", max_concurrent_calls=1)(tell_facts)
        await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage(b""))
        async with sbredis_bus.client.get_queue_receiver("orders") as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            await receiver.release_message(message, interrupted=True)
    async with worker.running():
        told = await results(sbredis_bus, 1)
    assert told[0] == known[0]
    _, attempt, fence, interrupted, tick = told[0]
    assert (attempt, interrupted) == (1, not of_a_tick)
    assert fence is not None
    assert (tick or "").endswith("+09:00") == of_a_tick


async def test_an_outcome_that_cannot_cross_is_a_failure_of_the_handler(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", max_delivery_count=1)
    worker.queue("orders", execution="process", max_concurrent_calls=1)(tell)
    async with worker.running():
        await worker.send("orders", "odd")
        await eventually(lambda: dead(sbredis_bus))
    (letter,) = await dead(sbredis_bus)
    assert letter.dead_letter_reason == "TypeError"
    assert str(letter.dead_letter_error_description).startswith("odd has a value of the type complex, which cannot go")


@pytest.mark.long("it starts a process for a handler")
async def test_a_dependency_in_a_process_learns_that_a_later_argument_cannot_be_made(
    sbredis_bus: Bus, tmp_path: Path
) -> None:
    await sbredis_bus.create_queue("orders")
    record = tmp_path / "record"
    worker = Worker(sbredis_bus.url)
    worker.queue("orders", execution="process", max_concurrent_calls=1)(keep)
    async with worker.running():
        await worker.send("orders", b"\xff", application_properties={"path": str(record)})
        await eventually(lambda: dead(sbredis_bus))
    assert record.read_text() == "UnfitMessage"


@pytest.mark.long("it starts processes for a handler")
@pytest.mark.parametrize("publishes", [False, True])
async def test_a_result_leaves_the_process_only_if_it_is_used(sbredis_bus: Bus, publishes: bool) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=1)
    results: list[Any] = []

    async def seeing(context: Context, proceed: Proceed) -> Any:
        del context
        results.append(await proceed())
        return results[-1]

    worker = await worker_of(sbredis_bus, "out", middleware=[seeing])
    options: Any = {"publishes": "out"} if publishes else {}
    worker.queue("orders", execution="process", max_concurrent_calls=1, **options)(give)
    async with worker.running():
        for text in ("odd", "plain", "outcome", "class", "generator"):
            await worker.send("orders", text)
        await eventually(lambda: empty(sbredis_bus))
    reasons = sorted(str(letter.dead_letter_reason) for letter in await dead(sbredis_bus))
    assert reasons == ["Rejected", "TypeError", "TypeError", *(["UnsupportedTypeError"] if publishes else [])]
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == ([b"plain"] if publishes else [])
    assert len([each for each in results if isinstance(each, ServiceBusMessage)]) == (1 if publishes else 0)


@pytest.mark.long("it starts processes for a handler")
async def test_a_handler_in_a_process_can_start_and_end_processes_of_its_own(sbredis_bus: Bus) -> None:
    worker = await worker_of(sbredis_bus, "orders", "out")
    worker.queue("orders", execution="process", max_concurrent_calls=1)(start_others)
    async with worker.running():
        await worker.send("orders", b"")
        assert await results(sbredis_bus, 1) == [[-signal.SIGTERM] * 3]


@pytest.mark.slow
async def test_overrides_reach_the_process_of_a_handler(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")
    await sbredis_bus.create_queue("out")
    cases: list[tuple[dict[Any, Any], str]] = [
        ({get_name: fake_name}, "hello, a fake"),
        ({get_name: fake_name, get_greeting: LoudGreeting}, "HELLO, a fake"),
    ]
    for replacements, expected in cases:
        worker = Worker(sbredis_bus.url)
        worker.queue("orders", execution="process", max_concurrent_calls=1)(greet)
        for dependency, replacement in replacements.items():
            worker.override(dependency, replacement)
        async with worker.running():
            await worker.send("orders", "tea")
            assert (await results(sbredis_bus, 1))[0] == ["tea", expected]
        await sbredis_bus.purge("out")


LEFT_BEHIND = """
import sys
from sbredis.workers.running._child import Start
from sbredis.workers.running._processes import _Process

process = _Process(Start("tests.workers.process_handlers", "stay", (), tuple(sys.path)))
process.start()
print(process._process.pid)
"""


def test_a_program_ends_although_its_worker_has_left_processes_behind() -> None:
    """The processes ignore the signal with which Python ends them."""
    done = run_program(sys.executable, "-c", LEFT_BEHIND, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert has_ended(int(done.stdout))


def has_written(file: Path) -> bool:
    return file.exists() and bool(file.read_text())


async def results(bus: Bus, count: int) -> list[Any]:
    """Wait until handlers have sent this number of messages, and return their values."""

    async def sent() -> bool:
        return len(await bus.active("out")) >= count

    await eventually(sent)
    return [json.loads(bytes(message.body)) for message in await bus.active("out")]


async def dead(bus: Bus) -> list[ServiceBusReceivedMessage]:
    return await bus.dead_lettered("orders")
