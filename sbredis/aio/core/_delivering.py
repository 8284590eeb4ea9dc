"""Delivering a call: what follows from each outcome of it. Pure.

Theory
------

A call carries the jobs of several callers to one partition, in a *lane*: the partition remembers the number of the last
call of a lane and its result, so a call that is made again is answered and not run again. A call may end with:

- a result, which is the end of it;
- an *obstacle* that is removed first: the partition knows older settings than ours (TELL), or newer ones (RELOAD), or
  it is not there (RECOVER). Then a new call is made for the same jobs;
- no answer. The same call is made again as long as there is time, under its number;
- a refusal that one of its jobs may have caused. The call is split into halves, each delivered by itself, until that
  job is found;
- an error that concerns all of its callers.

Two facts decide which of these follows, beside the error itself:

- *Whether it may have run.* An attempt without an answer may have run. Then the call keeps its number and its jobs,
  whatever later attempts bring: a job that went elsewhere now could be done twice. Its outcome is unknown until the
  partition says. If the partition has forgotten the lane, it stays unknown, and the callers are told so.
- *Whether it could not be sent at all.* Then jobs that belong to no partition in particular may go to another one.

The table below is :func:`next_step`. The first row that fits decides::

    error                                      may have run   step
    the entity is elsewhere by now             either         END
    the partition has older settings           either         TELL, then ANEW
    the partition has newer settings           either         RELOAD, then ANEW
    the entity or partition is not there       either         RECOVER, then ANEW
    the lane is not known                      yes            END with FORGOTTEN
    the lane is not known                      no             ANEW, in a new lane
    no answer, never sent                      no             MOVE what can be moved; then, if something was, ANEW
    no answer                                  either         AGAIN, while there is time
    a refusal that one job may have caused     either         SPLIT
    anything else                              either         END

A lane is *known* once the partition has answered a call in it with a result. A lane whose first call brought no result
is left for a new one: its second call could never run.

A part that is split off is delivered like a call. When the partition had no room for a job of some size, jobs that are
no smaller are refused unasked: they would be asked one by one otherwise.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from sbredis.engine import LaneUnknownError, MalformedCallError, SettingsBehindError, SettingsStaleError
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
    "DefectError",
    "Delivery",
    "DisplacedError",
    "Halving",
    "NextStep",
    "NoRoom",
    "UnmadeError",
    "forgotten",
]


class NextStep(enum.Enum):
    """What to do after a call has failed."""

    TELL = "give the partition our settings, then make a new call"
    RELOAD = "read our settings again, then make a new call"
    RECOVER = "find out whether the entity is there, then make a new call"
    MOVE = "take the jobs that can be moved to other partitions"
    AGAIN = "make the same call again: the partition recognises it"
    ANEW = "make a new call for the same jobs"
    SPLIT = "find out whose job was refused"
    END = "tell the callers"


class DisplacedError(MessagingEntityNotFoundError):
    """The entity lies in other partitions by now."""

    is_transient = True


class DefectError(ServiceBusError):
    """Something went wrong that should not be possible."""

    def __init__(self, error: Exception, outcome: Outcome | None) -> None:
        super().__init__(f"A defect in sbredis: {type(error).__name__}: {error}", outcome=outcome)


class UnmadeError(DefectError):
    """A call could not even be made of what its callers want: nothing was sent."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error, Outcome.NEVER_SENT)


OF_ONE_JOB: Final = (ServiceBusQuotaExceededError, MessageSizeExceededError, MalformedCallError, UnmadeError)
"""Errors that one job can cause for a whole call."""
_UNANSWERED: Final = (Outcome.NEVER_SENT, Outcome.UNKNOWN)


def forgotten(error: ServiceBusError) -> ServiceBusError:
    """Return the error for a call that may have run, in a lane that the partition does not know any more."""
    return ServiceBusCommunicationError(
        "The connection was lost during the call, and the partition no longer knows whether it has run: a failover has "
        "lost the record of it, or it was too long ago. Check whether it took effect before you repeat it.",
        outcome=Outcome.UNKNOWN,
        tracking_id=error.tracking_id,
    )


class Delivery:
    """One call on its way. A lane keeps one for each call that is under way."""

    __slots__ = ("error", "lane_is_known", "leaves_lane", "maybe_ran", "unreachable")

    def __init__(self, *, lane_is_known: bool) -> None:
        self.maybe_ran = False
        """An attempt at it was not answered, and may have run."""
        self.lane_is_known = lane_is_known
        self.leaves_lane = False
        """The next call must begin a new lane."""
        self.error: ServiceBusError | None = None
        """What the callers are told, if the step is END."""
        self.unreachable = False
        """The last attempt did not reach the partition, or brought no answer."""

    def answered(self) -> None:
        """A result came."""
        self.lane_is_known, self.leaves_lane = True, False

    def failed(self, error: ServiceBusError, *, time_is_left: bool) -> NextStep:
        """An attempt ended with this error."""
        if self.maybe_ran and (error.outcome is Outcome.NEVER_SENT or isinstance(error, LaneUnknownError)):
            error.outcome = Outcome.UNKNOWN  # this attempt did not run; one before it may have
        self.unreachable = error.is_transient and error.outcome in _UNANSWERED and not isinstance(error, _OBSTACLES)
        return self._then(next_step(error, time_is_left=time_is_left), error)

    def moved(self, *, some: bool, time_is_left: bool) -> NextStep:
        """The jobs that could be moved were, after MOVE."""
        assert self.error is not None
        if some:
            return self._then(NextStep.ANEW, self.error)
        return self._then(_when_it_stays(self.error, time_is_left=time_is_left), self.error)

    def mended(self, worse: ServiceBusError | None = None) -> NextStep:
        """What TELL, RELOAD or RECOVER asked for was done, or ended with another error."""
        assert self.error is not None
        if worse is not None:
            if not isinstance(worse, DisplacedError):
                worse.outcome = self.error.outcome  # what is known of the call, not of the question about it
            return self._then(NextStep.END, worse)
        return self._then(NextStep.ANEW, self.error)

    def _then(self, step: NextStep, error: ServiceBusError) -> NextStep:
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
    """Return what to do after an attempt that ended with ``error``, whose outcome is that of the whole call.

    ``time_is_left`` says that the attempt ended early, because it was tried for a stretch of the time only.
    """
    if isinstance(error, DisplacedError):
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
    return _when_it_stays(error, time_is_left=time_is_left)


def _when_it_stays(error: ServiceBusError, *, time_is_left: bool) -> NextStep:
    if error.is_transient and error.outcome in _UNANSWERED and time_is_left:
        return NextStep.AGAIN
    return NextStep.SPLIT if isinstance(error, OF_ONE_JOB) else NextStep.END


# -- whose job it was --------------------------------------------------------------------------------------------------


class Sized(Protocol):
    """What the search for one job needs to know of each."""

    size: int


J = TypeVar("J", bound=Sized)


class NoRoom(NamedTuple):
    """A partition had no room for a job of this size."""

    size: int
    error: ServiceBusError


class Halving(Generic[J]):
    """The search for the job that makes a call fail: parts of the call, each delivered by itself."""

    __slots__ = ("_no_room", "_parts")

    def __init__(self) -> None:
        self._parts: list[list[J]] = []
        self._no_room: NoRoom | None = None

    def next_part(self) -> tuple[list[J], list[J], ServiceBusError | None]:
        """Return the jobs of the next part, and those for which there is no room, with the error that said so.

        No jobs at all: the search has ended.
        """
        refused: list[J] = []
        while self._parts:
            part = self._parts.pop()
            if self._no_room is None:
                return part, refused, None
            size = self._no_room.size
            refused += [job for job in part if job.size >= size]
            fitting = [job for job in part if job.size < size]
            if fitting:
                return fitting, refused, self._no_room.error
        return [], refused, None if self._no_room is None else self._no_room.error

    def split(self, part: Sequence[J], error: ServiceBusError) -> bool:
        """Put the halves of a part on the list. Returns whether it had any: a single job caused the error itself."""
        if len(part) == 1:
            if isinstance(error, ServiceBusQuotaExceededError):
                self._no_room = NoRoom(part[0].size, error)
            return False
        middle = len(part) // 2
        self._parts += [list(part[middle:]), list(part[:middle])]
        return True
