"""Watch a partition of a topic, on behalf of the client that publishes its scheduled messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from sbredis.client._waking import LiveWatch
from sbredis.maintenance._publishing import TopicPublisher

if TYPE_CHECKING:
    from sbredis.client._background_work import BackgroundFailures
    from sbredis.client._entity import Entity

__all__ = ["TopicWatcher"]

_WAITING = "route"


class TopicWatcher:
    """A watched partition of a topic. It publishes the messages that are due there."""

    def __init__(
        self,
        entity: Entity,
        number: int,
        failures: BackgroundFailures,
        *,
        changed: Callable[[], None],
        failed: Callable[[TopicWatcher, BaseException], None],
    ) -> None:
        """``changed`` is called when there may be something to do. ``failed`` gets the error if publishing failed."""
        self.partition_client = entity.partition_client(number)
        self.publisher = TopicPublisher(entity, number)
        # Every client that has the role waits under the same identity. A partition wakes only one waiter. If each
        # client had its own identity, the partition might choose a client that has died, or one that has lost the role
        # and does not know it yet.
        identity = f"{_WAITING}-{entity.record.id}"
        self._live = LiveWatch(self.partition_client, identity, changed=changed, failed=self._tell)
        self.watch = self._live.watch
        """The decisions about this partition."""
        self._failures = failures
        self._changed = changed
        self._failed = failed
        self._task: asyncio.Task[None] | None = None

    def begin(self, fence: int | None) -> None:
        """Start to publish the messages that are due, and then to read the next due time."""
        loop = asyncio.get_running_loop()
        self.watch.ask(loop.time())
        self._task = loop.create_task(self._work(fence))
        self._task.add_done_callback(self._ended)

    async def _work(self, fence: int | None) -> None:
        waiter = self._live.waiter
        await self.publisher.publish_due(fence)
        due = await self.publisher.next_due(waiter) if waiter else 0
        self._live.nothing(due, registered=bool(waiter))
        self._live.listen()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        if (error := task.exception()) is not None and self.watch.under_way:
            self._live.failed(error)
            self._tell(error)
        self._changed()

    def _tell(self, error: BaseException) -> None:
        self._failures.report(f"{self.partition_client}: the publishing of scheduled messages", error)
        self._failed(self, error)

    def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
        self._live.leave()
