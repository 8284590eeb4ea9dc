"""Read the ranges of a task: pages of rows, put together to RecordBatches. It is the same for all kinds of queries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

from sbredis.exceptions import MessagesLostError
from sbredis.spark._batches import BatchMaker
from sbredis.spark._loop import ahead, run
from sbredis.spark._query import Query, ReadTask
from sbredis.spark._schema import columns_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import InputPartition

    from sbredis.bulk import Browser
    from sbredis.engine import Rows
    from sbredis.spark._planning import PartitionRange

__all__ = ["Pages", "read_task"]

Pages = Callable[["Browser", "PartitionRange"], AsyncIterator["Rows"]]
"""Reads the rows of a range, page by page."""

_BATCH_ROWS, _BATCH_BYTES = 10_000, 8 * 1024 * 1024
"""A RecordBatch with this many rows or bytes takes no further page."""


def read_task(query: Query, task: InputPartition, pages: Pages) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a task. A query without messages gets a task that is not one of ours."""
    if not isinstance(task, ReadTask):
        return
    browser = run(query.browser(task.incarnation))
    columns = columns_of(body=query.options.body, properties=query.options.properties)
    maker = BatchMaker(columns, browser.path, task.incarnation)
    if browser.incarnation == task.incarnation:
        for partition, replies in ahead(lambda: _gathered(browser, task.ranges, pages)):
            if browser.incarnation != task.incarnation:  # the client notices with its first call
                break
            yield maker.batch(partition, browser.base(partition), replies)
    if browser.incarnation != task.incarnation:
        lost = MessagesLostError(f"'{browser.path}' was deleted and created again while the query read it.")
        query.meet_loss(f"'{browser.path}'", lost)


async def _gathered(
    browser: Browser, ranges: tuple[PartitionRange, ...], pages: Pages
) -> AsyncIterator[tuple[int, list[Rows]]]:
    """Yield pages of one partition, as many as one RecordBatch takes."""
    for piece in ranges:
        gathered: list[Rows] = []
        rows = size = 0
        async for page in pages(browser, piece):
            gathered.append(page)
            rows += len(page.records)
            size += sum(map(len, page.records))
            if rows >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield piece.partition, gathered
                gathered, rows, size = [], 0, 0
        if gathered:
            yield piece.partition, gathered
