"""A worker that runs on a bus in memory."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Unpack, final

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.testing._clock import TestClock, movable
from sbredis.testing._contents import BusContents
from sbredis.testing._outstanding import Outstanding, outstanding, paused_by
from sbredis.testing._records import Handled, Records
from sbredis.testing._watched import BusTime, WatchedHandling, WatchedSettlements
from sbredis.workers import Outcome, Worker
from sbredis.workers._worker import begun, setup_of
from sbredis.workers.declaring._context import SendOptions
from sbredis.workers.running._runtime import Parts, Runtime

__all__ = ["Overrides", "WorkerRun", "running"]

Overrides = Mapping[Callable[..., Any], Callable[..., Any]]
"""Functions of dependencies, and the functions that replace them."""
_MOST_STEPS = 1000
_LOOKING = 0.01
"""The seconds between two looks at the bus while nothing happens in the worker."""
_TURNS = 20
"""The turns of the event loop in which a worker may receive what was just sent, before the bus is looked at."""


@final
class WorkerRun:
    """A worker that runs on a bus: ``async with sbredis_bus.running(worker) as run``.

    The record of its deliveries stays readable after the block.
    """

    def __init__(
        self,
        contents: BusContents,
        clock: TestClock,
        worker: Worker,
        *,
        runtime: Runtime,
        records: Records,
        bus_time: BusTime,
        timeout: float,
    ) -> None:
        self._contents = contents
        self._clock = clock
        self._worker = worker
        self._runtime = runtime
        self._records = records
        self._time = bus_time
        self.timeout = timeout
        """The longest wait in seconds of real time."""
        self._told = 0
        """The number of errors that idle() has seen."""

    def __repr__(self) -> str:
        return f"<WorkerRun {len(self._records.done)} handled, {len(self._records.working)} in work>"

    async def send(self, entity: str, value: object, **options: Unpack[SendOptions]) -> None:
        """Send a value, or a :class:`~sbredis.ServiceBusMessage`, to a queue or topic, as ``worker.send`` does."""
        await self._worker.send(entity, value, **options)

    # -- waiting -------------------------------------------------------------------------------------------------------

    async def idle(self, *, advance: bool = False, raise_errors: bool = False, timeout: float | None = None) -> None:
        """Wait until nothing is left to do now: no message of the worker's entities is active, locked or in work.

        Messages that are delayed or scheduled for later do not count. With ``advance``, the clock of the bus moves to
        the next time at which something is due, until nothing is delayed, scheduled or locked any more.

        With ``raise_errors``, the first error that a handler has raised since the last call is raised. Raises
        :class:`TimeoutError` after ``timeout`` seconds of real time, and says what is outstanding.
        """
        seconds = self.timeout if timeout is None else timeout
        deadline, steps = time.monotonic() + seconds, 0
        with self._time.hurry():
            while True:
                left = await self._quiet(deadline, seconds, raise_errors=raise_errors, advance=advance)
                if not advance or not left.later:
                    break
                activity = self._records.activity
                wait = await left.next_due()
                if (await self._outstanding()).busy or self._records.activity != activity:
                    continue  # the time that was read may be the end of a lock that was taken meanwhile
                steps += 1
                if wait is None or steps > _MOST_STEPS:
                    reason = "nothing is due" if wait is None else f"the clock was moved {_MOST_STEPS} times"
                    raise TimeoutError(f"The worker does not become idle: {reason}.{left.described()}")
                self._clock.advance(seconds=wait)
        self._told = len(self._records.errors)

    async def _quiet(self, deadline: float, seconds: float, *, raise_errors: bool, advance: bool) -> Outstanding:
        """Wait until nothing is left to do now, and return the rest: what is left for later."""
        records = self._records
        while True:
            if raise_errors and len(records.errors) > self._told:
                error = records.errors[self._told]
                self._told = len(records.errors)
                raise error
            for _ in range(_TURNS):
                if records.orders or records.working:
                    break
                await asyncio.sleep(0)
            records.changed.clear()
            activity = records.activity
            left = await self._outstanding()
            if records.activity == activity and not left.busy and (advance or not left.paused):
                return left
            if time.monotonic() > deadline:
                left = await self._outstanding(all_=True)
                raise TimeoutError(f"The worker is not idle after {seconds:g} s.{left.described()}")
            await _wait(records.changed, _LOOKING)

    async def until(
        self, condition: Callable[[], object] | Callable[[], Awaitable[object]], *, timeout: float | None = None
    ) -> None:
        """Wait until a function, or a coroutine function, returns something true.

        Raises :class:`TimeoutError` after ``timeout`` seconds of real time, and says what is outstanding.
        """
        seconds = self.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        with self._time.hurry():
            while True:
                self._records.changed.clear()
                found = condition()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return
                if time.monotonic() > deadline:
                    raise await self.not_true(seconds)
                await _wait(self._records.changed, _LOOKING)

    def hurrying(self) -> AbstractContextManager[None]:
        """Let nothing in the worker wait for further messages while the block runs."""
        return self._time.hurry()

    async def not_true(self, seconds: float) -> TimeoutError:
        """Return the error of a condition that was not true in time, with everything that is outstanding."""
        left = await self._outstanding(all_=True)
        return TimeoutError(f"The condition is not true after {seconds:g} s.{left.described()}")

    async def _outstanding(self, *, all_: bool = False) -> Outstanding:
        return await outstanding(self._contents, self._runtime, self._records, self._time, all_=all_)

    # -- what has happened ---------------------------------------------------------------------------------------------

    def handled(self, entity: str | None = None) -> list[Handled]:
        """Return the finished deliveries of an entity, or of all entities, in the order in which they were received."""
        self._check(entity)
        return self._records.of(entity)

    def outcomes(self, entity: str | None = None) -> list[Outcome | None]:
        """Return the outcomes of the finished deliveries. ``None`` means that a message was not settled."""
        return [each.outcome for each in self.handled(entity)]

    @property
    def paused(self) -> dict[str, str]:
        """The entities that the worker does not receive from now, with the reasons: an error, or a circuit breaker."""
        now = self._time.now()
        return {each.entity: why for each in self._runtime.services if (why := paused_by(each, now))}

    def _check(self, entity: str | None) -> None:
        known = sorted(plan.source.path for plan in self._runtime.plans)
        if entity is not None and entity.lower() not in {path.lower() for path in known}:
            raise ValueError(f"The worker has no handler of {entity!r}. It handles: {', '.join(known) or 'nothing'}.")


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass


@asynccontextmanager
async def running(
    contents: BusContents,
    url: str,
    clock: TestClock,
    worker: Worker,
    *,
    overrides: Overrides | None,
    timeout: float,
    shutdown_timeout: float | None,
) -> AsyncGenerator[WorkerRun]:
    """Run a worker on a bus while the block runs."""
    if not isinstance(worker, Worker):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"running() takes a Worker, not {type(worker).__name__}")
    setup = setup_of(worker)
    ends = min(setup.settings.shutdown_timeout, timeout) if shutdown_timeout is None else shutdown_timeout
    setup = replace(
        setup,
        url=url,
        settings=replace(
            setup.settings, namespace=None, credential=None, http=None, maintenance=False, shutdown_timeout=ends
        ),
        overrides={**setup.overrides, **(overrides or {})},
        entity_defaults={"create_if_missing": True},
    )
    await _create_targets(
        contents.administration(), [(each.source.topic or each.source.name, each) for each in setup.declared]
    )
    clients_clock = movable(clock)
    records, bus_time = Records(), BusTime(clients_clock)
    parts = Parts(
        time=bus_time,
        handling=partial(WatchedHandling, records),
        settlements=partial(WatchedSettlements, records, bus_time),
        administration=contents.administration(),
    )
    with clients_clock.held():
        async with begun(worker, setup, parts) as runtime:
            run = WorkerRun(
                contents, clock, worker, runtime=runtime, records=records, bus_time=bus_time, timeout=timeout
            )
            try:
                # a schedule begins at the time of its start, which must not come after a move of the clock
                await run.until(lambda: bus_time.day_tasks >= len(runtime.tickers) and not bus_time.ticking)
                yield run
            except BaseException:
                runtime.end_at_once()
                raise


async def _create_targets(administration: ServiceBusAdministrationClient, declared: Sequence[tuple[str, Any]]) -> None:
    """Create the missing queues that get results or replies, except those of which the worker has handlers."""
    own = {name.lower() for name, _ in declared}
    wanted = {target for _, each in declared for target in each.settings.targets}
    missing = [name for name in sorted(wanted) if name.lower() not in own]
    for name in missing:
        if not await administration.queue_exists(name) and not await administration.topic_exists(name):
            await administration.create_queue(name)
