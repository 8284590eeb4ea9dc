"""The journey of a call over several attempts: its final outcome for every sequence of results."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sbredis.exceptions import (
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from sbredis.transport import Backoff, Endpoint, Transport, key_slot
from sbredis.transport._journey import Journey
from sbredis.transport._nodes import Node
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from tests.transport.hand import call, in_seconds

HERE, THERE = Endpoint("here", 1), Endpoint("there", 1)
LOST = Failure(FailureKind.LOST, "the cable was cut", "", Outcome.UNKNOWN, HERE)


def said(reply: str) -> Failure:
    code, _, detail = reply.partition(" ")
    return failure_of_reply(code, detail, HERE)


class Servers:
    """Acts as transport and as node: it returns the given answers one after the other, and records each request."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[Endpoint, bool]] = []
        self.troubles = 0
        self.closed = False
        self.endpoint = HERE
        self.held_up: dict[Journey, None] = {}

    def route(self, slot: int | None) -> Node | None:
        assert slot == key_slot(b"k")
        return cast("Node", self)

    def redirected(self, failure: Failure) -> Node:
        if "?" in failure.detail:
            raise ValueError(failure.detail)
        other = Servers()
        other.answers, other.asked, other.endpoint = self.answers, self.asked, THERE
        return cast("Node", other)

    def troubled(self, failure: Failure) -> None:
        assert failure.kind not in (FailureKind.REFUSED, FailureKind.BROKE)
        self.troubles += 1

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def log(self, failure: Failure, error: ServiceBusError) -> None: ...

    async def execute(self, _: object, __: float, *, asking: bool, replicated: bool) -> Any:
        assert not replicated
        self.asked.append((self.endpoint, asking))
        answer = self.answers.pop(0)
        if answer == "close":
            self.closed = True
            return LOST
        return answer


async def travel(
    servers: Servers, *, repeatable: bool = False, seconds: float = 60, first: Failure | None = None
) -> Any:
    journey = Journey(
        cast("Transport", servers),
        call(repeatable=repeatable),
        in_seconds(0),
        in_seconds(seconds),
        Backoff(),
        replicated=False,
    )
    return await journey.finish(first)


async def test_a_call_that_certainly_did_not_run_is_repeated_until_it_is_answered() -> None:
    servers = Servers(said("LOADING x"), said("CLUSTERDOWN x"), said("TRYAGAIN x"), b"ok")
    assert await travel(servers) == b"ok"
    assert servers.asked == [(HERE, False)] * 4
    assert servers.troubles == 3


async def test_a_journey_may_begin_with_the_result_of_an_earlier_attempt() -> None:
    servers = Servers(b"ok")
    assert await travel(servers, first=said("LOADING x")) == b"ok"
    assert len(servers.asked) == 1


async def test_redirections_are_followed_and_asking_is_sent_only_after_an_ask_reply() -> None:
    servers = Servers(said("MOVED 0 there:1"), said("ASK 0 there:1"), said("TRYAGAIN x"), b"ok")
    assert await travel(servers) == b"ok"
    assert servers.asked == [(HERE, False), (THERE, False), (THERE, True), (HERE, False)]


async def test_a_redirection_without_a_host_reports_trouble_and_is_tried_again() -> None:
    servers = Servers(said("MOVED 0 ?:1"), b"ok")
    assert await travel(servers) == b"ok"
    assert servers.asked == [(HERE, False), (HERE, False)]
    assert servers.troubles == 1


@pytest.mark.parametrize("last", ["OOM x", "NOPERM x", "NOSCRIPT x", "NOAUTH x", "LOADING x"])
async def test_a_call_that_may_have_run_stays_unknown_after_later_attempts(last: str) -> None:
    """The outcome is unknown even if the last attempt was refused, because the first attempt may have changed
    something.
    """
    with pytest.raises(ServiceBusError) as caught:
        await travel(Servers(LOST, *[said(last)] * 50), repeatable=True, seconds=0.05)
    assert caught.value.outcome is Outcome.UNKNOWN


async def test_a_call_that_must_not_be_repeated_is_never_repeated() -> None:
    servers = Servers(LOST)
    with pytest.raises(ServiceBusError, match="the cable was cut") as caught:
        await travel(servers)
    assert (caught.value.outcome, len(servers.asked)) == (Outcome.UNKNOWN, 1)


async def test_closing_the_transport_ends_the_journey_with_the_known_outcome() -> None:
    servers = Servers("close")
    with pytest.raises(ServiceBusConnectionError, match=r"was not answered.*the transport was closed") as caught:
        await travel(servers, repeatable=True)
    assert (caught.value.outcome, caught.value.is_transient, len(servers.asked)) == (Outcome.UNKNOWN, False, 1)


async def test_a_call_that_a_server_does_not_take_is_noted_with_the_reason_while_it_is_under_way() -> None:
    servers = Servers(LOST, said("MOVED 0 there:1"), said("READONLY x"), LOST, b"ok")
    noted: list[str | None] = []

    async def note(seconds: float) -> None:  # noqa: ARG001
        noted.append(next((str(journey.obstacle()) for journey in servers.held_up), None))

    servers.pause = note  # type: ignore[method-assign]
    assert await travel(servers, repeatable=True) == b"ok"
    assert [each is not None and "READONLY x" in each for each in noted] == [False, False, True, False]
    assert not servers.held_up


async def test_the_deadline_ends_the_journey_with_the_last_failure() -> None:
    with pytest.raises(ServiceBusError, match="CLUSTERDOWN x") as caught:
        await travel(Servers(*[said("CLUSTERDOWN x")] * 50), seconds=0.05)
    assert caught.value.outcome is Outcome.NEVER_SENT


@pytest.mark.parametrize("repeatable", [False, True])
@pytest.mark.parametrize(
    "earlier",
    [said("CLUSTERDOWN x"), Failure(FailureKind.UNSERVED, "no replica", endpoint=HERE)],
    ids=["said", "known"],
)
async def test_a_last_attempt_cut_short_by_the_deadline_does_not_hide_the_earlier_failure(
    earlier: Failure, repeatable: bool
) -> None:
    unwritten = Failure(FailureKind.TIMED_OUT, "it could not be written", "", Outcome.NEVER_SENT, HERE)
    with pytest.raises(ServiceBusServerBusyError, match=rf"2 attempts .*{earlier.detail}") as caught:
        await travel(Servers(earlier, unwritten), repeatable=repeatable)
    assert caught.value.outcome is Outcome.NEVER_SENT


async def test_an_earlier_answer_does_not_hide_a_last_attempt_that_may_have_run() -> None:
    unanswered = Failure(FailureKind.TIMED_OUT, "no answer came", "", Outcome.UNKNOWN, HERE)
    with pytest.raises(OperationTimeoutError, match="no answer came") as caught:
        await travel(Servers(said("CLUSTERDOWN x"), unanswered))
    assert caught.value.outcome is Outcome.UNKNOWN
