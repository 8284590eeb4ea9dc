"""What a script refused, as an error: one table from its code to the class."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sbredis.exceptions import (
    DataLayoutError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ScriptRefusedError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    SessionLockLostError,
)

__all__ = [
    "REFUSALS",
    "LaneUnknownError",
    "MalformedCallError",
    "OverdueError",
    "Refusal",
    "RoleLostError",
    "SettingsBehindError",
    "SettingsStaleError",
    "refused",
]


class SettingsStaleError(ServiceBusError):
    """The caller's settings of an entity are older than those of its partition: it reads them again."""

    is_transient = True


class SettingsBehindError(ServiceBusError):
    """The partition's settings are older than the caller's: it is given the newer ones."""

    is_transient = True


class LaneUnknownError(ServiceBusError):
    """The partition does not know the lane of a call that is not its first: the caller opens another lane."""

    is_transient = True


class OverdueError(ServiceBusError):
    """The partition had more due work than the time of the call was enough for."""

    is_transient = True


class RoleLostError(ServiceBusError):
    """Another client has taken over what this one did for all."""


class MalformedCallError(ServiceBusError, ValueError):
    """A call that this release would not have made."""


Refusal = Callable[[str], tuple[type[ServiceBusError], str]]
"""From what stands behind a code to the class of the error and its text."""


def _fixed(kind: type[ServiceBusError], text: str) -> Refusal:
    return lambda detail: (kind, text.format(detail=detail))


def _quota(detail: str) -> tuple[type[ServiceBusError], str]:
    held, _, most = detail.partition(" ")
    return ServiceBusQuotaExceededError, (
        f"The entity is full: {held} of {most} bytes are taken in this partition, its dead-letter queue included. "
        "Receive or purge messages, or raise max_size_in_megabytes."
    )


def _sessions(detail: str) -> tuple[type[ServiceBusError], str]:
    if detail == "none":
        return (
            ServiceBusError,
            ("The entity has no sessions: leave out session_id, or create it with requires_session=True."),
        )
    if detail == "required":
        return ServiceBusError, (
            "It is not possible for an entity that requires sessions to create a non-sessionful message receiver: "
            "receive from one of its sessions, with session_id."
        )
    return ServiceBusError, (
        f"The SessionId was not set on message {detail} of the call, and it cannot be sent to the entity: "
        "entities that require sessions take only messages that have one."
    )


REFUSALS: dict[str, Refusal] = {
    "GONE": _fixed(MessagingEntityNotFoundError, "The entity does not exist, or no longer."),
    "LAYOUT": _fixed(
        DataLayoutError,
        "The partition is laid out in form {detail}, which this release cannot read: install the release that can.",
    ),
    "STALE": _fixed(SettingsStaleError, "The settings of the entity have changed: version {detail} holds."),
    "CONFIG": _fixed(SettingsBehindError, "The partition has only version {detail} of the entity's settings."),
    "LANE": _fixed(LaneUnknownError, "The partition does not know this lane, or no longer."),
    "REPEATED": _fixed(MalformedCallError, "The call is older than the last one of its lane, {detail}."),
    "BADCALL": _fixed(MalformedCallError, "The call is malformed: {detail}."),
    "FIXED": _fixed(MalformedCallError, "A setting that cannot change after creation was to be changed: {detail}."),
    "DISABLED": _fixed(
        MessagingEntityDisabledError,
        "The entity's status is {detail}, which does not permit this operation. Nothing was changed. Repeat it when "
        "the status is Active again; an administration client can set it.",
    ),
    "TOOLARGE": _fixed(MessageSizeExceededError, "Message {detail} of the call is larger than the entity takes."),
    "DUE": _fixed(
        OverdueError,
        "More messages have become due in this partition than could be worked through within the time of the call. "
        "Nothing of the call was done: make it again.",
    ),
    "QUOTA": _quota,
    "SESSIONS": _sessions,
    "LOST": _fixed(
        SessionLockLostError,
        "The lock on the session has ended: its messages may be with another receiver. Accept it again.",
    ),
    "HELD": _fixed(
        ServiceBusError, "Of the session {detail} messages are out, which is the most: settle some of them first."
    ),
    "TARGET": _fixed(SettingsStaleError, "Subscription {detail} of the call is not here, or no longer."),
    "FENCED": _fixed(RoleLostError, "Another client has taken over: the fence {detail} holds no longer."),
}


def refused(error: ScriptRefusedError, refusals: Mapping[str, Refusal] = REFUSALS) -> ServiceBusError:
    """The error that stands for a script's refusal; the same one, if no script of ours knows the code."""
    made = refusals.get(error.reply_code)
    if made is None:
        return error
    kind, text = made(error.detail)
    # Any other refusal says that an attempt before this one did not run either; this one, that it has been forgotten.
    forgotten = kind is LaneUnknownError and error.after_unknown
    outcome = Outcome.UNKNOWN if forgotten else Outcome.REFUSED
    return kind(text, outcome=outcome, tracking_id=error.tracking_id)
