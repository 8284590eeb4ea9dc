"""The callers of an inbox are served in their order, and wait for answers only as long as they must."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.exceptions import ServiceBusError
from sbredis.receiving._callers import Callers, ReceiveCall
from tests.workers.virtual import VirtualLoop


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    return "asyncio", {"loop_factory": VirtualLoop}


class Answerer:
    """A partition that is asked."""

    def __init__(self, calls: int = 1) -> None:
        self.calls, self.asked, self.late = calls, 0, False

    def ask_now(self) -> None:
        self.asked += 1


def callers(*missing: int, gathers: bool = True) -> Callers[str]:
    made = Callers[str]()
    made.extend(ReceiveCall[str](count, gathers=gathers) for count in missing)
    return made


async def test_calls_are_served_in_their_order() -> None:
    calls = callers(2, 1, 3)
    assert calls.demand == 6
    assert list(calls.serve(["a", "b", "c", "d"])) == []
    assert [call.got for call in calls] == [["a", "b"], ["c"], ["d"]]
    assert calls.demand == 2
    assert list(calls.serve(["e", "f", "g"])) == ["g"]
    assert calls[2].got == ["d", "e", "f"]
    assert calls.demand == 0


async def test_messages_that_a_call_gives_back_come_before_those_of_later_calls() -> None:
    calls = callers(3, 5)
    assert list(calls.serve(["a", "b", "c", "d"])) == []
    given_back = calls.pop(0).got
    assert list(calls.serve(given_back, first=True)) == []
    assert calls[0].got == ["a", "b", "c", "d"]


async def test_a_call_that_does_not_gather_wants_nothing_after_its_first_messages() -> None:
    calls = callers(3, gathers=False)
    assert calls.demand == 3
    calls.serve(["a"])
    assert calls.demand == 0
    calls.serve(["b"])
    assert calls[0].got == ["a", "b"], "it gets what comes before it returns"


async def test_a_call_that_has_failed_gets_nothing_and_keeps_its_first_error() -> None:
    calls = callers(1)
    calls.fail(ServiceBusError("one"))
    calls.fail(ServiceBusError("two"))
    assert str(calls[0].error).startswith("one")
    assert list(calls.serve(["a"])) == ["a"]
    assert calls.demand == 0


async def test_a_call_that_is_to_end_waits_for_nothing() -> None:
    calls = callers(2)
    calls.end()
    assert await calls.wait(calls[0], None)
    assert not calls[0].wants


async def test_no_timer_is_left_when_the_receiver_is_closed() -> None:
    """A call that has left need not have waited until its time."""
    calls, until = callers(1), asyncio.get_running_loop().time() + 900
    _ = calls.wait(calls[0], until)
    del calls[0]
    timer = calls._timer
    assert timer is not None
    assert not timer.cancelled()
    calls.close()
    assert timer.cancelled()
    assert calls._timer is None


async def test_each_wait_ends_at_its_own_time() -> None:
    calls, loop = callers(1, 1, 1), asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    with loop.jumping(lambda _: None):
        now = loop.time()
        late, soon, never = (calls.wait(call, at) for call, at in zip(calls, (now + 20, now + 1, None), strict=True))
        assert not await soon
        assert loop.time() - now < 2
        assert not await late
        assert loop.time() - now > 19
        assert not never.done()
        calls[2].tell()
        assert await never


async def test_a_call_that_leaves_takes_no_time_from_the_others() -> None:
    calls, now = callers(1, 1), asyncio.get_running_loop().time()
    gone = calls.wait(calls[0], now)
    other = calls.wait(calls[1], now + 0.01)
    calls[0].tell()
    assert await gone
    del calls[0]
    assert not await other


async def test_waits_go_on_after_an_error_of_all_calls() -> None:
    calls, now = callers(1), asyncio.get_running_loop().time()
    failed = calls.wait(calls[0], now + 60)
    calls.fail(ServiceBusError("no"))
    assert await failed
    calls[:] = [ReceiveCall[str](1, gathers=True)]
    assert not await calls.wait(calls[0], now)


async def test_only_an_answer_to_a_later_call_counts() -> None:
    one, other = Answerer(), Answerer()
    calls: Any = callers(1)
    calls[0].unanswered = {one: 1, other: 1}
    calls.answered(one)
    assert (calls[0].unanswered, one.asked) == ({one: 1, other: 1}, 1)
    one.calls = 2
    calls.answered(one)
    assert calls[0].unanswered == {other: 1}
    other.late = True
    calls.pass_over_late()
    assert calls[0].unanswered == {}, "another partition has answered, so it need not wait for a late one"


async def test_a_call_without_any_answer_waits_for_late_ones() -> None:
    late = Answerer()
    late.late = True
    calls: Any = callers(1)
    calls[0].unanswered = {late: 1}
    calls.pass_over_late()
    assert calls[0].unanswered == {late: 1}


async def test_what_is_there_is_enough_only_if_it_is_for_all() -> None:
    calls: Any = callers(1, 1)
    assert not callers().only_want_what_is_there
    calls[0].unanswered = {}
    assert not calls.only_want_what_is_there
    calls[1].unanswered = {Answerer(): 1}
    assert calls.only_want_what_is_there


async def test_a_partition_that_was_found_is_awaited_by_those_that_need_the_search() -> None:
    search, found = Answerer(), Answerer(calls=3)
    calls: Any = callers(1, 1)
    calls[0].unanswered = {search: 1}
    assert calls.await_found(found, search)
    assert (calls[0].unanswered, calls[1].unanswered) == ({search: 1, found: 3}, None)
    assert calls.awaited == {search, found}
    calls.give_up(found)
    assert calls[0].unanswered == {search: 1}
    calls[0].unanswered = {}
    assert not calls.await_found(found, search)
