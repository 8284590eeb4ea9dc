"""Lanes: join jobs that wait for the same partition at the same time in one script call.

A lane carries one kind of operation to one partition. It makes one call after the other. Each call has a number, by
which the partition recognises a repetition. The first job is not delayed: its call is made at once if the connection is
idle, and otherwise in the next turn of the event loop. Jobs that come while a call is under way gather for the next
call. So calls grow with the load, and no job waits for later jobs.

Each caller has its own outcome and its own deadline. If a caller stops waiting before its call is made, its job is
dropped. If it stops waiting later, the call continues without it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from sbredis.client._delivering import DisplacedError
from sbredis.client._jobs import Job, Jobs
from sbredis.client._pipeline import Pipeline
from sbredis.engine import MAXIMUM_CALL_MESSAGES, CallId, Partition, Request
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusConnectionError,
    ServiceBusError,
)

if TYPE_CHECKING:
    from sbredis.client._partition_client import PartitionClient
    from sbredis.client._riding import GrantRider

__all__ = ["OTHER_LOOP", "Lane"]

_log = logging.getLogger("sbredis.client")
_TICK = 0.25
_GRACE = 0.05

OTHER_LOOP = (
    "The client is used in another event loop than the one in which it was opened. Make a client for each event loop, "
    "and close it in that loop."
)


J = TypeVar("J", bound=Job)
T = TypeVar("T")
R = TypeVar("R")


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
        self._pipelines = [Pipeline(self, number) for number in range(self.depth)]
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._woken = False
        self._closed = False

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
        """Whether more jobs come in this turn of the event loop, so that a call waits for them."""
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
        if self._closed or self.connection.closed or future.get_loop() is not self._loop:
            self._refuse(what, future, deadline, terms)
            return future
        self.gathering.add(what, future, deadline, terms)
        if not self._woken:
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
        return bool(self.gathering) or any(pipeline.busy for pipeline in self._pipelines)

    def close(self) -> None:
        """Fail all jobs, because the client is closed."""
        self._closed = True
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
        """Return the jobs for a pipeline's next call. Wake another pipeline for the jobs that this one leaves."""
        self._woken = False
        jobs, self.gathering = self.gathering, Jobs()  # a type argument would cost more than the object itself
        count, ordered = len(jobs), pipeline is self._pipelines[0]
        if count > MAXIMUM_CALL_MESSAGES or True in [future.done() for future in jobs.futures]:
            jobs = self._first_of(jobs)
            count = len(jobs)
        if count > 1 or (count and not ordered):
            count = self.share(jobs, ordered=ordered)
            if count < len(jobs):
                rest, jobs = jobs, jobs.take(count)
                self.gathering.put_back(rest)
        if self.gathering:
            self._wake()
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

    def _wake(self) -> None:
        """Wake a pipeline that is not busy. It also takes the jobs that are submitted before it runs."""
        for pipeline in self._pipelines:
            if not pipeline.busy:
                self._woken = True
                pipeline.wake()
                return

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
