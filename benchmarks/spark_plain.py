"""What the benchmark of Spark is compared with: redis-py and pyarrow in one process, on one stream of the server.

It does the same work as users would write it: calls of 1,000 messages, and a RecordBatch for each 10,000 rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet
from redis import Redis

__all__ = ["Plain"]

_CALL, _BATCH = 1000, 10_000


class Plain:
    """A stream of messages, each with an id and a body."""

    def __init__(self, url: str) -> None:
        self._client: Any = Redis.from_url(url)

    def write(self, stream: str, files: Path) -> None:
        """Read parquet files, and add each row to the stream."""
        for batch in parquet.read_table(files).to_batches(_CALL):
            adding = self._client.pipeline(transaction=False)
            for key, body in zip(batch.column("message_id").to_pylist(), batch.column("body").to_pylist(), strict=True):
                adding.xadd(stream, {"message_id": key, "body": body})
            adding.execute()

    def read(self, stream: str) -> int:
        """Read the stream into RecordBatches. Return the number of rows."""
        return sum(batch.num_rows for batch in self._batches(stream))

    def read_to_parquet(self, stream: str, file: Path) -> None:
        """Read the stream into a parquet file."""
        writer: parquet.ParquetWriter | None = None
        for batch in self._batches(stream):
            writer = writer or parquet.ParquetWriter(file, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()

    def consume(self, stream: str, rows: int) -> None:
        """Take all messages out of the stream in batches, and delete each batch when it is a RecordBatch."""
        client = self._client
        client.xgroup_create(stream, "bench", "0")
        while True:
            taken: list[Any] = []
            while len(taken) < rows:
                found = client.xreadgroup("bench", "one", {stream: ">"}, count=min(_CALL, rows - len(taken)))
                if not found:
                    break
                taken += found[0][1]
            if not taken:
                break
            for at in range(0, len(taken), _BATCH):
                _batch(taken[at : at + _BATCH])
            names = [name for name, _ in taken]
            for at in range(0, len(names), _CALL):
                ending = client.pipeline(transaction=False)
                ending.xack(stream, "bench", *names[at : at + _CALL])
                ending.xdel(stream, *names[at : at + _CALL])
                ending.execute()

    def copy(self, stream: str, other: str) -> None:
        """Copy a stream, and forget the groups of the copy."""
        self._client.copy(stream, other, replace=True)

    def delete(self, *streams: str) -> None:
        """Delete streams."""
        self._client.delete(*streams)

    def _batches(self, stream: str) -> Iterator[pa.RecordBatch]:
        after, gathered = "-", list[Any]()
        while found := self._client.xrange(stream, after, count=_CALL):
            after = f"({found[-1][0].decode()}"
            gathered += found
            if len(gathered) >= _BATCH:
                yield _batch(gathered)
                gathered = []
        if gathered:
            yield _batch(gathered)


def _batch(entries: Iterable[tuple[bytes, dict[bytes, bytes]]]) -> pa.RecordBatch:
    names, fields = zip(*entries, strict=True)
    columns = {
        "id": pa.array(names, pa.string()),
        "message_id": pa.array([each[b"message_id"] for each in fields], pa.string()),
        "body": pa.array([each[b"body"] for each in fields], pa.binary()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
