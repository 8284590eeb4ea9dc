"""Accept a session: one with a given name, or the next free one in any partition.

A caller that stops waiting leaves nothing locked. If a session arrives for it at that moment or later, the session is
released.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from sbredis.client import CallJob
from sbredis.engine import (
    MAXIMUM_REPLY_BYTES,
    Accepted,
    Carried,
    CreditAnswer,
    CreditGrant,
    Delivery,
    SentGrant,
    SessionGift,
    SessionLock,
    carrying,
    new_token,
)
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError, SessionCannotBeLockedError
from sbredis.receiving._credit import HandedGift
from sbredis.receiving._credit_driver import new_prefix, run_of
from sbredis.receiving._fetching import MOST_AT_ONCE
from sbredis.receiving._free_sessions import FreeSessions
from sbredis.receiving._held_session import HeldSession, give_back_session, lane_for

if TYPE_CHECKING:
    from sbredis.client import Entity, PartitionClient

__all__ = ["NoSessionError", "accept_named", "accept_next", "free_sessions"]


class NoSessionError(OperationTimeoutError):
    """No session became free in time."""

    is_failure: ClassVar[bool] = False
    """Finding no session is not a failure: spans, metrics and the log treat it like a receive without messages."""


class _Acceptance:
    """The call that accepts a named session. If no caller waits any more when the session comes, it is released."""

    def __init__(self, partition_client: PartitionClient, name: str, first: int, deadline: float) -> None:
        self._partition_client = partition_client
        self._token = new_token()
        wanted = min(first, MOST_AT_ONCE)
        self._grant = CreditGrant.ending(
            1, run_of(partition_client), new_prefix(), wanted, room=MAXIMUM_REPLY_BYTES, hands=max(1, wanted)
        )
        grants = [SentGrant(self._token, b"", f"={name}", self._grant)] if first else []
        self._job = CallJob(
            lambda partition, call_id: carrying(partition.accept_session(call_id, self._token, name), grants),
            *(deadline, self.give_back),
        )
        lane = partition_client.calling(lane_for("y", name))
        self.future: asyncio.Future[Carried[Accepted]] = lane.submit(self._job)
        """The answer to the call, when it has come."""

    def session(self, answer: Carried[Accepted]) -> HeldSession:
        """Return the session that the answer brought, with its first messages."""
        partition_client, found = self._partition_client, answer.result
        lease = partition_client.lease(self._token, found.lock, self._job.since, found.fence)
        lease.session = found.session
        for reply in answer.credits:
            if reply.answer in {CreditAnswer.TAKEN, CreditAnswer.KNOWN}:
                firsts = SessionGift(found.session, reply.gifts)
                gift: HandedGift[Delivery] = HandedGift(self._grant.prefix, 0, lease.until, (), found.fence, firsts)
                return HeldSession(partition_client, found.session, lease, gift, self._grant.number)
        return HeldSession(partition_client, found.session, lease)

    def give_back(self, answer: Carried[Accepted]) -> None:
        """Release the session that the answer brought, if there is one."""
        found = answer.result
        if found.outcome == "taken":
            self._partition_client.connection.see_off(self.release(found.session))

    async def release(self, name: str) -> None:
        """Release the session of this name, if the call has locked it or may have."""
        await give_back_session(self._partition_client, SessionLock(name, self._token))

    async def discard(self) -> None:
        """Wait for the answer, and release the session that the answer brings."""
        await asyncio.wait((self.future,))
        if not self.future.cancelled() and self.future.exception() is None:
            self.give_back(self.future.result())


async def accept_named(entity: Entity, name: str, deadline: float, *, first: int = 0) -> HeldSession:
    """Lock a session, with or without messages. Up to ``first`` of its messages come with it.

    Raises :class:`SessionCannotBeLockedError` if it is locked already.
    """
    partition_client = entity.of_session(name)
    while True:
        acceptance = _Acceptance(partition_client, name, first, deadline)
        try:
            answer = await asyncio.shield(acceptance.future)
        except asyncio.CancelledError:
            entity.connection.see_off(acceptance.discard())
            raise
        except ServiceBusError as failed:
            if failed.outcome is Outcome.UNKNOWN:  # the call may still lock the session, for no caller
                entity.connection.see_off(acceptance.release(name))
            raise
        found = answer.result
        if found.outcome == "taken":
            session = acceptance.session(answer)
            if session.locked:
                return session
            await acceptance.release(name)  # the answer took longer than the lock, which may hold in the partition
        if found.outcome == "locked":
            error = SessionCannotBeLockedError(
                f"The requested session {name!r} cannot be accepted: another receiver has its lock. The session is "
                "free when that receiver is closed or its lock ends. Try again then.",
                outcome=Outcome.REFUSED,
            )
            error.entity = entity.name
            raise error


async def accept_next(entity: Entity, seconds: float, deadline: float) -> HeldSession:
    """Lock the next free session, as soon as there is one.

    Raises :class:`OperationTimeoutError` if no session became free within ``seconds``. With 0, each partition is asked
    once, and the call does not wait for a session to become free. After ``seconds``, it still waits for the answers to
    the calls under way, but only until the deadline.
    """
    found = await free_sessions(entity, 0).take(1, seconds, latest=deadline)
    if found:
        return found[0]
    when = f"became free within {seconds:g} s" if seconds else "is free"
    error = NoSessionError(f"No session of {entity.name!r} {when}.", outcome=Outcome.REFUSED)
    error.entity = entity.name
    raise error


def free_sessions(entity: Entity, first: int, hands: int | None = None) -> FreeSessions:
    """Return the inbox of the free sessions of an entity, for callers that want ``first`` messages with each.

    The callers have begun ``hands`` messages of a session at a time, as far as it is known.
    """
    key = first, hands
    inbox: FreeSessions | None = entity.free_sessions.get(key)
    if inbox is None:
        ended = partial(entity.free_sessions.pop, key, None)
        inbox = entity.free_sessions[key] = FreeSessions(entity, first, hands, ended)
    return inbox
