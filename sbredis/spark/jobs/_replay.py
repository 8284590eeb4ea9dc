"""Send rows of a DataFrame as messages: captured ones again, or new ones in bulk."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from sbredis.spark._schema import WRITE_COLUMNS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["Replay", "replayable"]

_ORDER = ("entity", "incarnation", "partition", "sequence_number", "message_id", "session_id", "partition_key")
"""The columns that put rows in an order, those of them that there are; after them comes the body."""
_LEFT_OUT = {"entity", "scheduled_enqueue_time"}


def replayable(rows: DataFrame, *, tasks: int, where: str | None = None) -> DataFrame:
    """Return the columns that can be sent, in the same ``tasks`` and the same order each time.

    The sink recognises rows that it has stored by their place, so a repeated run must have them in the same places,
    whatever files and cores there are then. Messages of a session or with a key keep the order of their numbers.
    """
    chosen = rows if where is None else rows.where(where)
    order = [name for name in _ORDER if name in chosen.columns]
    placed = chosen.repartition(tasks, _spread_by(chosen)).sortWithinPartitions(*order, "body")
    sendable = {column.name for column in WRITE_COLUMNS} - _LEFT_OUT
    return placed.select(*(name for name in rows.columns if name in sendable))


def _spread_by(rows: DataFrame) -> Column:
    """Return what decides the task of a row: its session or key if it has one, so that their rows stay in order."""
    there = [sql.col(name) for name in ("session_id", "partition_key") if name in rows.columns]
    own = sql.col("sequence_number").cast("string") if "sequence_number" in rows.columns else sql.sha2("body", 256)
    found: Column = sql.coalesce(*there, own)
    return found


@dataclass(frozen=True)
class Replay:
    """Rows that are sent to an entity, each once, however often the replay is run.

    ``options`` are those of a write. ``write_id`` names the replay: rows that a run with the same name has stored are
    not stored again. It must be another one for other rows.
    """

    options: Mapping[str, str]
    write_id: str
    tasks: int = 8
    rate: float | None = None
    """The most messages a second, of all tasks together; ``None`` for no limit."""

    @classmethod
    def named(cls, options: Mapping[str, str], *parts: str, tasks: int = 8, rate: float | None = None) -> Replay:
        """Return a replay whose name is made of what it sends and where to, and of the number of its tasks."""
        digest = hashlib.sha256("\0".join((*parts, str(tasks))).encode()).hexdigest()
        return cls(options, f"replay-{digest[:24]}", tasks, rate)

    def build(self, rows: DataFrame, where: str | None = None) -> DataFrame:
        """Return the rows as they are sent."""
        ready = replayable(rows, tasks=self.tasks, where=where)
        return ready if self.rate is None else ready.mapInArrow(_slowed(self.rate / self.tasks), ready.schema)

    def run(self, rows: DataFrame, where: str | None = None) -> None:
        """Send the rows, and wait until all are stored."""
        writing = self.build(rows, where).write.format("sbredis").mode("append").options(**self.options)
        writing.option("writeId", self.write_id).save()


def _slowed(rate: float) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function that passes on rows no faster than ``rate`` a second."""
    piece = max(1, int(rate / 4))

    def slow(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        began, passed = time.monotonic(), 0
        for batch in batches:
            for at in range(0, batch.num_rows, piece):
                time.sleep(max(0.0, began + passed / rate - time.monotonic()))
                part = batch.slice(at, piece)
                passed += part.num_rows
                yield part

    return slow
