"""Consume entities with Spark, exactly once: a query reserves them, and takes their messages range by range.

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
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from sbredis.bulk import SHOWING_LIFE, Awaited, Browser, Committed, Planned, Reservation, reserve
from sbredis.engine import name_key
from sbredis.exceptions import EntityReservedError, MessagesLostError, ReservationLostError, ServiceBusError
from sbredis.spark._commands import JobCommand, release_line
from sbredis.spark._lag import PartitionLag, lag_report
from sbredis.spark._loop import beside, run
from sbredis.spark._offsets import EntityOffsets, Offsets, PartitionOffset
from sbredis.spark._options import parse_secret
from sbredis.spark._pacing import PollPacer
from sbredis.spark._planning import Admission, EntityPartition, PartitionRange, admitted
from sbredis.spark._query import Followed, Query, ReadTask, read_limit
from sbredis.spark._reading import read_task
from sbredis.spark._reservations import say_stale
from sbredis.spark._sentences import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa

    from sbredis.engine import Rows

__all__ = ["ConsumeReader", "settle"]

_log = logging.getLogger("sbredis.spark")


Positions = dict[EntityPartition, Committed]
"""The position of the query in each partition of all entities."""


@sentence_first
class ConsumeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes the messages of reserved entities."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._followed = Followed(query)
        self._pacer = PollPacer(query.options.poll_interval)
        self._reservations: dict[str, Reservation] = {}
        """The reservation of each entity, by its path in the form in which names are compared."""
        self._signs_of_life: dict[str, Callable[[], object]] = {}
        """What ends the signs of life of each reservation."""
        self._drains = False
        """Whether the query ends with the messages that are there at its start."""
        self._remaining: dict[EntityPartition, int] | None = None
        """Of a query that drains: the number of messages that each partition still gives."""
        self._progress: dict[str, Any] | None = None
        self._mean = 0.0
        """The mean size of a message in the last batch, in bytes; 0 before the first batch."""

    def initialOffset(self) -> dict[str, Any]:
        """Return offsets that name no partition. They stand for the place where the consumer begins.

        Spark calls this twice for a new checkpoint, and again if the first batch is repeated, before it shows the
        offsets of the batch. They may belong to another entity, so nothing is reserved yet.
        """
        paths = self._query.options.entities.paths
        return Offsets(tuple(EntityOffsets(path, "", {}) for path in paths), mode="consume").to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that the options set."""
        return read_limit(self._query.options)

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
        began, ended = self._query.offsets_from(start).by_key, self._query.offsets_from(end)
        run(self._reserve_all(ended.by_key))
        ranges: list[PartitionRange] = []
        for key, each in ended.by_key.items():
            begun = began.get(key)
            first = {} if begun is None else {number: offset.number for number, offset in begun.partitions.items()}
            first |= each.began or {}
            ranges += [
                PartitionRange(key, number, offset.birth, first.get(number, 0), offset.number)
                for number, offset in each.partitions.items()
            ]
        return ReadTask.all({key: each.incarnation for key, each in ended.by_key.items()}, ranges, ended.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Spark calls this on an executor, on another copy of this object."""
        return read_task(self._query, partition, _pages if self._query.options.fail_on_loss else _remaining)

    def stop(self) -> None:
        """End the signs of life. Spark calls this at the end of the query, unless it ends the process."""
        for end in self._signs_of_life.values():
            end()

    # -- in the event loop ---------------------------------------------------------------------------------------------

    async def _begin(self, path: str) -> dict[int, Committed]:
        """Reserve an entity, and return the positions at which the consumer begins."""
        reservation = await self._reserved(path)
        begun = await asyncio.gather(*map(reservation.begin, reservation.partitions))
        return dict(zip(reservation.partitions, begun, strict=True))

    async def _reserve_all(self, paths: Iterable[str]) -> None:
        for path in paths:
            await self._reserved(path)

    async def _reserved(self, path: str) -> Reservation:
        """Return the reservation of this run. The first call reserves the entity, or takes over from an earlier run."""
        key = name_key(path)
        if key not in self._reservations:
            options = self._query.options
            assert options.consumer is not None  # the options of a consuming query name it
            path = (await self._query.browser(path)).path
            try:
                reservation = await reserve(
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
            self._reservations[key] = reservation
            self._signs_of_life[key] = beside(self, _show_life(reservation))
        return self._reservations[key]

    def _forget(self, key: str) -> None:
        """Forget the reservation of an entity that was deleted."""
        if key in self._reservations:
            del self._reservations[key]
            self._signs_of_life.pop(key)()
            self._remaining = None

    async def _next(self, start: Offsets, *, limited: bool) -> Offsets | None:
        """Return the end of the next batch; ``None`` if there is none yet."""
        await self._pacer.wait()
        positions, options = await self._positions(start), self._query.options
        settled = await self._plans({place: (position, 0, 1) for place, position in positions.items()})
        planned = {place: plan for place, plan in settled.items() if plan.end > plan.floor}
        waiting = {place: plan.left for place, plan in settled.items() if place not in planned}
        if self._drains:
            if self._remaining is None:
                self._remaining = {place: plan.left for place, plan in settled.items()}
            waiting = {place: min(each, self._remaining.get(place, 0)) for place, each in waiting.items()}
        contributions = admitted(
            Admission.of(options, limited=limited, patient=not self._drains),
            waiting,
            planned=sum(plan.rows for plan in planned.values()),
            planned_bytes=sum(plan.bytes for plan in planned.values()),
            oldest={place: plan.oldest for place, plan in settled.items() if plan.oldest},
            now=round(time.time() * 1000),
            mean=self._mean,
        )
        made = settled
        if contributions is not None:
            asked = {place: (settled[place].committed, each.rows, each.bytes) for place, each in contributions.items()}
            made = settled | await self._plans(asked)
        # A partition gives nothing while a message that is locked or delayed comes before all others.
        nothing = all(plan.end == plan.floor for plan in made.values())
        self._pacer.polled(idle=nothing and not self._drains)
        rows = sum(plan.rows for plan in made.values())
        mean = sum(plan.bytes for plan in made.values()) / rows if rows else 0.0
        await self._report(made, mean or self._mean)
        if nothing and any(each.partitions for each in start.entities):
            return None
        self._mean = mean
        for place, plan in made.items():
            if self._remaining is not None and place not in planned:
                self._remaining[place] = self._remaining.get(place, 0) - plan.rows
        return Offsets(
            tuple(
                EntityOffsets(
                    reservation.path,
                    reservation.incarnation,
                    {number: _partition_offset(made[EntityPartition(key, number)].committed) for number in numbers},
                    {number: made[EntityPartition(key, number)].floor for number in numbers},
                )
                for key, reservation in self._reservations.items()
                if (numbers := [place.number for place in made if place.entity == key])
            ),
            self._query.task_limits(rows),
            mode="consume",
        )

    async def remove_committed(self, start: Offsets) -> None:
        """Remove the messages up to stored offsets, and plan nothing."""
        positions = await self._positions(start)
        await self._plans({place: (position, 0, 1) for place, position in positions.items()})

    async def _positions(self, start: Offsets) -> Positions:
        """Return the positions of the stored offsets. An entity that they do not name begins."""
        known, found = start.by_key, Positions()
        for path in await self._followed.paths(known):
            key = name_key(path)
            positions = await self._positions_in(path, known.get(key))
            found |= {EntityPartition(key, number): position for number, position in positions.items()}
        return found

    async def _positions_in(self, path: str, start: EntityOffsets | None) -> dict[int, Committed]:
        """Return the positions of the stored offsets in an entity, if they belong to it."""
        if start is None or not start.partitions:
            return await self._begin(path)
        browser = await self._query.browser(path)
        if start.incarnation == browser.incarnation and set(start.partitions) == set(browser.partitions):
            return {number: Committed(*offset) for number, offset in start.partitions.items()}
        lost = MessagesLostError(
            f"'{browser.path}' was deleted and created again since the checkpoint was written. What the checkpoint "
            "has not seen of the earlier entity is lost. With failOnDataLoss=false, the query goes on with the new "
            "entity."
        )
        self._query.meet_loss(f"'{browser.path}'", lost)
        reservation = self._reservations.get(name_key(path))
        if reservation is not None and reservation.incarnation != browser.incarnation:
            self._forget(name_key(path))
        return await self._begin(path)

    async def _plans(
        self, asked: Mapping[EntityPartition, tuple[Committed, int, int]]
    ) -> dict[EntityPartition, Planned]:
        options = self._query.options

        async def one(place: EntityPartition, position: Committed, rows: int, size: int) -> Planned:
            reservation, number = await self._reserved(place.entity), place.number
            try:
                return await reservation.plan(number, position, rows, size, timeout=options.timeout)
            except MessagesLostError as lost:
                self._query.meet_loss(f"'{reservation.path}', partition {number}", lost)
            return await reservation.plan(number, position, rows, size, accept_loss=True, timeout=options.timeout)

        await self._reserve_all(dict.fromkeys(place.entity for place in asked))
        found = await asyncio.gather(*(one(place, *limits) for place, limits in asked.items()))
        return dict(zip(asked, found, strict=True))

    async def _report(self, made: Mapping[EntityPartition, Planned], mean: float) -> None:
        """Note how far the query is behind after a batch. ``mean`` is the mean size of a message; 0 if unknown."""
        names = {key: reservation.path for key, reservation in self._reservations.items()}
        lags: dict[EntityPartition, PartitionLag] = {}
        for place, plan in made.items():
            browser = await self._query.browser(place.entity, self._reservations[place.entity].incarnation)
            number = browser.base(place.number) + plan.end
            lags[place] = PartitionLag(number, plan.left, round(plan.left * mean), plan.oldest)
        self._progress = lag_report(lags, names, round(time.time() * 1000))


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
