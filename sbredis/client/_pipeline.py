"""A pipeline makes the calls of a lane, one after the other."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sbredis.client._delivering import CallDelivery, DefectError, Halving, NextStep, UnmadeError
from sbredis.client._jobs import Jobs
from sbredis.client._riding import rides_of
from sbredis.engine import CallId, Carried, Request, carrying, is_full, perform
from sbredis.exceptions import DataLayoutError, Outcome, ServiceBusError

if TYPE_CHECKING:
    from sbredis.client._lane import Lane
    from sbredis.client._riding import GrantRide, GrantRider

__all__ = ["Pipeline"]

T = TypeVar("T")
R = TypeVar("R")
_log = logging.getLogger("sbredis.client")
_FIRST_CONNECTION = 2.0
"""The longest time for which a call waits for the first connection to a server before it counts as slow."""
Rest = Callable[[], Coroutine[Any, Any, Any]]
"""Makes the further attempts of the transport at a call, and returns the reply or raises the error."""
_OBSTACLE_STEPS = (NextStep.TELL, NextStep.RELOAD, NextStep.RECOVER)


class Pipeline(Generic[T, R]):
    """Makes the calls of a lane, one after the other.

    The first attempt at a call needs no task: the call is put on the connection, and its reply is passed on as soon as
    it is read. If this attempt fails, or if no connection takes the call, a task finishes the call.
    """

    def __init__(self, lane: Lane[T, R], number: int) -> None:
        self.busy = False
        """Whether a call is under way, or will be made in this or the next turn of the event loop."""
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._letter = f"{lane.letter}{number or ''}"
        self._jobs: Jobs[T] = Jobs()
        """The jobs of the call under way that have not ended."""
        self._request: Request[R] | None = None
        """The call under way; ``None`` before it is made."""
        self._record = lane.entity.record
        """The entity for which the call is made."""
        self._began = 0.0
        """The time at which the attempt under way began."""
        self._search: Halving[Jobs[T]] | None = None
        """The search for the job that makes the call fail."""
        self._number = 0
        self._known = False
        """Whether the partition has answered a call of this lane, so that it has recorded the lane."""
        self._name = ""
        self._rides: Sequence[GrantRide] = ()
        """The grants that the call under way carries."""
        self._since = 0.0
        """The time at which the call was last written to a connection, if somebody needs it."""
        self._defect_logged = False
        """Whether a defect in the jobs under way was already logged."""
        self._start_lane()

    def under_way(self) -> list[Jobs[T]]:
        """Return the jobs of the call under way that have not ended."""
        return [self._jobs, *(() if self._search is None else self._search.waiting)]

    def wake(self) -> None:
        """Make a call, because there are jobs.

        If it would not be written at once, or more jobs come, it is made in the next turn of the event loop, with all
        jobs of this turn.
        """
        self.busy = True
        lane = self._lane
        quiet = lane.link.number in lane.entity.numbers and lane.connection.transport.is_quiet(lane.link.partition.keys)
        if quiet and not lane.in_company:
            self._begin()
        else:
            self._loop.call_soon(self._begin)

    # -- the first attempt ---------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Make the first attempt at the next call, if there are jobs."""
        lane = self._lane
        jobs = self._jobs = lane.next_jobs(self)
        if not jobs:
            self.busy = False
            return
        self._defect_logged = False
        self._request = None
        self._began = self._loop.time()
        try:
            request = self._request = self._make_request(jobs)
            began = lane.connection.transport.begin(
                request.script,
                request.keys,
                request.arguments,
                timeout=lane.patience(jobs, max(jobs.deadlines) - self._began),
                repeatable=request.repeatable,
                written=self._noting(),
                answered=self._answered,
                failed=self._failed,
            )
        except Exception:  # noqa: BLE001  # the task meets the same error, and handles it
            began = False
        if not began:
            self._lane.connection.start(self._finish(None))

    def _answered(self, reply: Any) -> None:
        """End the call with the reply to its first attempt."""
        jobs, request = self._jobs, self._request
        assert request is not None
        if jobs:  # the client is open
            try:
                self._end_call(jobs, request.result(reply))
            except DataLayoutError as error:
                self._known = True
                self._lane.fail(jobs, error)
            except Exception as defect:  # noqa: BLE001  # after a defect, callers must not wait for ever
                self._fail_by_defect(jobs, defect)
        if self._rides:
            self._fail_rides()
        self._go_on()

    def _failed(self, rest: Rest) -> None:
        self._lane.connection.start(self._finish(rest))

    def _go_on(self) -> None:
        self._request = None
        if self._lane.gathering:
            self._loop.call_soon(self._begin)  # the callers that have their outcomes now may submit more before that
        else:
            self.busy = False

    # -- further attempts ----------------------------------------------------------------------------------------------

    async def _finish(self, rest: Rest | None) -> None:
        """Finish a call whose first attempt has failed or could not be made."""
        lane = self._lane
        try:
            error = await self._call(rest)
            if error is not None:
                await self._in_parts(error)
        except Exception as defect:  # noqa: BLE001  # after a defect, callers must not wait for ever
            if lane.connection.closed:
                lane.close()
                return
            for jobs in self.under_way():
                self._fail_by_defect(jobs, defect)
        finally:
            self._search = None
            self._fail_rides()
        self._go_on()

    def _fail_by_defect(self, jobs: Jobs[T], defect: Exception) -> None:
        lane = self._lane
        _log.error("%s: a call failed because of a defect", lane.link, exc_info=defect)
        lane.fail(jobs, DefectError(defect, Outcome.UNKNOWN))

    async def _in_parts(self, error: ServiceBusError | None) -> None:
        """Deliver the jobs in parts, after a call of all of them failed with an error that one job may have caused."""
        lane = self._lane
        search = self._search = Halving[Jobs[T]](lane.sizes)
        while True:
            if error is not None and not search.split(self._jobs, error):
                if isinstance(error, UnmadeError):
                    self._fail_unmade(self._jobs, error)
                lane.fail(self._jobs, error)
            part = search.next_part()
            if part is None:
                return
            self._jobs, error = part.jobs, None
            if part.error is not None:
                lane.fail(self._jobs, part.error)
            else:
                self._request = None
                self._began = self._loop.time()
                error = await self._call(None)

    async def _call(self, rest: Rest | None) -> ServiceBusError | None:
        """Deliver one call for the jobs and end them, or return an error that one of the jobs may have caused.

        ``rest`` makes the further attempts of the transport, if its first one has failed.
        """
        lane, entity, jobs = self._lane, self._lane.entity, self._jobs
        until = max(jobs.deadlines, default=0.0)
        delivery: CallDelivery | None = None  # ``None`` until the first attempt has failed
        if rest is None and lane.link.number in entity.numbers:
            await lane.connection.transport.first_connection(
                lane.link.partition.keys, min(until - self._began, _FIRST_CONNECTION)
            )
            self._began = self._loop.time()
        while jobs:
            seconds = until - self._began
            try:
                if self._request is None:
                    if lane.link.number not in entity.numbers:
                        raise lane.fail_displaced()
                    self._request = self._make_request(jobs)
                if delivery is None or not delivery.maybe_ran:
                    seconds = lane.patience(jobs, seconds)
                first = rest() if rest is not None else None
                result = await perform(
                    lane.connection.transport, self._request, timeout=seconds, first=first, written=self._noting()
                )
            except ServiceBusError as error:
                # Did the attempt end only because its part of the time was over?
                ran_out = self._loop.time() + lane.connection.retry.first >= self._began + seconds
                time_is_left = ran_out and self._began + seconds < until
                delivery = delivery or CallDelivery(lane_is_known=self._known, spans=lane.spans)
                step = delivery.failed(error, time_is_left=time_is_left)
                step = await self._carry_out(step, delivery, until, time_is_left=time_is_left)
                if step is NextStep.SPLIT:
                    return delivery.error
                if step is not NextStep.AGAIN:
                    if step is not NextStep.ANEW:
                        assert delivery.error is not None
                        self._fail(jobs, delivery.error)
                    delivery = self._request = None
                rest = None
                self._began = self._loop.time()
            else:
                self._end_call(jobs, result)
                return None
        return None

    def _fail(self, jobs: Jobs[T], error: ServiceBusError) -> None:
        """Fail jobs with an error, except those that a server at its memory limit takes in a call of their own."""
        if is_full(error) and len(jobs) > 1:
            taken = self._lane.at_limit(jobs)
            if not all(taken):
                jobs = jobs.split_off([not each for each in taken])
        self._lane.fail(jobs, error)

    def _end_call(self, jobs: Jobs[T], result: Any) -> None:
        self._known = True
        if not self._rides:
            self._lane.answer(jobs, result, self._since)
            jobs.clear()
            return
        carried: Carried[R] = result
        self._lane.answer(jobs, carried.result, self._since)
        jobs.clear()
        rides, self._rides = self._rides, ()
        for ride, reply in zip(rides, carried.credits, strict=True):
            ride.answered(reply, self._since)

    def _fail_rides(self) -> None:
        """End the rides of a call that gets no result. Their receivers ask for themselves."""
        rides, self._rides = self._rides, ()
        for ride in rides:
            ride.failed()

    async def _carry_out(self, step: NextStep, delivery: CallDelivery, until: float, *, time_is_left: bool) -> NextStep:
        """Carry out a step, and the steps that follow from it. Return the last step: AGAIN, ANEW, SPLIT or END."""
        if delivery.unreachable:
            self._lane.unreachable()
        if step is NextStep.MOVE:
            step = delivery.moved(some=self._lane.move(self._jobs), time_is_left=time_is_left)
        if step is not NextStep.AGAIN:
            self._fail_rides()
        if step in _OBSTACLE_STEPS:
            assert delivery.error is not None
            step = delivery.obstacle_removed(await self._remove_obstacle(step, delivery.error, until))
        self._known = delivery.lane_is_known
        if delivery.leaves_lane:
            self._start_lane()
        return step

    async def _remove_obstacle(self, step: NextStep, error: ServiceBusError, until: float) -> ServiceBusError | None:
        """Remove the obstacle to the call under way. Return the error if the removal fails."""
        lane, entity, record = self._lane, self._lane.entity, self._record
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

    def _make_request(self, jobs: Jobs[T]) -> Request[R]:
        """Return the call for these jobs, with the lane's next number. A call that cannot be built uses no number."""
        lane = self._lane
        self._record = lane.entity.record
        try:
            clock = lane.connection.clock
            if lane.notes_time:
                self._since = clock.now()
            call_id = CallId(self._name, self._number + 1, clock.told())
            request = lane.request(lane.link.partition, call_id, jobs)
            if lane.carries and (riders := lane.riders(jobs)):
                request = self._carrying(request, riders)
        except ServiceBusError as error:
            error.outcome = error.outcome or Outcome.NEVER_SENT
            raise
        except Exception as error:
            raise UnmadeError(error) from error
        self._number += 1
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

    def _noting(self) -> Callable[[], None] | None:
        """Return a function that notes the time each time before the call is written to a connection, if it is needed.

        The answer belongs to the last writing: the connection before it is lost, and a repetition is answered with the
        time that is left of a lock. A partition with a test clock counts from the time in the call, which stays.
        """
        needed = self._rides or self._lane.notes_time
        return self._note if needed and self._lane.connection.clock.told() is None else None

    def _note(self) -> None:
        self._since = self._lane.connection.clock.now()

    def _fail_unmade(self, jobs: Jobs[T], error: UnmadeError) -> None:
        """Fail a single job for which no call can be built."""
        lane, own = self._lane, None
        with suppress(ServiceBusError):
            own = lane.own_error(lane.link.partition, jobs.what[0])
        if own is None:
            self._log_defect(error.__cause__)
        elif not jobs.futures[0].done():
            jobs.futures[0].set_exception(own)

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
