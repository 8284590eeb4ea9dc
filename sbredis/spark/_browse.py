"""Browse entities with Spark: their messages stay there, and other receivers go on.

What a range of numbers contains may shrink until it is read, because receivers settle messages. So a batch that Spark
runs again may have fewer rows. Numbers say where a stream is; they rise, with gaps.

A peek at an entity shows messages that are due, such as scheduled ones, under the numbers that they would get now. If
a send comes first, it takes such a number. So a stream does the due work before it stores a number as its offset.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from sbredis.bulk import LARGEST_NUMBER, Browser, FirstRows
from sbredis.engine import name_key
from sbredis.exceptions import MessagesLostError, SparkSetupError
from sbredis.spark._filters import Bounds, bounds_of
from sbredis.spark._lag import PartitionLag, lag_report
from sbredis.spark._loop import run
from sbredis.spark._offsets import EntityOffsets, Offsets, PartitionOffset
from sbredis.spark._pacing import PollPacer
from sbredis.spark._planning import ONE_TASK, Admission, EntityPartition, PartitionRange, TaskLimits, Waiting, ends_of
from sbredis.spark._query import Followed, Query, ReadTask, read_limit
from sbredis.spark._reading import read_task
from sbredis.spark._sentences import sentence_first
from sbredis.spark._values import EARLIEST, LATEST, ONLY_ENTITY, At

if TYPE_CHECKING:
    import pyarrow as pa

    from sbredis.engine import Rows

__all__ = ["BrowseReader", "BrowseStreamReader", "FilteringReader"]

_log = logging.getLogger("sbredis.spark")

Numbers = dict[EntityPartition, int]
"""A number in each partition of all entities."""


@sentence_first
class BrowseReader(DataSourceReader):
    """Reads the messages of entities once, as they are while the query runs."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Spark calls this once, while it plans the query."""
        return run(self._plan())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Spark calls this on an executor."""
        return read_task(self._query, partition, _pages)

    async def _plan(self) -> list[InputPartition]:
        query, options = self._query, self._query.options
        incarnations: dict[str, str] = {}
        ranges: list[PartitionRange] = []
        for path in await query.paths():
            browser, key = await query.browser(path), name_key(path)
            incarnations[key] = browser.incarnation
            starts = await _starts(browser, options.starting or "earliest", options.starting_time)
            lasts = await _ends(browser, options.ending or "latest", options.ending_time)
            starts, lasts = await self._narrowed(browser, starts, lasts)
            firsts = await _firsts({key: browser}, _keyed(key, starts))
            for place, first in firsts.items():
                if first is not None:
                    ranges.append(PartitionRange(key, place.number, "", first.number - 1, lasts[place.number]))
        return ReadTask.all(incarnations, ranges, query.task_limits(sum(each.size for each in ranges)))

    async def _narrowed(
        self, browser: Browser, starts: dict[int, int], lasts: dict[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        """Return the ranges of an entity that the filters of the query leave."""
        del browser
        return starts, lasts


@sentence_first
class FilteringReader(BrowseReader):
    """Reads only the messages that the filters of the query may leave.

    Spark fails each read of such a reader if its setting for this is off, so an option asks for it.

    Spark keeps the tasks that it gets here for all queries of the DataFrame, and does not ask again for a query without
    filters. Nothing here can notice that, so a warning says it.
    """

    def __init__(self, query: Query) -> None:
        super().__init__(query)
        self._bounds = Bounds()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note what the filters leave, and let Spark apply all of them to the rows. Spark calls this first."""
        self._bounds = bounds_of(filters)
        if self._bounds != Bounds():
            _log.warning(
                "pushFilters=true: other queries of this DataFrame would also miss the rows that this one leaves out, "
                "because Spark keeps its plan. Load the DataFrame again for each query."
            )
        return filters

    async def _narrowed(
        self, browser: Browser, starts: dict[int, int], lasts: dict[int, int]
    ) -> tuple[dict[int, int], dict[int, int]]:
        bounds = self._bounds
        if self._query.options.sub_queue is None:  # numbers of dead letters do not follow their enqueued times
            if bounds.since is not None:
                since = await _at_moment(browser, bounds.since)
                starts = {number: max(after, since[number]) for number, after in starts.items()}
            if bounds.until is not None:
                until = await _at_moment(browser, bounds.until + 1)
                lasts = {number: min(last, until[number]) for number, last in lasts.items()}
        left = {
            number: bounds.narrowed(after, lasts[number], browser.base(number))
            for number, after in starts.items()
            if bounds.includes(number)
        }
        begins = {number: after for number, (after, last) in left.items() if after < last}
        return begins, {number: last for number, (_, last) in left.items()}


@sentence_first
class BrowseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the messages of entities as they are enqueued."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._followed = Followed(query)
        self._pacer = PollPacer(query.options.poll_interval)
        self._targets: Numbers | None = None
        """With the trigger AvailableNow: the last number of each partition that the query reads."""
        self._turn: EntityPartition | None = None
        """The first partition that gets rows of a batch that is too small for all partitions."""
        self._progress: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:
        """Return where the stream begins. Spark calls this more than once, and again if the first batch is repeated."""
        return run(self._initial()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that the options set."""
        return read_limit(self._query.options)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the last messages, which end the query. Spark calls this before everything else."""
        self._targets = run(self._last())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. Spark calls this at every trigger, 90 times a second if nothing happens."""
        limits = Admission.of(
            self._query.options,
            limited=not isinstance(limit, ReadAllAvailable),
            patient=self._targets is None,
        )
        began = self._query.offsets_from(start)
        ended = run(self._next(began, limits))
        return start if ended is None else ended.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the stream is behind, which Spark shows in the progress of the query."""
        return self._progress

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of the batch between two offsets."""
        begins, other = self._query.offsets_from(start).by_key, self._query.offsets_from(end)
        ranges: list[PartitionRange] = []
        for key, ended in other.by_key.items():
            begun = begins.get(key)
            afters = ended.began
            if afters is None and begun is not None:
                afters = {number: offset.number for number, offset in begun.partitions.items()}
            ranges += [
                PartitionRange(key, number, offset.birth, (afters or {}).get(number, 0), offset.number)
                for number, offset in ended.partitions.items()
            ]
        return ReadTask.all({key: each.incarnation for key, each in other.by_key.items()}, ranges, other.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Spark calls this on an executor, on another copy of this object."""
        return read_task(self._query, partition, _pages)

    async def _initial(self) -> Offsets:
        options = self._query.options
        found: list[EntityOffsets] = []
        for path in await self._followed.paths():
            browser = await self._query.browser(path)
            numbers = await _starts(browser, options.starting or "earliest", options.starting_time)
            found.append(_entity_offsets(browser, numbers, numbers))
        return self._offsets(found)

    async def _last(self) -> Numbers:
        last: Numbers = {}
        for path in await self._followed.paths():
            browser = await self._query.browser(path)
            last |= _keyed(name_key(path), await _lasting_numbers(browser, dict.fromkeys(browser.partitions, 0)))
        return last

    async def _next(self, start: Offsets, limits: Admission) -> Offsets | None:
        """Return the end of the next batch; ``None`` if there is nothing new."""
        await self._pacer.wait()
        known = start.by_key
        browsers: dict[str, Browser] = {}
        first: Numbers = {}
        last: Numbers = {}
        begins: set[str] = set()
        for path in await self._followed.paths(known):
            browser, key = await self._query.browser(path), name_key(path)
            browsers[key] = browser
            numbers, lasting, is_new = await self._looked(browser, known.get(key))
            first |= _keyed(key, numbers)
            last |= _keyed(key, lasting)
            begins |= {key} if is_new else set()
        ends = last
        if self._targets is not None:
            targets = self._targets
            ends = {place: max(min(last[place], targets.get(place, 0)), first[place]) for place in last}
        waiting = {place: after for place, after in first.items() if ends[place] > after}
        rows: dict[EntityPartition, FirstRows | None] = {}
        if begins or limits != Admission():
            rows = await _firsts(browsers, waiting)
            ends = self._limited(limits, first, ends, rows)
        await self._report(browsers, ends, last)
        if ends == first:
            self._pacer.polled(idle=self._targets is None)
            return None
        self._pacer.polled(idle=False)
        after = {place: found.number - 1 if (found := rows.get(place)) else number for place, number in first.items()}
        return self._offsets(
            [
                _entity_offsets(browser, _of(key, ends), _of(key, after) if key in begins else None)
                for key, browser in browsers.items()
            ],
            self._query.task_limits(sum(ends[place] - number for place, number in after.items())),
        )

    async def _looked(
        self, browser: Browser, start: EntityOffsets | None
    ) -> tuple[dict[int, int], dict[int, int], bool]:
        """Return the numbers after which an entity is read, its last numbers, and whether its reading begins."""
        if start is None:  # a pattern has found it
            first = dict.fromkeys(browser.partitions, 0)
            return first, await _lasting_numbers(browser, first), True
        first = {number: offset.number for number, offset in start.partitions.items()}
        # The client notices with its first call that an entity was made again.
        last = await _lasting_numbers(browser, first)
        if start.incarnation == browser.incarnation:
            return first, last, start.began == first
        lost = MessagesLostError(
            f"'{browser.path}' was deleted and created again since the last batch, so the stream cannot go on "
            "where it was. With failOnDataLoss=false, it goes on with the first message of the new entity."
        )
        self._query.meet_loss(f"'{browser.path}'", lost)
        first = dict.fromkeys(browser.partitions, 0)
        return first, await _lasting_numbers(browser, first), True

    def _limited(
        self, limits: Admission, first: Numbers, last: Numbers, rows: Mapping[EntityPartition, FirstRows | None]
    ) -> Numbers:
        """Return ends so that a batch is within its limits. A gap in the numbers costs no rows."""
        waiting = {
            place: Waiting(found.number, last[place], found.mean, found.enqueued)
            for place, found in rows.items()
            if found is not None and found.number <= last[place]
        }
        given = ends_of(limits, waiting, self._turn, round(time.time() * 1000))
        if given is None:
            return first if waiting else last
        skipped = [place for place in waiting if place not in given]
        if skipped:
            self._turn = next((place for place in skipped if place > max(given)), min(skipped))
        return {place: given.get(place, first[place] if place in waiting else last[place]) for place in first}

    async def _report(self, browsers: Mapping[str, Browser], ends: Numbers, last: Numbers) -> None:
        """Note how far the stream is behind after a batch."""
        rest = await _firsts(browsers, {place: end for place, end in ends.items() if end < last[place]})
        lags: dict[EntityPartition, PartitionLag] = {}
        for place, end in ends.items():
            found = rest.get(place)
            left = 0 if found is None else last[place] - found.number + 1
            number = browsers[place.entity].base(place.number) + end
            lags[place] = (
                PartitionLag(number, 0, 0, 0)
                if found is None
                else PartitionLag(number, left, round(left * found.mean), found.enqueued)
            )
        names = {key: browser.path for key, browser in browsers.items()}
        self._progress = lag_report(lags, names, round(time.time() * 1000))

    def _offsets(self, entities: list[EntityOffsets], tasks: TaskLimits = ONE_TASK) -> Offsets:
        return Offsets(tuple(entities), tasks, sub_queue=self._query.options.sub_queue or "")


def _pages(browser: Browser, piece: PartitionRange) -> AsyncIterator[Rows]:
    return browser.pages(piece.partition, piece.after, piece.upto)


def _keyed(key: str, numbers: Mapping[int, int]) -> Numbers:
    return {EntityPartition(key, number): value for number, value in numbers.items()}


def _of(key: str, numbers: Numbers) -> dict[int, int]:
    """Return the numbers of the partitions of one entity."""
    return {place.number: number for place, number in numbers.items() if place.entity == key}


def _entity_offsets(
    browser: Browser, numbers: Mapping[int, int], began: Mapping[int, int] | None = None
) -> EntityOffsets:
    partitions = {number: PartitionOffset("", 0, last) for number, last in numbers.items()}
    return EntityOffsets(browser.path, browser.incarnation, partitions, began)


async def _firsts(browsers: Mapping[str, Browser], afters: Numbers) -> dict[EntityPartition, FirstRows | None]:
    """Return what the first messages after the numbers are like."""
    found = await asyncio.gather(
        *(browsers[place.entity].first_rows(place.number, after) for place, after in afters.items())
    )
    return dict(zip(afters, found, strict=True))


async def _starts(browser: Browser, at: At, moment: int | None) -> dict[int, int]:
    """Return the number of each partition after which a read begins."""
    if moment is not None:
        return await _at_moment(browser, moment)
    if at == "earliest":
        return dict.fromkeys(browser.partitions, 0)
    if at == "latest":
        return await _latest(browser)
    return await _at_numbers(browser, "startingOffsets", at, EARLIEST)


async def _ends(browser: Browser, at: At, moment: int | None) -> dict[int, int]:
    """Return the last number of each partition that is read."""
    if moment is not None:
        return await _at_moment(browser, moment)
    latest = await _latest(browser)
    if isinstance(at, str):
        return latest
    ends = await _at_numbers(browser, "endingOffsets", at, LATEST)
    return {number: min(end, latest[number]) for number, end in ends.items()}


async def _at_moment(browser: Browser, moment: int) -> dict[int, int]:
    await asyncio.gather(*(browser.do_due(number) for number in browser.partitions))
    found = await asyncio.gather(*(browser.number_before(number, moment) for number in browser.partitions))
    return dict(zip(browser.partitions, found, strict=True))


async def _at_numbers(browser: Browser, option: str, at: Mapping[str, Mapping[int, int]], usual: int) -> dict[int, int]:
    """Return the numbers before the sequence numbers that an option gives. ``usual`` is for partitions without one."""
    key = name_key(browser.path)
    nothing: Mapping[int, int] = {}
    given = next((each for name, each in at.items() if name == ONLY_ENTITY or name_key(name) == key), nothing)
    if not set(given) <= set(browser.partitions):
        raise SparkSetupError(
            f"{option} names the partitions {sorted(given)}, but '{browser.path}' has {sorted(browser.partitions)}."
        )
    latest = await _latest(browser) if LATEST in given.values() or usual == LATEST else {}
    found: dict[int, int] = {}
    for number in browser.partitions:
        wanted, base = given.get(number, usual), browser.base(number)
        if wanted not in {EARLIEST, LATEST} and not 0 <= wanted - base <= LARGEST_NUMBER:
            raise SparkSetupError(
                f"{option} gives {wanted} for the partition {number}, but the sequence numbers of this partition of "
                f"'{browser.path}' begin with {base + 1}: the number is that of the column sequence_number."
            )
        found[number] = 0 if wanted == EARLIEST else latest[number] if wanted == LATEST else max(wanted - base - 1, 0)
    return found


async def _latest(browser: Browser) -> dict[int, int]:
    return await _lasting_numbers(browser, dict.fromkeys(browser.partitions, 0))


async def _lasting_numbers(browser: Browser, after: Mapping[int, int]) -> dict[int, int]:
    """Return the last numbers up to which a stream may read: later messages have higher numbers."""

    async def one(number: int, low: int) -> int:
        last = await browser.last_number(number, low)
        if last > low:
            await browser.do_due(number)
        return last

    found = await asyncio.gather(*(one(number, low) for number, low in after.items()))
    return dict(zip(after, found, strict=True))
