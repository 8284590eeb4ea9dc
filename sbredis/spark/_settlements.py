"""Read the settlements of an audited entity with Spark: what has happened to its messages."""

from __future__ import annotations

import logging
from array import array
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from sbredis.bulk import read_settled
from sbredis.engine import SettlementColumns, SettlementEvent, SettlementsRead, name_key
from sbredis.exceptions import SparkSetupError
from sbredis.registry import split_path
from sbredis.spark._loop import ahead, run
from sbredis.spark._planning import PartitionRange
from sbredis.spark._query import Query, ReadTask
from sbredis.spark._schema import SETTLEMENT_COLUMNS, arrow_schema
from sbredis.spark._sentences import sentence_first

if TYPE_CHECKING:
    import pyarrow as pa

    from sbredis.bulk import Browser

__all__ = ["SettlementsReader"]

_log = logging.getLogger("sbredis.spark")


@sentence_first
class SettlementsReader(DataSourceReader):
    """Reads the settlements that an audited entity remembers."""

    def __init__(self, query: Query) -> None:
        self._query = query

    def partitions(self) -> list[InputPartition]:
        """Return the tasks. Spark calls this once, while it plans the query."""
        return run(self._plan())

    async def _plan(self) -> list[InputPartition]:
        incarnations: dict[str, str] = {}
        ranges: list[PartitionRange] = []
        for path in await self._query.paths():
            browser, key = await self._audited(path), name_key(path)
            incarnations[key] = browser.incarnation
            ranges += [PartitionRange(key, number, "", 0, 1) for number in browser.partitions]
        return ReadTask.all(incarnations, ranges, self._query.task_limits())

    async def _audited(self, path: str) -> Browser:
        """Return a browser of an entity. Refuse one that is not audited, unless it remembers earlier settlements."""
        browser = await self._query.browser(path)
        if browser.is_audited:
            return browser
        client, timeout = await self._query.client(), self._query.options.timeout
        for number in browser.partitions:
            async for _ in read_settled(client, path, number, timeout=timeout):
                _log.warning("'%s' is not audited any more: what it still remembers is read", browser.path)
                return browser
        raise SparkSetupError(
            f"'{browser.path}' is not audited, so it has no settlements to read: set audit=True "
            f"(sbredis {_kind_and_name(browser.path)} --audit). Then it remembers what happens to its messages."
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the partitions of a task. Spark calls this on an executor."""
        import pyarrow as pa

        assert isinstance(partition, ReadTask)
        query = self._query

        async def pages() -> AsyncIterator[tuple[Browser, int, SettlementsRead]]:
            client = await query.client()
            for piece in partition.ranges:
                browser = await query.browser(piece.entity, partition.incarnations[piece.entity])
                async for page in read_settled(client, piece.entity, piece.partition, timeout=query.options.timeout):
                    yield browser, piece.partition, page

        for browser, number, page in ahead(pages):
            about = (browser.path, browser.incarnation, number)
            if page.lost:
                yield _batch(about, {"event": pa.array(["lost"]), "lost": pa.array([page.lost])}, 1)
            columns = _columns(page.columns, browser.base(number))
            yield from _pieces(_batch(about, columns, len(page.columns)))


def _kind_and_name(path: str) -> str:
    topic, subscription = split_path(path)
    return f"queue update {topic}" if subscription is None else f"subscription update {topic} {subscription}"


def _columns(settled: SettlementColumns, base: int) -> dict[str, pa.Array]:
    """Return the columns of settlements, without a Python object for each of them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = len(settled)

    def numbers(of: array[int]) -> pa.Array:
        return pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(of)])

    def words(letters: bytearray, meanings: Mapping[str, str | None]) -> pa.Array:
        places = letters.translate(bytes.maketrans("".join(meanings).encode(), bytes(range(len(meanings)))))
        found = pa.Array.from_buffers(pa.uint8(), rows, [None, pa.py_buffer(places)])
        taken: pa.Array = pc.take(pa.array(list(meanings.values()), pa.string()), found)
        return taken

    enqueued = numbers(settled.enqueued)
    return {
        "sequence_number": pc.add(numbers(settled.numbers), pa.scalar(base, pa.int64())),
        "sub_queue": words(settled.sides, _SUB_QUEUES),
        "event": words(settled.events, _EVENTS),
        "event_time": numbers(settled.times).cast(pa.timestamp("ms", tz="UTC")),
        "enqueued_time": pc.if_else(pc.equal(enqueued, 0), None, enqueued).cast(pa.timestamp("ms", tz="UTC")),
    }


def _batch(about: tuple[str, str, int], columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    """Return rows about one partition of an entity. A column that is not given is null."""
    import pyarrow as pa

    schema = arrow_schema(SETTLEMENT_COLUMNS)
    same = dict(zip(("entity", "incarnation", "partition"), about, strict=True))
    arrays = [
        pa.repeat(pa.scalar(same[column.name], column.type), rows)
        if column.name in same
        else columns[column.name].cast(column.type)
        if column.name in columns
        else pa.nulls(rows, column.type)
        for column in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces: a page of settlements may have a million of them."""
    for at in range(0, batch.num_rows, _PIECE):
        yield batch.slice(at, _PIECE)


_PIECE = 50_000
_EVENTS = {event.value: event.name.lower() for event in SettlementEvent}
_SUB_QUEUES = {"-": None, "d": "deadLetter", "t": "transferDeadLetter"}
