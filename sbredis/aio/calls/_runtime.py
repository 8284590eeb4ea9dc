"""The runtime of a client: the objects that all its calls share.

Lanes and receivers use it instead of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from sbredis._tasks import TaskScope
from sbredis.aio.calls._clock import Clock
from sbredis.aio.calls._failures import Failures
from sbredis.aio.calls._test_hooks import hooks_for
from sbredis.transport import Backoff, Target

if TYPE_CHECKING:
    from sbredis.registry import EntityRecord, Namespace
    from sbredis.transport import Transport

__all__ = ["Resting", "Runtime"]

_log = logging.getLogger("sbredis.client")
_PARTING = 3.0


class Resting(Protocol):
    """An entity that the client may forget when nothing uses it."""

    def rest(self) -> None:
        """End the idle tasks of the entity. The next call starts those again that it needs."""


class Runtime:
    """The objects that all calls of a client share: transport, clock, and a scope for background tasks.

    It belongs to the event loop in which it is first used. Opening the connection sets the attributes without default.
    """

    id: str
    """The start of the names of this client's lanes. It is chosen at random when the connection is opened."""
    transport: Transport
    namespace: Namespace

    def __init__(self, target: Target, retry: Backoff | None, clock: Clock | None) -> None:
        self.target = target
        self.test_hooks = hooks_for(target)
        """The hooks of the test bus, if the target belongs to a test bus."""
        self.clock = clock or (Clock() if self.test_hooks is None else self.test_hooks.clock)
        self.retry = retry or Backoff()
        """The waits and limits for repetitions of calls."""
        self.count_dropped: Callable[[str, int], None] = _count_nothing
        """A function that is called with an entity and the number of messages that it has dropped as duplicates."""
        self.moves_from: Callable[[EntityRecord, bool], None] = _tell_nobody
        """A function that is called with the record of an entity whose messages are moved elsewhere. The second
        argument says whether a message certainly waits now.
        """
        self.lane_numbers = count(1)
        """Numbers for the names of lanes. No two lanes of a client have the same name, not even if the client has
        forgotten one of them: its partition would take the calls of the other one for repetitions.
        """
        self.closed = False
        """Whether the client is closed or being closed."""
        self.closing = asyncio.Event()
        """Set when the client is closed or begins to be closed."""
        self.failures = Failures(_log, lambda: self.closed)
        """The failures of work for which no caller waits."""
        self._background: TaskScope
        self._seen_off: set[asyncio.Task[None]] = set()

    def check_open(self) -> None:
        """Raise if the client is closed."""
        if self.closed:
            raise ValueError("The client is closed, and so are all its senders and receivers. Make another client.")

    def forget_entities(self) -> None:
        """Let the next call of each entity look the entity up, because the servers have lost the registry."""
        raise NotImplementedError

    def keep(self, entity: Resting) -> None:
        """Do not forget an entity for now, because it is in use."""
        raise NotImplementedError

    def start(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a coroutine in the background, until it ends or the client is closed. Callers wait for what it does.

        If it raises an error, the client is closed, so that no caller waits for ever. Return whether it was started. It
        is not started if the client is being closed.
        """
        return self._background.start(work)

    def attempt(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Do some work in the background for which no caller waits. If it fails, only log that ``what`` has failed.

        Return whether it was started. It is not started if the client is being closed.
        """
        return self._background.start(self.failures.attempt(what, work))

    def see_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that no caller waits for. Closing the client waits for it, but only for a short time."""
        task = asyncio.get_running_loop().create_task(work)
        self._seen_off.add(task)
        task.add_done_callback(self._seen_off.discard)

    async def all_seen_off(self) -> None:
        """Wait a short time until all coroutines of :meth:`see_off` have ended."""
        if self._seen_off:
            await asyncio.wait(self._seen_off, timeout=_PARTING)


def _count_nothing(entity: str, count: int) -> None:
    """Count nothing."""
    del entity, count


def _tell_nobody(record: EntityRecord, waits: bool) -> None:
    """Ignore that messages may wait."""
