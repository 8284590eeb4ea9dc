"""The steps of moving messages: a table of the cases, and a property-based test of whole moves with faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbredis.engine import Delivery
from sbredis.moving._moves import (
    MOST_BYTES,
    Bound,
    Ended,
    Fault,
    Freeze,
    Move,
    MoveAtOnce,
    MoveGroup,
    ReadBatch,
    Settle,
    Take,
)

FULL = Fault("QuotaExceeded", "The destination is full.")
WRONG = Fault("MaxTransferHopCountExceeded", "The message was forwarded 4 times.")


def message(name: str, size: int = 1) -> Bound:
    return Bound(Delivery(name, b"." * size))


def moves(names: str, faulty: str = "") -> tuple[Move, ...]:
    return tuple(Move(message(name), WRONG if name in faulty else None) for name in names)


def names(of: Any) -> str:
    return "".join(move.message.name for move in of)


def test_a_group_in_one_slot_is_moved_with_one_script() -> None:
    group = MoveGroup(moves("abc"), one_script=True)
    assert group.next() == MoveAtOnce(moves("abc"))
    assert group.next() == MoveAtOnce(moves("abc"))  # without a report the action stays the same
    group.moved()
    assert group.next() == Ended()


@pytest.mark.parametrize("absent", ["ab", "all"])
def test_a_group_ends_if_no_message_is_there_as_it_was_read(absent: str) -> None:
    group = MoveGroup(moves("ab"), one_script=True)
    group.absent({*absent} if absent == "ab" else {"all"})
    assert group.next() == Ended()


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([MOST_BYTES] * 2, [1, 1]),
        ([MOST_BYTES // 2] * 3, [2, 1]),
        ([9 * MOST_BYTES, 1, 1], [1, 2]),
        ([1] * 600, [500, 100]),
    ],
)
def test_large_messages_and_many_messages_are_moved_in_pieces(sizes: list[int], pieces: list[int]) -> None:
    group = MoveGroup([Move(message(str(number), size)) for number, size in enumerate(sizes)], one_script=True)
    found: list[int] = []
    while isinstance(action := group.next(), MoveAtOnce):
        found.append(len(action.moves))
        group.moved()
    assert (found, action) == (pieces, Ended())


def test_a_group_between_slots_is_frozen_taken_and_settled() -> None:
    group = MoveGroup(moves("abc"), one_script=False, door="d")
    assert group.next() == Freeze(moves("abc"))
    group.frozen(7, "abc")
    assert group.next() == Take(7, moves("abc"), "d")
    group.judged("taken")
    assert group.next() == Settle(7, "taken")
    group.settled(done=True)
    assert group.next() == Ended()


@pytest.mark.parametrize(
    ("batch", "action"),
    [(1, Take(1, moves("ab", "b"), "new")), (2, Settle(2, "refused", given_up=((moves("b", "b")[0], WRONG),)))],
    ids=["the same batch", "another batch"],
)
def test_only_a_batch_that_no_destination_was_asked_to_take_is_given_up(batch: int, action: Take | Settle) -> None:
    """A take of the batch may have run, so its destination decides. Another mover may have settled it meanwhile."""
    group = MoveGroup(moves("ab"), one_script=False)
    group.frozen(1, "ab")
    group.judged("door", "new")
    assert group.next() == ReadBatch()
    group.read(batch, moves("ab", "b"))
    assert group.next() == action


def test_a_batch_that_is_not_outstanding_any_more_ends_the_group() -> None:
    group = MoveGroup((), one_script=False)
    group.overtaken()
    assert group.next() == Ended()


@pytest.mark.parametrize(
    ("verdict", "settle"), [("again", Settle(1, "again", names=("a",))), ("over", Settle(1, "back"))]
)
def test_after_a_rollback_the_source_is_read_again(verdict: str, settle: Settle) -> None:
    group = MoveGroup(moves("abc"), one_script=False, most=2)
    assert group.next() == Freeze(moves("ab"))  # the first piece; another one would follow
    group.frozen(1, "ab")
    group.judged(verdict, names=["a"])
    assert group.next() == settle
    group.settled(done=True)
    assert group.next() == Ended()


def test_a_settlement_by_another_mover_ends_the_group() -> None:
    group = MoveGroup(moves("abc"), one_script=False, most=1)
    assert group.next() == Freeze(moves("a"))  # the first piece; two others would follow
    group.frozen(1, "a")
    group.judged("taken")
    group.settled(done=False)
    assert group.next() == Ended()


@pytest.mark.parametrize(("others", "foreign"), [("xy", False), ("abx", False), ("abc", True)])
def test_a_batch_with_other_messages_or_another_purpose_is_read_before_it_is_taken(others: str, foreign: bool) -> None:
    group = MoveGroup(moves("abc"), one_script=False)
    group.frozen(1, others, foreign=foreign)
    assert group.next() == ReadBatch()
    group.read(1, moves(others))
    assert group.next() == Take(1, moves(others), "")


def test_a_batch_with_a_part_of_the_messages_is_the_last_one() -> None:
    """The rest may come before later messages, so the source is read again."""
    group = MoveGroup(moves("abcd"), one_script=False, most=3)
    group.next()
    group.frozen(1, "ac")
    assert group.next() == Take(1, moves("ac"), "")
    group.judged("taken")
    group.settled(done=True)
    assert group.next() == Ended()


@pytest.mark.parametrize("one_script", [True, False])
def test_a_message_that_cannot_be_moved_is_frozen_alone_and_given_up(one_script: bool) -> None:
    group = MoveGroup(moves("b", "b"), one_script=one_script)
    assert group.next() == Freeze(moves("b", "b"))
    group.frozen(1, "b")
    assert group.next() == Settle(1, "refused", given_up=((moves("b", "b")[0], WRONG),))


def test_a_disabled_destination_refuses_all_messages_at_once() -> None:
    group = MoveGroup(moves("abc"), one_script=False)
    group.frozen(1, "abc")
    group.judged("DISABLED", "SendDisabled", fault=FULL)
    assert group.next() == Settle(1, "refused", given_up=tuple((move, FULL) for move in moves("abc")))
    group = MoveGroup(moves("abc"), one_script=True)
    group.refused("DISABLED", "SendDisabled", FULL)
    assert group.next() == Freeze(moves("abc"))
    group.frozen(1, "abc")
    assert group.next() == Settle(1, "refused", given_up=tuple((move, FULL) for move in moves("abc")))


def test_the_message_that_is_too_large_is_known_by_its_index() -> None:
    group = MoveGroup(moves("abc"), one_script=False)
    group.frozen(1, "abc")
    group.judged("TOOLARGE", "1", fault=FULL)
    assert group.next() == Settle(1, "refused", given_up=((moves("b")[0], FULL),))
    group.settled(done=True)
    assert group.next() == Freeze(moves("a"))
    group = MoveGroup(moves("abc"), one_script=True)
    group.refused("TOOLARGE", "1", FULL)
    assert group.next() == MoveAtOnce(moves("a"))
    group.moved()
    assert group.next() == Freeze(moves("b"))


@pytest.mark.parametrize("detail", ["3", "-1", "", "not an index"])
def test_a_piece_without_a_known_guilty_message_is_divided(detail: str) -> None:
    group = MoveGroup(moves("abc"), one_script=False)
    group.frozen(1, "abc")
    group.judged("TOOLARGE", detail, fault=FULL)
    assert group.next() == Settle(1, "back")
    group.settled(done=True)
    assert group.next() == Freeze(moves("a"))


# -- whole moves -------------------------------------------------------------------------------------------------------


@dataclass
class World:
    """A source that movers serve, and a destination that remembers its verdicts.

    The destination refuses some messages with a code, and has room for a number of messages.
    """

    left: list[str]
    refused: set[str]
    code: str = "TOOLARGE"
    room: int = 1000
    there: list[str] = field(default_factory=list[str])
    given_up: list[str] = field(default_factory=list[str])
    batch: tuple[int, int, list[str]] | None = None
    """The number of the outstanding batch, the mover that has frozen it, and its messages."""
    verdicts: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    batches: int = 0

    def leave_a_batch(self, count: int) -> None:
        """Let a mover that has died have frozen the first messages."""
        if self.left[:count]:
            self.batches, self.batch, self.left = 1, (1, 2, self.left[:count]), self.left[count:]

    def carry_out(self, group: MoveGroup) -> None:
        """Carry out the actions of a group until it ends."""
        steps = 0
        while not self.step(group, 0):
            steps += 1
            assert steps < 2000

    def step(self, group: MoveGroup, mover: int) -> bool:
        """Carry out one action of a group. Return whether it has ended."""
        match action := group.next():
            case Ended():
                return True
            case MoveAtOnce():
                self.move(group, list(names(action.moves)))
            case Freeze():
                self.freeze([name for name in names(action.moves) if name in self.left], mover)
                if self.batch is None:
                    group.overtaken()
                else:
                    group.frozen(self.batch[0], self.batch[2], foreign=self.batch[1] != mover)
            case ReadBatch():
                if self.batch is None:
                    group.overtaken()
                else:
                    group.read(self.batch[0], moves("".join(self.batch[2])))
            case Take():
                if self.batch is not None and self.batch[0] == action.batch:
                    assert names(action.moves) == "".join(self.batch[2])
                if action.batch > len(self.verdicts):
                    self.verdicts.append(self.judge(list(names(action.moves))))
                code, detail = self.verdicts[action.batch - 1]
                group.judged(code, detail, fault=None if code == "taken" else FULL)
            case Settle():
                done = self.batch is not None and self.batch[0] == action.batch
                if done:
                    self.settle(action)
                group.settled(done=done)
        return False

    def judge(self, wanted: list[str]) -> tuple[str, str]:
        bad = [place for place, name in enumerate(wanted) if name in self.refused]
        if bad:
            return self.code, str(bad[0]) if self.code in ("TOOLARGE", "SESSIONS") else "1 2"
        if len(self.there) + len(wanted) > self.room:
            return "QUOTA", "9 9"
        self.there += wanted
        return "taken", ""

    def move(self, group: MoveGroup, wanted: list[str]) -> None:
        if gone := set(wanted) - set(self.left):
            group.absent(gone)
        elif (judged := self.judge(wanted))[0] == "taken":
            self.left = [name for name in self.left if name not in wanted]
            group.moved()
        else:
            group.refused(*judged, FULL)

    def freeze(self, wanted: list[str], mover: int) -> None:
        if self.batch is None and wanted:
            self.batches += 1
            self.batch = self.batches, mover, wanted
            self.left = [name for name in self.left if name not in wanted]

    def settle(self, action: Settle) -> None:
        assert self.batch is not None
        frozen, self.batch = self.batch[2], None
        self.verdicts += [("", "")] * (action.batch - len(self.verdicts))  # it was given up, and never judged
        if action.verdict != "taken":
            gone = [move.message.name for move, _ in action.given_up]
            self.given_up += gone
            self.left = sorted([*self.left, *(name for name in frozen if name not in gone)])


@given(
    count=st.integers(1, 20),
    room=st.integers(0, 24),
    refused=st.sets(st.sampled_from("abcdefghijklmnopqrst")),
    taken_away=st.sets(st.sampled_from("abcdefghijklmnopqrst")),
    code=st.sampled_from(["TOOLARGE", "SESSIONS", "QUOTA"]),
    most=st.integers(1, 20),
    one_script=st.booleans(),
    stale=st.booleans(),
)
def test_each_message_is_moved_or_given_up_once_and_in_order(
    *,
    count: int,
    room: int,
    refused: set[str],
    taken_away: set[str],
    code: str,
    most: int,
    one_script: bool,
    stale: bool,
) -> None:
    seen = "abcdefghijklmnopqrst"[:count]  # the mover has read messages that a receiver has taken away since then
    source = [name for name in seen if name not in taken_away]
    world = World([*source], refused, code, room)
    world.leave_a_batch(stale * (len(source) // 2 + 1))
    for _ in range(100):
        if world.batch is not None:
            world.carry_out(MoveGroup((), one_script=False))
        if not world.left:
            break
        world.carry_out(MoveGroup(moves(seen), one_script=one_script, most=most))
        seen = "".join(world.left)
    assert world.left == []
    assert world.batch is None
    assert sorted(world.there + world.given_up) == source
    assert world.there == sorted(world.there)
    assert set(world.given_up) >= refused & set(source)
    if room >= count:
        assert set(world.given_up) == refused & set(source)


@pytest.mark.parametrize(
    ("verdict", "detail", "done", "carried"),
    [
        ("taken", "", True, "abc"),
        ("taken", "", False, "abc"),
        ("TOOLARGE", "1", True, "b"),  # it is given up, and the others return
        ("TOOLARGE", "1", False, "b"),
        ("QUOTA", "", True, ""),
        ("GONE", "", True, "abc"),
        ("over", "", True, ""),
        ("over", "", False, "abc"),  # the other mover may have found out that they were taken
    ],
)
def test_messages_that_are_back_do_not_count(verdict: str, detail: str, *, done: bool, carried: str) -> None:
    group = MoveGroup(moves("abc"), one_script=False)
    group.frozen(1, "abc")
    group.judged(verdict, detail, fault=FULL)
    group.settled(done=done)
    assert group.carried == set(carried)


def test_messages_count_if_one_script_has_moved_them_or_may_have() -> None:
    group = MoveGroup(moves("abc"), one_script=True, most=2)
    assert group.next() == MoveAtOnce(moves("ab"))
    group.moved()
    assert group.carried == set("ab")
    assert group.next() == MoveAtOnce(moves("c"))
    group.lost()
    assert group.carried == set("abc")
    assert group.next() == Ended()


# -- two movers of one source ------------------------------------------------------------------------------------------


@given(
    count=st.integers(1, 12),
    refused=st.sets(st.sampled_from("abcdefghijkl")),
    most=st.integers(1, 12),
    one_script=st.booleans(),
    stale=st.integers(0, 3),
    turns=st.lists(st.integers(0, 1), max_size=60),
)
def test_each_message_is_counted_by_the_one_mover_that_has_moved_it(
    *, count: int, refused: set[str], most: int, one_script: bool, stale: int, turns: list[int]
) -> None:
    """Two movers take turns in any order. Nobody counts the batch of a third one that has died."""
    world = World(list("abcdefghijkl"[:count]), refused)
    of_dead = world.left[:stale]
    world.leave_a_batch(stale)

    def begin() -> MoveGroup:
        if world.batch is not None:
            return MoveGroup((), one_script=False)
        return MoveGroup(moves("".join(world.left)), one_script=one_script, most=most)

    groups, counted = [begin(), begin()], [set[str](), set[str]()]
    for mover in [*turns, *[0, 1] * 400]:
        if world.step(groups[mover], mover):
            counted[mover] |= groups[mover].carried
            groups[mover] = begin()
    left = set(world.there + world.given_up)
    assert world.left == []
    assert world.batch is None
    assert sorted(world.there + world.given_up) == list("abcdefghijkl"[:count])
    first, second = (each & left for each in counted)
    assert not first & second
    assert first | second | set(of_dead) == left
    if not refused & set(of_dead):  # otherwise its messages come back, and one of the two moves them
        assert not (first | second) & set(of_dead)
