"""Calls that come together: what waits at the same partition at the same moment goes there in one script call.

A lane carries one kind of operation to one partition, one call after the other, each with a number under which the
partition recognises its repetition. The first who comes is not delayed: the call is made in the next turn of the event
loop. Who comes while it is under way gathers for the one after it. So the more there is to do, the more a call carries,
and nobody waits for others to come.

Each caller has an outcome of its own, and a deadline of its own. A caller who goes away before the call is made has
asked for nothing; one who goes away later leaves it behind, to be brought to its end.
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
_MUCH = 16
"""So many jobs are worth two calls."""
_deadline = attrgetter("deadline")
_MENDING = (NextStep.TELL, NextStep.RELOAD, NextStep.RECOVER)

OTHER_LOOP = (
    "The client is used in another event loop than the one in which it was opened. Make a client for each event loop, "
    "and close it in there."
)


J = TypeVar("J", bound=Job)
R = TypeVar("R")


class Lane(ABC, Generic[J, R]):
    """One kind of operation at one partition."""

    letter: ClassVar[str]
    """Tells the lanes of a client apart."""
    depth: ClassVar[int] = 1
    """How many calls may be under way: with two, one is made while the other is being answered."""
    notes_time: ClassVar[bool] = False
    """Whether jobs are told when their call was made."""

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
        """Nobody uses it again."""

    # -- what a kind of operation is -----------------------------------------------------------------------------------

    @abstractmethod
    def gather(self, queue: deque[J], most: int, *, ordered: bool) -> list[J]:
        """Take out of the queue what goes into one call; those whose future is done are ended and left out.

        At most so many jobs. Without ``ordered`` none that must not overtake those before it.
        """

    @abstractmethod
    def request(self, partition: Partition, call_id: CallId, jobs: Sequence[J]) -> Request[R]:
        """The call for these."""

    @abstractmethod
    def answer(self, jobs: Sequence[J], result: R) -> None:
        """Give everybody the outcome. The jobs are ended by the lane."""

    def own_error(self, partition: Partition, job: J) -> Exception | None:
        """What a caller has asked for that no call can carry, if that is why a call with this job cannot be made."""
        del partition, job
        return None

    def patience(self, jobs: Sequence[J], seconds: float) -> float:
        """How long to try at a stretch, of the seconds that are left."""
        del jobs
        return seconds

    def unreachable(self) -> None:
        """Take note that the partition could not be reached, or did not answer."""

    def move(self, jobs: list[J]) -> list[J]:
        """Move jobs that have not run off an unreachable partition, and what waits for the next call; return those
        that must stay.
        """
        return jobs

    # -- for callers ---------------------------------------------------------------------------------------------------

    def submit(self, job: J) -> asyncio.Future[Any]:
        """Queue a job; its result arrives on ``job.future``, which is returned."""
        future = job.future
        if future.get_loop() is not self._loop:
            job.end()
            raise RuntimeError(OTHER_LOOP)
        if self._closed or self.runtime.closed:
            if not future.done():
                future.set_exception(self._closing(sent=False))
            job.end()
            return future
        self._queue.append(job)
        if not self._woken:
            for pipeline in self._pipelines:
                if not pipeline.busy:
                    self._woken = True  # it will gather what comes until its turn
                    pipeline.wake()
                    break
        if self._timer is None or job.deadline < self._timer_at:
            self._watch(min(job.deadline, self._loop.time() + _TICK))
        return future

    @property
    def busy(self) -> bool:
        """Whether a call is under way, or about to be."""
        return bool(self._queue) or any(pipeline.busy for pipeline in self._pipelines)

    @property
    def gathering(self) -> int:
        """How many wait for the next call."""
        return len(self._queue)

    def close(self) -> None:
        """End what is left."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for jobs, sent in self._all():
            for job in jobs:
                if not job.future.done():
                    job.future.set_exception(self._closing(sent=sent))
                    job.future.exception()  # where the loop ends now, nobody comes to look at it, and that is no defect
                job.end()
            jobs.clear()

    def retire(self) -> None:
        """Nobody uses it again: it ends with what is under way."""
        self.retired = True
        for pipeline in self._pipelines:
            pipeline.end()

    def next_jobs(self, pipeline: _Pipeline[J, R]) -> list[J]:
        """What the next call of a pipeline carries; if another pipeline is free, one half of much."""
        self._woken = False
        most = waiting = len(self._queue)
        if waiting >= _MUCH:
            free = next((other for other in self._pipelines if other is not pipeline and not other.busy), None)
            if free is not None:
                most = (waiting + 1) // 2
                self._woken = True
                free.wake()
        return self.gather(self._queue, most, ordered=pipeline is self._pipelines[0])

    def _all(self) -> list[tuple[list[J] | deque[J], bool]]:
        """All jobs there are, and whether they have been sent."""
        return [*((pipeline.in_flight, True) for pipeline in self._pipelines), (self._queue, False)]

    def fail(self, jobs: list[J] | deque[J], error: ServiceBusError) -> None:
        """End jobs with an error, each with its own."""
        entity = self.entity.name
        error.entity = entity
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(error.twin())
            elif job.future.cancelled():
                _log.warning("a call failed that no caller waited for any more: %s", error)
            job.end()
        jobs.clear()

    def displaced(self) -> ServiceBusError:
        """What has become of jobs for this partition now that the entity lies in others; of those that wait here too.

        Another one has come in its place.
        """
        entity = self.entity
        error = DisplacedError(
            f"The {entity.record.kind} '{entity.name}' was deleted, and another one of this name "
            "was created in other partitions. Messages for it must be sent again. Those that were received from the "
            "old one are gone.",
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
        """End those whose deadline has passed. Runs only while somebody waits."""
        self._timer = None
        now = self._loop.time()
        earliest = now + _TICK
        some = False
        for jobs, sent in self._all():
            some = some or bool(jobs)
            for job in jobs:
                if job.future.done():
                    continue
                # A call that ends at the same moment knows better whether it was sent at all.
                end = job.deadline + _GRACE if sent else job.deadline
                if end <= now:
                    job.future.set_exception(self._late(sent=sent))
                elif end < earliest:
                    earliest = end
        if some:
            self._watch(earliest)

    def _closing(self, *, sent: bool) -> ServiceBusError:
        outcome = Outcome.UNKNOWN if sent else Outcome.NEVER_SENT
        error = ServiceBusConnectionError("The client was closed meanwhile.", outcome=outcome, is_transient=False)
        error.entity = self.entity.name
        return error

    def _late(self, *, sent: bool) -> ServiceBusError:
        what = "no answer came" if sent else "the calls before it took all the time"
        outcome = Outcome.UNKNOWN if sent else Outcome.NEVER_SENT
        error = OperationTimeoutError(f"The operation did not end in time: {what}.", outcome=outcome)
        error.entity = self.entity.name
        _log.info("%s", error)
        return error


class _Pipeline(Generic[J, R]):
    """One call after the other."""

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
        """The partition has answered a call of this lane, and so has recorded it."""
        self._generation = 0
        self._name = ""
        self._told = False
        """The defect in what is being delivered stands in the log."""
        self._begin_anew()

    def wake(self) -> None:
        """There is something to do."""
        self.busy = True
        if self._wanted is not None:
            if not self._wanted.done():
                self._wanted.set_result(None)
        elif not self._started:
            self._started = True
            self._lane.runtime.start(self._work())

    def end(self) -> None:
        """There is nothing to do any more."""
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
            self._told = False
            try:
                error = await self._call(jobs)
                if error is not None:
                    await self._in_parts(jobs, error)
            except Exception as defect:  # noqa: BLE001  # a defect must not leave callers waiting for ever
                if lane.runtime.closed:
                    lane.close()
                    return
                _log.exception("%s: a call broke on a defect", lane.link)
                lane.fail(jobs, DefectError(defect, Outcome.UNKNOWN))
            self.in_flight = []

    async def _in_parts(self, part: list[J], error: ServiceBusError | None) -> None:
        """Deliver jobs in parts after a call of all failed with an error that one of them may have caused."""
        lane, search = self._lane, Halving[J]()
        while part:
            if error is not None and not search.split(part, error):
                if isinstance(error, UnmadeError):
                    self._fail_unmade(part[0], error)
                lane.fail(part, error)
            part, refused, full = search.next_part()
            if full is not None:
                lane.fail(refused, full)
            error = await self._call(part) if part else None

    async def _call(self, jobs: list[J]) -> ServiceBusError | None:
        """Deliver one call for these jobs, which ends them; or return the error that one of them may have caused."""
        lane, entity, until = self._lane, self._lane.entity, max(map(_deadline, jobs))
        delivery: Delivery | None = None  # made when the first attempt fails
        request: Request[R] | None = None
        while jobs:
            record, begun = entity.record, self._loop.time()
            seconds = until - begun
            try:
                if request is None:
                    if lane.link.number not in entity.numbers:
                        raise lane.displaced()
                    request = self._made(jobs)
                if delivery is None or not delivery.maybe_ran:
                    seconds = lane.patience(jobs, seconds)
                result = await perform(lane.runtime.transport, request, timeout=seconds)
            except ServiceBusError as error:
                # It was given up because its time ran out, and not for another reason; and that was not all the time.
                ran_out = self._loop.time() + lane.runtime.retry.first >= begun + seconds
                time_is_left = ran_out and begun + seconds < until
                delivery = delivery or Delivery(lane_is_known=self._known)
                step = delivery.failed(error, time_is_left=time_is_left)
                step = await self._carried_out(step, delivery, jobs, record, until, time_is_left=time_is_left)
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

    async def _carried_out(
        self,
        step: NextStep,
        delivery: Delivery,
        jobs: list[J],
        record: EntityRecord,
        until: float,
        *,
        time_is_left: bool,
    ) -> NextStep:
        """Carry out a step that leads to another one. Returns the last one: AGAIN, ANEW, SPLIT or END."""
        if delivery.unreachable:
            self._lane.unreachable()
        if step is NextStep.MOVE:
            step = delivery.moved(some=self._move(jobs), time_is_left=time_is_left)
        elif step in _MENDING:
            assert delivery.error is not None
            step = delivery.mended(await self._mend(step, delivery.error, record, until))
        self._known = delivery.lane_is_known
        if delivery.leaves_lane:
            self._begin_anew()
        return step

    def _move(self, jobs: list[J]) -> bool:
        """Take jobs out that other partitions can do as well. Returns whether there were any."""
        stay = self._lane.move(jobs)
        if len(stay) == len(jobs):
            return False
        moved = {id(job) for job in jobs}.difference(map(id, stay))
        self.in_flight = [job for job in self.in_flight if id(job) not in moved]
        jobs[:] = stay
        return True

    async def _mend(
        self, step: NextStep, error: ServiceBusError, record: EntityRecord, until: float
    ) -> ServiceBusError | None:
        """Remove what is in the way of a call that was made by what ``record`` says. Returns why it cannot be."""
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
            self._tell(broken)
            return DefectError(broken, error.outcome)
        now = entity.record
        elsewhere = (now.partitioned, now.partitions) != (record.partitioned, record.partitions)
        return lane.displaced() if elsewhere else None

    def _made(self, jobs: Sequence[J]) -> Request[R]:
        """The call for these, in the next place of the lane; what could not be made takes none."""
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
        """Of which no call can be made by itself either."""
        lane, own = self._lane, None
        with suppress(ServiceBusError):
            own = lane.own_error(lane.link.partition, job)
        if own is None:
            self._tell(error.__cause__)
        elif not job.future.done():
            job.future.set_exception(own)

    def _tell(self, defect: BaseException | None) -> None:
        """Have it in the log, once for all that is delivered together."""
        if not self._told:
            self._told = True
            _log.error("%s: a call broke on a defect", self._lane.link, exc_info=defect)

    def _begin_anew(self) -> None:
        """Begin another lane of calls at this partition.

        A partition records a lane with the first call that it answers with a result, and runs a later number only in a
        lane that it has recorded. So a lane whose first call brought no result is left: its second call could never
        run, and if the answer to it were lost, nobody could tell that from a lane that was forgotten.
        """
        self._generation += 1
        self._number = 0
        self._known = False
        self._name = f"{self._lane.runtime.id}{self._letter}.{self._generation}"
