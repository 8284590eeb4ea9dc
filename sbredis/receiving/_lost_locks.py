"""The errors for locks that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from sbredis.exceptions import MessageLockLostError, Outcome, SessionLockLostError
from sbredis.model import Hold

__all__ = ["lock_ended", "locks_ended"]

_SHOWN = 10


def lock_ended(hold: Hold, entity: str) -> MessageLockLostError | SessionLockLostError:
    """Return the error for a lock on a message or session.

    According to the clock of this process, the lock has ended.
    """
    error: MessageLockLostError | SessionLockLostError
    if hold.session is not None:
        error = SessionLockLostError(
            f"The lock on the session {hold.session!r} has ended, and so has the lock on message "
            f"{hold.sequence_number}. "
            "Accept the session again, and renew its lock if handling takes longer than the lock.",
            outcome=Outcome.NEVER_SENT,
        )
    else:
        error = MessageLockLostError(
            f"The lock on message {hold.sequence_number} has ended. "
            "Receive it again, and renew its lock if handling takes longer than the lock.",
            outcome=Outcome.NEVER_SENT,
        )
    error.entity = entity
    return error


def locks_ended(holds: Sequence[Hold], entity: str) -> MessageLockLostError | SessionLockLostError:
    """Return the error for a call that completed only a part of its messages, because locks have ended."""
    numbers = tuple(sorted(hold.sequence_number for hold in holds))
    shown = ", ".join(map(str, numbers[:_SHOWN])) + (", …" if len(numbers) > _SHOWN else "")
    error = (SessionLockLostError if any(hold.session is not None for hold in holds) else MessageLockLostError)(
        f"The locks on {len(numbers)} of the messages have ended, or the messages are gone: {shown}. All other "
        "messages were completed. Receive these messages again, and renew their locks if handling takes longer than "
        "the lock.",
        outcome=Outcome.REFUSED,
    )
    error.sequence_numbers = numbers
    error.entity = entity
    return error
