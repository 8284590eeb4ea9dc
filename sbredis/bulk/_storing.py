"""Storing the rows of a bulk writer in one partition, chunk after chunk."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis.bulk._chunks import TaskProgress, Unmarked
from sbredis.bulk._marks import NO_VALUE, change_mark, forget_old, stored_value
from sbredis.bulk._rows import Backlog
from sbredis.client import deadline_of, some_wait
from sbredis.engine import (
    MAXIMUM_CALL_BYTES,
    MAXIMUM_CALL_MESSAGES,
    Operation,
    PartRefusedError,
    SettingsStaleError,
    TransactedSend,
    advance,
    decode,
    transact,
)
from sbredis.exceptions import (
    MessageSizeExceededError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    WatermarkChangedError,
)
from sbredis.model import from_content
from sbredis.sending import views_for_rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sbredis.bulk._chunks import Chunk, WriterKey
    from sbredis.bulk._rows import RowBlock, RowOptions
    from sbredis.client import Entity
    from sbredis.engine import CallId, Partition, Request, Transacted

__all__ = ["PartitionWriter"]

_MOST_ROWS, _MOST_BYTES = 3 * MAXIMUM_CALL_MESSAGES, MAXIMUM_CALL_BYTES
"""A writer with more rows or bytes that wait for a partition takes no further rows."""
_ADVANCING = 1
"""The place of the mark among the operations of a transaction."""


class PartitionWriter:
    """Stores the rows of a task in one partition, in their order."""

    def __init__(
        self,
        entity: Entity,
        number: int,
        key: WriterKey,
        timeout: float,
        progressed: asyncio.Event,
        *,
        marked: bool = True,
    ) -> None:
        self.progress: TaskProgress | Unmarked = TaskProgress(key) if marked else Unmarked()
        self.stored = self.duplicates = 0
        self._entity = entity
        self._key = key
        self._timeout = timeout
        self._progressed = progressed
        self._link = entity.partition_client(number)
        self._lane = self._link.borrow_lane()
        self._widths: Sequence[int] = ()
        """The count of sequence numbers that each message of the last call takes."""
        self._record = entity.record
        """The record of the entity that the last call was made with."""
        self.waiting = Backlog()
        self._everything = False
        self._task: asyncio.Task[None] | None = None

    # -- for the writer of all partitions ------------------------------------------------------------------------------

    def add(self, payloads: list[bytes], options: list[RowOptions] | None) -> None:
        """Take rows to store, and leave out those that are known to be stored."""
        self.waiting.add(payloads, options)
        self._leave_out_known()

    @property
    def behind(self) -> bool:
        """Whether the partition has rows of an earlier run that were not compared with the rows of this run yet."""
        return self.progress.behind

    def check_end(self) -> None:
        """Check, at the end of the task, that the partition has no more rows than the task."""
        try:
            self.progress.finish()
        except ServiceBusError as error:
            raise self._explained(error) from None

    def start(self, *, everything: bool = False) -> None:
        """Store the rows in the background, as far as they fill whole chunks; or ``everything``."""
        self._everything = everything
        ready = len(self.waiting) >= MAXIMUM_CALL_MESSAGES or self.waiting.size > MAXIMUM_CALL_BYTES
        if not (ready or (everything and self.waiting)):
            return
        if self._task is None or (self._task.done() and not self._task.cancelled() and not self._task.exception()):
            self._task = asyncio.create_task(self._store_waiting())
            self._task.add_done_callback(lambda _: self._progressed.set())

    @property
    def busy(self) -> bool:
        """Whether rows are being stored."""
        return self._task is not None and not self._task.done()

    @property
    def full(self) -> bool:
        """Whether so many rows wait that the writer takes no more."""
        return self.busy and (len(self.waiting) > _MOST_ROWS or self.waiting.size > _MOST_BYTES)

    def raise_failure(self) -> None:
        """Raise the error with which storing has ended, if there is one."""
        if self._task is not None and self._task.done():
            self._task.result()

    async def close(self) -> None:
        """Stop. Rows that are still waiting are not stored."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        self._link.return_lane(self._lane)

    async def learn(self, deadline: float) -> None:
        """Read the mark: a transaction that expects an impossible value is refused, and learns the stored one."""
        if isinstance(self.progress, Unmarked):
            return

        try:
            found = await change_mark(self._link, self._lane, self._key.name, (NO_VALUE, None), deadline)
        except PartRefusedError as refusal:
            raise self._explained(refusal.reason) from None
        self._found(found)

    # -- storing -------------------------------------------------------------------------------------------------------

    async def _store_waiting(self) -> None:
        waiting = self.waiting
        while waiting:
            routing = self._entity.routing
            most = MAXIMUM_CALL_MESSAGES if routing is None else min(MAXIMUM_CALL_MESSAGES, routing.most)
            rows = waiting.next(most, MAXIMUM_CALL_BYTES)
            whole = len(rows.payloads) == len(waiting)
            if whole and len(rows.payloads) < most and not self._everything:
                return
            await self._store(rows)
            self._leave_out_known()
            self._progressed.set()

    def _leave_out_known(self) -> None:
        try:
            while self.progress.behind and self.waiting:
                rows = self.waiting.next(MAXIMUM_CALL_MESSAGES, MAXIMUM_CALL_BYTES)
                self.waiting.drop(self.progress.known(rows.payloads))
        except ServiceBusError as error:
            raise self._explained(error) from None

    async def _store(self, rows: RowBlock) -> None:
        """Store some rows, or learn that they are stored."""
        deadline = deadline_of(self._timeout)
        made_room = False
        while True:
            now = round(self._entity.connection.clock.utc() * 1000)
            chunk = self.progress.chunk(rows.payloads, now)
            try:
                done = await self._call(rows, chunk, deadline)
            except PartRefusedError as refusal:
                reason = refusal.reason
                if isinstance(reason, WatermarkChangedError):
                    self._found(stored_value(refusal.detail))
                    return
                if isinstance(reason, ServiceBusQuotaExceededError) and refusal.operation == _ADVANCING:
                    if made_room or not await forget_old(self._link, self._lane, now, deadline):
                        raise self._full() from None
                    made_room = True
                elif not await self._link.overcome(reason, self._record, deadline):
                    raise self._explained(reason) from None
            except MessageSizeExceededError as error:
                if len(rows.payloads) == 1 or self._entity.routing is None:
                    raise self._explained(error) from None
                rows = rows.first(len(rows.payloads) // 2)  # their copies in subscriptions are too many, or too large
            except ServiceBusError as error:
                await self._look_up(error, deadline)
                return
            else:
                self._note_stored(rows, done)
                await self._spread(rows, done, deadline)
                return

    async def _spread(self, rows: RowBlock, done: Transacted, deadline: float) -> None:
        """Spread the rows that wait on a topic, if no other client does."""
        sent, entity = done.results[0], self._entity
        assert isinstance(sent, TransactedSend)
        utc = entity.connection.clock.utc()
        if sent.scheduled and some_wait(rows.outgoing(), self._widths, sent.first, sent.scheduled, utc):
            await entity.connection.observer.spread(entity.connection, entity, self._link.number, deadline)

    async def _look_up(self, error: ServiceBusError, deadline: float) -> None:
        """Find out whether rows were stored by a call that has failed, or raise its error.

        Rows without a mark are sent again. If they were stored, they are duplicates now.
        """
        late = isinstance(self.progress, Unmarked) and asyncio.get_running_loop().time() >= deadline
        if error.outcome is not Outcome.UNKNOWN or not error.is_transient or late:
            raise error
        await self.learn(deadline)

    async def _call(self, rows: RowBlock, chunk: Chunk, deadline: float) -> Transacted:
        entity, number = self._entity, self._link.number

        def make(partition: Partition, call_id: CallId) -> Request[Transacted]:
            self._record = entity.record
            marking = self._marking(partition, chunk)
            if entity.routing is None:
                if entity.record.kind == "topic":
                    raise SettingsStaleError("The entity is a topic now, and this client has not read its rules yet.")
                plain = rows.options is None
                request = (
                    partition.send_payloads(call_id, rows.payloads)
                    if plain
                    else partition.send(call_id, rows.outgoing())
                )
                return transact(call_id, [Operation(partition, request), *marking])
            made = rows.outgoing()
            messages = [from_content(decode(payload)) for payload in rows.payloads]
            views = views_for_rules(entity.connection, entity, messages, made)
            divisible = len(made) > 1
            published = entity.routing.published(partition, number, call_id, made, views, divisible=divisible)
            self._widths = published.widths
            return transact(call_id, [Operation(partition, published.request), *marking])

        return await self._link.call(self._lane, make, deadline)

    def _marking(self, partition: Partition, chunk: Chunk) -> list[Operation]:
        """Return the operation that advances the mark, if there is a mark."""
        if chunk.value is None:
            return []
        return [advance(partition, self._key.name, chunk.expected, chunk.value)]

    def _note_stored(self, rows: RowBlock, done: Transacted) -> None:
        self.progress.stored()
        self.stored += len(rows.payloads)
        self.waiting.drop(len(rows.payloads))
        sent = done.results[0]
        assert isinstance(sent, TransactedSend)
        entity, connection = self._entity, self._entity.connection
        if sent.dropped:
            self.duplicates += len(sent.dropped)
            connection.observer.dropped_duplicates(entity.name, len(sent.dropped))
        if entity.record.settings.forwards or (entity.routing is not None and entity.routing.forwards):
            connection.observer.moves_from(connection, entity.record, waits=True)
        if connection.test_hooks is not None:
            connection.test_hooks.sent(connection.target.namespace, entity.name, rows.outgoing())

    def _found(self, value: str | None) -> None:
        """Note the mark that is stored, if there is one."""
        try:
            self.progress.found(value)
        except ServiceBusError as error:
            raise self._explained(error) from None

    def _explained(self, error: ServiceBusError) -> ServiceBusError:
        error.entity = self._entity.name
        return error

    def _full(self) -> ServiceBusError:
        return self._explained(
            ServiceBusQuotaExceededError(
                f"{self._link} remembers as many writers and tasks as it can, so the rows of {self._key} were not "
                "stored. Forget the writers that will not run again, with forget_writer of an administration client.",
                outcome=Outcome.REFUSED,
            )
        )
