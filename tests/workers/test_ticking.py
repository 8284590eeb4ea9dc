"""Schedules of running workers over a bus in memory, whose clock the tests move."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.management import EntityStatus
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers import Context, DeadLetter, Defer, Outcome, SyncContext, Worker
from sbredis.workers.schedules._time import Time
from tests.waiting import eventually
from tests.workers.parts import Parts, Runtime

pytestmark = pytest.mark.slow

MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)
TEN = timedelta(minutes=10)


class BusTime(Time):
    """The time of one worker: its waits are those of the bus, and its own clock may be wrong."""

    def __init__(self, bus: Bus, skew: timedelta = timedelta()) -> None:
        self._bus = bus
        self._skew = skew
        self._waiting: list[datetime] = []

    def now(self) -> float:
        return self._bus.clock.now.timestamp()

    def utc(self) -> datetime:
        return self._bus.clock.now + self._skew

    async def until(self, when: datetime, seconds: float) -> None:
        del seconds
        moved = asyncio.Event()
        end = self._bus.clock._clock.when_moved(moved.set)
        self._waiting.append(when)
        try:
            while when > self._bus.clock.now:
                moved.clear()
                await moved.wait()
        finally:
            self._waiting.remove(when)
            end()

    @property
    def pause(self) -> float:
        """The seconds until the time for which the ticker waits."""
        return (min(self._waiting) - self._bus.clock.now).total_seconds()

    @property
    def idle(self) -> bool:
        """Whether the ticker waits for a later time."""
        return bool(self._waiting) and min(self._waiting) > self._bus.clock.now


class Town:
    """A bus, workers with one schedule, and the ticks that their handlers got."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.times: list[BusTime] = []
        self.ticks: list[datetime] = []
        self.outcome: Callable[[], Outcome | None] = lambda: None
        self.go = asyncio.Event()
        self.go.set()
        self.declared: dict[str, Any] = {"every": TEN}
        self.in_work = 0
        self._stack = AsyncExitStack()

    async def start(self, skew: float = 0.0) -> Runtime:
        """Start one more worker."""
        worker = Worker(self.bus.url)
        worker.cron(name="ticking", **self.declared)(self._handle)
        time = BusTime(self.bus, timedelta(seconds=skew))
        self.times.append(time)
        runtime = await self._stack.enter_async_context(Runtime(worker._setup(), Parts(time=time)).running(worker))
        await self.settled()
        return runtime

    async def stop(self) -> None:
        """Stop all workers."""
        await self._stack.aclose()
        self.times.clear()

    async def _handle(self, context: Context) -> Outcome | None:
        assert context.tick is not None
        self.in_work += 1
        try:
            await self.go.wait()
            self.ticks.append(context.tick)
            return self.outcome()
        finally:
            self.in_work -= 1

    async def settled(self) -> None:
        """Wait until no worker has a tick to send."""
        await eventually(lambda: all(time.idle for time in self.times))

    async def done(self) -> None:
        """Wait until the handlers have done their work, too."""
        await self.settled()

        async def nothing_to_do() -> bool:
            found = await self.bus.active(self.declared.get("queue", "ticking"))
            return not found and not self.in_work

        await eventually(nothing_to_do)

    async def to(self, moment: datetime | timedelta) -> list[datetime]:
        """Move the clock to a time. Return the ticks that were handled meanwhile."""
        count = len(self.ticks)
        self.bus.clock.move_to(moment if isinstance(moment, datetime) else MIDNIGHT + moment)
        await self.done()
        return self.ticks[count:]


@pytest.fixture
async def town() -> AsyncIterator[Town]:
    async with Bus(begins=MIDNIGHT) as bus:
        town = Town(bus)
        try:
            yield town
        finally:
            town.go.set()
            await town.stop()


def minutes(*numbers: float) -> list[datetime]:
    return [MIDNIGHT + timedelta(minutes=number) for number in numbers]


async def test_each_tick_is_handled_at_its_time(town: Town) -> None:
    await town.start()
    assert await town.to(timedelta(minutes=9, seconds=59)) == []
    assert await town.to(timedelta(minutes=10)) == minutes(10)
    assert await town.to(timedelta(minutes=19)) == []
    assert await town.to(timedelta(minutes=21)) == minutes(20)
    (sent, *_) = await town.bus.sent("ticking")
    assert (sent.subject, sent.message_id) == ("ticking", "ticking@2026-03-01T00:10:00.000+00:00")


@pytest.mark.parametrize("skew", [30, -30, 86_400])
async def test_ticks_follow_the_clock_of_the_server_and_not_that_of_a_machine(town: Town, skew: float) -> None:
    """Also if another worker, whose clock is right, has gone."""
    await town.start(skew)
    await town.start()
    assert await town.to(timedelta(minutes=9, seconds=45)) == []
    assert await town.to(timedelta(minutes=10)) == minutes(10)
    await town.stop()
    await town.start(skew)
    assert await town.to(timedelta(minutes=19, seconds=45)) == []
    assert await town.to(timedelta(minutes=20)) == minutes(20)
    sent = await town.bus.sent("ticking")
    assert [each.message_id for each in sent] == [f"ticking@2026-03-01T00:{minute}:00.000+00:00" for minute in (10, 20)]


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("sessions", [False, True])
async def test_queues_of_every_kind_have_schedules(town: Town, *, partitioned: bool, sessions: bool) -> None:
    await town.bus.create_queue("jobs", requires_session=sessions, enable_partitioning=partitioned)
    town.declared |= {"queue": "jobs"}
    await town.start()
    await town.start()
    assert await town.to(timedelta(minutes=11)) == minutes(10)
    assert await town.to(timedelta(minutes=21)) == minutes(20)
    assert {each.session_id for each in await town.bus.sent("jobs")} == {"ticking" if sessions else None}


# -- ticks that were missed, and ticks that overlap --------------------------------------------------------------------


async def test_ticks_at_which_no_worker_ran_are_sent_by_the_next_one(town: Town) -> None:
    """``test_schedules.py`` has a table of the ticks that are sent."""
    town.declared |= {"missed": "all", "overlap": "queue"}
    await town.start()
    assert await town.to(timedelta(minutes=10)) == minutes(10)
    await town.stop()
    town.bus.clock.move_to(*minutes(45))
    await town.start()
    await town.done()
    assert sorted(town.ticks) == minutes(10, 20, 30, 40)


@pytest.mark.parametrize(
    ("outcome", "sent"),
    [(None, True), (DeadLetter("no"), True), (Defer(), False)],
    ids=["completed", "dead-lettered", "deferred"],
)
async def test_a_tick_is_passed_over_until_the_message_before_it_is_finished(
    town: Town, outcome: Outcome | None, *, sent: bool
) -> None:
    """All this happens within the duration of a lock, which a jump of the clock beyond its end may end."""
    town.declared["every"] = timedelta(seconds=10)
    first, second, third, fourth = (MIDNIGHT + timedelta(seconds=seconds) for seconds in (10, 20, 30, 40))
    runtime = await town.start()
    town.outcome = lambda: outcome
    town.go.clear()
    town.bus.clock.move_to(first)
    await eventually(lambda: town.in_work == 1)
    for moment in (second, third):
        town.bus.clock.move_to(moment)
        await town.settled()
    assert len(await town.bus.sent("ticking")) == 1
    town.go.set()
    await eventually(lambda: not town.in_work and town.ticks == [first])

    async def settled() -> bool:
        return not await town.bus.locked("ticking")

    await eventually(settled)
    assert await town.to(fourth) == ([fourth] if sent else [])
    (counts,) = runtime.report().counts["ticking"].handlers.values()
    assert (counts.ticks_sent, counts.ticks_passed) == ((2, 2) if sent else (1, 3))


async def test_another_message_of_the_queue_holds_no_tick_back(town: Town) -> None:
    await town.start()
    assert await town.to(timedelta(minutes=10)) == minutes(10)
    later = ServiceBusMessage(b"", scheduled_enqueue_time_utc=MIDNIGHT + timedelta(days=1))
    await town.bus.client.get_queue_sender("ticking").send_messages(later)
    town.bus.clock.move_to(*minutes(20))
    await eventually(lambda: town.ticks == minutes(10, 20))


async def test_each_tick_counts_in_the_worker_that_has_sent_it(town: Town) -> None:
    runtimes = [await town.start(), await town.start()]
    for minute in (10, 20, 30):
        await town.to(timedelta(minutes=minute))
    counts = [each for runtime in runtimes for each in runtime.report().counts["ticking"].handlers.values()]
    assert sum(each.ticks_sent for each in counts) == 3


# -- clocks that are set -----------------------------------------------------------------------------------------------


async def test_a_clock_that_is_set_while_a_worker_waits_is_noticed_within_a_minute() -> None:
    class Slept(Time):
        """A clock that only notes how long it is waited for."""

        def __init__(self) -> None:
            self.slept = list[float]()

        async def sleep(self, seconds: float) -> None:
            self.slept.append(seconds)

    clock = Slept()
    await clock.until(MIDNIGHT, 86_400)
    await clock.until(MIDNIGHT, 30)
    assert clock.slept == [60, 30]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


async def test_a_disabled_queue_gets_the_missed_tick_later(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    await town.start()
    async with ServiceBusAdministrationClient(town.bus.url) as administration:
        queue = await administration.get_queue("ticking")
        queue.status = EntityStatus.SEND_DISABLED
        await administration.update_queue(queue)
        with caplog.at_level(logging.INFO, "sbredis.worker"):
            for minute in range(10, 40, 2):
                town.bus.clock.move_to(*minutes(minute))
                await town.settled()
            queue.status = EntityStatus.ACTIVE
            await administration.update_queue(queue)
            assert await town.to(timedelta(minutes=39)) == minutes(30)
            assert await town.to(timedelta(minutes=40)) == minutes(40)
    said = [record.getMessage() for record in caplog.records if "the schedule" in record.getMessage()]
    assert [text.partition(": ")[2].partition(",")[0] for text in said] == [
        "ticks of the schedule 'ticking' cannot be sent",
        "the schedule 'ticking' passed over 2 ticks until 2026-03-01T00:30:00.000+00:00",
        "ticks of the schedule 'ticking' are sent again",
    ]


async def test_ticks_that_cannot_be_sent_are_tried_again_after_longer_and_longer_pauses(town: Town) -> None:
    await town.start()
    (time,) = town.times
    async with ServiceBusAdministrationClient(town.bus.url) as administration:
        queue = await administration.get_queue("ticking")

        async def pauses(begin: datetime, count: int) -> list[float]:
            """Let sending fail from this time on."""
            queue.status = EntityStatus.SEND_DISABLED
            await administration.update_queue(queue)
            found: list[float] = []
            town.bus.clock.move_to(begin)
            while len(found) < count:
                await town.settled()
                found.append(time.pause)
                town.bus.clock.move_to(town.bus.clock.now + timedelta(seconds=found[-1]))
            await town.settled()
            queue.status = EntityStatus.ACTIVE
            await administration.update_queue(queue)
            return found

        with town.bus.clock._clock.held():
            assert await pauses(minutes(10)[0], 8) == [0.5, 1, 2, 4, 8, 16, 30, 30]
            assert await town.to(timedelta(minutes=15)) == minutes(10)
            assert await pauses(minutes(20)[0], 2) == [0.5, 1]


async def test_a_worker_learns_that_its_queue_is_a_new_one(town: Town) -> None:
    await town.start()
    async with ServiceBusAdministrationClient(town.bus.url) as administration:
        await administration.delete_queue("ticking")
        await administration.create_queue("ticking")
    town.bus.clock.move_to(*minutes(15))
    await town.settled()

    async def sent() -> list[ServiceBusMessage]:
        return await town.bus.sent("ticking")

    assert await sent() == []
    town.bus.clock.move_to(*minutes(20))
    await eventually(sent)


async def test_a_watermark_of_something_else_is_left_alone(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    await town.bus.create_queue("ticking")
    sender = town.bus.client.get_queue_sender("ticking")
    async with town.bus.client.transaction() as tx:
        tx.advance(sender, "ticking", "page 7", expected=None)
    await town.start()
    assert "belongs to something else than a schedule: it is 'page 7'" in caplog.text


async def test_a_clock_that_is_far_behind_the_watermark_is_worth_a_warning(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    """The clock of the server was three days ahead when the watermark was stored."""
    await town.bus.create_queue("ticking")
    sender = town.bus.client.get_queue_sender("ticking")
    async with town.bus.client.transaction() as tx:
        tx.advance(sender, "ticking", (MIDNIGHT + timedelta(days=3)).isoformat(), expected=None)
    await town.start()
    assert "far ahead of the server's clock; no tick is sent before the next one, at 2026-03-04 00:10" in caplog.text
    assert await town.to(timedelta(minutes=50)) == []
    assert await town.to(timedelta(days=3, minutes=10)) == [MIDNIGHT + timedelta(days=3, minutes=10)]


# -- what users see ----------------------------------------------------------------------------------------------------


async def test_the_report_names_the_schedules_and_their_next_ticks(town: Town) -> None:
    town.declared = {"line": "30 2 * * *", "tz": "Europe/Berlin"}
    runtime = await town.start()
    assert runtime.report().schedules == [("ticking", "ticking", "30 2 * * *", "2026-03-01 02:30:00+01:00")]
    town.bus.clock.move_to(*minutes(90))
    await town.done()
    report = runtime.report()
    assert report.schedules == [("ticking", "ticking", "30 2 * * *", "2026-03-02 02:30:00+01:00")]
    assert type(report).from_line(report.to_line()).schedules == report.schedules


async def test_only_messages_of_a_schedule_have_a_tick(town: Town) -> None:
    """A person may send a message with the schedule's name as its subject, to run the handler by hand."""
    worker, ticks = Worker(town.bus.url), list[datetime | None]()

    @worker.cron(every=TEN, name="ticking")
    def plain(time: datetime | None, context: SyncContext) -> None:
        assert time == context.tick
        ticks.append(context.tick)

    clock = BusTime(town.bus)
    async with Runtime(worker._setup(), Parts(time=clock)).running(worker) as runtime:
        await eventually(lambda: clock.idle)
        by_hand = ServiceBusMessage(b"null", subject="ticking", content_type="application/json")
        await town.bus.client.get_queue_sender("ticking").send_messages(by_hand)
        await eventually(lambda: ticks == [None] and runtime.report().counts["ticking"].completed == 1)
        town.bus.clock.move_to(*minutes(10))
        await eventually(lambda: ticks == [None, *minutes(10)])
