"""Lanes: join jobs that wait for the same partition at the same time in one script call.

A lane carries one kind of operation to one partition. It makes one call after the other. Each call has a number, by
which the partition recognises a repetition. The first job is not delayed: its call is made in the next turn of the
event loop. Jobs that come while a call is under way gather for the next call. So calls grow with the load, and no job
waits for later jobs.

Each caller has its own outcome and its own deadline. If a caller stops waiting before its call is made, its job is
dropped. If it stops waiting later, the call continues without it.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from sbredis.aio.calls._job import Job
from sbredis.aio.core._delivering import DefectError, Delivery, DisplacedError, Halving, NextStep, UnmadeError
from sbredis.engine import (
    CallId,
    Partition,
    Request,
    perform,
)
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)

if TYPE_CHECKING:
    from sbredis.aio.calls._partition_link import PartitionLink
    from sbredis.registry import EntityRecord

__all__ = ["OTHER_LOOP", "Lane"]

_log = logging.getLogger("sbredis.client")
_TICK = 0.25
_GRACE = 0.05
_MANY_JOBS = 16
"""From this number of waiting jobs on, two calls at the same time are faster than one."""
_deadline = attrgetter("deadline")
_OBSTACLE_STEPS = (NextStep.TELL, NextStep.RELOAD, NextStep.RECOVER)

OTHER_LOOP = (
    "The client is used in another event loop than the one in which it was opened. Make a client for each event loop, "
    "and close it in that loop."
)


J = TypeVar("J", bound=Job)
R = TypeVar("R")


class Lane(ABC, Generic[J, R]):
    """One kind of operation at one partition."""

    letter: ClassVar[str]
    """The letter of this lane, which distinguishes the lanes of a client."""
    depth: ClassVar[int] = 1
    """The largest number of calls under way. With two, one call is prepared while the other is being answered."""
    notes_time: ClassVar[bool] = False
    """Whether to write the time of its call into each job."""

    many: ClassVar[int] = _MANY_JOBS
    """The number of waiting jobs from which on two calls share them."""
    spans: ClassVar[bool] = False
    """Whether a call also changes partitions other than the one of the lane."""

    def __init__(self, link: PartitionLink) -> None:
        self.link = link
        self.entity = link.entity
        self.runtime = link.runtime
        self._loop = asyncio.get_running_loop()
        self._queue: deque[J] = deque()
        self._pipelines = [_Pipeline(self, number) for number in range(self.depth)]
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._woken = False
        self._closed = False
        self.retired = False
        """Whether no caller will use the lane again."""

    # -- the operation of this kind of lane ----------------------------------------------------------------------------

    @abstractmethod
    def gather(self, queue: deque[J], most: int, *, ordered: bool) -> list[J]:
        """Take the jobs for one call out of the queue, at most ``most``. End and skip jobs whose future is done.

        Without ``ordered``, a job that must not overtake earlier jobs stays in the queue.
        """

    @abstractmethod
    def request(self, partition: Partition, call_id: CallId, jobs: Sequence[J]) -> Request[R]:
        """Return the call for these jobs."""

    @abstractmethod
    def answer(self, jobs: Sequence[J], result: R) -> None:
        """Give each job its outcome. The lane ends the jobs afterwards."""

    def own_error(self, partition: Partition, job: J) -> Exception | None:
        """Return the error if the arguments of the job make its call impossible, and ``None`` otherwise."""
        del partition, job
        return None

    def patience(self, jobs: Sequence[J], seconds: float) -> float:
        """Return for how many seconds to try to reach the partition before the next step.

        ``seconds`` is the time that is left.
        """
        del jobs
        return seconds

    def unreachable(self) -> None:
        """Called when the partition could not be reached, or did not answer."""

    def move(self, jobs: list[J]) -> list[J]:
        """Move jobs from a partition that cannot be reached to other partitions. Return the jobs that must stay.

        The jobs have not run. Jobs that wait for the next call are moved too.
        """
        return jobs

    # -- for callers ---------------------------------------------------------------------------------------------------

    def submit(self, job: J) -> asyncio.Future[Any]:
        """Queue a job, and return ``job.future``, which will have the result."""
        future = job.future
        if future.get_loop() is not self._loop:
            job.end()
            raise RuntimeError(OTHER_LOOP)
        if self._closed or self.runtime.closed:
            if not future.done():
                future.set_exception(self._closed_error(sent=False))
            job.end()
            return future
        self._queue.append(job)
        if not self._woken:
            for pipeline in self._pipelines:
                if not pipeline.busy:
                    self._woken = True  # the woken pipeline also takes jobs that are submitted before it runs
                    pipeline.wake()
                    break
        if self._timer is None or job.deadline < self._timer_at:
            self._watch(min(job.deadline, self._loop.time() + _TICK))
        return future

    @property
    def busy(self) -> bool:
        """Whether jobs wait or a call is under way."""
        return bool(self._queue) or any(pipeline.busy for pipeline in self._pipelines)

    @property
    def gathering(self) -> int:
        """The number of jobs that wait for the next call."""
        return len(self._queue)

    def close(self) -> None:
        """Fail all jobs, because the client is closed."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for jobs, sent in self._all():
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(self._closed_error(sent=sent))
                    job.future.exception()  # asyncio would report an error that is never read
                job.end()
            jobs.clear()

    def retire(self) -> None:
        """Record that no caller will use the lane again. The lane ends after the calls under way."""
        self.retired = True
        for pipeline in self._pipelines:
            pipeline.end()

    def next_jobs(self, pipeline: _Pipeline[J, R]) -> list[J]:
        """Return the jobs for a pipeline's next call. If there are many, leave half of them to a free pipeline."""
        self._woken = False
        most = waiting = len(self._queue)
        if waiting >= self.many:
            free = next((other for other in self._pipelines if other is not pipeline and not other.busy), None)
            if free is not None:
                most = (waiting + 1) // 2
                self._woken = True
                free.wake()
        return self.gather(self._queue, most, ordered=pipeline is self._pipelines[0])

    def _all(self) -> list[tuple[list[J] | deque[J], bool]]:
        """Return all jobs, and whether they were sent."""
        return [*((pipeline.in_flight, True) for pipeline in self._pipelines), (self._queue, False)]

    def fail(self, jobs: list[J] | deque[J], error: ServiceBusError) -> None:
        """End jobs with an error. Each caller gets an error object of its own."""
        entity = self.entity.name
        error.entity = entity
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error.twin())
            elif job.future.cancelled():
                # When an entity is deleted, its users stop, and nothing was changed.
                level = logging.INFO if isinstance(error, MessagingEntityNotFoundError) else logging.WARNING
                _log.log(level, "a call failed, and no caller waits for its result any more: %s", error)
            job.end()
        jobs.clear()

    def fail_displaced(self) -> ServiceBusError:
        """Fail the waiting jobs, because a new entity of this name is in other partitions.

        Return the error for the jobs of a call under way.
        """
        entity = self.entity
        error = DisplacedError(
            f"The {entity.record.kind} '{entity.name}' was deleted, and another entity of this name was created in "
            "other partitions. Send the messages for the new entity again. Messages that were received from the old "
            "entity are gone.",
            outcome=Outcome.REFUSED,
        )
        self.fail(self._queue, error)
        return error

    # -- time ----------------------------------------------------------------------------------------------------------

    def _watch(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        """Fail the jobs whose deadline has passed. The timer runs only while jobs wait."""
        self._timer = None
        now = self._loop.time()
        earliest = now + _TICK
        some = False
        for jobs, sent in self._all():
            some = some or bool(jobs)
            for job in jobs:
                if job.future.done():
                    continue
                # A call that was already sent gets a moment longer. If it fails at the deadline, its own error is more
                # precise than the error from here.
                end = job.deadline + _GRACE if sent else job.deadline
                if end <= now:
                    job.future.set_exception(self._late_error(sent=sent))
                elif end < earliest:
                    earliest = end
        if some:
            self._watch(earliest)

    def _closed_error(self, *, sent: bool) -> ServiceBusError:
        outcome = Outcome.UNKNOWN if sent else Outcome.NEVER_SENT
        error = ServiceBusConnectionError("The client was closed meanwhile.", outcome=outcome, is_transient=False)
        error.entity = self.entity.name
        return error

    def _late_error(self, *, sent: bool) -> ServiceBusError:
        what = "no answer came" if sent else "the calls before it took all the time"
        outcome = Outcome.UNKNOWN if sent else Outcome.NEVER_SENT
        error = OperationTimeoutError(f"The operation did not end in time: {what}.", outcome=outcome)
        error.entity = self.entity.name
        _log.info("%s", error)
        return error


class _Pipeline(Generic[J, R]):
    """Makes the calls of a lane, one after the other."""

    def __init__(self, lane: Lane[J, R], number: int) -> None:
        self.busy = False
        self.in_flight: list[J] = []
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._letter = f"{lane.letter}{number or ''}"
        self._wanted: asyncio.Future[None] | None = None
        self._started = False
        self._number = 0
        self._known = False
        """Whether the partition has answered a call of this lane, so that it has recorded the lane."""
        self._generation = 0
        self._name = ""
        self._defect_logged = False
        """Whether a defect in the jobs under way was already logged."""
        self._start_lane()

    def wake(self) -> None:
        """Start to work, because there are jobs."""
        self.busy = True
        if self._wanted is not None:
            if not self._wanted.done():
                self._wanted.set_result(None)
        elif not self._started:
            self._started = True
            self._lane.runtime.start(self._work())

    def end(self) -> None:
        """Stop when no jobs are left."""
        if self._wanted is not None and not self._wanted.done():
            self._wanted.set_result(None)

    async def _work(self) -> None:
        lane = self._lane
        while True:
            jobs = self.in_flight = lane.next_jobs(self)
            if not jobs:
                self.busy = False
                if lane.retired:
                    return
                self._wanted = self._loop.create_future()
                await self._wanted
                self._wanted = None
                continue
            self._defect_logged = False
            try:
                error = await self._call(jobs)
                if error is not None:
                    await self._in_parts(jobs, error)
            except Exception as defect:  # noqa: BLE001  # after a defect, callers must not wait for ever
                if lane.runtime.closed:
                    lane.close()
                    return
                _log.exception("%s: a call failed because of a defect", lane.link)
                lane.fail(jobs, DefectError(defect, Outcome.UNKNOWN))
            self.in_flight = []

    async def _in_parts(self, part: list[J], error: ServiceBusError | None) -> None:
        """Deliver jobs in parts, after a call of all of them failed with an error that one job may have caused."""
        lane, search = self._lane, Halving[J]()
        while True:
            if error is not None and not search.split(part, error):
                if isinstance(error, UnmadeError):
                    self._fail_unmade(part[0], error)
                lane.fail(part, error)
            part, refused, full = search.next_part()
            if full is not None:
                lane.fail(refused, full)
            if not part:
                return
            error = await self._call(part)

    async def _call(self, jobs: list[J]) -> ServiceBusError | None:
        """Deliver one call for these jobs and end them, or return an error that one of the jobs may have caused."""
        lane, entity, until = self._lane, self._lane.entity, max(map(_deadline, jobs))
        delivery: Delivery | None = None  # ``None`` until the first attempt has failed
        request: Request[R] | None = None
        while jobs:
            record, begun = entity.record, self._loop.time()
            seconds = until - begun
            try:
                if request is None:
                    if lane.link.number not in entity.numbers:
                        raise lane.fail_displaced()
                    request = self._make_request(jobs)
                if delivery is None or not delivery.maybe_ran:
                    seconds = lane.patience(jobs, seconds)
                result = await perform(lane.runtime.transport, request, timeout=seconds)
            except ServiceBusError as error:
                # Did the attempt end only because its part of the time was over?
                ran_out = self._loop.time() + lane.runtime.retry.first >= begun + seconds
                time_is_left = ran_out and begun + seconds < until
                delivery = delivery or Delivery(lane_is_known=self._known, spans=lane.spans)
                step = delivery.failed(error, time_is_left=time_is_left)
                step = await self._carry_out(step, delivery, jobs, record, until, time_is_left=time_is_left)
                if step is NextStep.ANEW:
                    delivery = request = None
                elif step is not NextStep.AGAIN:
                    assert delivery.error is not None
                    if step is NextStep.SPLIT:
                        return delivery.error
                    lane.fail(jobs, delivery.error)
            else:
                self._known = True
                lane.answer(jobs, result)
                for job in jobs:
                    job.end()
                return None
        return None

    async def _carry_out(
        self,
        step: NextStep,
        delivery: Delivery,
        jobs: list[J],
        record: EntityRecord,
        until: float,
        *,
        time_is_left: bool,
    ) -> NextStep:
        """Carry out a step, and the steps that follow from it. Return the last step: AGAIN, ANEW, SPLIT or END."""
        if delivery.unreachable:
            self._lane.unreachable()
        if step is NextStep.MOVE:
            step = delivery.moved(some=self._move(jobs), time_is_left=time_is_left)
        elif step in _OBSTACLE_STEPS:
            assert delivery.error is not None
            step = delivery.obstacle_removed(await self._remove_obstacle(step, delivery.error, record, until))
        self._known = delivery.lane_is_known
        if delivery.leaves_lane:
            self._start_lane()
        return step

    def _move(self, jobs: list[J]) -> bool:
        """Move all movable jobs to other partitions. Return whether any job was moved."""
        stay = self._lane.move(jobs)
        if len(stay) == len(jobs):
            return False
        moved = {id(job) for job in jobs}.difference(map(id, stay))
        self.in_flight = [job for job in self.in_flight if id(job) not in moved]
        jobs[:] = stay
        return True

    async def _remove_obstacle(
        self, step: NextStep, error: ServiceBusError, record: EntityRecord, until: float
    ) -> ServiceBusError | None:
        """Remove the obstacle to a call that was built from ``record``. Return the error if the removal fails."""
        lane, entity = self._lane, self._lane.entity
        try:
            if step is NextStep.TELL:
                await lane.link.tell(until)
            elif step is NextStep.RELOAD:
                await entity.reload(record, until)
            else:
                await entity.recover(record, until)
        except ServiceBusError as worse:
            return worse
        except Exception as broken:
            if lane.runtime.closed:
                raise
            self._log_defect(broken)
            return DefectError(broken, error.outcome)
        now = entity.record
        elsewhere = (now.partitioned, now.partitions) != (record.partitioned, record.partitions)
        return lane.fail_displaced() if elsewhere else None

    def _make_request(self, jobs: Sequence[J]) -> Request[R]:
        """Return the call for these jobs, with the lane's next number. A call that cannot be built uses no number."""
        lane = self._lane
        try:
            since = lane.runtime.clock.now()
            call_id = CallId(self._name, self._number + 1, lane.runtime.clock.told())
            request = lane.request(lane.link.partition, call_id, jobs)
        except ServiceBusError as error:
            error.outcome = error.outcome or Outcome.NEVER_SENT
            raise
        except Exception as error:
            raise UnmadeError(error) from error
        self._number += 1
        if lane.notes_time:
            for job in jobs:
                job.since = since
        return request

    def _fail_unmade(self, job: J, error: UnmadeError) -> None:
        """Fail a single job for which no call can be built."""
        lane, own = self._lane, None
        with suppress(ServiceBusError):
            own = lane.own_error(lane.link.partition, job)
        if own is None:
            self._log_defect(error.__cause__)
        elif not job.future.done():
            job.future.set_exception(own)

    def _log_defect(self, defect: BaseException | None) -> None:
        """Log a defect, once for all jobs that are delivered together."""
        if not self._defect_logged:
            self._defect_logged = True
            _log.error("%s: a call failed because of a defect", self._lane.link, exc_info=defect)

    def _start_lane(self) -> None:
        """Start a new lane at this partition.

        A partition records a lane when it first answers a call of that lane with a result. It runs calls with later
        numbers only in recorded lanes. So the client leaves a lane whose first call brought no result: a second call in
        that lane could never run. And if the answer to the second call were lost, the lane would look like a lane that
        the partition has forgotten.
        """
        self._generation += 1
        self._number = 0
        self._known = False
        self._name = f"{self._lane.runtime.id}{self._letter}.{self._generation}"
