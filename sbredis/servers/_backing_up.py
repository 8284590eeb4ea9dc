"""Copying the data of a server while it runs.

A server only appends to its files, or replaces them by new ones: when it rewrites its append-only file, it writes a
manifest that names the new files, and then deletes the old ones. So the files that a manifest names are consistent if
they could all be opened while the manifest stayed the same, and an open file stays readable after it was deleted. No
setting of the server is changed, so nothing is left changed if the copying is interrupted.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError, ServiceBusConnectionError
from sbredis.servers._append_only import FileReading, read_file
from sbredis.servers._ask import ask
from sbredis.servers._data_files import MANIFEST, DataFiles, content_of, find_data, named_data
from sbredis.servers._folder import DataFolder
from sbredis.servers._storing import copy_open, require_room, sync, write_file

__all__ = ["Backup", "back_up", "cut_unfinished"]

_WRITING = 30.0  # seconds in which a server must write what it has acknowledged
_TRIES = 100  # a server may replace its files while they are opened, but not a hundred times


@dataclass(frozen=True, slots=True)
class Backup:
    """What :func:`back_up` has copied."""

    path: Path
    size: int
    """The number of bytes."""


def back_up(folder: str | os.PathLike[str], backup: str | os.PathLike[str]) -> Backup:
    """Copy the data of a server into a new folder, which :func:`~sbredis.servers.restoring` reads.

    The server may run and be used meanwhile. The backup has everything that an embedded server acknowledged before this
    call. ``folder`` may also be that of another server on this machine. On a slow disk and with ``appendfsync
    everysec``, such a server may not have written yet what it acknowledged in the last two seconds; then the backup
    does not have it. If this call is interrupted, there is no backup.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the folder has no append-only file, if the file is
    damaged, or if ``backup`` exists and is not an empty folder; and
    :class:`~sbredis.exceptions.ServiceBusServerBusyError` if the disk has no room.
    """
    source, target = Path(os.path.realpath(folder)), Path(os.path.realpath(backup))
    named_data(source)
    if not target.parent.is_dir():
        raise ServerUnsuitableError(f"The folder {target.parent} does not exist.")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise ServerUnsuitableError(f"{target} exists already. A backup needs a new folder.")
    _wait_until_written(DataFolder(source))
    made = target.with_name(f".{target.name}.unfinished-{os.getpid()}")
    with _opened(source) as (files, opened):
        sizes = [os.fstat(each.fileno()).st_size for each in opened]
        require_room(target, sum(sizes))
        try:
            made.mkdir(mode=0o700)
            for name, file, size in zip(files.names, opened, sizes, strict=True):
                copy_open(file, made / name, size)
            write_file(made / MANIFEST, "".join(f"{line}\n" for line in files.lines))
            cut_unfinished(find_data(made))
            sync(made)
            made.replace(target)
        finally:
            shutil.rmtree(made, ignore_errors=True)
    sync(target.parent)
    return Backup(target, sum(each.stat().st_size for each in target.iterdir()))


def cut_unfinished(files: DataFiles) -> int:
    """Cut off the command or transaction at the end of a copy that is not whole. Return the number of bytes.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the copy is damaged.
    """
    for name in files.names:
        path = files.directory / name
        with content_of(path) as data:
            if name == files.base:
                continue  # the server checks it when it loads it
            reading = read_file(data)
        if reading.ending == "unreadable" or (reading.ending != "whole" and path != files.last):
            raise ServerUnsuitableError(_damaged(path, reading))
        if reading.ending != "whole":
            os.truncate(path, reading.whole)
            return reading.size - reading.whole
    return 0


def _damaged(path: Path, reading: FileReading) -> str:
    return (
        f"{path.name} is damaged: it cannot be read from byte {reading.whole:,} on. Nothing was changed. 'sbredis"
        " server repair' shows what can be saved."
    )


def _wait_until_written(folder: DataFolder) -> None:
    """Wait until an embedded server has written all changes that it has acknowledged up to now.

    On a slow disk, a server with ``appendfsync everysec`` answers up to two seconds before it writes. A server that
    does not run has nothing to write.
    """
    until = time.monotonic() + _WRITING
    wanted: int | None = None
    base: str | None = None
    while time.monotonic() < until:
        try:
            said = str(ask(str(folder.socket), "INFO", "persistence"))
        except ScriptRefusedError as error:
            if error.reply_code == "LOADING":
                return  # it has not acknowledged anything yet
        except OSError:
            return
        else:
            facts = dict(line.split(":", 1) for line in said.splitlines() if ":" in line)
            written, waiting = int(facts.get("aof_current_size", 0)), int(facts.get("aof_buffer_length", 0))
            wanted, base = (written + waiting, facts.get("aof_base_size")) if wanted is None else (wanted, base)
            # A server writes everything before it replaces its files, and then counts their bytes anew.
            if written >= wanted or facts.get("aof_base_size") != base:
                return
        time.sleep(0.02)
    raise ServiceBusConnectionError(
        f"The server of {folder.path} did not write its changes within {_WRITING:g} s, so there is no backup."
    )


@contextmanager
def _opened(folder: Path) -> Generator[tuple[DataFiles, list[BinaryIO]]]:
    """Open all files of a server, which may run, at one moment."""
    for _ in range(_TRIES):
        with ExitStack() as stack:
            files = named_data(folder)
            try:
                opened: list[BinaryIO] = [
                    stack.enter_context((files.directory / name).open("rb")) for name in files.names
                ]
            except FileNotFoundError:
                if named_data(folder) == files:
                    find_data(folder)  # it says which file is missing
                continue  # the server has replaced the files
            if named_data(folder) == files:
                yield files, opened
                return
    raise ServerUnsuitableError(f"The files of {folder} were replaced again and again while they were opened.")
