"""Sessions: one receiver at a time, messages in order, and a state; an empty session leaves no keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import (
    CallId,
    PartitionSettings,
)
from tests.engine.bench import SETTINGS, START, Bench
from tests.engine.holding import (
    accept,
    body,
    holder,
    listed,
    look_for,
    of_session,
    put,
    traces,
)
from tests.engine.receivers import Receivers

LOCK = SETTINGS.lock_duration
pytestmark = pytest.mark.anyio


@pytest.fixture
def settings() -> PartitionSettings:
    """Return the settings of an entity with sessions."""
    return replace(SETTINGS, sessions=True)


# -- accepting -------------------------------------------------------------------------------------------------------


async def test_similar_session_names_are_told_apart(bench: Bench) -> None:
    """A name may be empty, contain special characters, or be the beginning of another name."""
    names = ["", " ", "=", "a", "ab", "a b", "é\n", "~a", "!a", "wa", "=a", "x" * 128]
    for name in names:
        await put(bench, name, b"1", name.encode())
    for name in names:
        mine = await holder(bench, name)
        assert await mine.bodies() == [b"1", name.encode()]
        await mine.set_state(name.encode())
    assert (await accept(bench)).outcome == "none"
    assert sorted((await listed(bench)).names) == sorted(names)


ANY_BYTES = [
    "a\0b",
    "\0",
    "a\0" + "b" * 97,
    "a\0" + "b" * 98,
    "a\0" + "b" * 99,
    "%s",
    "%",
    "a b",
    "a|b",
    "@a",
    "=a",
    "é" * 128,
]


@pytest.mark.parametrize("name", ANY_BYTES)
@pytest.mark.parametrize("target", ["memory", "server"])
async def test_a_session_name_may_contain_any_bytes(bench: Bench, name: str) -> None:
    """Each session has its own lock, whatever bytes are in its name. The end of a lock affects no other session."""
    await put(bench, name, b"1", b"2")
    other = await holder(bench, "a")
    mine = await holder(bench, name)
    assert mine.lock.name == name
    assert await mine.bodies(2) == [b"1", b"2"]
    await mine.set_state(b"kept")
    assert await mine.get_state() == b"kept"
    bench.later(LOCK - 1)
    await other.renew()
    bench.later(1)
    again = await holder(bench, name)
    assert [(body(each), each.failures) for each in await again.receive(2)] == [(b"1", 1), (b"2", 1)]
    assert (await accept(bench, "a")).outcome == "locked"
    assert await again.release() == 2
    assert (await holder(bench)).lock.name == name


# -- listing ---------------------------------------------------------------------------------------------------------


async def test_a_list_call_reads_a_bounded_number_of_sessions(bench: Bench) -> None:
    """A page may have fewer sessions than wanted, and says where the next page begins."""
    for number in range(10):
        await put(bench, f"s{number}", b"1", due=START + 10**6)
    await put(bench, "t", b"1")
    page = await listed(bench, 2)
    assert (page.names, page.onwards) == ((), "s7")
    page = await listed(bench, 2, page.onwards)
    assert (page.names, page.onwards) == (("t",), None)


# -- waking ----------------------------------------------------------------------------------------------------------


async def test_a_waiter_for_a_session_is_woken_when_a_session_is_free(bench: Bench, listening: Receivers) -> None:
    """For each session one waiter is woken, in the order of arrival."""
    first, second = await listening("first"), await listening("second")
    for receiver in (first, second):
        assert (await accept(bench, waiter=receiver.channel)).outcome == "none"
        bench.later(10)
    await put(bench, "s", b"1", b"2")
    await first.woken(1)
    await second.woken(0)
    assert (await accept(bench, waiter=first.channel)).outcome == "taken"
    await put(bench, "s", b"3")
    await second.woken(0)
    await put(bench, "t", b"1")
    await second.woken(1)


@pytest.mark.parametrize("how", ["release", "lapse", "delay"])
async def test_a_waiter_is_woken_when_a_session_becomes_free_again(
    bench: Bench, listening: Receivers, how: str
) -> None:
    """The session was given back, its lock has ended, or its delay is over."""
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    waiting = await listening("waiting")
    if how == "delay":
        await mine.abandon(*await mine.receive(1), delay=5000)
        await mine.release()
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    if how == "release":
        await mine.release()
    else:
        bench.later(LOCK if how == "lapse" else 5000)
        await bench.due()
    await waiting.woken(1)


async def test_a_waiter_for_a_session_stops_waiting_when_it_leaves_or_gets_one(
    bench: Bench, listening: Receivers
) -> None:
    waiting, other = await listening("waiting"), await listening("other")
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    assert (await look_for(bench, waiter=waiting.channel, waiting_for=0)).outcome == "none"
    assert (await look_for(bench, waiter=other.channel)).outcome == "none"
    await put(bench, "s", b"1")
    await waiting.woken(0)
    await other.woken(1)
    assert (await look_for(bench, waiter=other.channel)).outcome == "found"
    assert "waiters" not in await traces(bench)


async def test_a_holder_that_waits_in_its_session_is_woken_for_a_new_message(
    bench: Bench, listening: Receivers
) -> None:
    """Messages of other sessions do not wake the holder. No waiter for a session is woken for a locked session."""
    mine, channel = await holder(bench, "s"), await listening("mine")
    waiting = await listening("waiting")
    assert (await mine.receive_more(waiter=channel.channel)).messages == ()
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    await put(bench, "s", b"1")
    await channel.woken(1)
    await waiting.woken(0)
    await put(bench, "s", b"2")
    await channel.woken(0)  # the holder had been woken already
    assert [body(one) for one in (await mine.receive_more(waiter=channel.channel)).messages] == [b"1", b"2"]
    await put(bench, "t", b"1")
    await channel.woken(0)
    await waiting.woken(1)


@pytest.mark.parametrize("how", ["schedule", "delay", "abandon", "room"])
async def test_every_way_in_which_a_message_becomes_available_wakes_the_holder(
    bench: Bench, listening: Receivers, how: str
) -> None:
    mine, channel = await holder(bench, "s"), await listening("mine")
    await bench.send(*[of_session("s")] * (1000 if how == "room" else 1))
    held = await mine.receive(1000)
    if how == "schedule":
        await put(bench, "s", b"2", due=START + 1000)
    elif how == "delay":
        await mine.abandon(*held, delay=1000)
    elif how == "room":
        await put(bench, "s", b"2")
    assert (await mine.receive_more(waiter=channel.channel)).messages == ()
    await channel.woken(0)
    if how == "abandon":
        await mine.abandon(*held)
    elif how == "room":
        await bench.send(of_session("s"))
        await channel.woken(0)  # the holder could not receive the message
        await mine.complete(held[0])
    else:
        bench.later(1000)
        await bench.due()
    await channel.woken(1)
    assert len((await mine.receive_more(waiter=channel.channel)).messages) == {"room": 1}.get(how, 1)


async def test_newer_settings_wake_a_holder_in_its_session_and_those_who_wait_for_one(
    bench: Bench, listening: Receivers
) -> None:
    """The holder still waits in its session."""
    mine, channel, waiting = await holder(bench, "s"), await listening("mine"), await listening("waiting")
    assert (await mine.receive_more(waiter=channel.channel)).messages == ()
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    await bench.change(max_delivery_count=5)
    await channel.woken(1)
    await waiting.woken(1)
    await put(bench, "s", b"1")
    await channel.woken(1)
    await waiting.woken(0)


async def test_a_former_holder_no_longer_waits_in_its_session(bench: Bench, listening: Receivers) -> None:
    """The holder gave the session back, its lock lapsed, or it stopped waiting."""
    channel = await listening("mine")
    for how in ("release", "lapse", "word"):
        mine = await holder(bench, "s")
        await mine.receive_more(waiter=channel.channel)
        if how == "release":
            await mine.release()
        elif how == "lapse":
            bench.later(LOCK)
            await bench.due()
        else:
            call_id = CallId("", 0, bench.now)
            request = bench.partition.look(session=mine.lock, waiter=channel.channel, waiting_for=0, call_id=call_id)
            await bench.tell(request)
            await mine.release()
        assert await traces(bench) == {}, how
    await put(bench, "s", b"1")
    await channel.woken(0)


async def test_a_waiter_that_would_sleep_past_due_work_is_woken(bench: Bench, listening: Receivers) -> None:
    """It is enough to wake one waiter, because its next call does the due work for all."""
    channel = await listening("mine")
    mine = await holder(bench, "s")
    assert (await mine.receive_more(waiter=channel.channel)).due == LOCK
    await put(bench, "s", b"1", due=START + 500)
    await channel.woken(1)
    assert (await mine.receive_more(waiter=channel.channel)).due == 500
    waiting = await listening("waiting")
    assert (await accept(bench, waiter=waiting.channel)).due == 500
    await put(bench, "t", b"1", due=START + 100)
    await waiting.woken(1)


@pytest.mark.parametrize("how", ["woken", "released", "accepted"])
async def test_a_leaving_waiter_passes_on_the_next_due_time(bench: Bench, listening: Receivers, how: str) -> None:
    """A holder leaves when it gets a message or gives its session back. A waiter for a session leaves when it gets a
    session.
    """
    knowing, other = await listening("knowing"), await listening("other")
    mine = await holder(bench, "s")
    if how == "accepted":
        assert (await accept(bench, waiter=knowing.channel)).outcome == "none"
    else:
        await mine.receive_more(waiter=knowing.channel)
    bench.later(10)
    theirs = await holder(bench, "t")
    await theirs.receive_more(waiter=other.channel)
    await put(bench, "t", b"1", due=START + 500)
    await knowing.woken(1)
    await other.woken(0)
    if how == "accepted":
        await put(bench, "u", b"1")
        await other.woken(0)
        assert (await accept(bench, waiter=knowing.channel)).outcome == "taken"
    else:
        assert (await mine.receive_more(waiter=knowing.channel)).due == 490
        await other.woken(0)
        await (put(bench, "s", b"1") if how == "woken" else mine.release())
    await other.woken(1)
    assert (await theirs.receive_more(waiter=other.channel)).due == 490


async def test_a_look_in_a_session_reports_whether_it_has_messages(bench: Bench) -> None:
    mine = await holder(bench, "s")

    async def found() -> bool:
        return (await bench.tell(bench.partition.look(session=mine.lock, call_id=CallId("", 0, bench.now)))).found

    assert not await found()
    await put(bench, "s", b"1", b"2")
    assert await found()
    await mine.abandon(*await mine.receive(1), delay=1000)
    assert not await found()
    bench.later(1000)
    assert await found()
    await mine.receive()
    assert not await found()


# -- epochs ----------------------------------------------------------------------------------------------------------
