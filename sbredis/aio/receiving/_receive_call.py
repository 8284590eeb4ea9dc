"""A caller's request for messages that waits at an inbox."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage

if TYPE_CHECKING:
    from sbredis.aio.receiving._watcher import PartitionWatcher

__all__ = ["ReceiveCall"]


class ReceiveCall:
    """A request for messages that waits at an inbox."""

    __slots__ = ("error", "gathers", "got", "missing", "news", "unanswered")

    def __init__(self, missing: int, *, gathers: bool) -> None:
        self.missing = missing
        self.gathers = gathers
        """Whether the request waits for more messages when it has some."""
        self.unanswered: dict[PartitionWatcher, int] | None = None
        """The partitions whose answer the request still needs; ``None`` while it waits for messages to come.

        A request for the messages that are there now needs an answer from each partition. A request that has waited
        long enough also needs these answers. This is a mapping from each partition to the number of a call: only
        answers to later calls count.
        """
        self.got: list[ServiceBusReceivedMessage] = []
        self.error: ServiceBusError | None = None
        self.news: asyncio.Future[None]

    @property
    def waits(self) -> bool:
        """Whether the request needs more messages."""
        return self.missing > 0 and self.error is None

    @property
    def content(self) -> bool:
        """Whether the request has messages and does not wait for more."""
        return bool(self.got) and not self.gathers

    def tell(self) -> None:
        if not self.news.done():
            self.news.set_result(None)
