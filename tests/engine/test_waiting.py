"""Fundamentals, part five: a receiver that finds no message is woken when there is one for it."""

from __future__ import annotations

import pytest

from sbredis.engine import Mode, Outgoing, new_token
from sbredis.engine._keys import waiting_channel
from sbredis.exceptions import MessagingEntityNotFoundError
from tests.engine.bench import NAMESPACE, SALT, SETTINGS, START, Bench
from tests.engine.receivers import Receivers
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.everywhere("a channel belongs to a slot")]

PATIENCE = 30_000
"""The time for which a partition remembers a waiting receiver."""
GRACE = 1010
"""The time after which a woken receiver that made no call is given up."""


async def test_a_waiting_receiver_is_woken_when_a_message_is_sent(bench: Bench, listening: Receivers) -> None:
    """The message on the receiver's channel names the partition and the side that have something to receive."""
    receiver = await listening("a")
    assert await receiver.receive() == []
    await bench.send(b"m")
    await eventually(lambda: receiver.ear.heard)
    assert receiver.ear.heard == [bench.partition.keys[0] + b" "]
    assert await receiver.receive() == [b"m"]


async def test_a_receiver_that_finds_something_does_not_wait(bench: Bench, listening: Receivers) -> None:
    """A receiver that got a message finds later messages with its next call."""
    receiver = await listening("a")
    await bench.send(b"m")
    assert await receiver.receive() == [b"m"]
    await bench.send(b"n")
    await receiver.woken(0)


async def test_a_receiver_that_gets_fewer_messages_than_it_wants_waits_for_the_rest(
    bench: Bench, listening: Receivers
) -> None:
    """The receiver wants more messages than it got. The same call makes it a waiter, so it needs no further call that
    would find no messages.
    """
    receiver = await listening("a")
    await bench.send(b"m", b"n")
    assert await receiver.receive(5) == [b"m", b"n"]
    await bench.send(b"o")
    await receiver.woken(1)
    assert await receiver.receive(1) == [b"o"]  # the receiver wants no more messages than this
    await bench.send(b"p")
    await receiver.woken(0)


async def test_a_receiver_that_waits_for_any_message_stops_waiting_when_it_gets_one(
    bench: Bench, listening: Receivers
) -> None:
    receiver = await listening("a")
    await bench.send(b"m")
    held, _ = await bench.receive_more(5, waiter=receiver.channel, waiting_for=1)
    assert len(held) == 1
    await bench.send(b"n")
    await receiver.woken(0)


async def test_a_receiver_waits_only_for_the_messages_that_it_still_wants(bench: Bench, listening: Receivers) -> None:
    """The next waiter is woken for the messages that the first one does not want."""
    one, two = await listening("a"), await listening("b")
    await bench.send(b"m")
    assert await one.receive(3) == [b"m"]
    bench.later(10)
    assert await two.receive(1) == []
    await bench.send(b"n", b"o")
    await one.woken(1)
    await two.woken(0)
    await bench.send(b"p")
    await two.woken(1)


@pytest.mark.parametrize("waits", [True, False])
async def test_the_result_of_a_receive_says_whether_the_receiver_waits(bench: Bench, waits: bool) -> None:
    await bench.send(b"m", b"n")
    waiter = waiting_channel(NAMESPACE, SALT, "q", "a") if waits else b""
    for wanted, said in ((1, False), (5, waits)):
        request = bench.partition.receive(bench.call_id(), new_token(), wanted, waiter=waiter, waiting_for=wanted)
        result = await bench.tell(request)
        assert (len(result.messages), result.waits) == (1, said)
        assert (result.due > 0) is said  # a due time is known: the end of the lock


@pytest.mark.parametrize("mode", ["lock", "delete"])
@pytest.mark.parametrize("waits", [True, False])
async def test_a_repeated_receive_says_whether_the_receiver_waits(bench: Bench, mode: Mode, waits: bool) -> None:
    """The first answer may be lost, and a receiver that wrongly believes that it waits would never be woken."""
    await bench.send(b"m", b"n")
    partition, wanted = bench.partition, 5 if waits else 1
    waiter = waiting_channel(NAMESPACE, SALT, "q", "a")
    request = partition.receive(bench.call_id(), new_token(), wanted, mode=mode, waiter=waiter, waiting_for=wanted)
    assert (await bench.tell(request)).waits is waits
    assert (await bench.tell(request)).waits is waits


async def test_only_the_needed_waiters_are_woken_in_order_of_arrival(bench: Bench, listening: Receivers) -> None:
    """A waiter that wants many messages is woken for any number. Further waiters are woken only for the rest."""
    one, two, three, four = [await listening(name) for name in "cbad"]
    for receiver, wanted in ((one, 1), (two, 3), (three, 1), (four, 1)):
        assert await receiver.receive(wanted) == []
        bench.later(10)
    await bench.send(b"m")
    await one.woken(1)
    await two.woken(0)
    await bench.send(b"m", b"m")
    await two.woken(1)
    await bench.send(b"m", b"m")
    for receiver, times in ((one, 0), (two, 0), (three, 1), (four, 0)):
        await receiver.woken(times)


async def test_a_woken_waiter_is_not_woken_again_before_its_next_call(bench: Bench, listening: Receivers) -> None:
    """With its next call, the waiter also gets the messages that were sent meanwhile."""
    receiver = await listening("a")
    await receiver.receive(10)
    await bench.send(b"m")
    await bench.send(b"n")
    await receiver.woken(1)
    assert await receiver.receive(10) == [b"m", b"n"]


async def test_another_waiter_is_woken_if_a_woken_waiter_makes_no_call(bench: Bench, listening: Receivers) -> None:
    """After a second, a call of any kind wakes the next waiter instead."""
    gone, next_one = await listening("a"), await listening("b")
    await gone.receive()
    bench.later(10)
    await next_one.receive()
    await bench.send(b"m")
    bench.later(GRACE - 10)
    await bench.due()
    await gone.woken(1)
    await next_one.woken(0)
    bench.later(10)
    await bench.due()
    await gone.woken(0)
    await next_one.woken(1)
    assert await next_one.receive() == [b"m"]


async def test_no_other_waiter_is_woken_if_the_woken_waiter_makes_its_call(bench: Bench, listening: Receivers) -> None:
    """The other waiters continue to wait for the next message."""
    quick, other = await listening("a"), await listening("b")
    await quick.receive()
    bench.later(10)
    await other.receive()
    await bench.send(b"m")
    assert await quick.receive() == [b"m"]
    bench.later(GRACE)
    await bench.due()
    await other.woken(0)
    await bench.send(b"n")
    await other.woken(1)


async def test_after_a_woken_waiter_has_received_the_next_one_can_be_woken_immediately(
    bench: Bench, listening: Receivers
) -> None:
    """The next message wakes the next waiter at once."""
    quick, other = await listening("a"), await listening("b")
    await quick.receive()
    bench.later(10)
    await other.receive()
    await bench.send(b"m")
    assert await quick.receive() == [b"m"]
    await bench.send(b"n")
    await quick.woken(1)
    await other.woken(1)


async def test_a_waiter_registered_twice_is_woken_once(bench: Bench, listening: Receivers) -> None:
    """A second look replaces the number of wanted messages and the end of the waiting time."""
    receiver, other = await listening("a"), await listening("b")
    await receiver.receive(1)
    bench.later(10)
    await other.receive(1)
    bench.later(10)
    await receiver.receive(2)
    await bench.send(b"m")
    await receiver.woken(0)
    await other.woken(1)
    await bench.send(b"n", b"o")
    await receiver.woken(1)
    await other.woken(0)


async def test_a_receiver_is_remembered_for_half_a_minute(bench: Bench, listening: Receivers) -> None:
    """A waiter that makes no call for half a minute counts as gone."""
    gone, there = await listening("a"), await listening("b")
    await gone.receive()
    bench.later(PATIENCE)
    await there.receive()
    bench.later(10)
    await bench.send(b"m")
    await gone.woken(0)
    await there.woken(1)


async def test_a_receiver_is_woken_until_its_waiting_time_ends(bench: Bench, listening: Receivers) -> None:
    """A receiver that is remembered is woken until the last moment."""
    receiver = await listening("a")
    await receiver.receive()
    bench.later(PATIENCE)
    await bench.send(b"m")
    await receiver.woken(1)


@pytest.mark.parametrize("way", ["abandoned", "given back", "lapsed", "delay over", "activated"])
async def test_making_a_message_available_wakes_a_waiter(bench: Bench, listening: Receivers, way: str) -> None:
    """Besides sending, other operations make a message available and wake a waiter."""
    receiver = await listening("a")
    held = None
    if way == "activated":
        await bench.send(b"m", due=START + 20_000)
    else:
        await bench.send(b"m")
        held = await bench.one()
    await receiver.receive()
    if held and way == "abandoned":
        await bench.abandon(held)
    elif held and way == "given back":
        await bench.abandon(held, counted=False)
    elif held and way == "delay over":
        await bench.abandon(held, delay=20_000)
        await receiver.woken(1)  # woken because the receiver would have slept past the due time
        assert await receiver.receive() == []
    await receiver.woken(int(way in {"abandoned", "given back"}))
    bench.later(20_000 if way != "lapsed" else SETTINGS.lock_duration)
    await bench.due()
    await receiver.woken(int(way not in {"abandoned", "given back"}))


async def test_no_waiter_is_woken_without_a_message(bench: Bench, listening: Receivers) -> None:
    """No waiter is woken for a message that cannot be received yet, or for a message that is removed."""
    receiver = await listening("a")
    await bench.send(b"one", b"two", b"three", b"four", b"five")
    one, two, three, four, five = await bench.receive()
    await receiver.receive()
    await bench.send(b"m", due=START + 1_000_000)
    await bench.abandon(one, delay=1_000_000)
    await bench.defer(two)
    await bench.complete(three)
    await bench.dead_letter(four)
    await bench.renew(five)
    await bench.cancel("6")
    await bench.purge()
    await receiver.woken(0)


async def test_a_waiter_that_would_sleep_past_due_work_is_woken(bench: Bench, listening: Receivers) -> None:
    """The waiters do not know of the new due time, so one waiter is woken to learn it."""
    first, second = await listening("a"), await listening("b")
    await first.receive()
    bench.later(10)
    await second.receive()
    await bench.send(b"m", due=START + PATIENCE - 11)
    await first.woken(1)
    await second.woken(0)
    _, told = await bench.receive_more(1, waiter=first.channel)
    assert told.due == PATIENCE - 21


async def test_a_waiter_is_woken_for_due_work_even_if_another_is_woken_for_a_message(
    bench: Bench, listening: Receivers
) -> None:
    """A waiter that gets a message does not learn the next due time."""
    first, second = await listening("a"), await listening("b")
    await first.receive()
    bench.later(10)
    await second.receive()
    await bench.send_all(Outgoing(b"now"), Outgoing(b"soon", due=START + 1_000))
    await first.woken(1)
    await second.woken(1)


@pytest.mark.parametrize("how", ["finds something", "looks and finds something", "goes away"])
async def test_a_leaving_waiter_passes_on_the_next_due_time(bench: Bench, listening: Receivers, how: str) -> None:
    """If the waiter that was woken for the due time leaves, the next waiter is woken for it, and so on."""
    first, second, third = [await listening(name) for name in "abc"]
    for receiver in (first, second, third):
        await receiver.receive()
        bench.later(10)
    await bench.send(b"soon", due=START + 5000)
    await first.woken(1)
    if how == "goes away":
        await first.look(0)
    else:
        await bench.send(b"now")
        await second.woken(0)
        assert await first.receive() == [b"now"] if how == "finds something" else (await first.look()).found
    await second.woken(1)
    await third.woken(how == "looks and finds something")  # the second waiter was woken for the available message


async def test_a_leaving_waiter_wakes_no_other_waiter_if_nothing_is_due_soon(
    bench: Bench, listening: Receivers
) -> None:
    first, second = await listening("a"), await listening("b")
    await first.receive()
    bench.later(10)
    await second.receive()
    await bench.send(b"m", due=START + PATIENCE + 10)
    await first.look(0)
    await second.woken(0)


async def test_no_waiter_is_woken_if_another_one_knows_the_due_time(bench: Bench, listening: Receivers) -> None:
    """If a waiter knows the due time, no other waiter is woken for it."""
    first, second = await listening("a"), await listening("b")
    await first.receive()
    bench.later(10)
    await second.receive()
    await bench.send(b"m", due=START + 5000)
    await first.woken(1)
    assert (await first.look()).due == 4990
    await second.woken(0)


@pytest.mark.slow
async def test_a_live_waiter_after_many_dead_waiters_is_woken(bench: Bench, listening: Receivers) -> None:
    """Any number of dead waiters may come before the live waiter."""
    for number in range(100):
        await bench.receive_more(1, waiter=waiting_channel(NAMESPACE, SALT, "q", f"gone{number}"))
    bench.later(PATIENCE + 10)
    receiver = await listening("a")
    await receiver.receive()
    await bench.send(b"m")
    await receiver.woken(1)


async def test_another_waiter_replaces_a_woken_one_even_if_the_clock_goes_back(
    bench: Bench, listening: Receivers
) -> None:
    """Otherwise no other waiter would be woken until the clock has caught up."""
    bench.later(60_000)
    await (await listening("gone")).receive()
    await bench.send(b"m")
    bench.later(-60_000)
    receiver = await listening("there")
    await bench.tell(bench.partition.receive(bench.call_id(), new_token(), 1, side="d", waiter=receiver.channel))
    held = await bench.one()
    await receiver.receive()
    await bench.abandon(held, counted=False)
    await receiver.woken(1)


async def test_a_waiter_whose_waiting_time_ends_before_the_due_time_is_not_woken(
    bench: Bench, listening: Receivers
) -> None:
    """The next call of the waiter, before the due time, returns the due time."""
    receiver = await listening("a")
    await receiver.receive()
    await bench.send(b"m", due=START + PATIENCE)
    await receiver.woken(0)


async def test_a_receiver_can_wait_at_both_sides_at_the_same_time(bench: Bench, listening: Receivers) -> None:
    """A client has one channel for everything that it waits for in a slot."""
    receiver = await listening("a")
    await receiver.receive()
    assert await receiver.receive(side="d") == []
    await bench.send(b"m")
    await receiver.woken(1)
    held = await bench.one()
    await bench.dead_letter(held)
    await receiver.woken(1)


async def test_dead_waiters_are_forgotten(bench: Bench, listening: Receivers) -> None:
    """Each new waiter removes a few dead ones, so that they do not gather."""
    for number in range(30):
        await bench.receive_more(1, waiter=waiting_channel(NAMESPACE, SALT, "q", f"gone{number}"))
    bench.later(PATIENCE + 10)
    for name in ("a", "b", "c"):
        await (await listening(name)).receive()
    key = bench.partition.keys[8]
    assert await bench.transport.command("ZCARD", key, key=key) == 3


async def test_each_side_wakes_only_its_own_waiters(bench: Bench, listening: Receivers) -> None:
    """A waiter for dead letters is woken only for dead letters, and a waiter for messages only for messages."""
    main, dead = await listening("a"), await listening("b")
    await bench.send(b"m")
    held = await bench.one()
    await main.receive()
    assert await dead.receive(side="d") == []
    await bench.dead_letter(held)
    await eventually(lambda: dead.ear.heard)
    assert dead.ear.heard == [bench.partition.keys[0] + b" d"]
    await dead.woken(1)
    await main.woken(0)
    assert await dead.receive(side="d") == [b"m"]
    await bench.send(b"n")
    await main.woken(1)
    await dead.woken(0)


async def test_newer_settings_wake_the_waiters_of_all_sides(bench: Bench, listening: Receivers) -> None:
    """Their next call tells them whether there is still something to wait for. Until then they do not wait."""
    main, dead, third = await listening("a"), await listening("b"), await listening("c")
    await main.receive()
    await dead.receive(side="d")
    await third.receive(side="t")
    await bench.change(status="ReceiveDisabled")
    for receiver, end in ((main, b" "), (dead, b" d"), (third, b" t")):
        await eventually(lambda heard=receiver.ear.heard: heard)
        assert receiver.ear.heard == [bench.partition.keys[0] + end]
        await receiver.woken(1)
    await bench.send(b"m")
    await main.woken(0)


async def test_settings_of_the_same_version_wake_nobody(bench: Bench, listening: Receivers) -> None:
    receiver = await listening("a")
    await receiver.receive()
    await bench.tell(bench.partition.configure(now=bench.now))
    await receiver.woken(0)
    await bench.send(b"m")
    await receiver.woken(1)


@pytest.mark.parametrize("share", [0, 500])
async def test_the_first_step_of_a_deletion_wakes_the_waiters(bench: Bench, listening: Receivers, share: int) -> None:
    main, dead = await listening("a"), await listening("b")
    await main.receive()
    await dead.receive(side="d")
    await bench.tell(bench.partition.destroy(share=share))
    await main.woken(1)
    await dead.woken(1)
    await bench.tell(bench.partition.destroy())
    await main.woken(0)
    with pytest.raises(MessagingEntityNotFoundError):
        await main.receive()


async def test_a_waiter_for_very_many_messages_is_woken_like_others(bench: Bench, listening: Receivers) -> None:
    """The number of wanted messages is stored up to a limit; a higher number makes no difference."""
    greedy, other = await listening("a"), await listening("b")
    await greedy.receive(1000)
    bench.later(10)
    await other.receive()
    await bench.send(*(b"m" for _ in range(127)))
    await greedy.woken(1)
    await other.woken(0)
    await bench.send(b"m")
    await other.woken(1)


async def test_a_send_publishes_no_wake_if_no_receiver_waits(bench: Bench, listening: Receivers) -> None:
    """A partition does not remember a receiver without a channel."""
    receiver = await listening("a")
    assert await bench.receive() == []
    await bench.send(b"m")
    await receiver.woken(0)
    assert not any(key.endswith(":waiters") for key in await bench.whole())
