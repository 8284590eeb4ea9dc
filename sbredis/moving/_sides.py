"""The messages of one side of an entity: read them, and move dead letters back to the main side."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from sbredis.client import deadline_of
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    CallId,
    Partition,
    Peeked,
    Redrive,
    Redriven,
    Request,
    SidePrefix,
    number_of,
)
from sbredis.model import Reception, ServiceBusReceivedMessage, ServiceBusReceiveMode, delivered, hold_of

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["ANY", "MOVABLE", "DeadLetters", "MessageSide", "key_of", "own_number"]

_PAGE_BYTES = 4 * 1024 * 1024
MOVABLE, ANY = "awf", "alwf"
"""The states of messages that can be moved, and of all messages except scheduled ones."""
_UNHANDLED = {"d": "alw", "t": "x"}
"""The states of redriven messages that nobody has handled yet, by the side from which they were redriven."""


def own_number(message: ServiceBusReceivedMessage) -> int:
    """Return the number of a message within its partition."""
    return number_of(hold_of(message).name)


def key_of(payload: bytes) -> bytes:
    """Return a key that a message keeps when it is redriven and dies again: a digest of the sender's data."""
    return blake2b(payload, digest_size=16).digest()


class MessageSide:
    """One side of an entity, with all its partitions."""

    def __init__(self, entity: Entity, side: SidePrefix, timeout: float | None = None) -> None:
        self.entity = entity
        self.side: SidePrefix = side
        self._timeout = timeout

    async def page(self, number: int, start: int, wanted: int, states: str = ANY) -> list[ServiceBusReceivedMessage]:
        """Return the first messages of a partition from a number on."""
        return await self._peek(number, start, wanted, states, self.side)

    async def those(self, number: int, owns: Sequence[int], states: str) -> list[ServiceBusReceivedMessage]:
        """Return the messages of a partition that have these rising numbers and one of these states."""
        found: list[ServiceBusReceivedMessage] = []
        at = 0
        while at < len(owns):
            last = owns[min(at + MAXIMUM_CALL_MESSAGES, len(owns)) - 1]
            page = await self.page(number, owns[at], min(MAXIMUM_CALL_MESSAGES, last - owns[at] + 1), states)
            there = {own_number(message): message for message in page}
            reached = max(there, default=last)
            while at < len(owns) and owns[at] <= reached:
                if owns[at] in there:
                    found.append(there[owns[at]])
                at += 1
        return found

    async def _peek(
        self, number: int, start: int, wanted: int, states: str, side: SidePrefix
    ) -> list[ServiceBusReceivedMessage]:
        def make(partition: Partition, call_id: CallId) -> Request[Peeked]:
            return partition.peek(
                start, wanted, side=side, room=_PAGE_BYTES, states=states, call_id=CallId("", 0, call_id.now)
            )

        link = self.entity.partition_client(number)
        page = await link.read("p", make, deadline_of(self._timeout))
        reception = Reception(link.base, ServiceBusReceiveMode.PEEK_LOCK, link, peeked=True)
        return [delivered(each, reception, None) for each in page.messages]


class DeadLetters(MessageSide):
    """A dead-letter queue, or a transfer dead-letter queue."""

    async def lasts(self) -> dict[int, int]:
        """Return the last number of each partition. Messages that die later have higher numbers."""
        return {number: (await self.redrive(number, [])).last for number in self.entity.numbers}

    async def redrive(self, number: int, messages: Sequence[Redrive]) -> Redriven:
        """Move messages of one partition back to its main side."""

        def make(partition: Partition, call_id: CallId) -> Request[Redriven]:
            return partition.redrive(call_id, messages)

        return await self.entity.partition_client(number).call("v", make, deadline_of(self._timeout))

    async def unhandled(self, number: int, first: int, last: int) -> bool:
        """Return whether one of the redriven messages with these numbers still waits, or a receiver holds it."""
        page = await self._peek(number, first, 1, _UNHANDLED[self.side], "")
        return any(own_number(message) <= last for message in page)
