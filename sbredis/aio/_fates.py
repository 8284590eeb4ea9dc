"""What may become of a call that failed, and the errors that a lane itself ends callers with."""

from __future__ import annotations

import enum
from typing import NamedTuple

from sbredis.engine import MalformedCallError
from sbredis.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

__all__ = ["OF_ONE_CALLER", "DefectError", "DisplacedError", "Full", "Then", "UnmadeError", "forgotten"]


class Then(enum.Enum):
    """What to do after a call has failed."""

    AGAIN = "make the same call again: the partition recognises it"
    ANEW = "make a new call for the same jobs"
    ONE_BY_ONE = "find out whose part was refused"


class Full(NamedTuple):
    """What a partition had no room for."""

    size: int
    """Of the smallest job that was refused."""
    error: ServiceBusError


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


OF_ONE_CALLER = (ServiceBusQuotaExceededError, MessageSizeExceededError, MalformedCallError, UnmadeError)
"""What one caller's part of a call may have brought upon the others."""


def forgotten(error: ServiceBusError) -> ServiceBusError:
    """The error for a call that may have run, in a lane that the partition does not know any more."""
    return ServiceBusCommunicationError(
        "The connection was lost during the call, and the partition no longer knows whether it has run: a failover has "
        "lost the record of it, or it was too long ago. Check whether it took effect before you repeat it.",
        outcome=Outcome.UNKNOWN,
        tracking_id=error.tracking_id,
    )
