"""The log of a handler that fails again and again: the first failures whole, and then their number."""

from __future__ import annotations

import pytest

from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Retries
from sbredis.workers.observing._failures import EVERY, Counted, FailureLog
from tests.waiting import eventually
from tests.workers.looking import worker_of
from tests.workers.parts import Parts, Runtime


def test_the_first_failures_of_a_kind_are_whole_and_the_others_are_counted() -> None:
    failures = FailureLog()
    assert [failures.is_whole("place", ValueError(), number, 0.0) for number in range(13)] == [True] * 10 + [False] * 3
    assert failures.is_whole("place", KeyError(), 13, 0.0)
    assert failures.is_whole("post", ValueError(), 14, 0.0)
    assert failures.counted() == [Counted("place", "ValueError", 3, 12)]
    assert failures.counted() == []


def test_a_kind_that_goes_on_is_only_counted_and_one_that_has_rested_begins_anew() -> None:
    failures = FailureLog()
    for number in range(10):
        assert failures.is_whole("place", ValueError(), number, 0.0)
    assert not failures.is_whole("place", ValueError(), 10, EVERY)
    assert not failures.is_whole("place", ValueError(), 11, 2 * EVERY)
    assert failures.is_whole("place", ValueError(), 12, 3 * EVERY + 1)
    assert failures.counted() == [Counted("place", "ValueError", 2, 11)]


def test_endlessly_many_kinds_take_no_endless_memory() -> None:
    failures = FailureLog()
    for number in range(5000):
        assert failures.is_whole(f"place {number}", ValueError(), number, 0.0)
    for number in range(20):
        failures.is_whole("place 4999", ValueError(), number, 0.0)
    assert failures.counted() == [Counted("place 4999", "ValueError", 11, 19)]


async def test_a_handler_that_fails_very_often_does_not_fill_the_log(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[BaseException] = []
    worker = await worker_of(
        sbredis_bus, "orders", retries=Retries(attempts=1), on_error=lambda _, error: told.append(error)
    )

    @worker.queue("orders")
    async def place(text: str) -> None:
        raise KeyError(text) if text == "other" else ValueError(text)

    def said(part: str) -> int:
        return sum(part in record.getMessage() for record in caplog.records)

    async with Runtime(worker._setup(), Parts(count_failures_every=0.05)).running(worker) as runtime:
        sender = runtime.sender_to("orders")
        for texts in (["same"] * 200, ["other"]):
            await sender.send_messages([ServiceBusMessage(text, content_type="text/plain") for text in texts])
        await eventually(lambda: len(told) == 201)
        await eventually(lambda: said("more times, at last for message ") >= 1)
    whole = [record for record in caplog.records if "place failed for message" in record.getMessage()]
    assert [repr(record.exc_info[1]) for record in whole if record.exc_info] == [
        *["ValueError('same')"] * 10,
        "KeyError('other')",
    ]
    lines = [record.getMessage() for record in caplog.records if "more time" in record.getMessage()]
    assert all("place failed with ValueError " in line for line in lines)
    assert sum(int(line.split(" more time")[0].rpartition(" ")[2]) for line in lines) == 190


async def test_the_end_of_a_worker_tells_of_the_last_failures(
    sbredis_bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[BaseException] = []
    worker = await worker_of(
        sbredis_bus, "orders", retries=Retries(attempts=1), on_error=lambda _, error: told.append(error)
    )

    @worker.queue("orders")
    async def place(text: str) -> None:
        raise ValueError(text)

    async with worker.running():
        messages = [ServiceBusMessage("same", content_type="text/plain") for _ in range(25)]
        await worker.client.get_queue_sender("orders").send_messages(messages)
        await eventually(lambda: len(told) == 25)
    assert "place failed with ValueError 15 more times, at last for message " in caplog.text
