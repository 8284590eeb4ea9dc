"""One call, from its first attempt to its end.

A :class:`Journey` makes the further attempts of a call whose first attempt failed, with pauses and redirections, until
its deadline.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.transport._backoff import Backoff
from sbredis.transport._nodes import Node
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._script import Call

if TYPE_CHECKING:
    from sbredis.transport._multiplexed import Transport

__all__ = ["Journey"]


class Journey:
    """One call, from attempt to attempt. :class:`Backoff` says how long the pauses are, and when to stop."""

    def __init__(
        self, transport: Transport, call: Call, started: float, deadline: float, backoff: Backoff, *, replicated: bool
    ) -> None:
        self._transport = transport
        self.call = call
        self._started = started
        self._deadline = deadline
        self._backoff = backoff
        self._replicated = replicated
        self._clock = asyncio.get_running_loop().time
        self._attempts = 0
        self._redirections = 0
        self._failures = 0
        self._maybe_ran = False
        self._told: Failure | None = None
        """The last failure that says why: an answer of a server, or what the client knows of the servers."""
        self._next: Node | None = None
        self._asking = False

    async def finish(self, first: Failure | None) -> Any:
        """Return the reply, or raise the error of the last failure.

        If the deadline ended the last attempt before the call was sent, the error is that of the last failure that says
        why, if any: it says more than a time-out.

        ``first`` is the failure of an earlier attempt, or ``None`` if there was no attempt.
        """
        reply: Any = await self._execute() if first is None else first
        try:
            while isinstance(reply, Failure):
                self._learn(reply)
                pause = self._pause_after(reply)
                if pause is None:
                    raise self._error(reply)
                await self._transport.pause(pause)
                reply = await self._execute()
        finally:
            self._transport.held_up.pop(self, None)
        return reply

    async def _execute(self) -> Any:
        node, asking = self._next, self._asking
        self._next, self._asking = None, False
        if self._transport.closed:
            return Failure(FailureKind.CLOSED, "the transport was closed")
        if node is None:
            node = self._transport.route(self.call.slot)
        if node is None:
            return Failure(FailureKind.UNSERVED, f"no server is known for slot {self.call.slot}")
        return await node.execute(self.call, self._deadline, asking=asking, replicated=self._replicated)

    def _learn(self, failure: Failure) -> None:
        self._attempts += 1
        if failure.code or failure.kind is FailureKind.UNSERVED:
            self._told = failure
        if failure.outcome is Outcome.UNKNOWN:
            self._maybe_ran = True
        if failure.redirects:
            self._redirections += 1
            try:
                self._next = self._transport.redirected(failure)
            except ValueError:
                self._transport.troubled(failure)
            else:
                self._asking = failure.kind is FailureKind.ASK
        else:
            self._redirections = 0
            self._failures += 1
            self._transport.troubled(failure)
        if failure is self._told and not failure.redirects:
            self._transport.held_up[self] = None
        else:
            self._transport.held_up.pop(self, None)

    def _pause_after(self, failure: Failure) -> float | None:
        """Return the seconds to wait before the next attempt; ``None`` if this failure is the last."""
        most = self._backoff.repetitions
        if not failure.may_repeat(self.call) or (most is not None and self._failures > most):
            return None
        delay = self._backoff.delay(self._attempts, self._redirections)
        return self._backoff.within(delay, self._deadline - self._clock())

    def obstacle(self) -> ServiceBusError:
        """Return the error that says why a server has not taken the call yet."""
        assert self._told is not None  # it is asked only while the last failure says why
        return self._error_of(self._told)

    def _error_of(self, failure: Failure) -> ServiceBusError:
        seconds = self._clock() - self._started
        return failure.error(self.call, maybe_ran=self._maybe_ran, attempts=self._attempts, seconds=seconds)

    def _error(self, failure: Failure) -> ServiceBusError:
        if self._told is not None and failure.kind is FailureKind.TIMED_OUT and failure.outcome is Outcome.NEVER_SENT:
            failure = self._told  # the deadline cut the last attempt short, so what was known before it says more
        error = self._error_of(failure)
        self._transport.log(failure, error)
        return error
