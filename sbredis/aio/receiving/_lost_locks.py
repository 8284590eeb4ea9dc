"""The errors of locks that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from sbredis.exceptions import MessageLockLostError, Outcome, SessionLockLostError
from sbredis.model import Hold

__all__ = ["lock_ended", "locks_ended"]

_SHOWN = 10


def lock_ended(hold: Hold, entity: str) -> MessageLockLostError | SessionLockLostError:
    """The lock on a message has ended by the clock of this process: it is its own, or that on its session."""
    error: MessageLockLostError | SessionLockLostError
    if hold.session is not None:
        error = SessionLockLostError(
            f"The lock on the session {hold.session!r} has ended, and with it that on message {hold.sequence_number}. "
            "Accept the session again, and renew the lock of what takes longer.",
            outcome=Outcome.NEVER_SENT,
        )
    else:
        error = MessageLockLostError(
            f"The lock on message {hold.sequence_number} has ended. "
            "Receive it again, and renew the lock of what takes longer.",
            outcome=Outcome.NEVER_SENT,
        )
    error.entity = entity
    return error


def locks_ended(holds: Sequence[Hold], entity: str) -> MessageLockLostError | SessionLockLostError:
    """The locks on some of the messages of a call have ended; all others were completed."""
    numbers = tuple(sorted(hold.sequence_number for hold in holds))
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    error = (SessionLockLostError if any(hold.session is not None for hold in holds) else MessageLockLostError)(
        f"The locks on {len(numbers)} of the messages have ended, or they are gone: {shown}. All others were "
        "completed. Receive these again, and renew the locks of what takes longer.",
        outcome=Outcome.REFUSED,
    )
    error.sequence_numbers = numbers
    error.entity = entity
    return error
