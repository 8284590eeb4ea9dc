"""Fundamentals, part four: the effects of time. Scheduled messages become active, and clocks misbehave."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sbredis.engine import CallId, Outgoing
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.terms import State

LOCK = SETTINGS.lock_duration

# -- clocks that misbehave ---------------------------------------------------------------------------------------------


@set_to(clock="server")
async def test_a_partition_uses_the_clock_of_its_server(bench: Bench) -> None:
    """Only a partition that is made for tests gets the time from its callers."""

    async def time() -> int:
        seconds, micros = await bench.transport.command("TIME", key=bench.partition.keys[0])
        return int(seconds) * 1000 + int(micros) // 1000

    before = await time()
    await bench.tell(bench.partition.send(CallId("lane", 1), [Outgoing(b"m", time_to_live=3_600_000)]))
    (message,) = await bench.receive(1)
    record = message.record
    assert record.enqueued is not None
    told = (await bench.tell(bench.partition.count())).due
    after = await time()
    assert before <= record.enqueued <= after
    assert record.expires == record.enqueued + 3_600_000
    assert LOCK - (after - before) <= told <= LOCK


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


async def next_due(bench: Bench) -> int:
    """Return when something is due, as a call of a receiver changes nothing about it."""
    await bench.receive()
    return (await bench.due()).due


async def test_the_next_due_time_is_that_of_the_first_event(bench: Bench) -> None:
    """The answer has the ms until the first lock or delay ends, or a message becomes due or expires; 0 for never."""
    assert await next_due(bench) == 0
    await bench.send(b"scheduled", due=START + 50_000)
    assert await next_due(bench) == 50_000
    await bench.send(b"one", b"two")
    one, _ = await bench.receive()
    assert await next_due(bench) == LOCK
    await bench.abandon(one, delay=5000)
    assert await next_due(bench) == 5000
    await bench.send(b"brief", time_to_live=1000)
    assert (await bench.due()).due == 1000
    bench.later(999)
    assert (await bench.due()).due == 1
    bench.later(1)
    assert (await bench.due()).due == 4000


async def test_overdue_work_is_reported_as_due_now(bench: Bench) -> None:
    """If due work is left, the call reports a time of 1 ms, so the caller need not know the clock."""
    for _ in range(3):
        await bench.send(*(b"m" for _ in range(500)), due=START + 1000)
    bench.later(5000)
    for told in (await bench.count(), await bench.due()):
        assert told.due == 1
    _, received = await bench.receive_more(side="d")
    assert received.more
    assert (await bench.count()).due == 1


async def test_a_lock_is_due_by_the_clock_of_the_partition(bench: Bench) -> None:
    """The reported time is the time that the lock has left, even if the clock of the server is set back."""
    await bench.send(b"m")
    await bench.receive()
    bench.later(1000)
    assert await next_due(bench) == LOCK - 1000
    bench.later(-60_000)
    assert await next_due(bench) == LOCK - 1000
