"""Peek at the messages of an entity, or delete them: one partition after the other, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from sbredis.engine import MAXIMUM_CALL_MESSAGES, CallId, Partition, Peeked, Purged, Request, SidePrefix, number_of
from sbredis.model import Hold, Reception, ServiceBusReceivedMessage, ServiceBusReceiveMode, delivered

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["Peeking", "Peekings", "purge"]

_PAGE_BYTES = 4 * 1024 * 1024
_LARGEST_NUMBER = (1 << 48) - 1
_MOST_SESSIONS = 1000
"""The largest number of sessions in which a receiver remembers its position."""


class Peeking:
    """The positions of a receiver that peeks: one in each partition."""

    def __init__(self, entity: Entity, side: SidePrefix, session: str | None = None) -> None:
        self._entity = entity
        self._side: SidePrefix = side
        self._session = session
        """The only session to peek at, or ``None`` for all messages. No lock on the session is needed."""
        self._numbers = entity.numbers if session is None else (entity.of_session(session).number,)
        self._onwards: dict[int, int] = dict.fromkeys(self._numbers, 0)
        self._at = 0
        self._turns = asyncio.Lock()

    def passed(self, names: Mapping[int, str]) -> None:
        """Move the positions forward past received messages.

        ``names`` is a mapping from the base of each partition to the name of its last received message.
        """
        for base, name in names.items():
            partition, own = self._entity.place(base + number_of(name))
            if own >= self._onwards.get(partition, own + 1):
                self._onwards[partition] = own + 1

    async def peek(self, wanted: int, start: int, deadline: float) -> list[ServiceBusReceivedMessage]:
        """Return up to ``wanted`` messages, from the sequence number ``start`` on, or from the current position."""
        async with self._turns:
            return await self._peek(wanted, start, deadline)

    async def _peek(self, wanted: int, start: int, deadline: float) -> list[ServiceBusReceivedMessage]:
        entity = self._entity
        if start:
            partition, own = entity.place(start)
            for at, number in enumerate(self._numbers):
                self._onwards[number] = own if number == partition else (0 if number > partition else _LARGEST_NUMBER)
                if number == partition:
                    self._at = at
            if partition not in self._onwards:
                self._at = next((at for at, number in enumerate(self._numbers) if number > partition), 0)
        found: list[ServiceBusReceivedMessage] = []
        size = visited = 0
        while len(found) < wanted and size < _PAGE_BYTES and visited < len(self._numbers):
            number = self._numbers[self._at]
            page = await self._page(number, min(wanted - len(found), MAXIMUM_CALL_MESSAGES), deadline)
            if not page.messages:
                self._at = (self._at + 1) % len(self._numbers)
                visited += 1
                continue
            self._onwards[number] = number_of(page.messages[-1].name) + 1
            link = entity.partition_client(number)
            reception = Reception(link.base, ServiceBusReceiveMode.PEEK_LOCK, link, peeked=True)
            for each in page.messages:
                size += len(each.record)
                found.append(delivered(each, reception, None))
        return found

    async def _page(self, number: int, wanted: int, deadline: float) -> Peeked:
        onwards = min(self._onwards[number], _LARGEST_NUMBER)
        side, session = self._side, self._session

        def make(partition: Partition, call_id: CallId) -> Request[Peeked]:
            return partition.peek(
                onwards, wanted, side=side, room=_PAGE_BYTES, session=session, call_id=CallId("", 0, call_id.now)
            )

        partition_client = self._entity.partition_client(number)
        peeked = await partition_client.read("p", make, deadline)
        partition_client.note_use()
        return peeked


class Peekings:
    """The positions of a receiver that peeks: in the whole entity, and in single sessions."""

    __slots__ = ("_by_session", "_last", "_side")

    def __init__(self, side: SidePrefix) -> None:
        self._side: SidePrefix = side
        self._by_session: dict[str | None, Peeking] | None = None
        self._last: dict[int, str] = {}
        """The last received message of each partition since the last peek: a mapping from the base to the name."""

    def received(self, hold: Hold) -> None:
        """Record that a message was received, so that the next peek continues after it."""
        base, name = hold.reception.base, hold.name
        before = self._last.get(base, "")
        if (len(before), before) < (len(name), name):
            self._last[base] = name

    def of(self, entity: Entity, session: str | None, *, own: bool) -> Peeking:
        """Return the positions in a session, or in the whole entity.

        With ``own``, the receiver receives from this session or entity.
        """
        if self._by_session is None:
            self._by_session = {}
        peeking = self._by_session.pop(session, None) or Peeking(entity, self._side, session)
        if self._last and own:
            peeking.passed(self._last)
            self._last.clear()
        self._by_session[session] = peeking
        if len(self._by_session) > _MOST_SESSIONS:
            del self._by_session[next(iter(self._by_session))]
        return peeking


async def purge(  # noqa: PLR0917 -- the messages to delete, and the limits
    entity: Entity,
    side: SidePrefix,
    session: str | None,
    until: int,
    most: int | None,
    deadline: float,
    progress: Callable[[int], object],
) -> int:
    """Delete up to ``most`` messages that were enqueued before ``until``, in one session or in the whole entity.

    Call ``progress`` with the number of messages deleted so far, after each call to the server. Return the number
    of deleted messages.
    """
    deleted = 0
    for number in entity.numbers if session is None else (entity.of_session(session).number,):
        start: int | None = 0
        while start is not None and deleted != most:
            share = MAXIMUM_CALL_MESSAGES if most is None else min(MAXIMUM_CALL_MESSAGES, most - deleted)

            def make(partition: Partition, call_id: CallId, share: int = share, start: int = start) -> Request[Purged]:
                return partition.purge(call_id, until, side=side, share=share, start=start, session=session)

            purged = await entity.partition_client(number).call("g", make, deadline)
            deleted += purged.count
            progress(deleted)
            start = purged.onwards
    return deleted
