"""Save the rows that cannot be sent, with the reasons, as Parquet files beside the stream."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyarrow import fs, parquet

__all__ = ["RefusedRows"]


class RefusedRows:
    """The refused rows of one task. A task that runs again replaces its file, so no row is there twice."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder = folder
        self._name = name
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: pa.RecordBatch, rows: Sequence[int], reason: str) -> None:
        """Keep rows of a batch, with the reason why they are refused."""
        taken = batch.take(pa.array(rows, pa.int64()))
        reasons = pa.repeat(pa.scalar(reason, pa.string()), len(rows))
        names = [*batch.schema.names, "refused_because"]
        self._batches.append(pa.RecordBatch.from_arrays([*taken.columns, reasons], names=names))

    def save(self) -> None:
        """Write the file, if a row was refused."""
        if not self._batches:
            return
        where = self._folder if "://" in self._folder else f"file://{self._folder}"
        system, path = fs.FileSystem.from_uri(where)
        system.create_dir(path, recursive=True)
        parquet.write_table(pa.Table.from_batches(self._batches), f"{path}/{self._name}.parquet", filesystem=system)
