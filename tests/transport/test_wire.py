"""One connection with many callers: the order in which calls are written, the matching of replies, and the outcomes
after a loss.
"""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from sbredis.exceptions import Outcome
from sbredis.transport import Script, WireLimits
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._resp import ReplyError
from sbredis.transport._script import Call, Command
from tests.transport.hand import FACTS, NOSCRIPT, SCRIPT, call, in_seconds, running, turns
from tests.waiting import eventually


def lost(future: asyncio.Future[object]) -> tuple[FailureKind, Outcome]:
    """Return the kind of failure and the outcome of a call that got no reply."""
    failure = future.result()
    assert isinstance(failure, Failure)
    assert failure.endpoint == FACTS.endpoint
    return failure.kind, failure.outcome


async def test_calls_of_one_turn_of_the_event_loop_are_written_together() -> None:
    async with running() as (wire, stream):
        for argument in (b"1", b"2", b"3"):
            _ = wire.submit(call(argument), in_seconds(60))
        assert stream.writes == []
        await turns()
        assert len(stream.writes) == 1
        _ = wire.submit(call(b"4"), in_seconds(60))
        await turns()
        assert len(stream.writes) == 2
        assert stream.said == [b"1", b"2", b"3", b"4"]


async def test_the_first_call_on_a_quiet_connection_is_written_immediately() -> None:
    """The server starts with this call while the client collects the others."""
    async with running(WireLimits(quiet_after=0)) as (wire, stream):
        for argument in (b"1", b"2", b"3"):
            _ = wire.submit(call(argument), in_seconds(60))
        assert stream.said == [b"1"]
        await turns()
        assert len(stream.writes) == 2
        assert stream.said == [b"1", b"2", b"3"]


async def test_a_call_is_not_written_immediately_right_after_a_reply() -> None:
    """More calls are likely to follow in the same turn of the event loop."""
    async with running(WireLimits(quiet_after=60)) as (wire, stream):
        _ = wire.submit(call(b"1"), in_seconds(60))
        await turns()
        stream.reply(b"a")
        _ = wire.submit(call(b"2"), in_seconds(60))
        assert stream.said == [b"1"]
        await turns()
        assert stream.said == [b"1", b"2"]


async def test_work_of_the_next_turn_writes_its_calls_together_in_that_turn() -> None:
    async with running(WireLimits(quiet_after=0)) as (wire, stream):

        def put(number: int) -> None:
            _ = wire.submit(call(number), in_seconds(60))

        for number in range(3):
            wire.soon(partial(put, number))
        wire.soon(lambda: None)
        await asyncio.sleep(0)
        assert (len(stream.writes), stream.said) == (1, [b"0", b"1", b"2"])


async def test_work_that_fails_keeps_no_calls_back() -> None:
    async with running(WireLimits(quiet_after=60)) as (wire, stream):
        loop, errors = asyncio.get_running_loop(), list[str]()
        loop.set_exception_handler(lambda _, context: errors.append(str(context["exception"])))

        def put() -> None:
            _ = wire.submit(call(b"1"), in_seconds(60))

        def fail() -> None:
            raise ValueError("broken")

        wire.soon(put)
        wire.soon(fail)
        await asyncio.sleep(0)
        assert (stream.said, errors) == ([b"1"], ["broken"])


async def test_replies_reach_their_callers_in_the_order_in_which_calls_were_written() -> None:
    async with running() as (wire, stream):
        futures = [wire.submit(call(number), in_seconds(60)) for number in range(5)]
        await turns()
        stream.reply(b"a")
        stream.reply()
        stream.reply(b"b", None, [b"d"])
        stream.reply(0)
        assert [future.result() for future in futures] == [b"a", b"b", None, [b"d"], 0]
        assert not wire.owes


async def test_an_error_reply_fails_only_its_own_call() -> None:
    async with running() as (wire, stream):
        first, second = wire.submit(call(1), in_seconds(60)), wire.submit(call(2), in_seconds(60))
        await turns()
        stream.reply(ReplyError("LOCKLOST 7"), b"ok")
        assert lost(first) == (FailureKind.REFUSED, Outcome.REFUSED)
        assert second.result() == b"ok"


async def test_the_run_id_of_the_connection_is_written_into_calls_that_take_one() -> None:
    async with running() as (wire, stream):
        _ = wire.submit(call(b"a", script=Script("s", "return 1", takes_run_id=True)), in_seconds(60))
        await turns()
        assert stream.commands[0][-2:] == [FACTS.run_id, b"a"]


# -- cancelled callers -------------------------------------------------------------------------------------------------


async def test_a_cancelled_caller_does_not_affect_the_others() -> None:
    async with running() as (wire, stream):
        futures = [wire.submit(call(number), in_seconds(60)) for number in range(3)]
        await turns()
        futures[1].cancel()
        stream.reply(b"a", b"nobody's", b"c")
        assert (futures[0].result(), futures[2].result()) == (b"a", b"c")
        assert wire._room == WireLimits().bytes


async def test_a_call_that_waits_to_be_written_is_never_sent_if_its_caller_is_cancelled() -> None:
    async with running() as (wire, stream):
        futures = [wire.submit(call(number), in_seconds(60)) for number in range(3)]
        futures[1].cancel()
        await turns()
        assert stream.said == [b"0", b"2"]
        stream.reply(b"a", b"c")
        assert (futures[0].result(), futures[2].result()) == (b"a", b"c")
        assert wire._room == WireLimits().bytes


async def test_nothing_is_written_if_all_callers_were_cancelled() -> None:
    async with running() as (wire, stream):
        wire.submit(call(), in_seconds(60)).cancel()
        await turns()
        assert stream.writes == []
        assert not wire.owes


# -- lost connections --------------------------------------------------------------------------------------------------


async def test_after_a_lost_connection_written_calls_are_unknown_and_others_never_sent() -> None:
    async with running() as (wire, stream):
        written = wire.submit(call(1), in_seconds(60))
        await turns()
        stream.pause()
        waiting = wire.submit(call(2), in_seconds(60))
        await turns()
        stream.lost("the cable was cut")
        assert lost(written) == (FailureKind.LOST, Outcome.UNKNOWN)
        assert lost(waiting) == (FailureKind.LOST, Outcome.NEVER_SENT)
        assert "the cable was cut" in written.result().detail
        await turns()
        assert stream.was_cancelled
        assert len(stream.writes) == 1


async def test_a_lost_connection_accepts_no_more_calls() -> None:
    async with running() as (wire, stream):
        stream.lost("gone")
        stream.lost("gone again")
        assert lost(wire.submit(call(), in_seconds(60))) == (FailureKind.LOST, Outcome.NEVER_SENT)
        assert not wire.has_room
        assert not await wire.room(in_seconds(60))
        assert not wire.owes


async def test_late_replies_on_a_lost_connection_are_dropped() -> None:
    async with running() as (wire, stream):
        future = wire.submit(call(), in_seconds(60))
        await turns()
        stream.lost("gone")
        stream.reply(b"late")
        assert lost(future) == (FailureKind.LOST, Outcome.UNKNOWN)


async def test_a_reply_without_a_call_ends_the_connection() -> None:
    async with running() as (wire, stream):
        future = wire.submit(call(), in_seconds(60))
        await turns()
        stream.reply(b"mine", b"nobody's")
        assert future.result() == b"mine"
        assert wire.failure is not None
        assert "no call asked for" in wire.failure.detail


async def test_closing_the_wire_ends_calls_that_are_under_way() -> None:
    async with running() as (wire, _):
        future = wire.submit(call(), in_seconds(60))
        await turns()
    assert lost(future) == (FailureKind.LOST, Outcome.UNKNOWN)


async def test_after_an_unexpected_error_of_the_stream_calls_end_as_lost(caplog: pytest.LogCaptureFixture) -> None:
    async with running() as (wire, stream):
        future = wire.submit(call(), in_seconds(60))
        await turns()
        stream.break_with(ZeroDivisionError("a defect"))
        await future
        assert lost(future) == (FailureKind.LOST, Outcome.UNKNOWN)
    assert "a defect" in caplog.text


# -- deadlines ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_deadline_that_passes_without_an_answer_leaves_the_outcome_unknown() -> None:
    async with running() as (wire, stream):
        hasty, patient = wire.submit(call(1), in_seconds(0.3)), wire.submit(call(2), in_seconds(60))
        await hasty
        assert lost(hasty) == (FailureKind.TIMED_OUT, Outcome.UNKNOWN)
        stream.reply(b"late", b"ok")
        assert patient.result() == b"ok"
        assert wire._room == WireLimits().bytes


async def test_a_call_without_a_future_ends_once() -> None:
    """Its reply or its failure is passed on as soon as it is known. What comes later is dropped."""
    told: list[tuple[object, object]] = []

    def answered(ended: Call, reply: object) -> None:
        told.append((ended, reply))

    def failed(ended: Call, failure: Failure) -> None:
        told.append((ended, failure.kind))

    async with running(WireLimits(quiet_after=0)) as (wire, stream):  # the first call is written at once
        hasty, refused, patient = call(1), call(2), call(3)
        for each, deadline in ((hasty, 0.01), (refused, 60), (patient, 60)):
            wire.put(each, in_seconds(deadline), answered, failed)
        await eventually(lambda: bool(told))
        assert told == [(hasty, FailureKind.TIMED_OUT)]
        stream.reply(b"late", ReplyError("ERR no"), b"ok")
        assert told[1:] == [(refused, FailureKind.REFUSED), (patient, b"ok")]
        wire.put(hasty, in_seconds(60), answered, failed)  # a repetition is the same object
        await turns()
        stream.lost("gone")
        stream.reply(b"later")
        assert told[3:] == [(hasty, FailureKind.LOST)]
        assert wire._room == 0


async def test_a_call_that_could_not_be_written_before_its_deadline_was_never_sent() -> None:
    async with running() as (wire, stream):
        stream.pause()
        hasty, patient = wire.submit(call(1), in_seconds(0.01)), wire.submit(call(2), in_seconds(60))
        await hasty
        assert lost(hasty) == (FailureKind.TIMED_OUT, Outcome.NEVER_SENT)
        stream.resume()
        assert stream.said == [b"2"]
        stream.reply(b"ok")
        assert patient.result() == b"ok"
        assert wire._room == WireLimits().bytes


@pytest.mark.parametrize("seconds", [0, -1])
async def test_a_call_whose_deadline_has_passed_is_never_sent(seconds: float) -> None:
    async with running() as (wire, stream):
        future = wire.submit(call(), in_seconds(seconds))
        await future
        assert lost(future) == (FailureKind.TIMED_OUT, Outcome.NEVER_SENT)
        assert stream.writes == []
        assert wire._room == WireLimits().bytes


async def test_calls_are_written_in_order_when_the_peer_accepts_data_again() -> None:
    async with running() as (wire, stream):
        stream.pause()
        for number in range(3):
            _ = wire.submit(call(number), in_seconds(60))
            await turns()
        assert stream.writes == []
        stream.resume()
        assert len(stream.writes) == 1
        assert stream.said == [b"0", b"1", b"2"]


# -- missing scripts ---------------------------------------------------------------------------------------------------


async def test_calls_that_miss_the_same_script_share_one_load() -> None:
    async with running() as (wire, stream):
        futures = [wire.submit(call(number), in_seconds(60)) for number in range(3)]
        await turns()
        stream.reply(NOSCRIPT, NOSCRIPT)
        stream.reply(NOSCRIPT)
        await turns()
        assert stream.commands[3] == [b"SCRIPT", b"LOAD", SCRIPT.source.encode()]
        assert stream.said[3:] == [b"SCRIPT", b"0", b"1", b"2"]
        stream.reply(b"sha", b"a", b"b", b"c")
        assert [future.result() for future in futures] == [b"a", b"b", b"c"]
        assert wire._room == WireLimits().bytes


async def test_each_missing_script_is_loaded_separately() -> None:
    other = Script("other", "return 2")
    async with running() as (wire, stream):
        _ = wire.submit(call(1), in_seconds(60))
        _ = wire.submit(call(2, script=other), in_seconds(60))
        await turns()
        stream.reply(NOSCRIPT, NOSCRIPT)
        await turns()
        assert [words[-1] for words in stream.commands[2:]] == [b"return 1", b"1", b"return 2", b"2"]


async def test_a_script_that_is_missing_again_is_loaded_once_more_and_then_given_up() -> None:
    async with running() as (wire, stream):
        future = wire.submit(call(1), in_seconds(60))
        await turns()
        stream.reply(NOSCRIPT)
        for _ in range(2):
            await turns()
            assert stream.said[-2:] == [b"SCRIPT", b"1"]
            stream.reply(ReplyError("NOPERM no"), NOSCRIPT)
        assert lost(future) == (FailureKind.NO_SCRIPT, Outcome.NEVER_SENT)
        assert len(stream.commands) == 5
        assert wire._room == WireLimits().bytes


async def test_a_command_whose_script_is_missing_ends_as_never_sent() -> None:
    async with running() as (wire, stream):
        future = wire.submit(Command("EVALSHA", "0", 0), in_seconds(60))
        await turns()
        stream.reply(NOSCRIPT)
        assert lost(future) == (FailureKind.NO_SCRIPT, Outcome.NEVER_SENT)


async def test_the_command_asking_comes_directly_before_its_call_even_after_a_script_was_loaded() -> None:
    async with running() as (wire, stream):
        _ = wire.submit(call(1), in_seconds(60))
        asked = wire.submit(call(2), in_seconds(60), asking=True)
        _ = wire.submit(call(3), in_seconds(60))
        await turns()
        assert stream.said == [b"1", b"ASKING", b"2", b"3"]
        stream.reply(b"a", b"OK", NOSCRIPT, b"c")
        await turns()
        assert stream.said[4:] == [b"SCRIPT", b"ASKING", b"2"]
        stream.reply(b"sha", b"OK", b"b")
        assert asked.result() == b"b"


# -- silent servers ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_server_that_does_not_answer_is_first_suspected_and_then_given_up() -> None:
    suspected: list[bool] = []
    limits = WireLimits(suspect_after=0.01, give_up_after=0.3)
    async with running(limits, lambda: suspected.append(True)) as (wire, _):
        future = wire.submit(call(), in_seconds(60))
        await eventually(lambda: suspected)
        assert wire.silent
        await future
        assert lost(future) == (FailureKind.LOST, Outcome.UNKNOWN)
        assert "no answer for" in future.result().detail


async def test_a_server_that_answers_again_is_no_longer_suspected() -> None:
    async with running(WireLimits(suspect_after=0.01, give_up_after=60)) as (wire, stream):
        first, _ = wire.submit(call(), in_seconds(60)), wire.submit(call(), in_seconds(60))
        await eventually(lambda: wire.silent)
        stream.reply(b"a")
        assert first.result() == b"a"
        assert not wire.silent


async def test_a_deposed_server_is_given_up_as_soon_as_it_is_silent() -> None:
    async with running(WireLimits(suspect_after=0.01, give_up_after=3600)) as (wire, _):
        future = wire.submit(call(), in_seconds(60))
        await eventually(lambda: wire.silent)
        wire.depose()
        await future
        assert lost(future) == (FailureKind.LOST, Outcome.UNKNOWN)


async def test_a_server_may_be_silent_if_no_answer_is_due() -> None:
    suspected: list[bool] = []
    async with running(WireLimits(suspect_after=0, give_up_after=0), lambda: suspected.append(True)) as (wire, stream):
        future = wire.submit(call(), in_seconds(60))
        await turns()
        stream.reply(b"ok")
        timer = wire._timer
        assert timer is not None
        await eventually(lambda: wire._timer is None)
        assert (wire.failure, suspected, future.result()) == (None, [], b"ok")
