# pyright: reportPrivateUsage=false
"""Receiving messages from a queue, and settling them."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from sbredis.aio._arguments import count_of, deadline_of, seconds_of, sequence_numbers_of, warn_of_unknown
from sbredis.aio._changes import milliseconds_of
from sbredis.aio._inbox import Inbox
from sbredis.aio._lanes import SettleJob
from sbredis.aio._peeking import Peeking
from sbredis.aio._settling import Settler
from sbredis.engine import (
    MAXIMUM_CALL_MESSAGES,
    NEVER,
    Lock,
    Mode,
    Partition,
    Purged,
    Received,
    Request,
    Side,
    Turn,
    new_token,
)
from sbredis.exceptions import MessageNotFoundError, Outcome
from sbredis.model import (
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
    delivered,
)

if TYPE_CHECKING:
    from sbredis.aio._connection import Connection, Creation
    from sbredis.aio._desk import Desk
    from sbredis.aio._entity import Entity
    from sbredis.aio._renewer import AutoLockRenewer
    from sbredis.aio._telemetry import Telemetry

__all__ = ["ServiceBusReceiver"]

_MOST_DELETED = 4000


class ServiceBusReceiver(Settler, AsyncIterator[ServiceBusReceivedMessage]):
    """Receives messages from one queue or its dead-letter queue. Made by :meth:`ServiceBusClient.get_queue_receiver`.

    A message that was received is locked for the receiver until it is settled: completed, abandoned, deferred or
    dead-lettered; or until its lock ends, unless that is renewed. In the mode ``RECEIVE_AND_DELETE`` it is gone from
    the queue when it is received. Any of the calls may be made concurrently.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        telemetry: Telemetry,
        *,
        client_identifier: str,
        create: Creation | None,
        sub_queue: ServiceBusSubQueue | None,
        receive_mode: ServiceBusReceiveMode,
        max_wait_time: float | None,
        auto_lock_renewer: AutoLockRenewer | None,
        prefetch_count: int,
        adaptive_prefetch: bool,
        on_close: Callable[[Any], None],
    ) -> None:
        super().__init__(connection, name, telemetry, create)
        self._client_identifier = client_identifier
        self._sub_queue = sub_queue
        self._side: Side = "d" if sub_queue is ServiceBusSubQueue.DEAD_LETTER else ""
        self._empty = sub_queue is ServiceBusSubQueue.TRANSFER_DEAD_LETTER
        """Nothing ever comes to it: nothing is forwarded in this release."""
        self._mode = receive_mode
        self._max_wait_time = max_wait_time
        self._renewer = auto_lock_renewer
        self._prefetch = prefetch_count
        self._adaptive = adaptive_prefetch
        self._inbox: Inbox | None = None
        self._peeking: Peeking | None = None
        self._on_close = on_close
        self._ending: asyncio.Future[None] | None = None

    # -- what it is ----------------------------------------------------------------------------------------------------

    @property
    def entity_path(self) -> str:
        """The queue that it receives from, with the sub-queue if it is one."""
        if self._sub_queue is ServiceBusSubQueue.DEAD_LETTER:
            return f"{self._name}/$DeadLetterQueue"
        if self._sub_queue is ServiceBusSubQueue.TRANSFER_DEAD_LETTER:
            return f"{self._name}/$Transfer/$DeadLetterQueue"
        return self._name

    @property
    def client_identifier(self) -> str:
        """What names this receiver in logs."""
        return self._client_identifier

    @property
    def receive_mode(self) -> ServiceBusReceiveMode:
        """Whether messages are locked or deleted when they are received."""
        return self._mode

    @property
    def session(self) -> None:
        """The session that it receives from; ``None``, as it receives from no session."""
        return

    async def __aenter__(self) -> Self:
        await self._ready(deadline_of(None))
        if self._prefetch:
            (await self._open(deadline_of(None))).pump()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<ServiceBusReceiver {self.entity_path!r} {'closed' if self._closed else 'open'}>"

    # -- receiving -----------------------------------------------------------------------------------------------------

    async def receive_messages(
        self, max_message_count: int | None = 1, max_wait_time: float | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Up to so many messages: waits for the first one, and for more only while they come soon.

        Empty if none came within ``max_wait_time`` seconds; this call's, else the receiver's, else 60.
        """
        if max_message_count is None:
            max_message_count = max(1, self._prefetch)
        wanted = count_of(max_message_count, "max_message_count")
        seconds = seconds_of(max_wait_time, "max_wait_time") if max_wait_time is not None else self._max_wait_time
        return await self._receive(wanted, 60.0 if seconds is None else seconds)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ServiceBusReceivedMessage:
        """The next message. Waits for ever, unless the receiver has a ``max_wait_time``, which ends the iteration."""
        messages = await self._receive(1, self._max_wait_time)
        if not messages:
            raise StopAsyncIteration
        return messages[0]

    async def _receive(self, wanted: int, seconds: float | None) -> list[ServiceBusReceivedMessage]:
        inbox = self._inbox
        if self._renewer is not None:
            self._renewer.check_open()
        if inbox is None or self._closed or inbox.entity.gone:
            inbox = await self._open(deadline_of(seconds))
        if self._telemetry.active:
            with self._telemetry.operation("receive", self.entity_path) as operation:
                messages = await inbox.take(wanted, seconds)
                operation.received(messages)
        else:
            messages = await inbox.take(wanted, seconds)
        if messages:
            self._peeking_of(inbox.entity).passed(messages)
            self._hand_over(messages)
        return messages

    def _hand_over(self, messages: Sequence[ServiceBusReceivedMessage]) -> None:
        """These are in the hands of a caller from now on."""
        if self._renewer is not None and not self._renewer.closed:
            for message in messages:
                self._renewer.register(self, message)

    async def receive_deferred_messages(
        self, sequence_numbers: int | Sequence[int], *, timeout: float | None = None, **kwargs: Any
    ) -> list[ServiceBusReceivedMessage]:
        """Messages that were deferred, by their sequence numbers, locked or deleted like any others.

        Raises :class:`~sbredis.exceptions.MessageNotFoundError` if one of them is not there, and then gives none.
        """
        warn_of_unknown("receive_deferred_messages", kwargs)
        deadline = deadline_of(timeout)
        numbers = sequence_numbers_of(sequence_numbers)
        entity = await self._ready(deadline)
        parts, missing = self._parts(entity, numbers)
        # Deleted at once is only what one call brings: of several, the second may find that one is missing.
        mode: Mode = "delete" if self._mode is not ServiceBusReceiveMode.PEEK_LOCK and len(parts) == 1 else "lock"
        found: list[ServiceBusReceivedMessage] = []
        with self._telemetry.operation("receive_deferred", self.entity_path, count=len(numbers)) as operation:
            try:
                for desk, names in () if missing else parts:
                    given, gone = await self._deferred(entity, desk, names, mode, deadline)
                    found += given
                    missing += gone
                    if missing:
                        break
                if found and not missing and mode == "lock" and self._mode is not ServiceBusReceiveMode.PEEK_LOCK:
                    await self._delete(entity, found, deadline)
            except BaseException:
                self._give_back(entity, found)
                raise
            if missing:
                self._give_back(entity, found)
                error = MessageNotFoundError(
                    f"Not deferred, or no longer, or locked: {', '.join(map(str, missing))}. None was received.",
                    outcome=Outcome.REFUSED,
                )
                error.entity = entity.name
                raise error
            operation.received(found)
        order = {number: place for place, number in enumerate(numbers)}
        found.sort(key=lambda message: order[message.sequence_number])
        self._hand_over(found)
        return found

    def _parts(self, entity: Entity, numbers: Sequence[int]) -> tuple[list[tuple[Desk, list[str]]], list[int]]:
        """Which partition is to be asked for which messages in one call, and what no partition can have."""
        places: dict[int, list[str]] = {}
        missing = list(numbers) if self._empty else []
        for number in () if self._empty else numbers:
            partition, own = entity.place(number)
            if partition in entity.numbers and 0 < own < 10**15:
                places.setdefault(partition, []).append(f"{self._side}{own}")
            else:
                missing.append(number)
        parts = [
            (entity.desk(partition), names[at : at + MAXIMUM_CALL_MESSAGES])
            for partition, names in places.items()
            for at in range(0, len(names), MAXIMUM_CALL_MESSAGES)
        ]
        return parts, missing

    async def _deferred(
        self, entity: Entity, desk: Desk, names: list[str], mode: Mode, deadline: float
    ) -> tuple[list[ServiceBusReceivedMessage], list[int]]:
        token, since = new_token(), self._connection.clock.now()
        base = entity.base(desk.number)

        def make(partition: Partition, turn: Turn) -> Request[Received]:
            return partition.receive_deferred(turn, token, names, mode=mode)

        def made(result: Received) -> list[ServiceBusReceivedMessage]:
            lease = desk.lease(token, result.lock, since) if mode == "lock" else None
            return [delivered(each, base, self._mode, lease, entity) for each in result.messages]

        result = await desk.call("f", make, deadline, lambda result: self._give_back(entity, made(result)))
        return made(result), [base + int(name.removeprefix("d")) for name in result.missing]

    async def _delete(self, entity: Entity, messages: list[ServiceBusReceivedMessage], deadline: float) -> None:
        """Delete what several calls have locked, all of which was there."""
        jobs = [
            (entity.desk_of(message), SettleJob(Lock(lease.token, message._name), deadline, message))
            for message in messages
            if (lease := message._lease) is not None
        ]
        await asyncio.gather(*(desk.settling("complete").submit(job) for desk, job in jobs))
        for message in messages:
            message._lease, message._settled = None, False

    def _give_back(self, entity: Entity, messages: list[ServiceBusReceivedMessage]) -> None:
        for message in messages:
            entity.desk_of(message).give_back(message)

    async def peek_messages(
        self,
        max_message_count: int = 1,
        *,
        sequence_number: int = 0,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> list[ServiceBusReceivedMessage]:
        """Messages as they are in the queue, whatever their state, neither locked nor changed.

        Without a ``sequence_number`` it goes on after those that this receiver has peeked or received. May show fewer
        than there are; an empty list says that there are no more.
        """
        warn_of_unknown("peek_messages", kwargs)
        wanted = count_of(max_message_count, "max_message_count")
        count_of(sequence_number, "sequence_number", least=0)
        deadline = deadline_of(timeout)
        entity = await self._ready(deadline)
        if self._empty:
            return []
        with self._telemetry.operation("peek", self.entity_path) as operation:
            messages = await self._peeking_of(entity).peek(wanted, sequence_number, deadline)
            operation.received(messages)
            return messages

    def _peeking_of(self, entity: Entity) -> Peeking:
        if self._peeking is None:
            self._peeking = Peeking(entity, self._side)
        return self._peeking

    # -- deleting ------------------------------------------------------------------------------------------------------

    async def delete_messages(
        self, max_message_count: int, *, before_enqueued_time_utc: datetime | None = None, timeout: float | None = None
    ) -> int:
        """Delete up to so many messages, at most 4,000, that were enqueued before a time, and return how many it were.

        Those that are locked or scheduled stay. Deferred ones go as well. Oldest first, within a partition.
        """
        count = count_of(max_message_count, "max_message_count", _MOST_DELETED)
        return await self._purge(count, before_enqueued_time_utc, deadline_of(timeout))

    async def purge_messages(
        self, *, before_enqueued_time_utc: datetime | None = None, timeout: float | None = None
    ) -> int:
        """Delete all messages that were enqueued before a time, or all there are, and return how many it were.

        Those that are locked or scheduled stay. Deferred ones go as well. Takes as many calls as it needs.
        """
        return await self._purge(None, before_enqueued_time_utc, deadline_of(timeout))

    async def _purge(self, most: int | None, before: datetime | None, deadline: float) -> int:
        until = NEVER if before is None else milliseconds_of(before, "before_enqueued_time_utc")
        entity = await self._ready(deadline)
        deleted, side = 0, self._side
        if self._empty:
            return 0
        with self._telemetry.operation("delete", self.entity_path):
            for number in entity.numbers:
                start: int | None = 0
                while start is not None and deleted != most:
                    share = MAXIMUM_CALL_MESSAGES if most is None else min(MAXIMUM_CALL_MESSAGES, most - deleted)

                    def make(
                        partition: Partition, turn: Turn, share: int = share, start: int = start
                    ) -> Request[Purged]:
                        return partition.purge(turn, until, side=side, share=share, start=start)

                    purged = await entity.desk(number).call("g", make, deadline)
                    deleted += purged.count
                    start = purged.onwards
        return deleted

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def _open(self, deadline: float) -> Inbox:
        entity = await self._ready(deadline)
        if self._inbox is None:
            self._inbox = Inbox(
                entity,
                secrets.token_hex(5),
                side=self._side,
                mode=self._mode,
                prefetch=self._prefetch,
                adaptive=self._adaptive,
                empty=self._empty,
            )
        return self._inbox

    async def close(self) -> None:
        """Receive no more. What was fetched ahead is given back, which counts no delivery.

        Messages in the hands of callers stay locked: they can be settled through another receiver of the same queue.
        """
        self._closed = True
        if self._inbox is not None:
            if self._ending is None:
                self._ending = asyncio.ensure_future(self._inbox.aclose())
            await asyncio.shield(self._ending)
        self._on_close(self)
