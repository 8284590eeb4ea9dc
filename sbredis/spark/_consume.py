"""Consume an entity with Spark, exactly once: a query reserves it, and takes its messages range by range.

The rule that makes it exact: the end of a batch is planned and pinned in the partitions before Spark stores it, and the
messages of a batch are removed only when a later call shows that Spark has stored the end of the batch. That is the
call :meth:`ConsumeReader.latestOffset`, whose ``start`` is always stored. Spark's own ``commit`` comes late or not at
all, so nothing depends on it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from sbredis.bulk import SHOWING_LIFE, Awaited, Browser, Committed, Planned, Reservation, reserve
from sbredis.exceptions import EntityReservedError, MessagesLostError, ReservationLostError, ServiceBusError
from sbredis.spark._commands import JobCommand, release_line
from sbredis.spark._loop import beside, run
from sbredis.spark._offsets import Offsets, PartitionOffset
from sbredis.spark._options import parse_secret
from sbredis.spark._pacing import PollPacer
from sbredis.spark._planning import Admission, PartitionRange, admitted
from sbredis.spark._query import Query, ReadTask
from sbredis.spark._reading import read_task
from sbredis.spark._reservations import say_stale

if TYPE_CHECKING:
    import pyarrow as pa

    from sbredis.engine import Rows

__all__ = ["ConsumeReader", "settle"]

_log = logging.getLogger("sbredis.spark")


class ConsumeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes the messages of a reserved entity."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._pacer = PollPacer(query.options.poll_interval)
        self._reservation: Reservation | None = None
        self._end_showing_life: Callable[[], object] | None = None
        self._drains = False
        """Whether the query ends with the messages that are there at its start."""
        self._remaining: dict[int, int] | None = None
        """Of a query that drains: the number of messages that each partition still gives."""
        self._progress: dict[str, Any] | None = None
        self._mean = 0.0
        """The mean size of a message in the last batch, in bytes; 0 before the first batch."""

    def initialOffset(self) -> dict[str, Any]:
        """Return offsets that name no partition. They stand for the place where the consumer begins.

        Spark calls this twice for a new checkpoint, and again if the first batch is repeated, before it shows the
        offsets of the batch. They may belong to another entity, so nothing is reserved yet.
        """
        return Offsets(self._query.entity, "", {}, mode="consume").to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that the options set. All of them apply, whichever Spark is told."""
        options = self._query.options
        if options.most_rows is not None:
            return ReadMaxRows(options.most_rows)
        if options.most_bytes is not None:
            return ReadMaxBytes(options.most_bytes)
        least = options.least_rows or int(options.least_bytes is not None)
        return ReadMinRows(least) if least else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Note that the query ends with the messages that the first poll finds."""
        self._drains = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Remove what Spark has stored, and plan the next batch. ``start`` is the end of the last stored batch.

        If nothing is there at the begin of a new checkpoint, Spark runs an empty batch, and stores its end. So the end
        says where the consumer begins.
        """
        stored = self._query.offsets_from(start)
        ended = run(self._next(stored, limited=not isinstance(limit, ReadAllAvailable)))
        return start if ended is None else ended.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how many messages wait after the planned batch, and since when; Spark shows it in its progress."""
        return self._progress

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of a batch. They follow from the offsets alone, so they are the same if the batch is run
        again.

        After a restart, this is the first call. The reservation may have been released since, so it is renewed before
        anything is read: no receiver can take a message of the batch from now on.
        """
        began, ended = self._query.offsets_from(start), self._query.offsets_from(end)
        run(self._reserved())
        first = {number: offset.number for number, offset in began.partitions.items()}
        first |= ended.began or {}
        ranges = [
            PartitionRange(number, offset.birth, first.get(number, 0), offset.number)
            for number, offset in ended.partitions.items()
        ]
        return ReadTask.all(ended.incarnation, ranges, ended.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Spark calls this on an executor, on another copy of this object."""
        return read_task(self._query, partition, _pages if self._query.options.fail_on_loss else _remaining)

    def stop(self) -> None:
        """End the signs of life. Spark calls this at the end of the query, unless it ends the process."""
        if self._end_showing_life is not None:
            self._end_showing_life()

    # -- in the event loop ---------------------------------------------------------------------------------------------

    async def _begin(self) -> dict[int, Committed]:
        """Reserve the entity, and return the positions at which the consumer begins."""
        reservation = await self._reserved()
        begun = await asyncio.gather(*map(reservation.begin, reservation.partitions))
        return dict(zip(reservation.partitions, begun, strict=True))

    async def _reserved(self) -> Reservation:
        """Return the reservation of this run. The first call reserves the entity, or takes over from an earlier run."""
        if self._reservation is None:
            options = self._query.options
            assert options.consumer is not None  # the options of a consuming query name it
            path = (await self._query.browser()).path
            try:
                self._reservation = await reserve(
                    await self._query.client(),
                    path,
                    consumer=options.consumer,
                    owner=f"Spark on {socket.gethostname()}, process {os.getpid()}",
                    timeout=options.reserve_timeout,
                    progress=_waiting,
                )
            except EntityReservedError as error:
                release = JobCommand(job="release", entity=path, server=parse_secret(self._query.given))
                say_stale(error, options.stale_after, datetime.now(UTC), release_line(release))
                raise
            self._end_showing_life = beside(self, _show_life(self._reservation))
        return self._reservation

    async def _next(self, start: Offsets, *, limited: bool) -> Offsets | None:
        """Return the end of the next batch; ``None`` if there is none yet."""
        await self._pacer.wait()
        positions = await self._positions(start)
        reservation, options = await self._reserved(), self._query.options
        settled = await self._plans({number: (position, 0, 1) for number, position in positions.items()})
        planned = {number: plan for number, plan in settled.items() if plan.end > plan.floor}
        waiting = {number: plan.left for number, plan in settled.items() if number not in planned}
        if self._drains:
            if self._remaining is None:
                self._remaining = {number: plan.left for number, plan in settled.items()}
            waiting = {number: min(each, self._remaining.get(number, 0)) for number, each in waiting.items()}
        contributions = admitted(
            Admission.of(options, limited=limited, patient=not self._drains),
            waiting,
            planned=sum(plan.rows for plan in planned.values()),
            planned_bytes=sum(plan.bytes for plan in planned.values()),
            oldest={number: plan.oldest for number, plan in settled.items() if plan.oldest},
            now=round(time.time() * 1000),
            mean=self._mean,
        )
        made = settled
        if contributions is not None:
            asked = {
                number: (settled[number].committed, each.rows, each.bytes) for number, each in contributions.items()
            }
            made = settled | await self._plans(asked)
        self._report(made)
        # A partition gives nothing while a message that is locked or delayed comes before all others.
        nothing = all(plan.end == plan.floor for plan in made.values())
        self._pacer.polled(idle=nothing and not self._drains)
        if nothing and start.partitions:
            return None
        rows = sum(plan.rows for plan in made.values())
        self._mean = sum(plan.bytes for plan in made.values()) / rows if rows else 0.0
        for number, plan in made.items():
            if self._remaining is not None and number not in planned:
                self._remaining[number] -= plan.rows
        return Offsets(
            reservation.path,
            reservation.incarnation,
            {number: _partition_offset(plan.committed) for number, plan in made.items()},
            {number: plan.floor for number, plan in made.items()},
            self._query.task_limits,
            mode="consume",
        )

    async def remove_committed(self, start: Offsets) -> None:
        """Remove the messages up to stored offsets, and plan nothing."""
        positions = await self._positions(start)
        await self._plans({number: (position, 0, 1) for number, position in positions.items()})

    async def _positions(self, start: Offsets) -> dict[int, Committed]:
        """Return the positions of the stored offsets, if they belong to this entity."""
        if not start.partitions:
            return await self._begin()
        browser = await self._query.browser()
        if start.incarnation == browser.incarnation and set(start.partitions) == set(browser.partitions):
            return {number: Committed(*offset) for number, offset in start.partitions.items()}
        lost = MessagesLostError(
            f"'{browser.path}' was deleted and created again since the checkpoint was written. What the checkpoint "
            "has not seen of the earlier entity is lost. With failOnDataLoss=false, the query goes on with the new "
            "entity."
        )
        self._query.meet_loss(f"'{browser.path}'", lost)
        if self._reservation is not None and self._reservation.incarnation != browser.incarnation:
            self.stop()
            self._reservation = self._remaining = None
        return await self._begin()

    async def _plans(self, asked: Mapping[int, tuple[Committed, int, int]]) -> dict[int, Planned]:
        reservation, options = await self._reserved(), self._query.options

        async def one(number: int, position: Committed, rows: int, size: int) -> Planned:
            try:
                return await reservation.plan(number, position, rows, size, timeout=options.timeout)
            except MessagesLostError as lost:
                self._query.meet_loss(f"'{reservation.path}', partition {number}", lost)
            return await reservation.plan(number, position, rows, size, accept_loss=True, timeout=options.timeout)

        found = await asyncio.gather(*(one(number, *limits) for number, limits in asked.items()))
        return dict(zip(asked, found, strict=True))

    def _report(self, made: Mapping[int, Planned]) -> None:
        oldest = min((plan.oldest for plan in made.values() if plan.oldest), default=0)
        self._progress = {
            "messagesLeft": sum(plan.left for plan in made.values()),
            "oldestEnqueuedTime": oldest,
            "partitions": {str(number): {"number": plan.end, "left": plan.left} for number, plan in made.items()},
        }


def settle(query: Query, end: str) -> None:
    """Remove the messages of a batch that Spark has committed. ``end`` is its end, as a query's progress shows it.

    Spark tells a source that a batch is committed only when it plans the next one. So this is for a query that has
    ended, whose last batch nobody would remove before the query is started again.
    """
    run(ConsumeReader(query).remove_committed(query.offsets_from(json.loads(end))))


def _partition_offset(at: Committed) -> PartitionOffset:
    return PartitionOffset(*at)


def _pages(browser: Browser, piece: PartitionRange) -> AsyncIterator[Rows]:
    return browser.pinned_pages(piece.partition, piece.birth, piece.after, piece.upto)


def _remaining(browser: Browser, piece: PartitionRange) -> AsyncIterator[Rows]:
    return browser.remaining_pages(piece.partition, piece.birth, piece.after, piece.upto)


async def _show_life(reservation: Reservation) -> None:
    """Tell every minute that the consumer lives, until it has lost the reservation. Its next plan reports the loss."""
    while True:
        await asyncio.sleep(SHOWING_LIFE)
        try:
            await reservation.show_life()
        except ReservationLostError:
            return
        except ServiceBusError as error:
            _log.debug("%r: a sign of life did not reach all partitions: %s", reservation, error)


def _waiting(awaited: Awaited) -> None:
    _log.info("the reservation waits for messages that other receivers have: %s", awaited)
