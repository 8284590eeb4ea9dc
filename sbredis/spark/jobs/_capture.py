"""Move the messages of an entity into parquet files, each exactly once."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import Observation
from pyspark.sql import functions as sql

from sbredis.exceptions import SparkSetupError
from sbredis.spark._activating import activate
from sbredis.spark._consume import settle
from sbredis.spark._loop import run
from sbredis.spark._options import parse_options
from sbredis.spark._query import Query
from sbredis.spark.jobs._files import FORMAT, WRITING, with_format, with_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

__all__ = ["Capture", "Captured", "partitioned_by_time"]

MANIFEST = "_manifest"
"""The folder of the manifests. Readers of parquet leave out folders whose names begin with an underscore."""
_SETTINGS = {**WRITING, "spark.sql.maxConcurrentOutputFileWriters": "50"}
"""The rows of a batch are of few hours. So a task writes the files of all of them at once, and sorts nothing. If it
meets more hours, Spark sorts the other rows.
"""
_PLACES = ("entity", "date", "hour", "batch_id")


def partitioned_by_time(messages: DataFrame) -> DataFrame:
    """Return messages with the columns ``date`` and ``hour`` of the time when they were enqueued, in UTC."""
    hours = sql.floor(sql.unix_seconds("enqueued_time") / 3600)
    date = sql.date_add(sql.lit("1970-01-01").cast("date"), sql.floor(hours / 24).cast("int"))
    return messages.withColumns({"date": date, "hour": sql.pmod(hours, sql.lit(24)).cast("int")})


@dataclass(slots=True)
class Captured:
    """The messages and batches that a capture has written."""

    messages: int = 0
    batches: int = 0
    last: int | None = None
    """The number of the last batch."""

    def add(self, batch: int, messages: int) -> None:
        """Count a batch."""
        self.messages, self.batches, self.last = self.messages + messages, self.batches + 1, batch

    def all_committed(self, committed: int | None) -> bool:
        """Return whether Spark has committed all batches that were written, given the number of its last one."""
        return self.last is None or (committed is not None and committed >= self.last)


@dataclass(frozen=True)
class Capture:
    """A stream of the messages of an entity into the folder ``to``.

    The files are in ``entity=…/date=…/hour=…/batch_id=…``. A batch that Spark runs again replaces the files of its
    first run, so every reader of parquet sees each message once. After the files of a batch comes its manifest, in
    ``_manifest/batch_id=…``: the first and the last number of each partition, and how many messages the batch has.

    ``options`` are those of a read with ``mode=consume``. The settings of the session that would change the files do
    not count.
    """

    options: Mapping[str, str]
    to: str
    checkpoint: str
    written: Captured = field(default_factory=Captured, init=False, compare=False)
    """How much this run has written. The manifests are only in the files, because a run may go on for years."""
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False, repr=False, compare=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False, repr=False, compare=False)

    def build(self, spark: SparkSession) -> DataFrame:
        """Return the stream, with the columns that choose the folders."""
        return partitioned_by_time(spark.readStream.format("sbredis").options(**self._given).load())

    @property
    def _given(self) -> dict[str, str]:
        return {**self.options, "mode": "consume"}

    @property
    def _query(self) -> Query:
        return Query(self._given, parse_options(self._given, stream=True, write=False))

    def start(self, spark: SparkSession, *, every: str | None = None) -> StreamingQuery:
        """Start the stream: a batch every ``every`` (``10 seconds``), or everything that is there now."""
        activate(spark)
        partitions = run(self._query.browser(self._query.options.entities.paths[0])).partitions
        writer = self.build(spark).writeStream.option("checkpointLocation", self.checkpoint)
        writer = writer.trigger(availableNow=True) if every is None else writer.trigger(processingTime=every)
        return writer.foreachBatch(lambda batch, number: self.write(batch, number, partitions)).start()

    def write(self, batch: DataFrame, number: int, partitions: Sequence[int]) -> None:
        """Write one batch: its files, and then its manifest."""
        with self._writing:
            if self._ending.is_set():
                raise SparkSetupError("The capture is ending, so the next run writes this batch.")
            with with_settings(batch.sparkSession, _SETTINGS):
                rows = self._write(batch, f"{_query_id(batch)}-{number:010d}", partitions)
            self.written.add(number, rows)

    def _write(self, batch: DataFrame, batch_id: str, partitions: Sequence[int]) -> int:
        """Write the files and the manifest of a batch. Return the number of its messages."""
        seen = Observation()
        rows = with_format(batch).withColumn("batch_id", sql.lit(batch_id)).observe(seen, *_ranges(partitions))
        writing = rows.write.mode("overwrite").option("partitionOverwriteMode", "dynamic").partitionBy(*_PLACES)
        writing.parquet(self.to)
        manifest = _manifest(batch_id, seen.get, partitions)
        line = batch.sparkSession.range(0, 1, 1, 1).select(sql.lit(json.dumps(manifest)).alias("value"))
        line.write.mode("overwrite").format("text").save(f"{self.to}/{MANIFEST}/batch_id={batch_id}")
        return int(manifest["rows"])

    def end(self, query: StreamingQuery) -> None:
        """Stop the stream after the batch that is being written, and remove the messages of this batch."""
        with self._writing:
            self._ending.set()
        with suppress(StreamingQueryException):  # the next batch was begun, and refused
            while not self._all_committed(query) and not query.awaitTermination(1):
                pass
        query.stop()
        self.settle(query)

    def _all_committed(self, query: StreamingQuery) -> bool:
        """Return whether Spark has committed all batches that were written. Its progress comes after the commit."""
        progress = query.lastProgress
        return self.written.all_committed(None if progress is None else progress.batchId)

    def settle(self, query: StreamingQuery) -> None:
        """Remove the messages of the last batch. Spark tells a source so only when it plans another batch."""
        progress = query.lastProgress
        if progress is not None and query.exception() is None:
            settle(self._query, progress.sources[0].endOffset)


def _query_id(batch: DataFrame) -> str:
    """Return the beginning of the id of the query, which a checkpoint keeps and no other checkpoint has."""
    found = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    if not found:
        raise SparkSetupError(
            "Spark does not tell the id of the query, so files of another checkpoint could be overwritten: run the "
            "capture in classic mode, and with PYSPARK_PIN_THREAD=true, which is the default."
        )
    return str(found)[:8]


def _ranges(partitions: Sequence[int]) -> list[Any]:
    """Return aggregates of the first and the last number and the count of messages, for each partition."""
    found: list[Any] = []
    for number in partitions:
        own = sql.when(sql.col("partition") == number, sql.col("sequence_number"))
        found += [
            sql.count(own).alias(f"rows_{number}"),
            sql.min(own).alias(f"first_{number}"),
            sql.max(own).alias(f"last_{number}"),
        ]
    return found


def _manifest(batch_id: str, seen: Mapping[str, Any], partitions: Sequence[int]) -> dict[str, Any]:
    ranges = {
        str(number): {each: seen[f"{each}_{number}"] for each in ("first", "last", "rows")}
        for number in partitions
        if seen.get(f"rows_{number}")
    }
    count = sum(each["rows"] for each in ranges.values())
    return {"format": FORMAT, "batch_id": batch_id, "rows": count, "partitions": ranges}
