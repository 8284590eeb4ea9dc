"""Fundamentals, part four: the effects of time. Scheduled messages become active, and clocks misbehave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sbredis.engine import CallId, Outgoing, new_token, read_record
from sbredis.engine._lifecycle import State
from tests.engine.bench import SETTINGS, START, Bench, set_to

pytestmark = pytest.mark.anyio

LOCK = SETTINGS.lock_duration

# -- scheduled messages ------------------------------------------------------------------------------------------------


async def test_a_scheduled_message_becomes_active_at_its_due_time(bench: Bench) -> None:
    """The time is exact to the millisecond. The message gets a new number, higher than those of all messages sent
    meanwhile.
    """
    (name,) = await bench.send(b"later", due=START + 1000, level=2)
    await bench.send(b"now", level=2)
    bench.later(999)
    assert await bench.states() == {"1": "s", "2": "a"}
    bench.later(1)
    assert [(message.name, message.payload) for message in await bench.receive()] == [("2", b"now"), ("3", b"later")]
    assert name == "1"
    assert (await bench.count()).scheduled == 0


async def test_a_message_scheduled_for_the_past_is_active_immediately(bench: Bench) -> None:
    """The message keeps its number. A message that is due now also keeps its number."""
    assert await bench.send(b"m", due=START - 1) == ["1"]
    assert await bench.send(b"n", due=START) == ["2"]
    assert await bench.states() == {"1": "a", "2": "a"}


@set_to(time_to_live=2000)
async def test_the_time_to_live_of_a_scheduled_message_begins_when_it_is_enqueued(bench: Bench) -> None:
    """The enqueued time is the due time, however late the next call is. The entity's maximum counts from then."""
    await bench.send(b"short", due=START + 5000, time_to_live=1000)
    await bench.send(b"long", due=START + 5000, time_to_live=9000)
    bench.later(5999)
    short, long = await bench.receive()
    assert (short.record.enqueued, short.record.expires) == (START + 5000, START + 6000)
    assert (long.record.enqueued, long.record.expires) == (START + 5000, START + 7000)
    await bench.abandon(short, long)
    bench.later(1)
    held = await bench.receive()
    assert [message.payload for message in held] == [b"long"]
    await bench.abandon(*held)
    bench.later(1000)
    assert await bench.receive() == []


@set_to(dead_letter_expired=True)
async def test_a_scheduled_message_that_expired_before_the_next_call_is_not_given_out(bench: Bench) -> None:
    """The message is enqueued at its due time. Its time to live begins then, and the message expires at its end."""
    await bench.send(b"m", due=START + 1000, time_to_live=1000)
    bench.later(6000)
    assert (await bench.count())[4:-1] == (*[0] * 8, 1, *[0] * 11)
    assert await bench.receive() == []
    (dead,) = await bench.receive(side="d")
    assert (dead.reason, dead.record.enqueued, dead.record.expires) == ("T", START + 1000, START + 2000)


async def test_activating_a_scheduled_message_keeps_the_byte_count_right(bench: Bench) -> None:
    """Activation changes the record; even so, no bytes are counted when the message is gone."""
    await bench.send(b"one", due=START + 10, time_to_live=1000)
    await bench.send(b"two", due=START + 10)
    bench.later(10)
    held = await bench.receive()
    assert {message.payload for message in held} == {b"one", b"two"}
    assert (await bench.count()).bytes == sum(len(message.delivery.record) for message in held)
    await bench.complete(*held)
    assert (await bench.count()).bytes == 0


async def test_a_call_cancels_all_of_its_scheduled_messages_or_none(bench: Bench) -> None:
    """If a message is not scheduled, or no longer scheduled, the answer names it and the call cancels none."""
    await bench.send(b"one", b"two", due=START + 1000)
    await bench.send(b"active")
    assert await bench.cancel("1", "3", "9", "d1") == ("3", "9", "d1")
    assert await bench.states() == {"1": "s", "2": "s", "3": "a"}
    assert await bench.cancel("1") == ()
    assert await bench.cancel("1") == ("1",)
    bench.later(1000)
    assert await bench.cancel("2") == ("2",)
    assert await bench.payloads() == [b"active", b"two"]


# -- clocks that misbehave ---------------------------------------------------------------------------------------------


async def test_setting_the_clock_back_neither_shortens_nor_lengthens_a_lock(bench: Bench) -> None:
    """Locks have their own clock, which stops while the server's clock is set back, and then continues."""
    await bench.send(b"m")
    message = await bench.one()
    bench.later(-3_600_000)
    assert await bench.receive() == []
    assert (await bench.renew(message)).lost == ()
    bench.later(LOCK - 1)
    assert await bench.receive() == []
    bench.later(1)
    assert (await bench.one()).deliveries == 2


async def test_correcting_a_clock_that_was_set_back_does_not_lengthen_locks(bench: Bench) -> None:
    """The correction moves the lock clock forward as well; repeated jumps back and forth do not add up."""
    await bench.send(b"m")
    await bench.one()
    for _ in range(5):
        bench.later(-5000)
        await bench.due()
        bench.later(5000)
        await bench.due()
    bench.later(LOCK)
    assert (await bench.one()).deliveries == 2


@set_to(clock="server")
async def test_a_partition_uses_the_clock_of_its_server(bench: Bench) -> None:
    """Only a partition that is made for tests gets the time from its callers."""

    async def time() -> int:
        seconds, micros = await bench.transport.command("TIME", key=bench.partition.keys[0])
        return int(seconds) * 1000 + int(micros) // 1000

    before = await time()
    await bench.tell(bench.partition.send(CallId("lane", 1), [Outgoing(b"m", time_to_live=3_600_000)]))
    (message,) = (await bench.tell(bench.partition.receive(CallId("lane", 2), new_token(), 1))).messages
    record = read_record(message.record)
    assert record.enqueued is not None
    told = (await bench.tell(bench.partition.count())).due
    after = await time()
    assert before <= record.enqueued <= after
    assert record.expires == record.enqueued + 3_600_000
    assert LOCK - (after - before) <= told <= LOCK


async def test_expiry_and_due_times_follow_the_clock_even_if_the_clock_is_set_back(bench: Bench) -> None:
    """If the clock is set back, times of expiry and due times are reached later."""
    await bench.send(b"scheduled", due=START + 1000)
    bench.later(-5000)
    await bench.send(b"brief", time_to_live=1000)
    bench.later(1000)
    assert await bench.receive() == []
    bench.later(4999)
    assert await bench.receive() == []
    bench.later(1)
    assert await bench.payloads() == [b"scheduled"]


async def begin_again(bench: Bench) -> None:
    """Let the calls of the bench carry the run id of their server process from now on."""
    bench.run_id = "r1"
    await bench.due()


async def test_message_numbers_jump_after_a_change_of_the_server_process(bench: Bench) -> None:
    """A number that a failover may have lost is never used again, on either side. The numbers jump only once."""
    await begin_again(bench)
    (one,) = await bench.send(b"one")
    await bench.dead_letter(await bench.one())
    bench.run_id = "r2"
    (two,) = await bench.send(b"two")
    (three,) = await bench.send(b"three")
    assert (int(two) - int(one), int(three) - int(two)) == (2**24 + 1, 1)
    await bench.dead_letter(await bench.one())
    first, second = await bench.receive(side="d")
    assert int(second.name[1:]) - int(first.name[1:]) == 2**24 + 1
    assert (first.payload, second.payload) == (b"one", b"two")


async def test_a_call_without_a_run_id_starts_no_epoch(bench: Bench) -> None:
    """A call with a known run id does not start an epoch either."""
    await begin_again(bench)
    (one,) = await bench.send(b"one")
    numbers: list[int] = []
    for run_id in ("?", "r1", "?", "r1"):
        bench.run_id = run_id
        numbers += map(int, await bench.send(b"m"))
    assert numbers == [int(one) + place for place in range(1, 5)]


@pytest.mark.parametrize(
    ("last_seen", "taken_over", "ends"),
    [
        (0, 0, LOCK),
        (0, 20_000, 20_000 + LOCK),  # the last time of the old clock is unknown: no time counts as passed
        (15_000, 20_000, 20_000 + 15_000),  # the old clock had reached 15 seconds
        (0, LOCK, 2 * LOCK),
        (0, 2 * LOCK - 1, 2 * LOCK),  # no lock becomes longer by more than one lock duration
        (0, 2 * LOCK, 2 * LOCK),
        (15_000, -3_600_000, -3_600_000 + 15_000),  # the new server's clock is behind
    ],
)
async def test_a_change_of_the_server_process_lengthens_locks_by_at_most_one_duration(
    bench: Bench, last_seen: int, taken_over: int, ends: int
) -> None:
    """Locks are never shortened. All times count from the start of the lock, by the server's clock."""
    await begin_again(bench)
    await bench.send(b"m")
    await bench.one()
    bench.now = START + last_seen
    await bench.due()
    bench.run_id = "r2"
    bench.now = START + taken_over
    if taken_over < ends:
        assert await bench.receive() == []
        bench.now = START + ends - 1
        assert await bench.receive() == []
        bench.now += 1
    assert (await bench.one()).deliveries == 2


async def test_a_new_server_whose_clock_is_ahead_does_not_end_the_locks(bench: Bench) -> None:
    """A clock that is ahead by less than a lock duration does no harm."""
    await begin_again(bench)
    await bench.send(b"m")
    message = await bench.one()
    bench.run_id = "r2"
    bench.later(15_000)
    assert (await bench.complete(message)).lost == ()


# -- the share of due work that one call does --------------------------------------------------------------------------


async def fading(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(250)), time_to_live=1000)


async def short_lived(bench: Bench) -> None:
    await bench.send(b"m")
    await bench.send(b"m", time_to_live=50_000)
    await bench.send(*(b"m" for _ in range(250)), time_to_live=1000)


async def scheduled(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(250)), due=START + 1000)


async def delayed(bench: Bench) -> None:
    await bench.send(*(b"m" for _ in range(250)))
    await bench.abandon(*await bench.receive(250), delay=1000)


async def lapsing(bench: Bench) -> None:
    await bench.change(lock_duration=1000)
    await bench.send(*(b"m" for _ in range(250)))
    for wanted in (30, 200, 20):
        await bench.receive(wanted)


@pytest.mark.parametrize("arrange", [fading, short_lived, scheduled, delayed, lapsing], ids=lambda made: made.__name__)
async def test_a_call_does_a_bounded_share_of_due_work_and_reports_more(
    bench: Bench, arrange: Callable[[Bench], Awaitable[None]]
) -> None:
    """A call does the due work of 100 messages. Then `due` does the rest, and reports that nothing is left."""
    await arrange(bench)
    before = await bench.stored(State.ACTIVE)
    bench.later(1000)
    shown = await bench.count()
    assert (await bench.send_all(Outgoing(b"another"))).more
    assert abs(await bench.stored(State.ACTIVE) - 1 - before) == 100
    assert (await bench.count()).active == shown.active + 1
    awoken = await bench.due()
    assert (awoken.more, awoken.due != 1) == (False, True)
    final = await bench.count()
    assert (final.scheduled, final.delayed, final.locked) == (0, 0, 0)
    assert abs(final.active - 1 - before) == 250
    assert final.active == await bench.stored(State.ACTIVE) == shown.active + 1


async def test_a_lock_is_lost_when_it_ends_even_if_no_call_has_removed_it_yet(bench: Bench) -> None:
    """A lock is lost when its time has passed, even if no call has cleaned it up yet."""
    await bench.send(*(b"m" for _ in range(150)))
    await bench.receive(120)
    late = await bench.receive(30)
    bench.later(LOCK)
    assert (await bench.complete(*late[:10])).lost == tuple(message.name for message in late[:10])
    assert await bench.stored(State.LOCKED) == 50
    await bench.due()
    counts = await bench.count()
    assert (counts.active, counts.locked) == (150, 0)


async def test_one_visit_does_a_bounded_share_of_due_work(bench: Bench) -> None:
    """A call of `due` does the due work of at most 500 messages. A caller repeats `due` until the answer says that
    nothing is left.
    """
    for _ in range(3):
        await bench.send(*(b"m" for _ in range(500)), due=START + 1000)
    bench.later(1000)
    for left in (1000, 500):
        assert (await bench.due()).more
        assert await bench.stored(State.SCHEDULED) == left
    assert not (await bench.due()).more
    assert (await bench.count()).active == 1500


async def test_a_receive_that_finds_nothing_returns_the_next_due_time(bench: Bench) -> None:
    """The answer has the ms until the first lock or delay ends, or a message becomes due or expires; 0 for never."""
    assert (await bench.receive_more())[1].due == 0
    await bench.send(b"scheduled", due=START + 50_000)
    assert (await bench.receive_more())[1].due == 50_000
    await bench.send(b"one", b"two")
    one, _ = await bench.receive()
    assert (await bench.receive_more())[1].due == LOCK
    await bench.abandon(one, delay=5000)
    assert (await bench.receive_more())[1].due == 5000
    await bench.send(b"brief", time_to_live=1000)
    assert (await bench.receive_more(side="d"))[1].due == 1000
    bench.later(999)
    assert (await bench.receive_more(side="d"))[1].due == 1
    bench.later(1)
    assert (await bench.receive_more(side="d"))[1].due == 4000


async def test_overdue_work_is_reported_as_due_now(bench: Bench) -> None:
    """If due work is left, the call reports a time of 1 ms, so the caller need not know the clock."""
    for _ in range(3):
        await bench.send(*(b"m" for _ in range(500)), due=START + 1000)
    bench.later(5000)
    for told in (await bench.count(), await bench.due(), await bench.look(side="d")):
        assert told.due == 1
    _, received = await bench.receive_more(side="d")
    assert (received.more, received.due) == (True, 1)


async def test_a_lock_is_due_by_the_clock_of_the_partition(bench: Bench) -> None:
    """The reported time is the time that the lock has left, even if the clock of the server is set back."""
    await bench.send(b"m")
    await bench.receive()
    bench.later(1000)
    assert (await bench.receive_more())[1].due == LOCK - 1000
    bench.later(-60_000)
    assert (await bench.receive_more())[1].due == LOCK - 1000
