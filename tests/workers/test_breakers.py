"""Tests of circuit breakers: when they open, whom they hold back, and how they try whether the service works again."""

from __future__ import annotations

import asyncio
import math
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sbredis import ServiceBusMessage
from sbredis.model import ServiceBusReceivedMessage
from sbredis.testing import Bus
from sbredis.workers import CircuitBreaker, Context, DeadLetter, Proceed, Retries, Router, Worker
from sbredis.workers.declaring._handlers import Defaults, plan_of
from sbredis.workers.included._circuit import UNLIMITED, Circuit, CircuitCall
from sbredis.workers.running._gates import Gates
from tests.waiting import eventually
from tests.workers.looking import empty, send_to, worker_of

NOW = Retries(first_delay=0)


async def nothing() -> None: ...


def begun(circuit: Circuit, now: float) -> CircuitCall:
    call = circuit.begins(now)
    assert call is not None
    return call


def test_the_life_of_a_circuit() -> None:
    circuit = Circuit(2, 10)
    assert circuit.room(0) == UNLIMITED
    assert not circuit.failed(begun(circuit, 0), 0)
    circuit.succeeded(begun(circuit, 0))
    late = begun(circuit, 1)
    assert not circuit.failed(begun(circuit, 1), 1)
    assert circuit.failed(begun(circuit, 1), 2)
    assert (circuit.open, circuit.room(2), circuit.wait(2)) == (True, 0, 10)
    assert circuit.begins(11) is None
    assert circuit.room(12) == 1
    trial = begun(circuit, 12)
    assert (circuit.room(12), circuit.wait(12)) == (0, None)
    assert circuit.begins(13) is None
    circuit.ended_otherwise(late)
    assert circuit.room(13) == 0, "the trial goes on, although a call ends that began before the circuit opened"
    assert not circuit.failed(trial, 13)
    assert (circuit.room(22), circuit.room(23)) == (0, 1)
    circuit.ended_otherwise(begun(circuit, 23))
    assert (circuit.open, circuit.room(23)) == (True, 1)
    circuit.succeeded(begun(circuit, 23))
    assert (circuit.open, circuit.room(23), circuit.wait(23)) == (False, UNLIMITED, None)


class Life(RuleBasedStateMachine):
    """A circuit beside a list of the calls that run."""

    def __init__(self) -> None:
        super().__init__()
        self.circuit = Circuit(2, 10)
        self.now = 0.0
        self.calls: list[CircuitCall] = []

    @rule()
    def begin(self) -> None:
        room = self.circuit.room(self.now)
        call = self.circuit.begins(self.now)
        assert (call is not None) == (room > 0)
        if call is not None:
            assert call.trial == self.circuit.open
            self.calls.append(call)

    @rule(seconds=st.sampled_from([1, 4, 10]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["fails", "succeeds", "ends"]))
    def end(self, data: st.DataObject, how: str) -> None:
        call = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        if how == "fails":
            was_open = self.circuit.open
            assert self.circuit.failed(call, self.now) == (self.circuit.open and not was_open)
            assert not self.circuit.open or self.circuit.room(self.now) == 0
        elif how == "succeeds":
            self.circuit.succeeded(call)
            assert not self.circuit.open
        else:
            self.circuit.ended_otherwise(call)

    @invariant()
    def one_trial_at_a_time(self) -> None:
        trials = sum(call.trial for call in self.calls)
        assert trials <= 1 or not self.circuit.open
        assert self.circuit.room(self.now) <= 1 - trials or not self.circuit.open


TestLifeOfACircuit = Life.TestCase


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (ConnectionResetError(), True),
        (ExceptionGroup("", [ConnectionResetError(), ExceptionGroup("", [TimeoutError()])]), True),
        (ExceptionGroup("", [ConnectionResetError(), ValueError()]), False),
        (ValueError(), False),
        (asyncio.CancelledError(), False),
    ],
)
async def test_an_error_opens_the_circuit_if_it_is_of_these_classes_or_a_group_of_them(
    error: BaseException, is_open: bool
) -> None:
    breaker = CircuitBreaker(failures=1)
    await called(breaker, error)
    assert (breaker.room(0) < UNLIMITED) == is_open


@pytest.mark.parametrize("outcome", [DeadLetter("no"), ExceptionGroup("", [DeadLetter("no")])])
async def test_an_outcome_that_was_raised_closes_the_circuit_alone_or_in_a_group(outcome: Exception) -> None:
    breaker = CircuitBreaker(failures=1, pause=1e-9)
    await called(breaker, ConnectionError())
    await called(breaker, ValueError())  # the trial says nothing
    assert breaker.room(math.inf) == 1
    await called(breaker, outcome)
    assert breaker.room(0) == UNLIMITED


async def called(breaker: CircuitBreaker, error: BaseException) -> None:
    async def proceed() -> None:
        raise error

    context: Any = SimpleNamespace(entity="orders")
    with pytest.raises(type(error)):
        await breaker(context, proceed)


@pytest.mark.parametrize(
    "options",
    [
        *({"failures": 0}, {"failures": "5"}, {"pause": 0}, {"pause": "10"}, {"pause": math.inf}),
        *({"opens_on": ConnectionError}, {"opens_on": (KeyboardInterrupt,)}, {"opens_on": ()}),
    ],
)
def test_a_breaker_refuses_options_that_make_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError), match=f"{next(iter(options))} must"):
        CircuitBreaker(**options)


def test_the_gates_of_an_entity_admit_as_many_as_the_narrowest() -> None:
    one, two = CircuitBreaker(failures=1, pause=10), CircuitBreaker(failures=1, pause=0.5)
    router = Router()
    router.queue("q", subject="a", middleware=[one, two])(nothing)
    router.queue("q", subject="b", middleware=[one])(nothing)
    (plan,) = plan_of(router._declared, Defaults(entity={}, by_path={}, retries=NOW, overrides={}))
    gates = Gates(plan.handlers)
    assert (gates.room(0, 7), gates.wait(0)) == (7, 1.0)
    two._circuit.failed(begun(two._circuit, 0), 0)
    assert gates.room(0.4, 7) == 0
    assert gates.wait(0.4) == pytest.approx(0.1)
    assert gates.room(0.5, 7) == 1
    one._circuit.failed(begun(one._circuit, 0), 0)
    assert (gates.room(0.5, 7), gates.wait(0.5)) == (0, 1.0), "another entity may open a gate that it shares"
    gates.begin(lambda: 0.0)
    assert gates.room(0, 7) == 7
    assert not Gates([])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["batches", "sessions", "one of two handlers"])
async def test_a_breaker_holds_back_every_kind_of_entity(sbredis_bus: Bus, kind: str) -> None:
    await sbredis_bus.create_queue("orders", max_delivery_count=2000, requires_session=kind == "sessions")
    breaker = CircuitBreaker(failures=1, pause=0.1)
    worker = Worker(sbredis_bus.url, retries=NOW)
    tried: list[object] = []
    works = False
    options: dict[str, Any] = {"batch": 2, "batch_wait": 0.01} if kind == "batches" else {}

    async def place(message: Any) -> None:
        tried.append(message)
        if not works:
            raise ConnectionError

    if kind == "batches":
        place.__annotations__["message"] = list[ServiceBusReceivedMessage]
    if kind == "one of two handlers":
        options["subject"] = "fails"

        @worker.queue("orders")
        async def other() -> None: ...

    worker.queue("orders", middleware=[breaker], max_concurrent_calls=1, session_idle_timeout=0.1, **options)(place)
    sender = sbredis_bus.client.get_queue_sender("orders")
    for session_id in ("a", "b"):
        await sender.send_messages(
            ServiceBusMessage(b"", subject="fails", session_id=session_id if kind == "sessions" else None)
        )
    async with worker.running():
        await eventually(lambda: tried)
        assert breaker._circuit.open
        for _ in range(5):
            await asyncio.sleep(0)
        count = len(tried)
        assert count <= 2
        works = True
        await eventually(lambda: empty(sbredis_bus))
        assert not breaker._circuit.open


@pytest.mark.parametrize("requires_session", [False, True])
async def test_a_service_is_tried_by_one_call_at_a_time(sbredis_bus: Bus, requires_session: bool) -> None:
    breaker = CircuitBreaker(failures=2, pause=0.05)
    worker = Worker(sbredis_bus.url, retries=NOW)
    at_once: list[int] = []
    trying, tried = 0, 0
    for name in ("one", "two"):
        await sbredis_bus.create_queue(name, max_delivery_count=2000, requires_session=requires_session)

    async def place() -> None:
        nonlocal trying, tried
        opened = breaker._circuit.open  # calls that began before may still run
        trying += opened
        try:
            if opened:
                at_once.append(trying)
            await asyncio.sleep(0.01)
        finally:
            trying -= opened
        tried += opened
        raise ConnectionError

    for name in ("one", "two"):
        worker.queue(name, middleware=[breaker], max_concurrent_calls=4, session_idle_timeout=0.01)(place)
    async with worker.running():
        for number in range(8):
            for name in ("one", "two"):
                await worker.send(name, b"", session_id=str(number))
        await eventually(lambda: tried >= 5)
    assert at_once == [1] * len(at_once)


async def test_a_message_that_the_breaker_refuses_is_given_back_uncounted(sbredis_bus: Bus) -> None:
    breaker = CircuitBreaker(failures=1, pause=3600)
    worker = await worker_of(sbredis_bus, "orders", retries=Retries(first_delay=3600, longest_delay=3600, jitter=False))
    both = asyncio.Event()

    async def opening(context: Context, proceed: Proceed) -> object:
        """Let the circuit open between the reception of a message and its call."""
        if str(context.message) == "late":
            await eventually(lambda: breaker._circuit.open)
        return await proceed()

    @worker.queue("orders", middleware=[opening, breaker])
    async def place(text: str) -> None:
        assert text == "early"
        both.set()
        raise ConnectionError

    async with worker.running():
        await send_to(sbredis_bus, "orders", [ServiceBusMessage("late"), ServiceBusMessage("early")])
        await both.wait()
        counts = worker._running().report().counts["orders"]
        await eventually(lambda: counts.given_back >= 1)  # it may have come again before the worker paused
    counted = {str(message): message.delivery_count for message in await sbredis_bus.active("orders")}
    assert counted == {"late": 0, "early": 1}
