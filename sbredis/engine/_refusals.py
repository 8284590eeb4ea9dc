"""Errors for the refusals of scripts: a table from the code of a refusal to the class of the error."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from sbredis.exceptions import (
    DataLayoutError,
    EntityReservedError,
    KeyAlreadyUsedError,
    MessageLockLostError,
    MessageSizeExceededError,
    MessagesLostError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ReservationLostError,
    ScriptRefusedError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    SessionLockLostError,
    WatermarkChangedError,
)

__all__ = [
    "REFUSALS",
    "LaneUnknownError",
    "MalformedCallError",
    "MessagesMovedError",
    "OverdueError",
    "PartRefusedError",
    "Refusal",
    "RoleLostError",
    "SessionIdMissingError",
    "SettingsBehindError",
    "SettingsStaleError",
    "refused",
]


class SettingsStaleError(ServiceBusError):
    """The caller's settings of an entity are older than the partition's settings.

    The caller must read the settings again.
    """

    is_transient = True


class SettingsBehindError(ServiceBusError):
    """The partition's settings are older than the caller's settings. The caller must send the newer settings."""

    is_transient = True


class LaneUnknownError(ServiceBusError):
    """The partition has no record of a lane, and the call is not the lane's first.

    The caller must open another lane.
    """

    is_transient = True


class OverdueError(ServiceBusError):
    """The partition had more due work than it could do within the time of the call."""

    is_transient = True


class MessagesMovedError(ServiceBusError):
    """Messages that were to be moved are not there any more as the caller has read them. The caller must read again."""

    is_transient = True


class PartRefusedError(ServiceBusError):
    """An operation of a transaction was refused. So the transaction was refused as a whole, and has changed nothing."""

    def __init__(self, reason: ServiceBusError, *, operation: int, detail: str = "") -> None:
        super().__init__(reason.message, outcome=reason.outcome, tracking_id=reason.tracking_id)
        self.reason = reason
        """The error for the application."""
        self.operation = operation
        """The index of the refused operation, or of the first operation on a partition that was refused."""
        self.detail = detail
        """The detail of the refusal."""


class RoleLostError(ServiceBusError):
    """Another client has taken over the role of this client."""


class MalformedCallError(ServiceBusError, ValueError):
    """A call that this release would not have made."""


class SessionIdMissingError(ServiceBusError):
    """A message without a session id was sent to an entity that requires sessions."""


Refusal = Callable[[str], tuple[type[ServiceBusError], str]]
"""A function that returns the class and the text of an error. Its argument is the detail after the refusal's code."""


def _fixed(kind: type[ServiceBusError], text: str) -> Refusal:
    return lambda detail: (kind, text.format(detail=detail))


def _quota(detail: str) -> tuple[type[ServiceBusError], str]:
    held, _, most = detail.partition(" ")
    if held == "ids":
        held, _, most = most.partition(" ")
        return ServiceBusQuotaExceededError, (
            f"Duplicate detection remembers {held} of {most} message ids in this partition, and the call has more new "
            "ones. Send again when ids have left the window, raise duplicate_detection_history_max_ids, or shorten "
            "duplicate_detection_history_time_window."
        )
    return ServiceBusQuotaExceededError, (
        f"The entity is full: {held} of {most} bytes are taken in this partition, its dead-letter queue included. "
        "Receive or purge messages, or raise max_size_in_megabytes."
    )


def _sessions(detail: str) -> tuple[type[ServiceBusError], str]:
    if detail == "none":
        return ServiceBusError, (
            "The entity has no sessions: get its receiver without session_id, or create the entity with "
            "requires_session=True."
        )
    if detail == "required":
        return ServiceBusError, (
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver: "
            "receive from one of its sessions, with session_id."
        )
    return SessionIdMissingError, (
        f"The SessionId was not set on message {detail} of the call, and it cannot be sent to the entity: "
        "entities that require sessions accept only messages with a session."
    )


_LOSSES = {
    "birth": "the partition was lost, and made anew without messages, or the entity was deleted and created again",
    "rollback": "the range is not pinned there: a failover has lost its plan, or the reservation was released since",
    "older": "a later position was committed since, so this one is from an older checkpoint",
}


def _lost(detail: str) -> tuple[type[ServiceBusError], str]:
    kind, plan, floor, end, *_ = (*detail.split(), "?", "?", "?")
    return MessagesLostError, (
        f"The position does not fit the reserved messages of this partition: {_LOSSES.get(kind, kind)}. The latest "
        f"plan there is number {plan}: messages up to {floor} are committed, and those up to {end} are planned. To go "
        "on with the messages that are there, read with failOnDataLoss=false."
    )


REFUSALS: dict[str, Refusal] = {
    "GONE": _fixed(MessagingEntityNotFoundError, "The entity does not exist, or no longer exists."),
    "LAYOUT": _fixed(
        DataLayoutError,
        "The partition has data layout {detail}, which this release cannot read: install a release that can.",
    ),
    "STALE": _fixed(SettingsStaleError, "The settings of the entity have changed: the partition has version {detail}."),
    "CONFIG": _fixed(SettingsBehindError, "The partition has only version {detail} of the entity's settings."),
    "LANE": _fixed(LaneUnknownError, "The partition does not know this lane, or has forgotten it."),
    "REPEATED": _fixed(MalformedCallError, "The call is older than the last call of its lane, number {detail}."),
    "BADCALL": _fixed(MalformedCallError, "The call is malformed: {detail}."),
    "FIXED": _fixed(MalformedCallError, "The setting {detail} cannot change after creation."),
    "DISABLED": _fixed(
        MessagingEntityDisabledError,
        "The entity's status is {detail}, which does not permit this operation. Nothing was changed. Repeat it when "
        "the status is Active again; an administration client can set it.",
    ),
    "TOOLARGE": _fixed(MessageSizeExceededError, "Message {detail} of the call is larger than the entity allows."),
    "DUE": _fixed(
        OverdueError,
        "More messages have become due in this partition than it could process within the time of the call. "
        "The call has done nothing: make it again.",
    ),
    "QUOTA": _quota,
    "SESSIONS": _sessions,
    "LOST": _fixed(
        SessionLockLostError,
        "The lock on the session has ended: its messages may be with another receiver. Accept the session again.",
    ),
    "UNLOCKED": _fixed(
        MessageLockLostError,
        "The locks of these messages have ended, so other receivers may have the messages: {detail}.",
    ),
    "DEAD": _fixed(ServiceBusError, "Message {detail} is a dead letter already and cannot be dead-lettered."),
    "KNOWN": _fixed(
        KeyAlreadyUsedError,
        "Another transaction has used key {detail} of this one, and its window has not ended.",
    ),
    "CHANGED": _fixed(WatermarkChangedError, "The watermark is not as this transaction expects it: {detail}."),
    "FULL": _fixed(
        ServiceBusQuotaExceededError,
        "The partition keeps {detail} watermarks already. Remove those that are not needed: advance them to None.",
    ),
    "HELD": _fixed(
        ServiceBusError,
        "The receiver holds too many messages of the session; it may hold {detail}. Settle some of them first.",
    ),
    "FORWARDS": _fixed(
        ServiceBusError,
        "Cannot create a message receiver on an entity with auto-forwarding enabled. Receive from the destination of "
        "forward_to, or remove forward_to with an administration client.",
    ),
    "RESERVED": _fixed(
        EntityReservedError,
        "The entity is reserved for a consumer that reads it in bulk, so no receiver gets its messages. To release it: "
        "python -m sbredis.spark release",
    ),
    "OVERTAKEN": _fixed(
        ReservationLostError,
        "Another run of the consumer has taken over the reservation, with the fence {detail}. Stop one of the two.",
    ),
    "LOSS": _lost,
    "TARGET": _fixed(SettingsStaleError, "Subscription {detail} of the call does not exist, or no longer exists."),
    "ABSENT": _fixed(
        MessagesMovedError,
        "These messages are not there any more as they were read, or a receiver holds them: {detail}.",
    ),
    "FENCED": _fixed(RoleLostError, "Another client has taken over: the fence {detail} is no longer valid."),
}


_PART = re.compile(r"#(\d+) ")
"""Matches the place of an operation (``#2``) in the refusal of a transaction."""


def refused(error: ScriptRefusedError, refusals: Mapping[str, Refusal] = REFUSALS) -> ServiceBusError:
    """Return the error for a script's refusal. If the code is in no table, return the given error."""
    made = refusals.get(error.reply_code)
    if made is None:
        return error
    part = _PART.match(error.detail)
    detail = error.detail if part is None else error.detail[part.end() :]
    kind, text = made(detail)
    if part is not None:
        text = f"The transaction was refused and has changed nothing. {text}"
    # If the lane or the partition is unknown, the record of an earlier attempt may be gone with it, so that attempt may
    # have run. Any other refusal means that an earlier attempt cannot have run either.
    forgotten = part is None and kind in (LaneUnknownError, MessagingEntityNotFoundError) and error.after_unknown
    outcome = Outcome.UNKNOWN if forgotten else Outcome.REFUSED
    reason = kind(text, outcome=outcome, tracking_id=error.tracking_id)
    if part is None:
        return reason
    return PartRefusedError(reason, operation=int(part[1]) - 1, detail=detail)
