"""A pipeline makes the calls of a lane, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sbredis.client._delivering import CallDelivery, DefectError, Halving, NextStep, UnmadeError
from sbredis.client._riding import rides_of
from sbredis.engine import CallId, Carried, Request, carrying, is_full, perform
from sbredis.exceptions import DataLayoutError, Outcome, ServiceBusError

if TYPE_CHECKING:
    from sbredis.client._lane import Job, Lane
    from sbredis.client._riding import GrantRide, GrantRider
    from sbredis.registry import EntityRecord

__all__ = ["Pipeline"]

J = TypeVar("J", bound="Job")
R = TypeVar("R")
_log = logging.getLogger("sbredis.client")
_FIRST_CONNECTION = 2.0
"""The longest time for which a call waits for the first connection to a server before it counts as slow."""
_deadline = attrgetter("deadline")
_OBSTACLE_STEPS = (NextStep.TELL, NextStep.RELOAD, NextStep.RECOVER)


class _Attempt(Generic[J, R]):
    """An attempt to deliver a call for some jobs."""

    __slots__ = ("at", "jobs", "record", "request", "rest")

    def __init__(self, jobs: list[J], request: Request[R] | None, record: EntityRecord, at: float) -> None:
        self.jobs = jobs
        self.request = request
        """The call; ``None`` until it is made."""
        self.record = record
        """The entity for which the call is made."""
        self.at = at
        """The time at which the attempt began."""
        self.rest: Callable[[], Coroutine[Any, Any, Any]] | None = None
        """Makes the further attempts of the transport, if its first one has failed."""


class Pipeline(Generic[J, R]):
    """Makes the calls of a lane, one after the other.

    The first attempt at a call needs no task: the call is put on the connection, and its reply is passed on as soon as
    it is read. If this attempt fails, or if no connection takes the call, a task finishes the call.
    """

    def __init__(self, lane: Lane[J, R], number: int) -> None:
        self.busy = False
        """Whether a call is under way, or will be made in this or the next turn of the event loop."""
        self.in_flight: list[J] = []
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._letter = f"{lane.letter}{number or ''}"
        self._attempt: _Attempt[J, R] | None = None
        """The first attempt at the call under way."""
        self._number = 0
        self._known = False
        """Whether the partition has answered a call of this lane, so that it has recorded the lane."""
        self._name = ""
        self._rides: Sequence[GrantRide] = ()
        """The grants that the call under way carries."""
        self._since = 0.0
        """The time at which a call with grants was last written to a connection."""
        self._defect_logged = False
        """Whether a defect in the jobs under way was already logged."""
        self._start_lane()

    def wake(self) -> None:
        """Make a call, because there are jobs.

        If it would not be written at once, it is made in the next turn of the event loop, with all jobs of this turn.
        """
        self.busy = True
        lane = self._lane
        if lane.link.number in lane.entity.numbers and lane.connection.transport.is_quiet(lane.link.partition.keys):
            self._begin()
        else:
            self._loop.call_soon(self._begin)

    # -- the first attempt ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the first attempt at the next call, if there are jobs."""
        lane = self._lane
        jobs = self.in_flight = lane.next_jobs(self)
        if not jobs:
            self.busy = False
            return
        self._defect_logged = False
        attempt: _Attempt[J, R] = _Attempt(jobs, None, lane.entity.record, self._loop.time())
        self._attempt = attempt
        try:
            request = attempt.request = self._make_request(jobs)
            began = lane.connection.transport.begin(
                request.script,
                request.keys,
                request.arguments,
                timeout=lane.patience(jobs, max(map(_deadline, jobs)) - attempt.at),
                repeatable=request.repeatable,
                written=self._noting(jobs) if lane.notes_time or self._rides else None,
                answered=self._answered,
                failed=self._failed,
            )
        except Exception:  # noqa: BLE001  # the task meets the same error, and handles it
            began = False
        if not began:
            self._finish_in_task()

    def _answered(self, reply: Any) -> None:
        """End the call with the reply to its first attempt."""
        attempt = self._attempt
        assert attempt is not None
        assert attempt.request is not None
        jobs = attempt.jobs
        if jobs:  # the client is open
            try:
                self._end_call(jobs, attempt.request.result(reply))
            except DataLayoutError as error:
                self._known = True
                self._lane.fail(jobs, error)
            except Exception as defect:  # noqa: BLE001  # after a defect, callers must not wait for ever
                self._fail_by_defect(jobs, defect)
        self._fail_rides()
        self._go_on()

    def _failed(self, rest: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        assert self._attempt is not None
        self._attempt.rest = rest
        self._finish_in_task()

    def _go_on(self) -> None:
        self._attempt = None
        self.in_flight = []
        if self._lane.gathering:
            self._loop.call_soon(self._begin)  # the callers that have their outcomes now may submit more before that
        else:
            self.busy = False

    # -- further attempts ----------------------------------------------------------------------------------------------

    def _finish_in_task(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            self._lane.connection.start(self._finish(attempt))

    async def _finish(self, attempt: _Attempt[J, R]) -> None:
        """Finish a call whose first attempt has failed or could not be made."""
        lane, jobs = self._lane, attempt.jobs
        try:
            error = await self._call(jobs, attempt)
            if error is not None:
                await self._in_parts(jobs, error)
        except Exception as defect:  # noqa: BLE001  # after a defect, callers must not wait for ever
            if lane.connection.closed:
                lane.close()
                return
            self._fail_by_defect(jobs, defect)
        finally:
            self._fail_rides()
        self._go_on()

    def _fail_by_defect(self, jobs: list[J], defect: Exception) -> None:
        lane = self._lane
        _log.error("%s: a call failed because of a defect", lane.link, exc_info=defect)
        lane.fail(jobs, DefectError(defect, Outcome.UNKNOWN))

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

    async def _call(self, jobs: list[J], attempt: _Attempt[J, R] | None = None) -> ServiceBusError | None:
        """Deliver one call for these jobs and end them, or return an error that one of the jobs may have caused."""
        lane, entity, until = self._lane, self._lane.entity, max(map(_deadline, jobs))
        delivery: CallDelivery | None = None  # ``None`` until the first attempt has failed
        attempt = attempt or _Attempt(jobs, None, entity.record, self._loop.time())
        if attempt.rest is None:
            await lane.connection.transport.first_connection(
                lane.link.partition.keys, min(until - attempt.at, _FIRST_CONNECTION)
            )
            attempt.at = self._loop.time()
        request = attempt.request
        while jobs:
            seconds = until - attempt.at
            try:
                if request is None:
                    if lane.link.number not in entity.numbers:
                        raise lane.fail_displaced()
                    request = self._make_request(jobs)
                if delivery is None or not delivery.maybe_ran:
                    seconds = lane.patience(jobs, seconds)
                first = attempt.rest() if attempt.rest is not None else None
                written = self._noting(jobs) if lane.notes_time or self._rides else None
                result = await perform(
                    lane.connection.transport, request, timeout=seconds, first=first, written=written
                )
            except ServiceBusError as error:
                # Did the attempt end only because its part of the time was over?
                ran_out = self._loop.time() + lane.connection.retry.first >= attempt.at + seconds
                time_is_left = ran_out and attempt.at + seconds < until
                delivery = delivery or CallDelivery(lane_is_known=self._known, spans=lane.spans)
                step = delivery.failed(error, time_is_left=time_is_left)
                step = await self._carry_out(step, delivery, jobs, attempt.record, until, time_is_left=time_is_left)
                if step is NextStep.ANEW:
                    delivery = request = None
                elif step is not NextStep.AGAIN:
                    assert delivery.error is not None
                    if step is NextStep.SPLIT:
                        return delivery.error
                    self._fail(jobs, delivery.error)
                    delivery = request = None
                attempt = _Attempt(jobs, request, entity.record, self._loop.time())
            else:
                self._end_call(jobs, result)
                return None
        return None

    def _fail(self, jobs: list[J], error: ServiceBusError) -> None:
        """Fail jobs with an error, except those that a server at its memory limit takes in a call of their own."""
        rest = self._lane.at_limit(jobs) if is_full(error) and len(jobs) > 1 else []
        if len(rest) == len(jobs):
            rest = []
        kept = set(map(id, rest))
        self._lane.fail([job for job in jobs if id(job) not in kept], error)
        jobs[:] = rest

    def _end_call(self, jobs: list[J], result: Any) -> None:
        self._known = True
        if not self._rides:
            self._lane.answer(jobs, result)
            return
        carried: Carried[R] = result
        self._lane.answer(jobs, carried.result)
        rides, self._rides = self._rides, ()
        for ride, reply in zip(rides, carried.credits, strict=True):
            ride.answered(reply, self._since)

    def _fail_rides(self) -> None:
        """End the rides of a call that gets no result. Their receivers ask for themselves."""
        rides, self._rides = self._rides, ()
        for ride in rides:
            ride.failed()

    async def _carry_out(
        self,
        step: NextStep,
        delivery: CallDelivery,
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
        if step is not NextStep.AGAIN:
            self._fail_rides()
        if step in _OBSTACLE_STEPS:
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
            if lane.connection.closed:
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
            since = lane.connection.clock.now() if lane.notes_time else 0.0
            call_id = CallId(self._name, self._number + 1, lane.connection.clock.told())
            request = lane.request(lane.link.partition, call_id, jobs)
            if lane.carries and (riders := lane.riders(jobs)):
                request = self._carrying(request, riders)
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

    def _carrying(self, request: Request[R], riders: Mapping[GrantRider, int]) -> Request[R]:
        """Return the request with the grants of these receivers. The reply then has their answers, too.

        No grant makes the call fail.
        """
        try:
            self._rides = rides_of(riders)
            if not self._rides:
                return request
            self._since = self._lane.connection.clock.now()
            carried: Any = carrying(request, [ride.sent for ride in self._rides])
            return cast("Request[R]", carried)
        except Exception as defect:  # noqa: BLE001  # the call is made without grants
            _log.error("%s: a call carries no grants because of a defect", self._lane.link, exc_info=defect)
            self._fail_rides()
            return request

    def _noting(self, jobs: Sequence[J]) -> Callable[[], None] | None:
        """Return a function that notes the time in the jobs each time before their call is written to a connection.

        The answer belongs to the last writing: the connection before it is lost, and a repetition is answered with the
        time that is left of a lock. A partition with a test clock counts from the time in the call, which stays.
        """
        clock = self._lane.connection.clock
        if clock.told() is not None:
            return None

        notes_time = self._lane.notes_time

        def note() -> None:
            now = self._since = clock.now()
            if notes_time:
                for job in jobs:
                    job.since = now

        return note

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
        self._number = 0
        self._known = False
        self._name = f"{self._lane.connection.id}{self._letter}.{next(self._lane.connection.lane_numbers)}"
