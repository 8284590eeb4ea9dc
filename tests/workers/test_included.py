"""Tests of the middleware that comes with the framework."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import CircuitBreaker, Context, Idempotency, Retries, Worker
from sbredis.workers.included._circuit import UNLIMITED, Circuit
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


def test_the_life_of_a_circuit() -> None:
    circuit = Circuit(2, 10)
    assert circuit.room(0) == UNLIMITED
    assert not circuit.failed(0)
    circuit.succeeded()
    assert not circuit.failed(1)
    assert circuit.failed(2)
    assert (circuit.open, circuit.room(2), circuit.wait(2)) == (True, 0, 10)
    assert circuit.room(12) == 1
    circuit.began()
    assert (circuit.room(12), circuit.wait(12)) == (0, None)
    assert not circuit.failed(13)
    assert (circuit.room(22), circuit.room(23)) == (0, 1)
    circuit.began()
    circuit.ended_otherwise()
    assert (circuit.open, circuit.room(23)) == (True, 1)
    circuit.began()
    circuit.succeeded()
    assert (circuit.open, circuit.room(23), circuit.wait(23)) == (False, UNLIMITED, None)


@given(st.lists(st.sampled_from(["fails", "succeeds", "ends", "waits"]), max_size=40), st.integers(1, 4))
def test_an_open_circuit_allows_one_trial_a_pause(events: list[str], limit: int) -> None:
    circuit, now, in_a_row, last_failure = Circuit(limit, 10), 0.0, 0, 0.0
    for event in events:
        if event == "waits":
            now += 4
        elif circuit.room(now):
            circuit.began()
            assert circuit.room(now) == (0 if in_a_row >= limit else UNLIMITED)
            if event == "fails":
                circuit.failed(now)
                in_a_row, last_failure = in_a_row + 1, now
            elif event == "succeeds":
                circuit.succeeded()
                in_a_row = 0
            else:
                circuit.ended_otherwise()
        assert circuit.open == (in_a_row >= limit)
        allowed = UNLIMITED if in_a_row < limit else int(now >= last_failure + 10)
        assert circuit.room(now) == allowed


@pytest.mark.parametrize(
    "options", [{"failures": 0}, {"pause": 0}, {"opens_on": ConnectionError}, {"opens_on": (KeyboardInterrupt,)}]
)
def test_a_breaker_refuses_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        CircuitBreaker(**options)


async def test_a_breaker_stops_receiving_and_tries_one_message_at_a_time(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2000)
    works = False
    tried: list[str] = []
    breaker = CircuitBreaker(failures=2, pause=0.2)
    worker = Worker(sbredis_bus.url, retries=Retries(first_delay=0), max_concurrent_calls=1)

    @worker.queue("orders", middleware=[breaker])
    async def place(text: str) -> None:
        tried.append(text)
        if not works:
            raise ConnectionError

    for number in range(3):
        await sbredis_bus.client.get_queue_sender("orders").send_messages(ServiceBusMessage(str(number)))
    async with worker.running():
        await eventually(lambda: len(tried) == 2)
        assert breaker._circuit.open
        assert len(tried) == 2
        works = True
        await eventually(lambda: len(tried) == 5)
    assert not await sbredis_bus.active("orders")


async def test_the_second_message_of_a_key_sends_nothing(sbredis_bus: Bus) -> None:
    await sbredis_bus.create_queue("orders")
    await sbredis_bus.create_queue("out")
    worker = Worker(sbredis_bus.url, middleware=[Idempotency(60, key=lambda message: str(message.subject))])

    @worker.queue("orders", max_concurrent_calls=1)
    async def place(text: str, context: Context) -> None:
        context.send("out", text)

    async with worker.running():
        for text, subject in (("one", "a"), ("two", "a"), ("three", "b")):
            await worker.send("orders", text, subject=subject)
        await eventually(lambda: sent(sbredis_bus, 2))
    assert [bytes(message.body) for message in await sbredis_bus.active("out")] == [b"one", b"three"]


async def sent(bus: Bus, count: int) -> bool:
    return not await bus.active("orders") and len(await bus.active("out")) == count
