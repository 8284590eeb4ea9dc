"""The decider of credit, event by event. The machine in tests/engine/proof tests it against a partition with faults."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest

from sbredis.client import ServerClock
from sbredis.engine import CreditAnswer, CreditGift, CreditGrant, CreditPush, CreditReply, GiftPlace
from sbredis.receiving._credit import TABLE, CreditDemand, CreditEvent, CreditState, HandedGift, PartitionCredit

LOCK = 30_000


class Scene:
    """A decider at the server process ``r1``. Its clock and that of the server show the same time."""

    def __init__(self, demand: CreditDemand, **options: Any) -> None:
        self.clocks: dict[str, ServerClock] = {}
        prefixes = (f"p{number}" for number in itertools.count(1))
        self.credit: PartitionCredit[str] = PartitionCredit(
            lambda run: self.clocks.setdefault(run, ServerClock()), lambda: next(prefixes), "r1", **options
        )
        self.credit.want(demand)
        self.now = 1_000.0

    def grant(self) -> CreditGrant:
        return self.credit.grant(self.now)

    def gift(self, grant: CreditGrant, serial: int, given: int, *messages: str) -> CreditGift[str]:
        place = GiftPlace(serial, given, 10 * given)
        return CreditGift(grant.prefix, place, 1_000 * self.now + LOCK, messages)

    def answer(
        self, grant: CreditGrant, *gifts: CreditGift[str], waits: float = 0.0, **changed: Any
    ) -> list[HandedGift[str]]:
        """Answer a grant, at once unless ``waits`` says for how long the answer waits, with these gifts."""
        last = gifts[-1].place if gifts else grant.seen
        reply = CreditReply(
            run="r1",
            clock=1_000 * self.now,
            answer=CreditAnswer.TAKEN,
            prefix=grant.prefix,
            last=last,
            limit=grant.limit,
            gifts=gifts,
            there=False,
            suspects=False,
            again=grant.again,
            due=None,
        )
        written, self.now = self.now, self.now + waits
        return self.credit.replied(grant, reply._replace(**changed), written, self.now)

    def push(self, gift: CreditGift[str] | None, run: str = "r1", prefix: str = "") -> list[HandedGift[str]]:
        prefix = prefix or self.credit._prefix
        return self.credit.pushed(CreditPush(run, 1_000 * self.now, prefix, gift), self.now)

    def opened(self) -> CreditGrant:
        """Subscribe, and have the first grant answered."""
        self.credit.subscribed("r1")
        grant = self.grant()
        self.answer(grant)
        return grant

    def needs_call(self) -> bool:
        return self.credit.needs_call(self.now)


def names(handed: list[HandedGift[str]]) -> list[str]:
    return [message for gift in handed for message in gift.messages]


def test_the_table_has_no_state_without_a_way_out() -> None:
    assert {state for state, _ in TABLE} == {*TABLE.values()} == {*CreditState}
    assert {event for _, event in TABLE} == {*CreditEvent}


def test_without_a_subscription_credit_ends_with_the_reply_and_is_granted_again_every_second() -> None:
    scene = Scene(CreditDemand(callers=1))
    assert scene.needs_call()
    grant = scene.grant()
    assert grant.now
    scene.answer(grant, limit=0)
    assert not scene.needs_call()
    assert scene.credit.next_at == scene.now + 1


def test_a_message_that_a_caller_gets_needs_no_call() -> None:
    scene = Scene(CreditDemand(callers=2))
    grant = scene.opened()
    scene.push(scene.gift(grant, 1, 1, "a"))
    scene.credit.want(CreditDemand(callers=1))
    assert not scene.needs_call()


def test_more_callers_need_a_call_soon_if_a_stock_has_credit_for_them() -> None:
    scene = Scene(CreditDemand(stock=3))
    scene.opened()
    scene.credit.want(CreditDemand(callers=1, stock=2))
    assert not scene.needs_call()
    assert scene.credit.may_ride(scene.now)
    scene.now = scene.credit.next_at
    assert scene.needs_call()
    assert (scene.grant().callers, scene.grant().limit) == (1, 3)
    assert scene.credit.next_at > scene.now + 1


def test_the_wait_for_another_call_ends_although_the_clock_stands_still() -> None:
    scene = Scene(CreditDemand(stock=3))
    scene.opened()
    scene.credit.end_wait()
    assert not scene.needs_call()
    scene.credit.want(CreditDemand(stock=5))
    assert not scene.needs_call()
    scene.credit.end_wait()
    assert scene.needs_call()


def test_a_demand_that_is_taken_back_soon_needs_no_call() -> None:
    scene = Scene(CreditDemand(stock=3))
    scene.opened()
    scene.credit.want(CreditDemand(stock=5))
    assert not scene.needs_call()
    scene.credit.want(CreditDemand(stock=3))
    scene.now = scene.credit.next_at
    assert not scene.needs_call()
    assert scene.credit.next_at > scene.now + 1


@pytest.mark.parametrize("stock", [2, 5])
def test_a_grant_is_made_at_once_if_messages_may_wait_or_credit_is_withdrawn(stock: int) -> None:
    """Of five messages, the partition has pushed three and has credit for none; or it has credit that is too much."""
    scene = Scene(CreditDemand(stock=3))
    grant = scene.opened()
    if stock == 5:
        scene.push(scene.gift(grant, 1, 3, "a", "b", "c"))
        assert scene.credit.spent
    scene.credit.want(CreditDemand(stock=stock))
    assert scene.needs_call()


def test_a_partition_without_news_gets_credit_soon() -> None:
    scene = Scene(CreditDemand(announced=True))
    scene.opened()
    scene.credit.want(CreditDemand(stock=3))
    assert not scene.needs_call()
    assert scene.credit.may_ride(scene.now)
    scene.push(None)
    assert scene.needs_call()


def test_news_that_is_not_wanted_any_more_is_declined_at_once() -> None:
    """Otherwise no other receiver would hear of the messages."""
    scene = Scene(CreditDemand(announced=True))
    scene.opened()
    scene.push(None)
    scene.credit.want(CreditDemand())
    assert scene.needs_call()


def test_a_receiver_that_wants_no_more_news_says_so_at_once() -> None:
    scene = Scene(CreditDemand(announced=True))
    scene.opened()
    scene.credit.want(CreditDemand())
    assert scene.needs_call()


def test_news_that_is_not_wanted_now_needs_no_call() -> None:
    scene = Scene(CreditDemand(stock=1))
    grant = scene.opened()
    scene.push(scene.gift(grant, 1, 1, "a"))
    again = scene.grant()
    scene.answer(again, scene.gift(again, 2, 2, "b"), there=True)
    scene.credit.want(CreditDemand(announced=True))
    assert not scene.needs_call()
    scene.credit.want(CreditDemand(stock=1))
    assert scene.needs_call()


def test_a_caller_that_leaves_withdraws_the_credit_and_learns_what_was_given_before() -> None:
    scene = Scene(CreditDemand(callers=1))
    grant = scene.opened()
    scene.credit.want(CreditDemand())
    assert scene.needs_call()
    withdrawal = scene.grant()
    assert (withdrawal.limit, withdrawal.again) == (0, True)
    assert not scene.credit.settled
    assert names(scene.answer(withdrawal, scene.gift(grant, 1, 1, "a"))) == ["a"]
    assert scene.credit.settled


def test_the_first_gift_ends_a_grant_that_is_once() -> None:
    scene = Scene(CreditDemand(callers=5, once=True))
    grant = scene.opened()
    scene.push(scene.gift(grant, 1, 1, "a"))
    scene.credit.want(CreditDemand(once=True))
    assert not scene.needs_call()


def test_a_gift_from_before_does_not_end_a_grant_that_is_once() -> None:
    scene = Scene(CreditDemand(callers=5))
    grant = scene.opened()
    scene.credit.want(CreditDemand(callers=6, once=True))
    once = scene.grant()
    scene.push(scene.gift(grant, 1, 1, "a"))
    scene.credit.want(CreditDemand(callers=5, once=True))
    scene.answer(once, last=GiftPlace(1, 1, 10))
    assert not scene.needs_call()
    scene.credit.want(CreditDemand(once=True))
    assert scene.needs_call()


def test_open_credit_is_renewed_after_two_minutes() -> None:
    scene = Scene(CreditDemand(callers=1))
    scene.opened()
    assert scene.credit.next_at == scene.now + 120


def test_a_receiver_calls_when_something_is_due() -> None:
    scene = Scene(CreditDemand(callers=1))
    scene.opened()
    asked = scene.now
    scene.answer(scene.grant(), due=7.0, waits=2.0)  # nobody knows when the partition has answered
    assert scene.credit.next_at == asked + 7


def test_an_overtaken_grant_may_bring_the_task_to_call_when_something_is_due() -> None:
    scene = Scene(CreditDemand(callers=1))
    scene.opened()
    first, second = scene.grant(), scene.grant()
    scene.answer(second, due=20.0)
    assert (scene.credit.next_at - scene.now, scene.credit.keeps_due_time) == (20.0, False)
    scene.answer(first, due=7.0, keeps=True)
    assert (scene.credit.next_at - scene.now, scene.credit.keeps_due_time) == (7.0, True)
    scene.grant()
    assert not scene.credit.keeps_due_time


def test_a_forged_push_changes_nothing() -> None:
    scene = Scene(CreditDemand(callers=1))
    grant = scene.opened()
    assert scene.push(None, prefix="p9") == scene.push(scene.gift(grant, 1, 1, "a"), prefix="p9") == []
    assert not scene.needs_call()


def test_without_credit_a_receiver_can_wait_for_news() -> None:
    scene = Scene(CreditDemand(announced=True))
    grant = scene.opened()
    assert (grant.limit, grant.announced) == (0, True)
    scene.answer(scene.grant(), there=True)
    assert (scene.needs_call(), scene.credit.news) == (False, True)


def test_news_ends_with_the_reply_to_a_grant_that_wants_only_what_is_there() -> None:
    """A receiver that waits after that asks for news anew."""
    scene = Scene(CreditDemand(announced=True, now=True))
    scene.opened()
    assert not scene.needs_call()
    scene.credit.want(CreditDemand(announced=True))
    assert scene.needs_call()
    scene.credit.want(CreditDemand())
    assert not scene.needs_call()


def test_a_receiver_that_wants_nothing_says_of_suspects_what_it_said_before() -> None:
    scene = Scene(CreditDemand(callers=2, suspects=False))
    scene.answer(scene.grant())
    scene.credit.want(CreditDemand())
    assert not scene.grant().suspects
    scene.credit.want(CreditDemand(callers=1))
    assert scene.grant().suspects


def test_a_receiver_that_takes_no_suspects_learns_that_some_wait() -> None:
    scene = Scene(CreditDemand(callers=1, suspects=False))
    scene.opened()
    scene.answer(scene.grant(), suspects=True)
    assert scene.credit.suspects_wait
    scene.credit.want(CreditDemand(callers=1))
    assert scene.needs_call()


def test_bytes_are_granted_anew_when_half_of_them_are_used() -> None:
    scene = Scene(CreditDemand(callers=9, room=100))
    grant = scene.opened()
    assert grant.size_limit == 100
    scene.push(scene.gift(grant, 1, 4, *"abcd"))
    scene.credit.want(CreditDemand(callers=5, room=100))
    assert not scene.needs_call()
    scene.push(scene.gift(grant, 2, 6, *"ef"))
    scene.credit.want(CreditDemand(callers=3, room=100))
    assert scene.needs_call()
    assert scene.grant().size_limit == 160


@pytest.mark.parametrize("dated", [True, False])
def test_a_push_that_cannot_be_dated_is_given_back(dated: bool) -> None:
    """The messages of a session have no ends of their own."""
    scene = Scene(CreditDemand(callers=1), dated=dated)
    grant = scene.opened()
    scene.clocks.clear()
    (handed,) = scene.push(scene.gift(grant, 1, 1, "a"))
    assert (handed.ends is None) is dated
    assert scene.grant().seen.messages == 1


def test_the_answer_to_a_call_that_has_failed_may_still_come() -> None:
    scene = Scene(CreditDemand(callers=1))
    scene.opened()
    scene.credit.want(CreditDemand(callers=2))
    late = scene.grant()
    scene.credit.failed(late)
    assert names(scene.answer(late, scene.gift(late, 1, 2, "a", "b"))) == ["a", "b"]
    scene.credit.want(CreditDemand())
    assert not scene.credit.settled  # the receiver asks again, because the call has failed
    again = scene.grant()
    assert not scene.credit.settled
    scene.answer(again)
    assert scene.credit.settled


def test_a_refusal_ends_the_credit_until_the_receiver_asks_again() -> None:
    scene = Scene(CreditDemand(callers=1))
    scene.opened()
    scene.answer(scene.grant(), answer=CreditAnswer.REFUSED, again=True, limit=0)
    assert scene.credit.state is CreditState.ENDED
    ended = scene.grant()
    assert ended.limit == 0
    scene.answer(ended, answer=CreditAnswer.REFUSED, again=True, limit=0)
    assert scene.credit.next_at > scene.now + 1e9
    scene.credit.ask_again()
    assert (scene.needs_call(), scene.grant().limit) == (True, 1)


def test_a_prefix_is_replaced_before_its_serials_are_used_up() -> None:
    scene = Scene(CreditDemand(callers=100), serials=40)
    grant = scene.opened()
    for serial in range(1, 10):
        scene.push(scene.gift(grant, serial, serial, "a"))
    later = scene.grant()
    assert later.prefix != grant.prefix
    assert later.seen == GiftPlace(0, 9, 90)


def test_what_the_application_has_begun_is_reported_also_for_an_earlier_prefix() -> None:
    scene = Scene(CreditDemand(callers=5))
    grant = scene.opened()
    scene.push(scene.gift(grant, 1, 1, "a"))
    scene.push(scene.gift(grant, 2, 2, "b"))
    scene.credit.began((grant.prefix, 2))
    assert scene.grant().begun == 1
    scene.credit.unsubscribed()
    scene.credit.began(None)
    assert scene.grant().retired == ((grant.prefix, 2, 2),)


@pytest.mark.parametrize(
    ("demand", "answers"),
    [
        ({"callers": 1}, True),
        ({"stock": 1}, True),
        ({"callers": 1, "now": True}, True),
        ({"announced": True}, True),
        ({}, False),
    ],
)
def test_only_a_reply_to_a_grant_that_asks_says_what_the_partition_has(demand: dict[str, Any], answers: bool) -> None:
    """A receiver that declines learns nothing, and a caller that comes meanwhile must not take it for an answer."""
    scene = Scene(CreditDemand(announced=True))
    scene.opened()
    scene.credit.want(CreditDemand(**demand))
    grant = scene.grant()
    scene.answer(grant)
    assert scene.credit.answers_for(grant) is answers


def test_a_reply_says_nothing_after_its_prefix_was_replaced() -> None:
    scene = Scene(CreditDemand(callers=1))
    scene.opened()
    grant = scene.grant()
    assert scene.credit.answers_for(grant)
    scene.credit.subscribed("r1")
    assert not scene.credit.answers_for(grant)


class Stands(NamedTuple):
    """What a partition may still do."""

    outstanding: int
    silent: bool
    spent: bool


def stands(scene: Scene) -> Stands:
    return Stands(scene.credit.outstanding, scene.credit.silent, scene.credit.spent)


ASLEEP = Stands(0, silent=True, spent=False)


def test_what_a_partition_may_still_do_is_known_after_each_event() -> None:
    scene = Scene(CreditDemand(stock=2))
    assert stands(scene) == ASLEEP
    grant = scene.opened()
    assert stands(scene) == Stands(2, silent=False, spent=False)
    scene.push(scene.gift(grant, 1, 1, "a"))
    assert stands(scene) == Stands(1, silent=False, spent=False)
    scene.push(scene.gift(grant, 2, 2, "b"))
    assert stands(scene) == Stands(0, silent=True, spent=True)
    again = scene.grant()
    assert stands(scene) == Stands(2, silent=False, spent=False)
    scene.credit.failed(again)
    assert stands(scene) == Stands(2, silent=True, spent=False), "the call may have run, and nothing is pushed for sure"
    scene.answer(scene.grant(), answer=CreditAnswer.REFUSED, limit=2)
    assert stands(scene) == ASLEEP


def test_an_announced_grant_keeps_nothing_outstanding_after_its_reply() -> None:
    scene = Scene(CreditDemand(callers=2, announced=True))
    scene.credit.subscribed("r1")
    grant = scene.grant()
    assert stands(scene) == Stands(2, silent=False, spent=False)
    scene.answer(grant)
    assert stands(scene) == Stands(0, silent=False, spent=False)


def test_a_partition_is_silent_after_a_grant_that_ends_with_its_reply() -> None:
    scene = Scene(CreditDemand(callers=2, now=True))
    scene.credit.subscribed("r1")
    grant = scene.grant()
    assert stands(scene) == Stands(2, silent=True, spent=False)
    scene.answer(grant, scene.gift(grant, 1, 1, "a"), limit=1)
    assert stands(scene) == ASLEEP
