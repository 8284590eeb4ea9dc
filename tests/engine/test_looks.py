"""Fundamentals, part eight: a receiver of several partitions looks at them first, and then receives from one."""

from __future__ import annotations

import pytest

from sbredis.engine import CallId, MalformedCallError, new_token
from sbredis.engine._results import Looked
from sbredis.exceptions import MessagingEntityDisabledError
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.receivers import Receivers
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

NOTHING = Looked(more=False, due=0, found=False)
FOUND = Looked(more=False, due=0, found=True)


async def waiters(bench: Bench) -> dict[bytes, int]:
    """Return the waiters, including those that were woken, each with its stored number."""
    held: dict[bytes, int] = (await bench.whole()).get(bench.partition.keys[8].decode(), ("zset", {}))[1]
    return held


async def test_a_look_that_finds_nothing_is_woken_by_the_next_message(bench: Bench, listening: Receivers) -> None:
    """The call that looks also registers the receiver as a waiter, so the receiver misses no message."""
    receiver = await listening("a")
    assert await receiver.look() == NOTHING
    await bench.send(b"m")
    await eventually(lambda: receiver.ear.heard)
    assert receiver.ear.heard == [bench.partition.keys[0] + b" "]
    assert await receiver.look() == FOUND
    assert await receiver.receive() == [b"m"]


async def test_a_look_that_finds_nothing_waits_like_a_receive_that_finds_nothing(
    bench: Bench, listening: Receivers
) -> None:
    """After a look, the waiting time, the number of wanted messages and the stored data are as after a receive."""
    looking, receiving = await listening("a"), await listening("b")
    assert await looking.look(5) == NOTHING
    assert await receiving.receive(5) == []
    one, other = (await waiters(bench)).values()
    assert one == other
    bench.later(10)
    last = await listening("c")
    await last.look()
    await bench.send(*(b"m" for _ in range(10)))
    for receiver, times in ((looking, 1), (receiving, 1), (last, 0)):
        await receiver.woken(times)


async def test_a_look_that_finds_something_changes_nothing(bench: Bench, listening: Receivers) -> None:
    """A look that finds something locks nothing, and its receiver does not wait."""
    receiver = await listening("a")
    await bench.send(b"m", b"n")
    before = await bench.whole()
    assert await receiver.look() == FOUND
    assert await bench.whole() == before
    assert await waiters(bench) == {}
    await bench.send(b"o")
    await receiver.woken(0)
    assert [held.deliveries for held in await bench.receive()] == [1, 1, 1]


async def test_a_waiting_receiver_stops_waiting_when_its_look_finds_a_message(
    bench: Bench, listening: Receivers
) -> None:
    """A receive also ends the waiting. The next waiter is then woken, because the first may receive elsewhere."""
    first, second = await listening("a"), await listening("b")
    await first.look()
    bench.later(10)
    await second.look()
    await bench.send(b"m")
    await first.woken(1)
    await second.woken(0)
    assert await first.look() == FOUND
    assert [channel.split()[0] for channel in await waiters(bench)] == [second.channel]
    await second.woken(1)
    assert await second.look() == FOUND
    assert await waiters(bench) == {}


async def test_a_look_without_a_channel_does_not_wait(bench: Bench) -> None:
    """A look without a channel only returns whether there is a message."""
    assert await bench.look() == NOTHING
    before = await bench.whole()
    assert await bench.look() == NOTHING
    assert await bench.whole() == before
    assert await waiters(bench) == {}
    await bench.send(b"m")
    assert await bench.look() == FOUND


async def test_a_look_considers_only_one_side(bench: Bench, listening: Receivers) -> None:
    """A look does not see the messages of the other side."""
    receiver = await listening("a")
    await bench.send(b"m")
    assert await receiver.look(side="d") == NOTHING
    held = await bench.one()
    assert (await receiver.look()).found is False
    await bench.dead_letter(held)
    await eventually(lambda: receiver.ear.heard)
    assert receiver.ear.heard == [bench.partition.keys[0] + b" d"]
    receiver.ear.heard.clear()
    assert await receiver.look(side="d") == FOUND
    assert [channel.split() for channel in await waiters(bench)] == [[receiver.channel]]
    await bench.send(b"n")
    await receiver.woken(1)
    assert await receiver.receive(side="d") == [b"m"]


@pytest.mark.parametrize("way", ["scheduled", "delayed", "locked"])
async def test_a_look_that_finds_nothing_returns_the_next_due_time(
    bench: Bench, listening: Receivers, way: str
) -> None:
    """A message that becomes active by the clock wakes no receiver until the next call. A later look finds it."""
    receiver = await listening("a")
    due = START + (SETTINGS.lock_duration if way == "locked" else 20_000)
    if way == "scheduled":
        await bench.send(b"m", due=due)
    else:
        await bench.send(b"m")
        held = await bench.one()
        if way == "delayed":
            await bench.abandon(held, delay=20_000)
    assert await receiver.look() == Looked(more=False, due=due - START, found=False)
    await receiver.woken(0)
    bench.now = due - 1
    assert await receiver.look() == Looked(more=False, due=1, found=False)
    bench.now = due
    assert await receiver.look() == FOUND
    assert await receiver.receive() == [b"m"]


async def test_a_look_does_due_work(bench: Bench, listening: Receivers) -> None:
    """Like every call, a look does due work. It wakes the waiters on both sides that now have something to receive."""
    main, dead = await listening("a"), await listening("b")
    await bench.send(b"m", due=START + 20_000)
    await main.look()
    bench.later(20_000)
    assert await dead.look(side="d") == NOTHING
    await main.woken(1)
    await dead.woken(0)


@set_to(dead_letter_expired=True)
async def test_a_look_does_not_find_an_expired_message(bench: Bench, listening: Receivers) -> None:
    """An expired message is in the dead-letter queue, and a look finds it there."""
    receiver = await listening("a")
    await bench.send(b"m", time_to_live=1_000)
    assert await receiver.look() == FOUND
    bench.later(1_000)
    assert await receiver.look() == NOTHING
    assert len(await waiters(bench)) == 1
    assert await receiver.look(side="d") == FOUND


async def test_a_look_counts_an_expired_message_that_is_still_stored(bench: Bench, listening: Receivers) -> None:
    """Each call removes some expired messages and reports more due work. The last look finds nothing and waits."""
    receiver = await listening("a")
    await bench.send(*(b"m" for _ in range(250)), time_to_live=1_000)
    bench.later(1_000)
    assert await receiver.look() == Looked(more=True, due=0, found=True)
    assert await waiters(bench) == {}
    assert await receiver.look() == Looked(more=True, due=0, found=True)
    assert await receiver.look() == NOTHING
    assert len(await waiters(bench)) == 1


async def test_a_repeated_look_has_the_same_result(bench: Bench, listening: Receivers) -> None:
    """The transport may send a look twice, whether or not the first one found something."""
    receiver = await listening("a")
    call_id = CallId("", 0, bench.now)
    request = bench.partition.look(waiter=receiver.channel, call_id=call_id)
    assert [await bench.tell(request) for _ in range(3)] == [NOTHING] * 3
    assert len(await waiters(bench)) == 1
    await bench.send(b"m")
    await receiver.woken(1)
    assert [await bench.tell(request) for _ in range(3)] == [FOUND] * 3
    assert await waiters(bench) == {}
    assert await bench.states() == {"1": "a"}


async def test_a_look_does_not_change_any_lane(bench: Bench) -> None:
    """A lane stores the answer of its last call. A look needs a new answer each time, so a look has no lane."""
    await bench.send(b"m")
    with pytest.raises(MalformedCallError, match="a look has no place in a lane"):
        await bench.tell(bench.partition.look(call_id=bench.call_id("other")))
    ops = bench.partition.keys[7].decode()
    assert list((await bench.whole())[ops][1]) == [b"bench"]


@pytest.mark.parametrize("status", ["ReceiveDisabled", "Disabled"])
async def test_a_look_is_refused_while_receiving_is_disabled(bench: Bench, listening: Receivers, status: str) -> None:
    """The refused look registers no waiter and removes none."""
    waiting, other = await listening("a"), await listening("b")
    await waiting.look()
    await bench.change(status=status)
    before = await bench.whole()
    for receiver in (waiting, other):
        with pytest.raises(MessagingEntityDisabledError):
            await receiver.look()
        call_id = CallId("", 0, bench.now)
        with pytest.raises(MessagingEntityDisabledError):
            await bench.tell(bench.partition.receive(call_id, new_token(), 1, waiter=receiver.channel))
    assert await bench.whole() == before
    await bench.change(status="Active")
    await bench.send(b"m")
    await waiting.woken(1)
    await other.woken(0)


async def test_a_look_wakes_another_waiter_if_the_woken_one_made_no_call(bench: Bench, listening: Receivers) -> None:
    """If a woken waiter has made no call within a second, the look of another receiver wakes the next waiter."""
    gone, next_one, third = [await listening(name) for name in "abc"]
    await gone.look()
    bench.later(10)
    await next_one.look()
    await bench.send(b"m")
    await gone.woken(1)
    bench.later(1_010)
    assert await third.look() == FOUND
    await gone.woken(0)
    await next_one.woken(1)


async def test_a_receiver_that_stopped_waiting_is_not_woken(bench: Bench, listening: Receivers) -> None:
    """A look with a waiting time of zero ends the waiting of its receiver."""
    receiver = await listening("a")
    await receiver.look()
    assert await receiver.look(0) == NOTHING
    assert await waiters(bench) == {}
    await bench.send(b"m")
    await receiver.woken(0)
    assert await receiver.look(0) == FOUND
    assert await waiters(bench) == {}


async def test_when_a_woken_waiter_leaves_the_next_waiter_is_woken(bench: Bench, listening: Receivers) -> None:
    """The next waiter is woken immediately, even if the leaving one had time left or did not hear its waking."""
    first, second, third = [await listening(name) for name in "abc"]
    for receiver in (first, second, third):
        await receiver.look()
        bench.later(10)
    await bench.send(b"m")
    await first.woken(1)
    assert await first.look(0) == FOUND
    await second.woken(1)
    await third.woken(0)
    assert [channel.split()[0] for channel in await waiters(bench)] == [third.channel, second.channel]


async def test_a_receiver_that_leaves_one_side_still_waits_at_the_other(bench: Bench, listening: Receivers) -> None:
    """A receiver waits at each side separately."""
    receiver = await listening("a")
    await receiver.look()
    await receiver.look(side="d")
    await receiver.look(0, side="d")
    assert [channel.split() for channel in await waiters(bench)] == [[receiver.channel]]
    await bench.send(b"m")
    await receiver.woken(1)


async def test_a_receiver_can_stop_waiting_with_a_receive(bench: Bench, listening: Receivers) -> None:
    """A receive that ends the waiting may return messages or none."""
    receiver = await listening("a")
    for payloads in ([b"m"], []):
        await receiver.receive()
        assert len(await waiters(bench)) == 1
        await bench.send(*payloads) if payloads else None
        held, _ = await bench.receive_more(1, waiter=receiver.channel, waiting_for=0)
        assert [message.payload for message in held] == payloads
        assert await waiters(bench) == {}
        await receiver.woken(len(payloads))


async def test_a_look_that_ends_a_wait_changes_nothing_if_the_receiver_never_waited(
    bench: Bench, listening: Receivers
) -> None:
    """Such a look changes nothing, with or without a channel."""
    receiver = await listening("a")
    await bench.look()
    before = await bench.whole()
    assert await receiver.look(0) == NOTHING
    assert await bench.look(waiting_for=0) == NOTHING
    assert await bench.whole() == before
