"""Listen to the partitions of all slots: each slot has one channel, on which its partitions announce their work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sbredis.client._pauses import Pauses
from sbredis.engine import due_channel, salts
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.client._waking import OpenChannel
    from sbredis.maintenance._duty import Shared

__all__ = ["SlotChannels", "is_move_announcement"]

_log = logging.getLogger("sbredis.maintenance")
_SUBSCRIBING = 5.0
_PAUSE, _LONGEST_PAUSE = 1.0, 5.0
_MOVE = b" move"
"""The end of an announcement which says that messages wait to be moved. Other announcements end with a due time."""


def is_move_announcement(payload: bytes) -> bool:
    """Return whether a partition announces that messages wait to be moved, and not that something will be due."""
    return payload.endswith(_MOVE)


@dataclass(frozen=True, slots=True)
class _AnnouncementListener:
    """Passes on the announcements of the partitions in one slot."""

    number: int
    heard: Callable[[int, bytes], None]
    missed: Callable[[int], None]

    def message(self, payload: bytes) -> None:
        """Pass on an announcement."""
        self.heard(self.number, payload)

    def gap(self) -> None:
        """Record that the client did not listen for a while."""
        self.missed(self.number)


class SlotChannels:
    """The channels of all slots of a namespace. A slot that cannot be heard yet is tried again and again."""

    def __init__(self, shared: Shared, heard: Callable[[int, bytes], None], missed: Callable[[int], None]) -> None:
        """``heard`` gets the number of a slot and an announcement. ``missed`` gets the number of a slot.

        ``missed`` is called whenever the client begins to hear a slot, because it may have missed announcements before.
        """
        self._connection = connection = shared.connection
        self._failures = shared.failures
        self._heard = heard
        self._missed = missed
        self._salts = salts(connection.namespace.partitions)
        self._open: dict[int, OpenChannel] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Listen to all slots. If a slot does not answer soon, do not wait for it."""
        if self._tasks or self._open:
            return
        loop = asyncio.get_running_loop()
        for number in range(len(self._salts)):
            task = loop.create_task(
                self._failures.tend(f"listening to partition {number} of each entity", partial(self._listen, number))
            )
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        await asyncio.wait(list(self._tasks), timeout=_PAUSE)

    def close(self) -> None:
        """Stop listening."""
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        for channel in self._open.values():
            channel.close()
        self._open.clear()

    @property
    def all_open(self) -> bool:
        """Whether the client hears all slots."""
        return len(self._open) == len(self._salts)

    async def _listen(self, number: int) -> None:
        channel = due_channel(self._connection.namespace.name, self._salts[number])
        listener = _AnnouncementListener(number, self._heard, self._missed)
        pauses = Pauses(_PAUSE, _LONGEST_PAUSE)
        while True:
            try:
                self._open[number] = await self._connection.transport.subscribe(channel, listener, timeout=_SUBSCRIBING)
            except ServiceBusError as error:
                _log.info("the announcements of partition %d of each entity cannot be received yet: %s", number, error)
                await asyncio.sleep(pauses.next())
            else:
                self._missed(number)
                return
