"""The model of a partition with credit: who gets which message, how much a call pushes, and who is told.

The machine in tests/engine/proof tests what must never happen. These examples say what should happen.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from sbredis.engine import NEXT_SESSION
from sbredis.receiving._credit import CreditAnswer, CreditGrant, CreditPush, CreditReply, GiftPlace
from tests.engine.granting import granting
from tests.engine.model.credit import CallGrant, CreditCall, CreditPartition, holder

LOCK = 30_000


class Scene:
    """A partition. All receivers listen, and grant credit by a call of each."""

    def __init__(self, *, sessions: bool = False) -> None:
        self.pushes: list[tuple[str, CreditPush[int]]] = []
        self.deaf: set[str] = set()
        self.now, self.seen = 1_000, Counter[str]()
        self.partition = CreditPartition(
            "r1",
            self.now,
            lambda channel, _key, push: self.pushes.append((channel, push)),
            hears=lambda channel: channel not in self.deaf,
            lock=LOCK,
            seen=self.seen,
            sessions=sessions,
        )
        self.source = NEXT_SESSION if sessions else ""
        self.numbers = Counter[str]()

    def send(self, *sizes: int, **options: Any) -> list[int]:
        return self.partition.send("r1", self.now, sizes, **options)

    def grant(self, receiver: str, limit: int, **changed: Any) -> CreditReply[int]:
        """Let a receiver grant credit for this many callers, in a call with these fields."""
        fields = {name: changed.pop(name) for name in CreditCall._fields if name in changed}
        self.numbers[receiver] += 1
        number = self.numbers[receiver]
        grant = granting(number, limit, run="r1", prefix=f"p{receiver}")._replace(begins=number == 1)
        _, (reply,) = self.call(receiver, grant._replace(**changed), **fields)
        return reply

    def call(
        self, receiver: str, grant: CreditGrant | None = None, **changed: Any
    ) -> tuple[bool, list[CreditReply[int]]]:
        grants = () if grant is None else (CallGrant(receiver, self.source, grant),)
        return self.partition.execute("r1", self.now, CreditCall(receiver, grants)._replace(**changed))

    def given(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return the gifts that were pushed since the last question."""
        gifts = [(channel, tuple(push.gift.messages)) for channel, push in self.pushes if push.gift]
        self.pushes.clear()
        return gifts

    def told(self) -> list[str]:
        told = [channel for channel, push in self.pushes if push.gift is None]
        self.pushes.clear()
        return told


def gifts(reply: CreditReply[int]) -> list[tuple[int, ...]]:
    return [tuple(gift.messages) for gift in reply.gifts]


def test_what_is_there_comes_in_the_reply_and_what_comes_later_in_a_push() -> None:
    scene = Scene()
    first, second = scene.send(10, 10)
    assert gifts(scene.grant("a", 3)) == [(first, second)]
    (third,) = scene.send(10)
    assert scene.given() == [("a", (third,))]
    scene.send(10)
    assert scene.given() == []


def test_callers_come_before_a_stock_and_the_one_served_longest_ago_is_next() -> None:
    scene = Scene()
    scene.grant("stocks", 9, callers=0)
    scene.grant("a", 9)
    scene.grant("b", 9)
    names = [scene.send(10)[0] for _ in range(3)]
    assert scene.given() == [("a", (names[0],)), ("b", (names[1],)), ("stocks", (names[2],))]


def test_many_messages_are_divided() -> None:
    scene = Scene()
    for receiver in "ab":
        scene.grant(receiver, 9)
    names = scene.send(10, 10, 10, 10)
    assert scene.given() == [("a", (*names[:2],)), ("b", (*names[2:],))]


def test_the_caller_gets_a_fair_part_of_what_is_there() -> None:
    scene = Scene()
    scene.grant("a", 9, announced=True)
    names = scene.send(10, 10, 10, 10)
    assert gifts(scene.grant("b", 9)) == [(*names[:2],)]


def test_a_call_pushes_sixteen_times_and_tells_others_that_there_is_more() -> None:
    scene = Scene()
    for number in range(20):
        scene.grant(f"{number}", 1)
    scene.send(*[10] * 20)
    assert len([push for _, push in scene.pushes if push.gift]) == 16
    assert len(scene.told()) == 4


@pytest.mark.parametrize(("size", "given"), [(16_384, True), (16_385, False)])
def test_a_large_record_is_only_announced(size: int, given: bool) -> None:
    scene = Scene()
    scene.grant("a", 1)
    names = scene.send(size)
    assert bool(scene.given()) is given
    assert gifts(scene.grant("a", 1)) == ([] if given else [(*names,)])


def test_a_receiver_that_reports_nothing_is_passed_over_after_a_second() -> None:
    scene = Scene()
    scene.grant("a", 9)
    scene.send(10)
    scene.grant("b", 9, callers=0)
    assert scene.given() == [("a", (1,))]
    scene.now += 500
    scene.send(10)
    assert scene.given() == [("b", (2,))]
    scene.now += 501
    scene.grant("b", 9, callers=0, seen=GiftPlace(1, 1, 10))
    for name in (3, 4):
        scene.send(10)
        assert scene.given() == [("b", (name,))]


def test_sixteen_gifts_may_be_unseen_and_a_reply_may_add_one() -> None:
    scene = Scene()
    scene.grant("a", 99)
    for _ in range(18):
        scene.send(10)
    assert len(scene.given()) == 16
    assert gifts(scene.grant("a", 99)) == [(17, 18)]
    scene.send(10)
    assert gifts(scene.grant("a", 99)) == []


def test_interest_that_is_not_answered_is_passed_on() -> None:
    scene = Scene()
    scene.grant("a", 9, announced=True)
    scene.grant("b", 9, announced=True)
    scene.send(10)
    assert scene.told() == ["a"]
    scene.now += 999
    scene.partition.touch("r1", scene.now)
    assert scene.told() == []
    scene.now += 2
    scene.partition.touch("r1", scene.now)
    assert scene.told() == ["b"]


def test_news_without_credit_is_told_once_and_asked_for_again() -> None:
    scene = Scene()
    scene.grant("a", 0, announced=True)
    scene.send(10)
    scene.send(10)
    assert scene.told() == ["a"]
    assert scene.grant("a", 0, announced=True).there
    assert scene.told() == []


def test_the_first_gift_ends_a_grant_that_is_once() -> None:
    scene = Scene()
    scene.grant("a", 9, once=True)
    scene.send(10, 10)
    assert scene.given() == [("a", (1, 2))]
    scene.send(10)
    assert scene.given() == []


def test_a_grant_that_is_now_ends_with_the_reply() -> None:
    scene = Scene()
    assert scene.grant("a", 9, now=True).limit == 0
    scene.send(10)
    assert scene.pushes == []


def test_a_grant_ends_if_nobody_listens() -> None:
    scene = Scene()
    scene.grant("a", 9)
    scene.grant("b", 9)
    scene.deaf.add("a")
    scene.send(10)
    assert scene.given() == [("b", (1,))]
    scene.send(10)
    assert scene.given() == [("b", (2,))]


def test_a_settlement_brings_the_next_messages_but_not_what_it_has_given_back() -> None:
    scene = Scene()
    scene.send(10)
    first = scene.grant("a", 1)
    scene.grant("b", 1)
    scene.numbers["a"] += 1
    changed = {"seen": first.last, "token": ("pa", 1), "released": (1,)}
    reply = scene.grant("a", 2, **changed)
    assert (gifts(reply), scene.given()) == ([], [("b", (1,))])


def test_a_refused_settlement_leaves_the_grant_unread() -> None:
    scene = Scene()
    scene.grant("a", 0)
    assert scene.call("a", None, token=("pa", 9), completed=(1,)) == (False, [])


def test_settings_end_all_credit_and_say_so() -> None:
    scene = Scene()
    scene.grant("a", 9)
    scene.partition.configure("r1", scene.now, "DISABLED")
    assert scene.told() == ["a"]
    scene.send(10)
    assert scene.grant("a", 9).answer is CreditAnswer.REFUSED


def test_one_receiver_keeps_the_due_time_and_a_deputy_calls_five_seconds_later() -> None:
    scene = Scene()
    scene.send(10, at=scene.now + 7_000)
    assert [scene.grant(receiver, 1).due for receiver in "abc"] == [7.0, 12.0, None]
    scene.send(10, at=scene.now + 3_000)
    assert scene.told() == ["a", "b"]
    assert [scene.grant(receiver, 1).due for receiver in "ba"] == [8.0, 3.0]
    assert scene.grant("a", 0).due is None
    assert scene.told() == ["b"]


def test_the_deputy_is_of_another_client_if_there_is_one() -> None:
    """A client that dies takes all of its receivers with it, so none of them can be the deputy of another."""
    scene = Scene()
    assert [scene.grant(receiver, 1, channel="one").due for receiver in "abc"] == [30.0, 35.0, None]
    assert [scene.grant(receiver, 1, channel="two").due for receiver in "de"] == [35.0, None]
    assert scene.grant("b", 1, channel="one").due is None
    assert scene.partition.keepers == ("a ", "d ")


def test_a_keeper_calls_at_least_once_a_lock_duration() -> None:
    """So it need not be told of each lock that is given."""
    scene = Scene()
    assert scene.grant("a", 1).due == LOCK / 1_000
    scene.send(10)
    assert scene.told() == []


def test_a_suspect_is_given_alone_and_only_to_a_receiver_that_takes_suspects() -> None:
    scene = Scene()
    scene.send(10, 10)
    scene.partition.items[1].lapses = 2
    careful = scene.grant("a", 9, suspects=False, now=True)
    assert (gifts(careful), careful.suspects) == ([(2,)], True)
    scene.send(10)
    assert gifts(scene.grant("b", 9, now=True)) == [(1,)]


def test_a_lapse_counts_a_delivery_as_far_as_the_receiver_has_begun() -> None:
    scene = Scene()
    scene.send(10, 10, 10)
    scene.grant("a", 3, now=True)
    scene.now += LOCK
    scene.partition.touch("r1", scene.now)
    assert [item.lapses for item in scene.partition.items.values()] == [1, 0, 0]


def test_a_session_has_one_holder_who_gets_its_messages_in_order() -> None:
    scene = Scene(sessions=True)
    names = scene.send(10, 10, session="s1")
    reply = scene.grant("a", 1)
    assert gifts(reply) == [(-1,)]
    assert gifts(scene.grant("b", 1)) == []
    scene.source = "=s1"
    held = scene.grant(holder(("pa", 1)), 9)
    assert gifts(held) == [(*names,)]
