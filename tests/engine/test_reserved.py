"""Reserved ranges: a reader plans, reads and commits the messages of a partition, and nobody else touches them."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import Committed, MalformedCallError, Partition
from sbredis.exceptions import EntityReservedError, MessagesLostError
from tests.engine.bench import SETTINGS, Bench, set_to
from tests.engine.reserving import Reader
from tests.engine.terms import SENTINEL, State
from tests.engine.topics import Topic


@pytest.fixture
async def reader(bench: Bench) -> Reader:
    """A reader of the partition on the bench, which is reserved for it."""
    await bench.change(reserved=True)
    return Reader(bench)


def of(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


# -- planning, reading, committing -------------------------------------------------------------------------------------


async def test_a_range_is_read_as_often_as_wanted_and_in_parts(bench: Bench, reader: Reader) -> None:
    await bench.send(*of(5))
    await reader.begin()
    planned = await reader.plan()
    await bench.send(b"later")
    whole = await reader.read(planned)
    assert [int(message.name) for message in whole] == [1, 2, 3, 4, 5]
    assert {message.state for message in whole} == {"a"}
    assert await reader.read(planned, wanted=2) == whole
    before = await bench.whole()
    part = await reader.part(planned.birth, 1, 3, room=1)
    assert (part.messages, part.more) == (tuple(whole[1:2]), True)
    assert await bench.whole() == before


async def test_the_bytes_of_a_range_are_limited_but_it_has_at_least_one_message(bench: Bench, reader: Reader) -> None:
    await bench.send(*(bytes(100) for _ in range(5)))
    await reader.begin()
    assert (await reader.plan(room=1)).end == 1
    reader.committed = (await reader.plan()).committed
    assert (await reader.plan(room=250)).end == 3
    reader.committed = (await reader.plan()).committed
    assert (await reader.plan(room=10_000)).rows == 2


async def test_committing_removes_messages_in_shares_before_a_plan_is_made(bench: Bench, reader: Reader) -> None:
    for _ in range(3):
        await bench.send(*of(1000))
    await reader.begin()
    reader.committed = (await reader.plan(2500)).committed
    shares = []
    while (planned := await reader.ask(reader.committed)).more:
        shares.append((await bench.count()).active)
    assert shares == [2000, 1000, 500]
    assert (planned.plan, planned.floor, planned.end) == (2, 2500, 3000)


async def test_large_messages_are_removed_in_smaller_shares(bench: Bench, reader: Reader) -> None:
    for _ in range(3):
        await bench.send(bytes(900_000))
    await reader.begin()
    reader.committed = (await reader.plan()).committed
    assert (await reader.ask(reader.committed)).more
    assert (await bench.count()).active == 1


async def test_a_share_of_several_levels_has_2_mb(bench: Bench, reader: Reader) -> None:
    for level in (0, 1, 2):
        await bench.send(bytes(900_000), level=level)
    await bench.send(b"small", level=2)
    await reader.begin()
    reader.committed = (await reader.plan()).committed
    left: list[int] = []
    while (await reader.ask(reader.committed)).more:
        left.append((await bench.count()).active)
    assert left == [2, 0]


# -- everything else leaves a reserved partition alone -----------------------------------------------------------------


async def test_no_receiver_gets_messages_of_the_main_side(bench: Bench) -> None:
    await bench.send(*of(4))
    held = await bench.receive(2)
    await bench.dead_letter(held[0])
    await bench.defer(held[1])
    await bench.change(reserved=True)
    before = await bench.whole()
    for refused in (
        bench.receive_deferred(held[1].name),
        bench.tell(bench.partition.receive_deferred(bench.call_id("x"), "token-token", ["d1", held[1].name])),
    ):
        with pytest.raises(EntityReservedError):
            await refused
    assert await bench.whole() == before
    messages = await bench.peek()
    for grant in (bench.receive(), bench.receive(mode="delete")):
        with pytest.raises(EntityReservedError):
            await grant
    assert await bench.peek() == messages
    assert len(await bench.receive(side="d")) == 1
    assert await bench.receive(side="d") == []


async def test_a_reserved_partition_is_not_closed(bench: Bench, reader: Reader) -> None:
    bench.later(1_000_000)
    version = bench.partition.version
    assert not (await bench.tell(bench.partition.close(1000, version + 1, now=bench.now))).closed
    await reader.release()
    await bench.change(reserved=False)
    bench.later(1_000_000)
    version = bench.partition.version
    assert (await bench.tell(bench.partition.close(1000, version + 1, now=bench.now))).closed


@pytest.mark.parametrize("other", [{"sessions": True}, {"topic": True}, {"forwards": True}])
def test_an_entity_that_does_not_give_its_messages_to_receivers_cannot_be_reserved(other: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="reserved"):
        replace(SETTINGS, reserved=True, **other)


# -- fences, losses ----------------------------------------------------------------------------------------------------


Position = Callable[[Committed], Committed]
LOSSES: dict[str, tuple[Position, str]] = {
    "another birth": (lambda at: at._replace(birth="other"), "made anew"),
    "a later plan": (lambda at: at._replace(plan=at.plan + 1, number=at.number + 1), "failover"),
    "a later plan at the same number": (lambda at: at._replace(plan=at.plan + 1), "failover"),
    "a later number": (lambda at: at._replace(number=at.number + 1), "failover"),
    "a number within the range": (lambda at: at._replace(number=at.number - 1), "failover"),
    "an older number": (lambda at: at._replace(plan=at.plan - 2, number=at.number - 3), "older checkpoint"),
    "the plan without its range": (lambda at: at._replace(number=at.number - 2), "older checkpoint"),
}


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_position_that_does_not_fit_is_refused(bench: Bench, reader: Reader, loss: str) -> None:
    await bench.send(*of(6))
    await reader.begin()
    await reader.take(2)
    at = (await reader.plan(2)).committed
    position, why = LOSSES[loss]
    before = await bench.whole()
    with pytest.raises(MessagesLostError, match=why):
        await reader.ask(position(at))
    assert await bench.whole() == before


@pytest.mark.parametrize("loss", LOSSES)
async def test_a_loss_can_be_accepted(bench: Bench, reader: Reader, loss: str) -> None:
    """The reader goes on from its position, or from the last committed message if that is later."""
    await bench.send(*of(6))
    await reader.begin()
    await reader.take(2)
    at = (await reader.plan(2)).committed
    position = reader.committed = LOSSES[loss][0](at)
    begin = 2 if loss == "another birth" else max(2, position.number)
    planned = await reader.plan(accept=True)
    assert planned == await reader.plan(accept=True)
    assert planned.floor == begin
    assert planned.plan > 2 or loss in {"another birth", "an older number"}
    assert next(int(message.name) for message in await reader.read(planned)) == begin + 1
    reader.committed = planned.committed
    rest = []
    while some := await reader.take():
        rest += some
    assert (await bench.count()).active == 0
    assert planned.rows + len(rest) == 6 - begin


async def test_a_range_that_is_not_pinned_cannot_be_read(bench: Bench, reader: Reader) -> None:
    await bench.send(*of(6))
    await reader.begin()
    await reader.take(2)
    planned = await reader.plan(2)
    for birth, after, upto in (("x", 2, 4), (planned.birth, 1, 4), (planned.birth, 2, 5)):
        with pytest.raises(MessagesLostError):
            await reader.part(birth, after, upto)
    assert len((await reader.part(planned.birth, 4, 6, pinned=False)).messages) == 2
    await reader.release()
    with pytest.raises(MessagesLostError):
        await reader.read(planned)


@set_to(audited=True)
async def test_committed_messages_are_noted_as_completed(bench: Bench) -> None:
    """This includes messages that were received before, and messages of several levels."""
    await bench.send(*of(2))
    await bench.abandon(await bench.one())
    await bench.send(b"3", level=1)
    await bench.send(b"4")
    await bench.change(reserved=True)
    reader = Reader(bench)
    await reader.begin()
    await reader.take(3)
    await reader.settle()
    found = await bench.tell(bench.partition.read_settlements(call_id=bench.at()))
    completed = [one.name for one in found.settlements if one.event.value == "c"]
    assert completed == ["1", "2", "3"]


# -- many messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["server"], indirect=True)
async def test_many_pinned_messages_that_have_expired_delay_no_scheduled_message(bench: Bench, reader: Reader) -> None:
    """Due work begins after the pinned messages, so the first call activates the scheduled one."""
    for _ in range(100):
        await bench.send(*of(1000), time_to_live=1000)
    await bench.send(b"scheduled", due=bench.now + 5000)
    await reader.begin()
    planned = await reader.plan(100_000)
    assert planned.rows == 100_000
    bench.later(10_000)
    assert not (await bench.due()).more
    assert await bench.stored(State.SCHEDULED) == 0
    assert (await reader.pin()).left == 1
    assert (await bench.count()).active == 100_001


async def test_committed_copies_of_a_subscription_leave_the_records_of_others(topic: Topic) -> None:
    await topic.publish((b"for both", (0, 1)), (b"for one", (0,)))
    settings = replace(topic.one.settings, reserved=True)
    one = Partition("ns", "abc", "s1", topic.one.incarnation, 2, settings, store="t")
    await topic.tell(one.configure(now=topic.now))
    begun = await topic.tell(one.plan(1, None, 0, call_id=topic.at()))
    planned = await topic.tell(one.plan(1, begun.committed, 10, call_id=topic.at()))
    assert (planned.rows, planned.left, await topic.stored()) == (2, 0, 2)
    while (await topic.tell(one.plan(1, planned.committed, 0, call_id=topic.at()))).more:
        pass
    assert await topic.stored() == 1
    assert await topic.payloads(topic.two) == [b"for both"]


# -- seldom found -----------------------------------------------------------------------------------------------------
# The machine finds the bugs that these tests guard against only after thousands of steps.


async def test_a_share_has_messages_of_several_levels(bench: Bench) -> None:
    """A small range is removed by one call. Nothing is left of its messages, and those after it stay."""
    for level in (7, 0, 3):
        await bench.send(*of(2), level=level)
    await bench.abandon(await bench.one(), changes=b"changed")
    later = await bench.send(b"later", level=3)
    await bench.change(reserved=True)
    reader = Reader(bench)
    await reader.begin()
    reader.committed = (await reader.plan(6)).committed
    assert (await reader.ask(reader.committed)).more
    (left,) = await bench.peek()
    assert [left.name] == later
    assert (await bench.count()).bytes == len(left.record)
    held = {key.rpartition(":")[2]: fields for key, (_, fields) in (await bench.whole()).items()}
    assert held["order"].keys() == {later[0].encode(), SENTINEL.encode()}
    assert held["entries"].keys() == {SENTINEL.encode()}
    assert [kind for kind in held if re.fullmatch(r"m[0-9]+", kind)] == ["m0"]
    assert held["m0"].keys() == {later[0].encode()}


async def test_a_partition_stays_reserved_while_messages_are_pinned_or_committed(bench: Bench, reader: Reader) -> None:
    await bench.send(*of(1000))
    await bench.send(*of(3, 1000))
    await reader.begin()
    planned = await reader.plan(1002)
    for position, more in ((reader.committed, False), (planned.committed, True)):
        assert (await reader.ask(position, 0)).more is more
        reserved, before = bench.partition, await bench.whole()
        with pytest.raises(MalformedCallError, match="pinned"):
            await bench.change(reserved=False)
        assert await bench.whole() == before
        bench.partition = reserved
    await reader.release()
    await bench.change(reserved=False)
    assert await bench.payloads() == [b"1002"]


async def test_plan_numbers_never_go_back(bench: Bench, reader: Reader) -> None:
    await bench.send(*of(4))
    await reader.begin()
    old = await reader.plan(2)
    await reader.release()
    with pytest.raises(MessagesLostError):
        await reader.ask(old.committed)
    again = await reader.plan(3)
    assert (again.plan, again.end) == (3, 3)
