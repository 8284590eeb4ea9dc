"""Settle received messages: the arguments of a settlement, its checks, and the jobs for the lanes.

A settlement first checks everything that needs no call, in Azure's order. The lane of a partition then settles the
messages of many callers with one call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, cast

from sbredis._quoting import quoted
from sbredis.client import RenewJob, deadline_of
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    decode,
    decode_changes,
    encode_changes,
    read_record,
)
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    Outcome,
    SessionLockLostError,
)
from sbredis.model import (
    Hold,
    PrimitiveTypes,
    Reception,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    hold_of,
    require_single,
)

if TYPE_CHECKING:
    from sbredis.client import Entity, PartitionClient
    from sbredis.receiving._entity_lookup import EntityLookup

__all__ = [
    "MessageSettler",
    "SettlementKind",
    "changes_of",
    "delay_of",
    "lock_ended",
    "renewal",
    "require_lock",
    "require_modification",
    "require_reason",
]

Ready = Callable[[float], Awaitable["Entity"]]
"""Takes a deadline, and returns the entity of a receiver."""
SettlementKind = Literal["complete", "abandon", "release", "interrupt", "defer", "dead_letter"]
_MOST_BYTES = 64 * 1024
_LONGEST_REASON = 4096
_MOST_SHOWN = 10


class MessageSettler:
    """Settles the messages of one receiver, and renews their locks.

    Calls that may wait get ``ready``, a method of the receiver that returns the entity. A receiver of a session first
    accepts its session, and raises if the lock has ended.
    """

    __slots__ = ("_lookup",)

    def __init__(self, lookup: EntityLookup) -> None:
        self._lookup = lookup

    def check(self, message: ServiceBusReceivedMessage, what: str) -> Hold:
        """Make all checks that need no call, in Azure's order. Return the hold of the message."""
        hold, lookup = require_lock(message, what), self._lookup
        lookup.check_open()
        if hold.lock_expired(lookup.connection.clock.now()):
            raise lock_ended(hold, lookup.name)
        return hold

    async def settle(
        self,
        ready: Ready,
        kind: SettlementKind,
        message: ServiceBusReceivedMessage,
        timeout: float | None,
        *,
        modify: Mapping[str, PrimitiveTypes] | None = None,
        reason: str | None = None,
        description: str | None = None,
        delay: int = 0,
    ) -> None:
        """Settle one message."""
        hold = self.check(message, kind)
        deadline = deadline_of(timeout)
        changes = changes_of(hold, modify, reason, description)
        entity = await self._entity_of(hold, ready, deadline)
        self.check(message, kind)  # again, because another task may have settled the message meanwhile
        link: PartitionClient = hold.reception.link
        await link.settling(kind).settle(hold, asyncio.get_running_loop(), deadline, changes, delay)
        if entity.record.settings.forwards_dead and kind in {"dead_letter", "abandon"}:
            certain = kind == "dead_letter"  # too many deliveries make a dead letter, too
            connection = self._lookup.connection
            connection.observer.moves_from(connection, entity.record, waits=certain)

    def begin(
        self, kind: SettlementKind, message: ServiceBusReceivedMessage, loop: asyncio.AbstractEventLoop, deadline: float
    ) -> asyncio.Future[None] | None:
        """Queue a settlement. Return ``None`` if it must wait first or is refused: :meth:`settle` does the rest."""
        if type(message) is not ServiceBusReceivedMessage:
            return None
        hold, lookup = hold_of(message), self._lookup
        lease, reception = hold.lease, hold.reception
        link = reception.link
        if lease is None or link is None or link.entity is not lookup.found:
            return None
        if hold.settled or reception.peeked or reception.mode is not ServiceBusReceiveMode.PEEK_LOCK:
            return None
        if lookup.closed or lookup.connection.closed or lease.until <= lookup.connection.clock.now():
            return None
        settlement: asyncio.Future[None] = link.settling(kind).settle(hold, loop, deadline)
        return settlement

    async def complete_all(self, ready: Ready, listed: list[ServiceBusReceivedMessage], deadline: float) -> None:
        """Settle messages as done, with one call for each partition. Raise if locks have ended."""
        live, lost = self._live_and_lost(listed)
        if not listed:
            return
        entity = self._lookup.found
        holds = [*live, *lost] if lost else live
        if entity is None or any([hold.reception.link.entity is not entity for hold in holds]):  # noqa: C419 -- faster
            for hold in holds:
                _ = await self._entity_of(hold, ready, deadline)
            live, lost = self._live_and_lost(listed)  # another task may have settled a message meanwhile
        lost += await _complete(live, deadline)
        if lost:
            raise _locks_ended(lost, self._lookup.name)

    def _live_and_lost(self, messages: Sequence[ServiceBusReceivedMessage]) -> tuple[list[Hold], list[Hold]]:
        """Return the messages whose locks hold according to our clock, and the messages whose locks have ended."""
        now = self._lookup.connection.clock.now()
        live: list[Hold] = []
        lost: list[Hold] = []
        for message in messages:
            hold = require_lock(message, "complete")
            lease = hold.lease
            (lost if lease is not None and lease.ended(now) else live).append(hold)
        if messages:
            self._lookup.check_open()
        if len(set(map(id, messages))) < len(messages):
            raise MessageAlreadySettled("A message is in the list twice, but can be settled only once. Name it once.")
        return live, lost

    async def renew(self, ready: Ready, message: ServiceBusReceivedMessage, deadline: float) -> datetime:
        """Lock a message for the full duration from now on. Return the time when the lock ends."""
        hold = self.check(message, "renew")
        if hold.session is not None:
            raise TypeError(
                "Renewing message lock is an invalid operation when working with sessions. Renew the lock of the "
                "session."
            )
        await self._entity_of(hold, ready, deadline)
        try:
            await renewal(hold, deadline)
        except MessageLockLostError:
            if hold.settled:
                raise MessageAlreadySettled from None
            raise
        until = message.locked_until_utc
        if until is None:  # the message was settled meanwhile
            raise MessageAlreadySettled
        return until

    async def _entity_of(self, hold: Hold, ready: Ready, deadline: float) -> Entity:
        entity = await ready(deadline)
        link: PartitionClient = hold.reception.link
        if link.entity is not entity:
            raise ValueError(
                f"The message was not received from {self._lookup.name!r} through this client. Settle it with a "
                "receiver of the queue that it came from."
            )
        return entity


# -- the arguments of a settlement -------------------------------------------------------------------------------------


def renewal(hold: Hold, deadline: float) -> asyncio.Future[None]:
    """Renew the lock on a message."""
    link: PartitionClient = hold.reception.link
    return link.renewing.submit(RenewJob(hold.lock(), deadline, hold))


def require_lock(message: ServiceBusReceivedMessage, what: str) -> Hold:
    """Return the hold of a message. Raise if the message was not received under a lock, or was settled."""
    if not isinstance(message, ServiceBusReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"Only a received message can be used here, not {type(message).__name__}.")
    hold = hold_of(message)
    reception = hold.reception
    if reception.peeked:
        raise ValueError(f"The message was peeked, not received: without a lock, {what} is not possible. Receive it.")
    if reception.link is None:
        raise ValueError(
            f"This is a copy of a message, and has no lock: {what} is not possible. Use the received message."
        )
    if hold.lease is None or reception.mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE:
        raise ValueError(f"The message was received and deleted, so it has no lock, and {what} is not possible.")
    if hold.settled and reception.link.settles(hold):
        raise MessageAlreadySettled
    return hold


def changes_of(
    hold: Hold,
    modify: Mapping[str, PrimitiveTypes] | None,
    reason: str | None,
    description: str | None,
) -> bytes:
    """Return the changes of a settlement, together with those of earlier settlements. Empty if it changes nothing."""
    if modify is None and reason is None and description is None:
        return b""
    changes = decode_changes(hold.delivery.changes)
    require_modification(modify)
    if modify is not None:
        before = changes.properties
        if before is None:
            before = decode(read_record(hold.delivery.record).payload).properties or {}
        changes.properties = {**before, **modify}
    require_reason(reason, description)
    changes.reason = changes.reason if reason is None else reason
    changes.description = changes.description if description is None else description
    made = encode_changes(changes)
    if len(made) > _MOST_BYTES:
        raise MessageSizeExceededError(
            f"The properties of message {hold.sequence_number} would have {len(made)} bytes. At most {_MOST_BYTES} "
            "bytes are allowed: store fewer or smaller properties.",
            outcome=Outcome.NEVER_SENT,
        )
    return made


def require_modification(modify: object) -> None:
    """Refuse modifications that are not a mapping of application properties."""
    if modify is None:
        return
    if not isinstance(modify, Mapping):
        raise TypeError(f"properties_to_modify must be a mapping of properties, not {type(modify).__name__}")
    require_single(cast("Mapping[Any, object]", modify))


def require_reason(reason: object, description: object) -> None:
    """Refuse a reason or description for a dead letter that is not text, or is too long."""
    for name, text in (("reason", reason), ("error_description", description)):
        if text is not None and not isinstance(text, str):
            raise TypeError(f"{name} must be text, not {type(text).__name__}")
        if text is not None and len(text) > _LONGEST_REASON:
            raise ValueError(f"{name} has {len(text)} characters; at most {_LONGEST_REASON} are allowed")


def delay_of(delay: timedelta | float | None) -> int:
    """Return a delay in ms."""
    if delay is None:
        return 0
    if isinstance(delay, timedelta):
        delay = delay.total_seconds()
    if isinstance(delay, bool) or not isinstance(delay, (int, float)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"delay must be a timedelta or a number of seconds, not {type(delay).__name__}")
    if not 0 <= delay <= 366 * 86400 * 100:
        raise ValueError(f"delay must be from 0 seconds to 100 years, not {quoted(delay)}")
    return round(delay * 1000)


# -- many messages together --------------------------------------------------------------------------------------------


def _each_message_once(holds: list[Hold]) -> list[list[Hold]]:
    """Divide messages so that each part contains a message once: the answer to a call names messages, not their locks.

    An application has a message twice if it got it again after its lock had ended.
    """
    if len({hold.name for hold in holds}) == len(holds):
        return [holds]
    parts: list[dict[str, Hold]] = []
    for hold in holds:
        part = next((part for part in parts if hold.name not in part), None)
        if part is None:
            parts.append(part := {})
        part[hold.name] = hold
    return [list(part.values()) for part in parts]


async def _complete(holds: Sequence[Hold], deadline: float) -> list[Hold]:
    """Complete messages whose locks hold according to our clock.

    Return the messages whose locks the server reported as lost.
    """
    places: dict[PartitionClient, list[Hold]] = {}
    reception: Reception | None = None
    place: list[Hold] = []
    for hold in holds:
        if hold.reception is not reception:  # all messages of one receiving call share their reception
            reception = hold.reception
            place = places.setdefault(reception.link, [])
        place.append(hold)
    futures = [
        partition_client.settling("complete").settle_many(part[at : at + MAXIMUM_CALL_MESSAGES], deadline)
        for partition_client, listed in places.items()
        for part in _each_message_once(listed)
        for at in range(0, len(part), MAXIMUM_CALL_MESSAGES)
    ]
    lost: list[Hold] = []
    if len(futures) == 1:  # most calls are for one partition
        return [*await futures[0]]
    for outcome in await asyncio.gather(*futures, return_exceptions=True):
        if isinstance(outcome, BaseException):
            raise outcome
        lost += outcome
    return lost


# -- lost locks --------------------------------------------------------------------------------------------------------


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


def _locks_ended(holds: Sequence[Hold], entity: str) -> MessageLockLostError | SessionLockLostError:
    """Return the error for a call that completed only a part of its messages, because locks have ended."""
    numbers = tuple(sorted(hold.sequence_number for hold in holds))
    shown = ", ".join(map(str, numbers[:_MOST_SHOWN])) + (", …" if len(numbers) > _MOST_SHOWN else "")
    error = (SessionLockLostError if any(hold.session is not None for hold in holds) else MessageLockLostError)(
        f"The locks on {len(numbers)} of the messages have ended, or the messages are gone: {shown}. All other "
        "messages were completed. Receive these messages again, and renew their locks if handling takes longer than "
        "the lock.",
        outcome=Outcome.REFUSED,
    )
    error.sequence_numbers = numbers
    error.entity = entity
    return error
