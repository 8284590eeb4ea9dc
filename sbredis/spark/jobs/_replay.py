"""Send rows of a DataFrame as messages: captured ones again, or new ones in bulk."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as sql

from sbredis._quoting import quoted
from sbredis.bulk import WriterKey, noted_tasks
from sbredis.exceptions import SparkSetupError
from sbredis.spark._activating import activate
from sbredis.spark._loop import client_of, run
from sbredis.spark._options import nearest, parse_options
from sbredis.spark._schema import READ_COLUMNS, WRITE_COLUMNS
from sbredis.spark._secrets import server_of
from sbredis.spark.jobs._files import FORMAT_COLUMN, explained

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

__all__ = ["Replay", "replayable"]

_ORDER = ("entity", "incarnation", "partition", "sequence_number")
"""The columns that put captured rows in an order, those of them that there are; after them come all that are sent."""
_SENT = {column.name for column in WRITE_COLUMNS} - {"entity"}
_LEFT_OUT = {column.name for column in READ_COLUMNS} - _SENT | {"date", "hour", "batch_id", FORMAT_COLUMN}
"""Columns that only a read or a capture has. An option says where the rows go."""


def replayable(rows: DataFrame, *, tasks: int, where: str | None = None, drop: Collection[str] = ()) -> DataFrame:
    """Return the columns that can be sent, in the same ``tasks`` and the same order each time.

    The sink recognises rows that it has stored by their place, so a repeated run must have them in the same places,
    whatever files and cores there are then. Messages of a session or with a key keep the order of their numbers.

    Columns that only a read or a capture has are left out, and so are those to ``drop``. Raises
    :class:`~sbredis.exceptions.SparkSetupError` for another column that is no part of a message.
    """
    with explained(f"The condition {quoted(where or '')} is wrong"):
        chosen = (rows if where is None else rows.where(where)).drop(*drop)
    unknown = [name for name in chosen.columns if name not in _SENT | _LEFT_OUT]
    if unknown:
        raise SparkSetupError(
            f"A message has no part for the column {quoted(unknown[0])}: {nearest(unknown[0], sorted(_SENT))} "
            "Drop the column, or put it into application_properties."
        )
    sent = [name for name in chosen.columns if name in _SENT]
    order = [sql.col(name) for name in _ORDER if name in chosen.columns]
    placed = chosen.repartition(tasks, _spread_by(chosen)).sortWithinPartitions(*order, *map(_sortable, sorted(sent)))
    return placed.select(*sent)


def _sortable(name: str) -> Column:
    """Return what sorts rows by a column. Spark does not compare maps, but their entries."""
    found: Column = sql.map_entries(name) if name.endswith("_properties") else sql.col(name)
    return found


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
    not stored again. It must be another one for other rows. The number of ``tasks`` must be the same in each run; a run
    with another number is refused.
    """

    options: Mapping[str, str]
    write_id: str
    tasks: int = 8
    rate: float | None = None
    """The most messages a second, of all tasks together; ``None`` for no limit."""

    @classmethod
    def named(cls, options: Mapping[str, str], *parts: str, tasks: int = 8, rate: float | None = None) -> Replay:
        """Return a replay whose name is made of what it sends and where to."""
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        return cls(options, f"replay-{digest[:24]}", tasks, rate)

    def build(self, rows: DataFrame, where: str | None = None, drop: Collection[str] = ()) -> DataFrame:
        """Return the rows as they are sent."""
        ready = replayable(rows, tasks=self.tasks, where=where, drop=drop)
        return ready if self.rate is None else ready.mapInArrow(_slowed(self.rate / self.tasks), ready.schema)

    def run(self, rows: DataFrame, where: str | None = None, drop: Collection[str] = ()) -> None:
        """Send the rows, and wait until all are stored."""
        ready = self.build(rows, where, drop)
        self.check()
        self.send(ready)

    def send(self, ready: DataFrame) -> None:
        """Send rows that :meth:`build` has returned, and wait until all are stored. Call :meth:`check` before."""
        activate(ready.sparkSession)
        writing = ready.write.format("sbredis").mode("append").options(**self.options)
        writing.option("writeId", self.write_id).option("tasks", self.tasks).save()

    def check(self) -> None:
        """Raise :class:`~sbredis.exceptions.SparkSetupError` if an earlier run had another number of tasks.

        A write id that cannot be used is refused too.
        """
        try:
            WriterKey(self.write_id, 0, 0, "batch")
        except ValueError as error:
            raise SparkSetupError(f"The write id is wrong: {error}.") from None
        noted = run(self._noted_tasks())
        if noted not in {None, self.tasks}:
            raise SparkSetupError(
                f"An earlier run has sent rows under the write id {quoted(self.write_id)} with {noted} tasks, and this "
                f"one has {self.tasks}, so rows would be sent twice. Run it with {noted} tasks, or under another write "
                "id to send all rows again."
            )

    async def _noted_tasks(self) -> int | None:
        """Return the number of tasks of an earlier run, if there was one."""
        given = {**self.options, "writeId": self.write_id, "tasks": str(self.tasks)}
        entity = parse_options(given, stream=False, write=True).entity
        if entity is None:  # the sink refuses a write without one
            return None
        return await noted_tasks(await client_of(server_of(self.options)), entity, self.write_id)


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
