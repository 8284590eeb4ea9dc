"""Decide what to do after each attempt at a call: repeat it, split it, move its jobs, or end it. Pure.

Theory
------

A call carries the jobs of several callers to one partition, in a *lane*. The partition remembers the number and the
result of the last call in each lane. A repeated call gets that result and does not run again. A call may end with:

- a result. The call has ended;
- an *obstacle*: the partition has older settings than the client (TELL), or newer ones (RELOAD), or it does not exist
  (RECOVER). The client removes the obstacle, and then makes a new call for the same jobs;
- no answer. The client repeats the same call under the same number, as long as there is time;
- a refusal that one of the jobs may have caused. The client splits the call into halves and delivers each half by
  itself, until it has found that job;
- an error that concerns all its callers.

Beside the error itself, two facts decide the next step:

- *Whether the call may have run.* If an attempt has no answer, the call may have run. Then the call keeps its number
  and its jobs, whatever later attempts return: if a job were moved to another partition now, it could be done twice.
  The outcome is unknown until the partition answers. If the partition has forgotten the lane, the outcome stays
  unknown, and the error for the callers says so.
- *Whether the call was never sent.* If so, jobs that may go to any partition can be moved to another partition.

:func:`next_step` is this table. The first row that fits decides::

    error                                      may have run   step
    the entity is in other partitions now      either         END
    a part of a transaction is refused         either         END
    the partition has older settings           either         TELL, then ANEW
    the partition has newer settings           either         RELOAD, then ANEW
    the entity or partition does not exist     either         RECOVER, then ANEW
    the lane is not known                      yes            END with FORGOTTEN
    the lane is not known                      no             ANEW, in a new lane
    no answer, never sent                      no             MOVE what can be moved; then, if something was, ANEW
    no answer                                  either         AGAIN, while there is time
    a refusal that one job may have caused     either         SPLIT
    anything else                              either         END

A lane is *known* once the partition has answered a call in it with a result. If the first call in a lane brings no
result, the next call starts a new lane: a second call in the old lane could never run.

Each half of a split call is delivered like a call. If the partition has no room for a job of some size, the client
itself refuses all jobs of that size or larger. Otherwise it would make a call for each of these jobs.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Final, Generic, NamedTuple, Protocol, Self, TypeVar

from sbredis.engine import (
    LaneUnknownError,
    MalformedCallError,
    PartRefusedError,
    SessionIdMissingError,
    SettingsBehindError,
    SettingsStaleError,
)
from sbredis.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

__all__ = [
    "OF_ONE_JOB",
    "CallDelivery",
    "DefectError",
    "DisplacedError",
    "Halving",
    "NextStep",
    "NoRoom",
    "Part",
    "UnmadeError",
    "forgotten",
]


class NextStep(enum.Enum):
    """The next step after a call has failed."""

    TELL = "give the partition our settings, then make a new call"
    RELOAD = "read our settings again, then make a new call"
    RECOVER = "find out whether the entity is there, then make a new call"
    MOVE = "take the jobs that can be moved to other partitions"
    AGAIN = "repeat the same call: the partition recognises it"
    ANEW = "make a new call for the same jobs"
    SPLIT = "find the job that was refused"
    END = "tell the callers"


class DisplacedError(MessagingEntityNotFoundError):
    """The entity has moved to other partitions."""

    is_transient = True


class DefectError(ServiceBusError):
    """An error that shows a defect in the client."""

    def __init__(self, error: Exception, outcome: Outcome | None) -> None:
        super().__init__(f"A defect in sbredis: {type(error).__name__}: {error}", outcome=outcome)


class UnmadeError(DefectError):
    """A call could not be built from its callers' jobs. Nothing was sent."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error, Outcome.NEVER_SENT)


OF_ONE_JOB: Final = (
    ServiceBusQuotaExceededError,
    MessageSizeExceededError,
    SessionIdMissingError,
    MalformedCallError,
    UnmadeError,
)
"""Errors that one job can cause for a whole call."""
_UNANSWERED: Final = (Outcome.NEVER_SENT, Outcome.UNKNOWN)


def forgotten(error: ServiceBusError) -> ServiceBusError:
    """Return the error for a call of a forgotten lane: the partition no longer knows whether the call ran."""
    return ServiceBusCommunicationError(
        "The connection was lost during the call, and the partition has no record of whether the call ran: a "
        "failover has lost the record, or the record was deleted after some time. Check whether the call took effect "
        "before you repeat it.",
        outcome=Outcome.UNKNOWN,
        tracking_id=error.tracking_id,
    )


class CallDelivery:
    """The state of one call under way. Each pipeline of a lane has at most one such call."""

    __slots__ = ("_spans", "error", "lane_is_known", "leaves_lane", "maybe_ran", "unreachable")

    def __init__(self, *, lane_is_known: bool, spans: bool = False) -> None:
        self._spans = spans
        """Whether the call also changes other partitions than the one that recognises its repetition."""
        self.maybe_ran = False
        """Whether an attempt was not answered, so that the call may have run."""
        self.lane_is_known = lane_is_known
        self.leaves_lane = False
        """Whether the next call must begin a new lane."""
        self.error: ServiceBusError | None = None
        """The error for the callers, if the step is END."""
        self.unreachable = False
        """Whether the last attempt did not reach the partition, or brought no answer."""

    def failed(self, error: ServiceBusError, *, time_is_left: bool) -> NextStep:
        """Record that an attempt ended with this error. Return the next step."""
        if self.maybe_ran and (error.outcome is Outcome.NEVER_SENT or isinstance(error, LaneUnknownError)):
            error.outcome = Outcome.UNKNOWN  # this attempt did not run, but an earlier one may have
        maybe_ran = self.maybe_ran or error.outcome is Outcome.UNKNOWN
        if self._spans and maybe_ran and isinstance(error, MessagingEntityNotFoundError):
            # The partition is gone, and with it the record of the call. If the call ran, its other effects are there.
            return self._take_step(NextStep.END, forgotten(error))
        self.unreachable = error.is_transient and error.outcome in _UNANSWERED and not isinstance(error, _OBSTACLES)
        return self._take_step(next_step(error, time_is_left=time_is_left), error)

    def moved(self, *, some: bool, time_is_left: bool) -> NextStep:
        """Return the step after MOVE. ``some`` says whether any job was moved."""
        assert self.error is not None
        if some:
            return self._take_step(NextStep.ANEW, self.error)
        return self._take_step(_step_without_moving(self.error, time_is_left=time_is_left), self.error)

    def obstacle_removed(self, worse: ServiceBusError | None = None) -> NextStep:
        """Return the step after TELL, RELOAD or RECOVER. ``worse`` is the error, if that step failed."""
        assert self.error is not None
        if worse is not None:
            if not isinstance(worse, DisplacedError):
                worse.outcome = self.error.outcome  # the outcome of the call itself, not of TELL, RELOAD or RECOVER
            return self._take_step(NextStep.END, worse)
        return self._take_step(NextStep.ANEW, self.error)

    def _take_step(self, step: NextStep, error: ServiceBusError) -> NextStep:
        self.error = error
        if isinstance(error, LaneUnknownError):
            self.lane_is_known = False
            if step is NextStep.END:
                self.error = forgotten(error)
        if step is NextStep.AGAIN:
            self.maybe_ran = error.outcome is Outcome.UNKNOWN
        elif step in _ENDS_THE_CALL:
            self.leaves_lane = not self.lane_is_known
            self.maybe_ran = False
        return step


_ENDS_THE_CALL: Final = (NextStep.ANEW, NextStep.SPLIT, NextStep.END)
_OBSTACLES: Final = (SettingsBehindError, SettingsStaleError, MessagingEntityNotFoundError, LaneUnknownError)


def next_step(error: ServiceBusError, *, time_is_left: bool) -> NextStep:
    """Return what to do after an attempt ended with ``error``.

    The outcome in ``error`` is the outcome of the whole call. With ``time_is_left``, the attempt had only a part of the
    call's time. That part is over, and the rest of the time is left.
    """
    if isinstance(error, (DisplacedError, PartRefusedError)):
        return NextStep.END
    if isinstance(error, SettingsBehindError):
        return NextStep.TELL
    if isinstance(error, SettingsStaleError):
        return NextStep.RELOAD
    if isinstance(error, MessagingEntityNotFoundError):
        return NextStep.RECOVER
    if isinstance(error, LaneUnknownError):
        return NextStep.END if error.outcome is Outcome.UNKNOWN else NextStep.ANEW
    if error.is_transient and error.outcome is Outcome.NEVER_SENT:
        return NextStep.MOVE
    return _step_without_moving(error, time_is_left=time_is_left)


def _step_without_moving(error: ServiceBusError, *, time_is_left: bool) -> NextStep:
    if error.is_transient and error.outcome in _UNANSWERED and time_is_left:
        return NextStep.AGAIN
    return NextStep.SPLIT if isinstance(error, OF_ONE_JOB) else NextStep.END


# -- the search for the refused job ------------------------------------------------------------------------------------


class Divisible(Protocol):
    """The part of a call's jobs that the search uses."""

    def __len__(self) -> int: ...

    def take(self, count: int) -> Self:
        """Remove the first jobs, and return them."""
        ...

    def split_off(self, chosen: Sequence[bool]) -> Self:
        """Remove the chosen jobs, and return them."""
        ...


P = TypeVar("P", bound=Divisible)


class NoRoom(NamedTuple):
    """A partition had no room for a job of this size."""

    size: int
    error: ServiceBusError


class Part(NamedTuple, Generic[P]):
    """Some jobs of a call that has failed."""

    jobs: P
    error: ServiceBusError | None
    """Why the client refuses these jobs itself; ``None`` if they are delivered."""


class Halving(Generic[P]):
    """The search for the job that makes a call fail: it splits the call, and each part is delivered by itself."""

    __slots__ = ("_no_room", "_sizes", "waiting")

    def __init__(self, sizes: Callable[[P], Sequence[int]]) -> None:
        """``sizes`` returns the size of each job."""
        self.waiting: list[P] = []
        """The parts that are delivered later, the next one last."""
        self._sizes = sizes
        self._no_room: NoRoom | None = None

    def next_part(self) -> Part[P] | None:
        """Return the next part; ``None`` if the search has ended."""
        while self.waiting:
            jobs = self.waiting.pop()
            if self._no_room is not None:
                limit = self._no_room.size
                refused = jobs.split_off([size >= limit for size in self._sizes(jobs)])
                if len(refused):
                    self.waiting.append(jobs)
                    return Part(refused, self._no_room.error)
            if len(jobs):
                return Part(jobs, None)
        return None

    def split(self, jobs: P, error: ServiceBusError) -> bool:
        """Split jobs into two halves, which become the next parts.

        Return ``False`` for a single job, because this job has caused the error.
        """
        if len(jobs) == 1:
            if isinstance(error, ServiceBusQuotaExceededError):
                self._no_room = NoRoom(self._sizes(jobs)[0], error)
            return False
        first = jobs.take(len(jobs) // 2)
        self.waiting += [jobs, first]
        return True
