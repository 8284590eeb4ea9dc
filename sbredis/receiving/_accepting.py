"""Accept a session: one with a given name, or the next free one in any partition.

A caller that stops waiting leaves nothing locked. If a session arrives for it at that moment or later, the session is
released.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from sbredis.client import CallJob
from sbredis.engine import Accepted, CallId, Partition, Request, SessionLock, new_token
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError, SessionCannotBeLockedError
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

    def __init__(self, partition_client: PartitionClient, name: str, deadline: float) -> None:
        self._partition_client = partition_client
        self._token = new_token()

        def make(partition: Partition, call_id: CallId) -> Request[Accepted]:
            return partition.accept_session(call_id, self._token, name)

        self._job = CallJob(make, deadline, self.give_back)
        lane = partition_client.calling(lane_for("y", name))
        self.future: asyncio.Future[Accepted] = lane.submit(self._job)
        """The answer to the call, when it has come."""

    def session(self, found: Accepted) -> HeldSession:
        """Return the session that the answer brought."""
        partition_client = self._partition_client
        lease = partition_client.lease(self._token, found.lock, self._job.since, found.fence)
        lease.session = found.session
        return HeldSession(partition_client, found.session, lease)

    def give_back(self, found: Accepted) -> None:
        """Release the session that the answer brought, if there is one."""
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


async def accept_named(entity: Entity, name: str, deadline: float) -> HeldSession:
    """Lock a session, with or without messages. Raises :class:`SessionCannotBeLockedError` if it is locked already."""
    partition_client = entity.of_session(name)
    while True:
        acceptance = _Acceptance(partition_client, name, deadline)
        try:
            found = await asyncio.shield(acceptance.future)
        except asyncio.CancelledError:
            entity.connection.see_off(acceptance.discard())
            raise
        except ServiceBusError as failed:
            if failed.outcome is Outcome.UNKNOWN:  # the call may still lock the session, for no caller
                entity.connection.see_off(acceptance.release(name))
            raise
        if found.outcome == "taken":
            session = acceptance.session(found)
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


def free_sessions(entity: Entity, first: int) -> FreeSessions:
    """Return the inbox of the free sessions of an entity, for callers that want ``first`` messages with each."""
    inbox: FreeSessions | None = entity.free_sessions.get(first)
    if inbox is None:
        inbox = entity.free_sessions[first] = FreeSessions(
            entity, first, partial(entity.free_sessions.pop, first, None)
        )
    return inbox
