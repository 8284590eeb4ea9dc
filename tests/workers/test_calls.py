"""One call of a handler, without a worker: what its methods do beside the change of its state."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from sbredis.exceptions import OperationTimeoutError, ServiceBusQuotaExceededError
from sbredis.exceptions import Outcome as Effect
from sbredis.workers import Complete, DeadLetter, Outcome
from sbredis.workers.running._call_states import CallState, CallTask
from sbredis.workers.running._calls import HandlerCall


def call_of(execution: str = "async", *, count: int = 1, settle: Callable[..., Any] | None = None) -> HandlerCall:
    origin: Any = SimpleNamespace(entity="orders", session=None, settle=settle)
    handler: Any = SimpleNamespace(name="place", execution=execution, settings=SimpleNamespace(batch=None))
    messages: Any = [SimpleNamespace(sequence_number=number) for number in range(1, count + 1)]
    return HandlerCall(origin, handler, messages)


def refused(error: Exception) -> Callable[..., Any]:
    async def settle(call: HandlerCall, outcome: Outcome) -> Outcome:
        del call, outcome
        raise error

    return settle


def test_a_function_that_waits_is_never_called_after_the_work_is_over() -> None:
    call = call_of("thread")
    call.thread = Future()
    assert call.stop() is CallTask.GIVE_BACK_UNTRIED
    assert call.thread.cancelled()


def test_a_function_that_waits_is_never_called_after_its_lock_was_lost() -> None:
    call = call_of("thread")
    call.thread = Future()
    assert call.lose_lock() is CallTask.CANCEL
    assert call.thread.cancelled()


def test_a_function_that_runs_goes_on_after_its_lock_was_lost(caplog: pytest.LogCaptureFixture) -> None:
    call = call_of("thread")
    call.thread = Future()
    call.thread.set_running_or_notify_cancel()
    assert call.lose_lock() is CallTask.NOTHING
    assert (call.lock_lost, call.in_thread, call.unqueue()) == (True, True, False)
    assert call.end([Complete()]) is CallTask.DROP
    assert "orders: the result of a handler is dropped, because its lock was lost" in caplog.text


@pytest.mark.parametrize(
    ("settled", "said"),
    [
        (False, "although it was cancelled, and the worker ends without it: message 1 and 1 more come again when"),
        (True, "message 1 and 1 more settled before"),
    ],
)
async def test_a_handler_that_is_left_is_logged_once(
    caplog: pytest.LogCaptureFixture, settled: bool, said: str
) -> None:
    async def settle(call: HandlerCall, outcome: Outcome) -> Outcome:
        del call
        return outcome

    call = call_of(count=2, settle=settle)
    if settled:
        await call.settle(Complete())
    assert call.leave()
    assert not call.leave()
    assert len(caplog.messages) == 1
    assert said in caplog.text


async def test_a_settlement_that_was_refused_may_be_tried_in_another_way() -> None:
    full = ServiceBusQuotaExceededError("full", outcome=Effect.REFUSED)
    call = call_of(settle=refused(full))
    for _ in range(2):
        with pytest.raises(ServiceBusQuotaExceededError):
            await call.settle(Complete())
        assert call.state is CallState.OPEN


async def test_a_settlement_with_an_unknown_outcome_is_not_tried_again() -> None:
    call = call_of(settle=refused(OperationTimeoutError("late", outcome=Effect.UNKNOWN)))
    with pytest.raises(OperationTimeoutError):
        await call.settle(Complete())
    with pytest.raises(RuntimeError, match="settled already"):
        await call.settle(DeadLetter())


def test_the_loss_of_one_lock_of_a_batch_touches_only_its_message() -> None:
    call = call_of(count=2)
    call.lost_messages = [call.messages[1]]
    assert call.lock_lost
    assert [call.has_lost(message) for message in call.messages] == [False, True]
    assert call.end([Complete(), Complete()]) is CallTask.SETTLE


def test_a_part_of_a_batch_has_the_additions_only_if_it_completes() -> None:
    call = call_of(count=2)
    call.send("out", b"sent", {})
    assert not call.part(call.messages[:1]).additions
    assert call.part(call.messages[:1], with_additions=True).additions is call.additions


def test_additions_after_a_mark_are_forgotten() -> None:
    call = call_of()
    call.send("out", b"first", {})
    mark = call.additions.mark()
    call.send("out", b"second", {})
    call.remember("key", 60)
    call.restore(mark)
    assert [bytes(message.body) for _, message in call.additions.sends or ()] == [b"first"]
    assert call.additions.keys is None


def test_messages_that_are_left_out_of_a_batch_take_their_bodies_along() -> None:
    call = call_of(count=3)
    first, second, third = call.messages
    call.bodies = ["a", "b", "c"]
    call.leave_out([first])
    assert (list(call.messages), call.message, call.bodies) == ([second, third], second, ["b", "c"])
    call.leave_out([second, third])
    assert (list(call.messages), call.bodies) == ([], [])
