"""Repairing an append-only file whose end cannot be read, as a loss of power or a faulty disk leaves it.

A server loads its files up to the first byte that is no part of a whole command. If the last increment ends there, the
server cuts it off and starts; otherwise it refuses to start. This module cuts it off in that case too, and keeps a copy
of the file. It cuts nothing but the last increment: if another file is damaged, the last increment depends on changes
that are lost.

The increments are read here and not by the server's program ``valkey-check-aof``, because this program refuses the base
files of its own server (Valkey 9.1), and does not say which commands a cut loses. Base files that are snapshots have
checksums; the server's program checks them.

One damage is mended before each start of an embedded server: zeros at the end (:func:`take_zeros_away`). A file system
may have stored the new length of a file before its new content when the power was lost. Then the file ends with zeros,
which no server wrote. Every complete entry ends with a carriage return and a line feed, so zeros at the end are no part
of one, and cutting them off loses nothing that could be read. What is left is complete, or ends in the middle of an
entry, which the server itself drops.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._append_only import Ending, FileCommand, FileReading, commands_after, read_file
from sbredis.servers._binary import ServerBinary, find_server
from sbredis.servers._data_files import (
    DIRECTORY,
    MANIFEST,
    SNAPSHOT_MAGIC,
    DataFiles,
    content_of,
    find_data,
    read_manifest,
)
from sbredis.servers._folder import DataFolder, in_use, unused
from sbredis.servers._locks import is_written
from sbredis.servers._spawn import server_environment
from sbredis.servers._storing import copy_file, require_room, sync

__all__ = ["Damage", "repair_advice", "repairing", "take_zeros_away"]

_SHOWN = 5
_CHECKED = "Checking RDB file"
"""What a program that checks snapshots prints first. A program that ignores the name it is called by does not."""


@dataclass(frozen=True, slots=True)
class Damage:
    """The part of the last increment that no server can load. Made by :func:`repairing`."""

    file: Path
    size: int
    cut_at: int
    """The end of the last whole command or transaction. :meth:`cut` cuts the file here."""
    damaged_at: int
    """The beginning of the first command that cannot be read; the size of the file if a transaction has no end."""
    ending: Ending
    sample: bytes
    """The first bytes of what cannot be read."""
    zeros: bool
    """Whether all that cannot be read are zeros."""
    commands: int
    """The number of commands that stay."""
    unfinished: int
    """The number of whole commands of the transaction that has no end. No server executes a part of a transaction."""
    readable: int
    """The number of whole commands after the damage. They were executed and possibly acknowledged, and a cut loses
    them.
    """
    first_commands: tuple[str, ...]
    """The first few commands that a cut removes."""
    time: datetime | None
    """The time of the last changes that stay, if the server writes times into its file."""

    @property
    def cut_bytes(self) -> int:
        """The number of bytes that a cut removes."""
        return self.size - self.cut_at

    def cut(self) -> Path:
        """Cut the file, and return the copy that is kept beside it."""
        now = datetime.now(UTC)
        copy = self.file.with_name(f"{self.file.name}.damaged-{now:%Y%m%dT%H%M%SZ}")
        if copy.exists():
            raise ServerUnsuitableError(f"{copy} exists already. Nothing was changed.")
        require_room(self.file.parent, self.size)
        new = copy.with_name(f".{copy.name}")
        try:
            copy_file(self.file, new, self.size)
            new.replace(copy)
        finally:
            new.unlink(missing_ok=True)
        sync(copy.parent)
        with self.file.open("r+b") as file:
            file.truncate(self.cut_at)
            os.fsync(file.fileno())
        return copy


@contextmanager
def repairing(folder: str | os.PathLike[str], *, binary: ServerBinary | str | None = None) -> Generator[Damage | None]:
    """Look for damage in the data of a server that does not run. ``None``: there is none.

    Nothing is changed unless the block calls :meth:`Damage.cut`. During the block, no client can start the server of an
    embedded folder. ``binary`` (see :func:`~sbredis.servers.find_server`) checks the base file.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the folder is in use or has no append-only file, or if
    the damage is not in the last increment.
    """
    path = Path(os.path.realpath(folder))
    with unused(DataFolder(path)):
        files = find_data(path)
        if files.last is not None and is_written(files.last):
            raise in_use(path)
        _require_whole(files, binary)
        yield _damage(files.last) if files.last is not None else None


def repair_advice(folder: Path) -> str:
    """Return what to do if a server does not start because its data are damaged."""
    return (
        "If its append-only file is damaged, this command shows what can be saved, and changes nothing:"
        f" sbredis server repair {shlex.quote(str(folder))}"
    )


def _require_whole(files: DataFiles, binary: ServerBinary | str | None) -> None:
    """Raise if a file before the last increment is damaged."""
    for name in files.names:
        path = files.directory / name
        if path == files.last:
            return
        with content_of(path) as data:
            is_snapshot = data[:6].startswith(SNAPSHOT_MAGIC)
            reading = None if is_snapshot else read_file(data)
        if reading is None:
            wrong = _wrong_snapshot(path, binary)
        else:
            wrong = None if reading.ending == "whole" else f"it cannot be read from byte {reading.whole:,} on"
        if wrong is not None:
            kind = "base file" if name == files.base else "increment before the last one"
            raise ServerUnsuitableError(
                f"{path} is damaged: {wrong}. This is the {kind}, and the files after it depend on all of it, so it"
                " cannot be cut. Nothing was changed. Restore a backup into a new folder: sbredis server restore BACKUP"
                " NEW_FOLDER"
            )


def _wrong_snapshot(path: Path, binary: ServerBinary | str | None) -> str | None:
    """Return why a server cannot read a snapshot, or ``None``. The program is a server that gets another name."""
    server = binary if isinstance(binary, ServerBinary) else find_server(binary)
    ran = subprocess.run(
        [f"{server.flavour}-check-rdb", str(path)],
        executable=os.path.realpath(server.path),
        env=server_environment(),
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    if ran.returncode == 0 or _CHECKED not in ran.stdout:
        return None
    _, _, said = ran.stdout.partition("RDB ERROR DETECTED ---\n")
    reason = (said.strip().splitlines() or ["it cannot be read"])[0].partition("] ")
    return f"{server} says: {reason[2] or reason[0]}"


def _damage(file: Path) -> Damage | None:
    with content_of(file) as data:
        reading: FileReading = read_file(data)
        if reading.ending == "whole":
            return None
        after = commands_after(data, reading.stopped)
        shown = [*reading.pending, *islice(after, _SHOWN)]
        readable = len(shown) - len(reading.pending) + sum(1 for _ in after)
        sample = data[reading.stopped : reading.stopped + 16]
        zeros = reading.stopped < reading.size and not data[reading.stopped : reading.size].strip(b"\0")
    return Damage(
        file=file,
        size=reading.size,
        cut_at=reading.whole,
        damaged_at=reading.stopped,
        ending=reading.ending,
        sample=sample,
        zeros=zeros,
        commands=reading.commands,
        unfinished=len(reading.pending),
        readable=readable,
        first_commands=tuple(map(_text, shown[:_SHOWN])),
        time=None if reading.time is None else datetime.fromtimestamp(reading.time, UTC),
    )


def _text(command: FileCommand) -> str:
    first = repr(command.first)[2:-1]
    return f"{command.name.decode('ascii')} {first}".rstrip()


_log = logging.getLogger("sbredis.servers")
_BLOCK = 65536


def take_zeros_away(folder: Path) -> int:
    """Cut zeros off the end of the data of a server that does not run. Return the number of zeros."""
    path = _newest_increment(folder / DIRECTORY)
    if path is None:
        return 0
    with path.open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        end = _end_without_zeros(file.fileno(), size)
        if end == size:
            return 0
        file.truncate(end)
        os.fsync(file.fileno())
    _log.warning(
        "%s ended with %d zero bytes, which a loss of power can leave. They were removed; no entry contained them.",
        *(path, size - end),
    )
    return size - end


def _newest_increment(folder: Path) -> Path | None:
    """Return the file to which the server wrote; ``None`` if there is none, or if the manifest cannot be read."""
    manifest = folder / MANIFEST
    try:
        found = read_manifest(manifest, manifest.read_text("utf-8", "surrogateescape")).last
    except (FileNotFoundError, ValueError):
        return None  # the server says what is wrong
    return found if found is not None and found.is_file() else None


def _end_without_zeros(descriptor: int, size: int) -> int:
    """Return the position at which the zeros at the end of a file begin."""
    end = size
    while end:
        start = max(0, end - _BLOCK)
        kept = os.pread(descriptor, end - start, start).rstrip(b"\0")
        if kept:
            return start + len(kept)
        end = start
    return 0
