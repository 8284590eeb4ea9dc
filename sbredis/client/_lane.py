"""Lanes: join jobs that wait for the same partition at the same time in one script call.

A lane carries one kind of operation to one partition. It makes one call after the other. Each call has a number, by
which the partition recognises a repetition. The first job is not delayed: its call is made at once if the connection is
idle, and otherwise in the next turn of the event loop. Jobs that come while a call is under way gather for the next
call. So calls grow with the load, and no job waits for later jobs.

Each caller has its own outcome and its own deadline. If a caller stops waiting before its call is made, its job is
dropped. If it stops waiting later, the call continues without it.

A job is a row of columns (:class:`Jobs`). There is a job for each message. An object for each of them would cost a
large part of the time of a send, also because Python's garbage collector looks at each object of a waiting caller. And
what most jobs are about is there already: the payload of a message, or the hold of a received one.

A :class:`Pipeline` makes the calls of a lane, one after the other. The first attempt at a call needs no task: the call
is put on the connection, and its reply is passed on as soon as it is read. If this attempt fails, or if no connection
takes the call, a task finishes the call.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from operator import not_
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar, cast

from sbredis.client._delivering import CallDelivery, DefectError, DisplacedError, Halving, NextStep, UnmadeError
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    MAXIMUM_GRANTS,
    CallId,
    Carried,
    Partition,
    Request,
    carrying,
    is_full,
    perform,
)
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient
    from sbredis.client._riding import GrantRide, GrantRider

__all__ = ["OTHER_LOOP", "Job", "Jobs", "Lane", "Pipeline"]

_log = logging.getLogger("sbredis.client")
_TICK = 0.25
_GRACE = 0.05
_FIRST_CONNECTION = 2.0
"""The longest time for which a call waits for the first connection to a server before it counts as slow."""
_OBSTACLE_STEPS = (NextStep.TELL, NextStep.RELOAD, NextStep.RECOVER)

OTHER_LOOP = (
    "The client is used in another event loop than the one in which it was opened. Make a client for each event loop, "
    "and close it in that loop."
)

T = TypeVar("T")
R = TypeVar("R")
Rest = Callable[[], Coroutine[Any, Any, Any]]
"""Makes the further attempts of the transport at a call, and returns the reply or raises the error."""


class Job:
    """What a job is about that needs an object of its own. It has its caller's future and deadline."""

    size = 0
    """The bytes that the job adds to its call."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """The future result."""


class Jobs(Generic[T]):
    """Jobs in the order in which they came. The entries of one job have the same place in all lists."""

    __slots__ = ("deadlines", "futures", "terms", "what")

    def __init__(self) -> None:
        self.what: list[T] = []
        """What each job is about."""
        self.futures: list[asyncio.Future[Any]] = []
        """The future results."""
        self.deadlines: list[float] = []
        self.terms: list[Any] = []
        """What is said about each job beside that, in an object that many jobs share; ``None`` for most kinds."""

    def __len__(self) -> int:
        return len(self.futures)

    def __iter__(self) -> Iterator[tuple[T, asyncio.Future[Any], float, Any]]:
        return zip(self.what, self.futures, self.deadlines, self.terms, strict=True)

    def add(self, what: T, future: asyncio.Future[Any], deadline: float, terms: Any) -> None:
        """Append a job."""
        self.what.append(what)
        self.futures.append(future)
        self.deadlines.append(deadline)
        self.terms.append(terms)

    def take(self, count: int) -> Self:
        """Remove the first ``count`` jobs, or all if there are fewer, and return them."""
        taken = type(self)()
        if count < len(self.futures):
            for name in self.__slots__:
                listed = getattr(self, name)
                setattr(taken, name, listed[:count])
                del listed[:count]
        else:
            for name in self.__slots__:
                setattr(taken, name, getattr(self, name))
                setattr(self, name, [])
        return taken

    def put_back(self, jobs: Jobs[T]) -> None:
        """Put jobs before all others."""
        for name in self.__slots__:
            getattr(self, name)[:0] = getattr(jobs, name)

    def split_off(self, chosen: Sequence[bool]) -> Self:
        """Remove the chosen jobs, and return them."""
        taken, others = type(self)(), list(map(not_, chosen))
        for name in self.__slots__:
            listed: list[Any] = getattr(self, name)
            setattr(taken, name, list(compress(listed, chosen)))
            listed[:] = compress(listed, others)
        return taken

    def clear(self) -> None:
        """Remove all jobs, because they have ended."""
        self.what.clear()
        self.futures.clear()
        self.deadlines.clear()
        self.terms.clear()


J = TypeVar("J", bound=Job)


class Lane(ABC, Generic[T, R]):
    """One kind of operation at one partition."""

    letter: ClassVar[str]
    """The letter of this lane, which distinguishes the lanes of a client."""
    depth: ClassVar[int] = 1
    """The largest number of calls under way. With two, one call is prepared while the other is being answered."""
    notes_time: ClassVar[bool] = False
    """Whether to note the time at which a call is written, because a lock may begin with it."""
    spans: ClassVar[bool] = False
    """Whether a call also changes partitions other than the one of the lane."""
    carries: ClassVar[bool] = False
    """Whether a call may carry grants."""

    def __init__(self, link: PartitionClient) -> None:
        self.link = link
        self.entity = link.entity
        self.connection = link.connection
        self._loop = asyncio.get_running_loop()
        self.gathering: Jobs[T] = Jobs()
        """The jobs that wait for the next call. Only the lane changes it."""
        self._pipelines = [Pipeline(self, place) for place in range(self.depth)]
        self._idle = list(self._pipelines)
        """The pipelines that make no call, and will not make one in this or the next turn. The first is woken first."""
        self._woken = False
        """Whether one of the others takes the gathered jobs in this or the next turn of the event loop."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf

    # -- the operation of this kind of lane ----------------------------------------------------------------------------

    @abstractmethod
    def share(self, jobs: Jobs[T], *, ordered: bool) -> int:
        """Return how many of the first jobs go into one call.

        Without ``ordered``, a job that must not overtake earlier jobs is not among them.
        """

    @abstractmethod
    def request(self, partition: Partition, call_id: CallId, jobs: Jobs[T]) -> Request[R]:
        """Return the call for these jobs."""

    @abstractmethod
    def answer(self, jobs: Jobs[T], result: R, since: float) -> None:
        """Give each job its outcome, and clean up after it.

        The call was last written to a connection at the time ``since``, if the lane ``notes_time``.
        """

    def unanswered(self, jobs: Jobs[T]) -> None:
        """Clean up after jobs that have ended without an answer. Each job ends once."""

    def sizes(self, jobs: Jobs[T]) -> Sequence[int]:
        """Return how many bytes each job adds to its call."""
        return [0] * len(jobs)

    def riders(self, jobs: Jobs[T]) -> Mapping[GrantRider, int]:  # noqa: ARG002 -- most calls settle nothing
        """Return the receivers of the messages that a call for these jobs settles, and how many messages of each."""
        return {}

    @property
    def in_company(self) -> bool:
        """Whether more jobs come in this turn of the event loop, so that a call that ``carries`` waits for them."""
        return False

    def own_error(self, partition: Partition, what: T) -> Exception | None:
        """Return the error if the arguments of a job make its call impossible, and ``None`` otherwise."""
        del partition, what
        return None

    def patience(self, jobs: Jobs[T], seconds: float) -> float:
        """Return for how many seconds to try to reach the partition before the next step.

        ``seconds`` is the time that is left.
        """
        del jobs
        return seconds

    def unreachable(self) -> None:
        """Called when the partition could not be reached, or did not answer."""

    def move(self, jobs: Jobs[T]) -> bool:  # noqa: ARG002 -- most jobs belong to their partition
        """Move those jobs that can be moved to other partitions, and remove them. Return whether there were any.

        The jobs have not run, and the partition cannot be reached.
        """
        return False

    def at_limit(self, jobs: Jobs[T]) -> Sequence[bool]:
        """Return for each job whether a server at its memory limit takes it, after it has refused a call of all."""
        return [False] * len(jobs)

    # -- for callers ---------------------------------------------------------------------------------------------------

    def submit(self: Lane[J, R], job: J) -> asyncio.Future[Any]:
        """Queue a job that is an object, and return ``job.future``, which will have the result."""
        return self.add(job, job.future, job.deadline)

    def add(self, what: T, future: asyncio.Future[Any], deadline: float, terms: Any = None) -> asyncio.Future[Any]:
        """Queue a job, and return the future of its caller, which will have the result."""
        if self.connection.closed or future.get_loop() is not self._loop:
            self._refuse(what, future, deadline, terms)
            return future
        jobs = self.gathering  # this runs for each message, so it makes no further call
        jobs.what.append(what)
        jobs.futures.append(future)
        jobs.deadlines.append(deadline)
        jobs.terms.append(terms)
        if self._idle and not self._woken:
            self._wake()
        if deadline < self._timer_at:
            self._watch(min(deadline, self._loop.time() + _TICK))
        return future

    def _refuse(self, what: T, future: asyncio.Future[Any], deadline: float, terms: Any) -> None:
        """Refuse a job of another event loop; fail a job that comes after the client was closed."""
        jobs: Jobs[T] = Jobs()
        jobs.add(what, future, deadline, terms)
        self.unanswered(jobs)
        if future.get_loop() is not self._loop:
            raise RuntimeError(OTHER_LOOP)
        if not future.done():
            future.set_exception(self._closed_error(sent=False))

    @property
    def busy(self) -> bool:
        """Whether jobs wait or a call is under way."""
        return bool(self.gathering) or len(self._idle) < len(self._pipelines)

    @property
    def gathers(self) -> bool:
        """Whether jobs gather for the next call, or will: a call is under way, and another one may be made beside it.

        The first of many jobs has a call of its own if the connection is idle, and the others share the next one.
        """
        return bool(self.gathering.futures) or 0 < len(self._idle) < len(self._pipelines)

    def drop_forsaken(self) -> None:
        """Drop the gathered jobs whose callers wait no more. The next call would drop them, too."""
        self.unanswered(self.gathering.split_off([future.done() for future in self.gathering.futures]))

    def close(self) -> None:
        """Fail all jobs, because the client is closed."""
        if self._timer is not None:
            self._timer.cancel()
        for jobs, sent in self._all():
            for future in jobs.futures:
                if not future.done():
                    future.set_exception(self._closed_error(sent=sent))
                    future.exception()  # asyncio would report an error that is never read
            self.unanswered(jobs)
            jobs.clear()

    def next_jobs(self, pipeline: Pipeline[T, R]) -> Jobs[T]:
        """Return the jobs for the next call of a pipeline that was woken. Wake another one for those that it leaves.

        If there are no jobs, the pipeline is idle.
        """
        self._woken = False
        jobs, self.gathering = self.gathering, Jobs()  # a type argument would cost more than the object itself
        count, ordered = len(jobs.futures), pipeline is self._pipelines[0]
        for future in jobs.futures:
            if future.done() or count > MAXIMUM_CALL_MESSAGES:
                jobs = self._first_of(jobs)
                count = len(jobs.futures)
                break
        if count > 1 or (count and not ordered):
            count = self.share(jobs, ordered=ordered)
            if count < len(jobs.futures):
                rest, jobs = jobs, jobs.take(count)
                self.gathering.put_back(rest)
        if self.gathering.futures and self._idle:
            self._wake()
        if not jobs.futures:
            self._idle.insert(pipeline.place, pipeline)
        return jobs

    def _first_of(self, jobs: Jobs[T]) -> Jobs[T]:
        """Return the first jobs whose callers still wait, at most as many as a call takes. The rest gathers again."""
        while jobs:
            first = jobs.take(MAXIMUM_CALL_MESSAGES)
            self.unanswered(first.split_off([future.done() for future in first.futures]))
            if first:
                self.gathering.put_back(jobs)
                return first
        return jobs

    def go_on(self, pipeline: Pipeline[T, R]) -> None:
        """Note that the call of a pipeline has ended. If jobs wait, let it make another call in the next turn.

        The callers that have their outcomes now may submit more before that.
        """
        self._idle.insert(pipeline.place, pipeline)
        if self.gathering.futures and not self._woken:
            self._wake(at_once=False)

    def _wake(self, *, at_once: bool = True) -> None:
        """Let an idle pipeline make a call, because there are jobs.

        If the call would not be written ``at_once``, or more jobs come, it is made in the next turn of the event loop,
        with all jobs of this turn.
        """
        pipeline, self._woken = self._idle.pop(0), True
        number, entity = self.link.number, self.entity
        if number in entity.numbers:
            at_once = at_once and not (self.carries and self.in_company)
            self.connection.transport.soon(entity.partition(number).keys, pipeline.begin, at_once=at_once)
        else:
            self._loop.call_soon(pipeline.begin)

    def _all(self) -> list[tuple[Jobs[T], bool]]:
        """Return all jobs, and whether they were sent."""
        sent = [(jobs, True) for pipeline in self._pipelines for jobs in pipeline.under_way()]
        return [*sent, (self.gathering, False)]

    def fail(self, jobs: Jobs[T], error: ServiceBusError) -> None:
        """End jobs with an error. Each caller gets an error object of its own."""
        error.entity = self.entity.name
        self.entity.explain(error)
        for future in jobs.futures:
            if not future.done():
                future.set_exception(error.twin())
            elif future.cancelled():
                # When an entity is deleted, its users stop, and nothing was changed.
                level = logging.INFO if isinstance(error, MessagingEntityNotFoundError) else logging.WARNING
                _log.log(level, "a call failed, and no caller waits for its result any more: %s", error)
        self.unanswered(jobs)
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
        self.fail(self.gathering, error)
        return error

    # -- time ----------------------------------------------------------------------------------------------------------

    def _watch(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        """Fail the jobs whose deadline has passed. The timer runs only while jobs wait."""
        self._timer, self._timer_at = None, math.inf
        now = self._loop.time()
        earliest = now + _TICK
        some = False
        for jobs, sent in self._all():
            some = some or bool(jobs)
            # A call that was already sent gets a moment longer. If it fails at the deadline, its own error is more
            # precise than the error from here.
            grace = _GRACE if sent else 0.0
            for future, deadline in zip(jobs.futures, jobs.deadlines, strict=True):
                if deadline + grace >= earliest or future.done():
                    continue
                if deadline + grace <= now:
                    future.set_exception(self._late_error(sent=sent))
                else:
                    earliest = deadline + grace
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


class Pipeline(Generic[T, R]):
    """Makes the calls of a lane, one after the other."""

    def __init__(self, lane: Lane[T, R], place: int) -> None:
        self.place = place
        """The place of the pipeline in its lane, from 0."""
        self._lane = lane
        self._loop = asyncio.get_running_loop()
        self._letter = f"{lane.letter}{place or ''}"
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
        self._rides: list[GrantRide] = []
        """The grants that the call under way carries, and that have not ended."""
        self._since = 0.0
        """The time at which the call was last written to a connection, if somebody needs it."""
        self._defect_logged = False
        """Whether a defect in the jobs under way was already logged."""
        self._start_lane()

    def under_way(self) -> list[Jobs[T]]:
        """Return the jobs of the call under way that have not ended."""
        return [self._jobs, *(() if self._search is None else self._search.waiting)]

    # -- the first attempt ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Make the first attempt at the next call, if there are jobs."""
        lane = self._lane
        jobs = self._jobs = lane.next_jobs(self)
        if not jobs.futures:
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
                answered=self._answered,
                failed=self._failed,
                repeatable=request.repeatable,
                written=self._note if self._rides or lane.notes_time else None,
            )
        except Exception:  # noqa: BLE001  # the task meets the same error, and handles it
            began = False
        if not began:
            self._lane.connection.start(self._finish(None))

    def _answered(self, _: object, reply: Any) -> None:
        """End the call with the reply to its first attempt."""
        jobs, request, self._request = self._jobs, self._request, None
        assert request is not None
        if jobs.futures:  # the client is open
            try:
                try:
                    result = request.read(reply)
                except Exception:  # noqa: BLE001
                    result = request.result(reply)  # this raises the error that callers get
                self._end_call(jobs, result)
            except DataLayoutError as error:
                self._known = True
                self._lane.fail(jobs, error)
            except Exception as defect:  # noqa: BLE001  # after a defect, callers must not wait for ever
                self._fail_by_defect(jobs, defect)
        if self._rides:
            self._fail_rides()
        self._lane.go_on(self)

    def _failed(self, call: Any, failure: Any) -> None:
        """Make the further attempts at a call in a task."""
        connection = self._lane.connection
        connection.start(self._finish(partial(connection.transport.finish, call, failure)))

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
            self._request = self._search = None
            self._fail_rides()
        lane.go_on(self)

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
                entity.partition(lane.link.number).keys, min(until - self._began, _FIRST_CONNECTION)
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
                    lane.connection.transport, self._request, timeout=seconds, first=first, written=self._note
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
        for ride, reply in zip(tuple(self._rides), carried.credits, strict=True):
            del self._rides[0]
            ride.rider.answered(ride, reply, self._since)

    def _fail_rides(self) -> None:
        """End the rides of a call that gets no result. Their receivers ask for themselves."""
        while self._rides:
            ride = self._rides.pop(0)
            try:
                ride.rider.failed(ride)
            except Exception as defect:  # noqa: BLE001  # the other rides must end too
                _log.error(
                    "%s: a receiver goes on without an answer because of a defect", self._lane.link, exc_info=defect
                )

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
            request = lane.request(lane.entity.partition(lane.link.number), call_id, jobs)
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
        """Return the request with the grants of receivers, of which the call settles these numbers of messages.

        The reply then has their answers, too. No grant makes the call fail.
        """
        others: dict[GrantRider, int] = {}
        try:
            for asked in (riders, others):
                for rider, count in asked.items():
                    ride = rider.ride(count) if len(self._rides) < MAXIMUM_GRANTS else None
                    if ride is not None:
                        self._rides.append(ride)  # each one is kept if the next receiver raises an error
                        if asked is riders and ride.sent.grant.leaves and (other := rider.beside) is not None:
                            others[other] = others.get(other, 0) + 1
            if not self._rides:
                return request
            self._since = self._lane.connection.clock.now()
            carried: Any = carrying(request, [ride.sent for ride in self._rides])
            return cast("Request[R]", carried)
        except Exception as defect:  # noqa: BLE001  # the call is made without grants
            _log.error("%s: a call carries no grants because of a defect", self._lane.link, exc_info=defect)
            self._fail_rides()
            return request

    def _note(self) -> None:
        """Note the time. This is called each time before the call is written to a connection.

        The answer belongs to the last writing: the connection before it is lost, and a repetition is answered with the
        time that is left of a lock. A partition with a test clock counts from the time in the call, which stays.
        """
        clock = self._lane.connection.clock
        if clock.told() is None:
            self._since = clock.now()

    def _fail_unmade(self, jobs: Jobs[T], error: UnmadeError) -> None:
        """Fail a single job for which no call can be built."""
        lane, own = self._lane, None
        with suppress(ServiceBusError):
            own = lane.own_error(lane.entity.partition(lane.link.number), jobs.what[0])
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
