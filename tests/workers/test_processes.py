"""Tests of handlers in processes, and of what crosses to them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import Retries, Worker
from sbredis.workers.running._frames import Answer, Asked, Sent, read_answer, read_asked, write_answer, write_asked
from tests.waiting import eventually
from tests.workers.process_handlers import work

pytestmark = pytest.mark.anyio

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
VALUES = st.one_of(
    *(TEXT, st.integers(-(2**63), 2**64), st.booleans(), st.floats(allow_nan=False), st.binary(max_size=8), st.uuids()),
    *(st.datetimes(timezones=st.just(UTC)), st.timedeltas(), st.none()),
)
PROPERTIES = st.none() | st.dictionaries(TEXT, VALUES | st.dictionaries(TEXT, VALUES, max_size=2), max_size=3)

SENT = st.builds(Sent, TEXT, st.binary(), st.dictionaries(TEXT, VALUES))


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
def test_an_answer_crosses_as_it_is(outcome: Any, error: Any, sends: list[Sent], result: Sent | None) -> None:
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
    await sbredis_bus.create_queue("out")
    errors: list[str] = []
    worker = Worker(
        sbredis_bus.url, retries=Retries(first_delay=0), on_error=lambda _, error: errors.append(str(error))
    )
    worker.queue("orders", execution="process", max_concurrent_calls=1)(work)
    texts = ["plain", "die", "exit", "fail", "reject"]
    async with worker.running():
        for text in texts:
            await worker.send("orders", text, application_properties={"tenant": "t"})
        await eventually(lambda: all_gone(sbredis_bus))
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
async def test_a_timeout_kills_the_process(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=1)
    worker = Worker(sbredis_bus.url)
    worker.queue("orders", execution="process", max_concurrent_calls=1, timeout=5)(work)
    async with worker.running():
        await worker.send("orders", "busy")
        await eventually(lambda: dead(sbredis_bus))
    (letter,) = await dead(sbredis_bus)
    assert letter.dead_letter_reason == "TimeoutError"


async def all_gone(bus: Bus) -> bool:
    return not await bus.active("orders")


async def dead(bus: Bus) -> list[ServiceBusReceivedMessage]:
    return await bus.dead_lettered("orders")


async def test_a_handler_that_a_process_cannot_find_or_call_is_refused_at_the_start(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")

    def local(text: str) -> None: ...

    worker = Worker(sbredis_bus.url)
    worker.queue("orders", execution="process")(local)
    with pytest.raises(WorkerSetupError, match="define it at the top of a module"):
        await worker.run()
    worker = Worker(sbredis_bus.url)
    worker.queue("orders", execution="process")(takes_the_message)
    with pytest.raises(WorkerSetupError, match="cannot have the message in its parameter 'message'"):
        await worker.run()


def takes_the_message(message: ServiceBusReceivedMessage) -> None:
    del message
