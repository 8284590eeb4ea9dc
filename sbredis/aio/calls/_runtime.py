"""What every call of a client runs with. The rooms above are given this, and not the connection that fills it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from sbredis._tasks import TaskScope
from sbredis.aio.calls._clock import Clock
from sbredis.aio.calls._test_hooks import hooks_for
from sbredis.transport import Backoff, Target

if TYPE_CHECKING:
    from sbredis.registry import Namespace
    from sbredis.transport import Transport

__all__ = ["Runtime"]

_PARTING = 3.0


class Runtime:
    """What every call of a client runs with: the transport, the clock, and a place for what runs beside the callers.

    It belongs to the event loop in which it is first used. What it is opened with is there from then on.
    """

    id: str
    """Begins the names of this client's lanes. It is drawn when the connection is opened."""
    transport: Transport
    namespace: Namespace

    def __init__(self, target: Target, retry: Backoff | None, clock: Clock | None) -> None:
        self.target = target
        self.test_hooks = hooks_for(target)
        """The hooks of the test bus that it goes to, if it does."""
        self.clock = clock or (Clock() if self.test_hooks is None else self.test_hooks.clock)
        self.retry = retry or Backoff()
        """How calls are repeated."""
        self.count_dropped: Callable[[str, int], None] = _count_nothing
        """Counts the messages that an entity has dropped as duplicates."""
        self.closed = False
        """Whether it was closed, or is being closed."""
        self._beside: TaskScope
        self._seen_off: set[asyncio.Task[None]] = set()

    def check_open(self) -> None:
        """Raise if it was closed."""
        if self.closed:
            raise ValueError("The client is closed, and with it all its senders and receivers: make another one.")

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something beside the callers, until it ends or the client is closed."""
        self._beside.start(work)

    def see_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something that nobody waits for. The client is not closed before it has ended."""
        task = asyncio.get_running_loop().create_task(work)
        self._seen_off.add(task)
        task.add_done_callback(self._seen_off.discard)

    async def all_seen_off(self) -> None:
        """Wait for a moment until all of that has ended."""
        if self._seen_off:
            await asyncio.wait(self._seen_off, timeout=_PARTING)


def _count_nothing(entity: str, count: int) -> None:
    """Nobody counts."""
    del entity, count
