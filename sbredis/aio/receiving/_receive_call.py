"""Somebody who waits for messages at an inbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage

if TYPE_CHECKING:
    from sbredis.aio.receiving._watcher import PartitionWatcher

__all__ = ["ReceiveCall"]


class ReceiveCall:
    """Somebody who waits for messages."""

    __slots__ = ("error", "gathers", "got", "missing", "news", "unanswered")

    def __init__(self, missing: int, *, gathers: bool) -> None:
        self.missing = missing
        self.gathers = gathers
        """It waits for more when it has got something."""
        self.unanswered: dict[PartitionWatcher, int] | None = None
        """Of one that wants what is there now, or has waited for long enough: the partitions that have not said yet
        that they have nothing more, each with the number of the last call whose answer does not count. ``None`` of one
        that waits.
        """
        self.got: list[ServiceBusReceivedMessage] = []
        self.error: ServiceBusError | None = None
        self.news: asyncio.Future[None]

    @property
    def waits(self) -> bool:
        """Whether it is there for more."""
        return self.missing > 0 and self.error is None

    @property
    def content(self) -> bool:
        """Whether it has got something and does not gather more."""
        return bool(self.got) and not self.gathers

    def tell(self) -> None:
        if not self.news.done():
            self.news.set_result(None)
