"""Browse an entity with Spark: its messages stay there, and other receivers go on.

What a range of numbers contains may shrink until it is read, because receivers settle messages. So a batch that Spark
runs again may have fewer rows. Numbers say where a stream is; they rise, with gaps.

A peek at an entity shows messages that are due, such as scheduled ones, under the numbers that they would get now. If
a send comes first, it takes such a number. So a stream does the due work before it stores a number as its offset.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sbredis.bulk import Browser
from sbredis.exceptions import MessagesLostError, SparkSetupError
from sbredis.spark._loop import run
from sbredis.spark._offsets import Offsets, PartitionOffset
from sbredis.spark._pacing import PollPacer
from sbredis.spark._planning import PartitionRange, spread
from sbredis.spark._query import Query, ReadTask
from sbredis.spark._reading import read_task

if TYPE_CHECKING:
    import pyarrow as pa

    from sbredis.engine import Rows
    from sbredis.spark._values import At

__all__ = ["BrowseReader", "BrowseStreamReader"]


class BrowseReader(DataSourceReader):
    """Reads the messages of an entity once, as they are while the query runs."""

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
        browser = await query.browser()
        starts = await _numbers(browser, options.starting or "earliest", options.starting_time)
        ends = await _numbers(browser, options.ending or "latest", options.ending_time)
        ranges = [PartitionRange(number, "", after, ends[number]) for number, after in starts.items()]
        return ReadTask.all(browser.incarnation, ranges, query.task_limits)


class BrowseStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the messages of an entity as they are enqueued."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._pacer = PollPacer(query.options.poll_interval)
        self._targets: dict[int, int] | None = None
        """With the trigger AvailableNow: the last number of each partition that the query reads."""
        self._turn = 0
        """The first partition that gets rows of a batch that is too small for all partitions."""

    def initialOffset(self) -> dict[str, Any]:
        """Return where the stream begins. Spark calls this more than once, and again if the first batch is repeated."""
        return run(self._initial()).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch that the options set."""
        most = self._query.options.most_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Note the last messages, which end the query. Spark calls this before everything else."""
        self._targets = run(self._last())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the end of the next batch. Spark calls this at every trigger, 90 times a second if nothing happens."""
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        began = self._query.offsets_from(start)
        ended = run(self._next(began, most))
        return start if ended is None else ended.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return the last messages in the entity, which Spark shows in the progress of the query."""
        return None if self._pacer.known is None else self._pacer.known.to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Return the tasks of the batch between two offsets."""
        one, other = self._query.offsets_from(start), self._query.offsets_from(end)
        afters = (
            {number: offset.number for number, offset in one.partitions.items()} if other.began is None else other.began
        )
        ranges = [
            PartitionRange(number, offset.birth, afters.get(number, 0), offset.number)
            for number, offset in other.partitions.items()
        ]
        return ReadTask.all(other.incarnation, ranges, other.tasks)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of a task. Spark calls this on an executor, on another copy of this object."""
        return read_task(self._query, partition, _pages)

    async def _browser(self) -> Browser:
        return await self._query.browser()

    async def _initial(self) -> Offsets:
        browser, options = await self._browser(), self._query.options
        numbers = await _numbers(browser, options.starting or "earliest", options.starting_time)
        return self._offsets(browser, numbers, numbers)

    async def _last(self) -> dict[int, int]:
        return await _numbers(await self._browser(), "latest", None)

    async def _next(self, start: Offsets, most: int | None) -> Offsets | None:
        """Return the end of the next batch; ``None`` if there is nothing new."""
        await self._pacer.wait()
        browser = await self._browser()
        first = {number: offset.number for number, offset in start.partitions.items()}
        began = start.began if start.began == first else None
        # The client notices with its first call that an entity was made again.
        last = await _lasting_numbers(browser, first)
        if start.incarnation != browser.incarnation:
            lost = MessagesLostError(
                f"'{browser.path}' was deleted and created again since the last batch, so the stream cannot go on "
                "where it was. With failOnDataLoss=false, it goes on with the first message of the new entity."
            )
            self._query.meet_loss(f"'{browser.path}'", lost)
            first = dict.fromkeys(browser.partitions, 0)
            began = first
            last = await _lasting_numbers(browser, first)
        self._pacer.known = self._offsets(browser, last)
        ends = last
        if self._targets is not None:
            ends = {number: max(min(last[number], self._targets.get(number, 0)), first[number]) for number in last}
        if most is not None:
            ends = await self._limited(browser, first, ends, most)
        if ends == first:
            self._pacer.polled(idle=self._targets is None)
            return None
        self._pacer.polled(idle=False)
        return self._offsets(browser, ends, began, self._query.task_limits)

    def _offsets(
        self,
        browser: Browser,
        numbers: Mapping[int, int],
        began: Mapping[int, int] | None = None,
        tasks: tuple[int, int] = (1, 1),
    ) -> Offsets:
        partitions = {number: PartitionOffset("", 0, last) for number, last in numbers.items()}
        sub_queue = self._query.options.sub_queue or ""
        return Offsets(browser.path, browser.incarnation, partitions, began, tasks, sub_queue=sub_queue)

    async def _limited(
        self, browser: Browser, first: Mapping[int, int], last: Mapping[int, int], most: int
    ) -> dict[int, int]:
        """Return ends so that a batch has at most ``most`` rows. A gap in the numbers costs no rows.

        If there are more partitions than rows, the partitions take turns.
        """
        waiting = [number for number in first if last[number] > first[number]]
        if not waiting:
            return dict(last)
        waiting.sort(key=lambda number: (number < self._turn, number))
        counts = spread(most, waiting)
        if most < len(waiting):
            self._turn = waiting[most]
        begins = await asyncio.gather(*(browser.first_number(number, first[number]) for number in waiting))
        ends = dict(last)
        for number, begin in zip(waiting, begins, strict=True):
            if counts[number] and begin is not None:
                ends[number] = min(last[number], begin + counts[number] - 1)
            elif not counts[number]:
                ends[number] = first[number]
        return ends


def _pages(browser: Browser, piece: PartitionRange) -> AsyncIterator[Rows]:
    return browser.pages(piece.partition, piece.after, piece.upto)


async def _numbers(browser: Browser, at: At, moment: int | None) -> dict[int, int]:
    """Return the number of each partition after which something begins or ends."""
    partitions = browser.partitions
    if moment is not None:
        await _do_due(browser)
        found = await asyncio.gather(*(browser.number_before(number, moment) for number in partitions))
        return dict(zip(partitions, found, strict=True))
    if at == "earliest":
        return dict.fromkeys(partitions, 0)
    if at == "latest":
        return await _lasting_numbers(browser, dict.fromkeys(partitions, 0))
    if set(at) != set(partitions):
        raise SparkSetupError(
            f"The offsets name the partitions {sorted(at)}, but '{browser.path}' has {sorted(partitions)}."
        )
    return dict(at)


async def _do_due(browser: Browser) -> None:
    await asyncio.gather(*(browser.do_due(number) for number in browser.partitions))


async def _lasting_numbers(browser: Browser, after: Mapping[int, int]) -> dict[int, int]:
    """Return the last numbers up to which a stream may read: later messages have higher numbers."""

    async def one(number: int, low: int) -> int:
        last = await browser.last_number(number, low)
        if last > low:
            await browser.do_due(number)
        return last

    found = await asyncio.gather(*(one(number, low) for number, low in after.items()))
    return dict(zip(after, found, strict=True))
