"""Save the rows that cannot be sent, with the reasons, as Parquet files beside the stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyarrow import fs, parquet

from sbredis.exceptions import SparkSetupError

__all__ = ["RefusedRows", "prepare_folder"]


def prepare_folder(given: str) -> str:
    """Create the folder for refused rows, and return its path in the form for all tasks. The driver calls this.

    A path without a scheme is one of this file system. A relative path is made absolute here, because executors run in
    other folders.
    """
    folder = given if "://" in given else str(Path(given.removeprefix("file:")).resolve())
    try:
        system, path = _place(folder)
        system.create_dir(path, recursive=True)
    except (OSError, pa.ArrowException) as error:
        why = str(error).partition("\n")[0]
        raise SparkSetupError(
            f"The folder that refusedPath names, for rows that cannot be sent, cannot be made: {why}"
        ) from None
    return folder


def _place(folder: str) -> tuple[fs.FileSystem, str]:
    """Return the file system of a folder, and its path there."""
    return fs.FileSystem.from_uri(folder) if "://" in folder else (fs.LocalFileSystem(), folder)


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
        """Write the file, if a row was refused; otherwise remove the file of an earlier run of the task.

        The file has its name only when it is complete. So a slower run of the same task, which Spark may kill at any
        moment, cannot damage it. Readers leave out files whose names begin with a dot.
        """
        system, path = _place(self._folder)
        file, part = f"{path}/{self._name}.parquet", f"{path}/.{self._name}-{secrets.token_hex(8)}"
        if not self._batches:
            _remove(system, file)
            return
        system.create_dir(path, recursive=True)
        try:
            parquet.write_table(pa.Table.from_batches(self._batches), part, filesystem=system)
            _rename(system, part, file)
        except BaseException:
            with suppress(OSError):
                system.delete_file(part)
            raise


def _rename(system: fs.FileSystem, part: str, file: str) -> None:
    try:
        system.move(part, file)
    except OSError:  # some file systems do not replace a file
        _remove(system, file)
        system.move(part, file)


def _remove(system: fs.FileSystem, file: str) -> None:
    with suppress(FileNotFoundError):
        if system.get_file_info(file).type == fs.FileType.File:
            system.delete_file(file)
