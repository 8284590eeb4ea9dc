"""Restoring a backup into a new folder of an embedded server.

The files are copied into a hidden folder, and a server loads them from there. Only then does the hidden folder become
the data, by one renaming. Until then :mod:`~sbredis.servers._starting` refuses to start a server on the folder: it
would start without data, and this would look like a backup without messages.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import signal
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._backing_up import cut_unfinished
from sbredis.servers._binary import ServerBinary
from sbredis.servers._data_files import MANIFEST, SNAPSHOT_MAGIC, DataFiles, find_data
from sbredis.servers._folder import DataFolder, open_folder, unused
from sbredis.servers._local import LocalServer
from sbredis.servers._locks import is_locked, is_written
from sbredis.servers._storing import copy_file, require_room, sync, write_file

__all__ = ["Restored", "restoring"]

_BASE = "appendonly.aof.1.base.rdb"
_SNAPSHOT_LINE = f"file {_BASE} seq 1 type b"


@dataclass(frozen=True, slots=True)
class Restored:
    """A restored backup. Made by :func:`restoring`."""

    folder: Path
    size: int
    """The number of bytes that were copied."""
    cut_bytes: int
    """The number of bytes of the last command, which was not whole, and was left out. A copy of the files of a server
    that runs may end within a command.
    """
    changed: datetime
    """The last change of a file of the backup: the time of the backup, if the copying has kept these times."""
    server: LocalServer
    """A server that has loaded the backup. It ends with the block."""


@contextmanager
def restoring(
    backup: str | os.PathLike[str], folder: str | os.PathLike[str], *, binary: ServerBinary | str | None = None
) -> Generator[Restored]:
    """Restore a backup into a new folder, which ``embedded://`` uses afterwards. It is finished when the block ends.

    ``backup`` is what :func:`~sbredis.servers.back_up` makes, a copy of an ``appendonlydir`` or of the folder with it,
    or a snapshot (an RDB file). ``folder`` must be new or empty, or a folder of an embedded server without data.
    ``binary`` (see :func:`~sbredis.servers.find_server`) is the server that loads the backup, to check it. In the
    block, this server can be asked what it has loaded.

    If the block or this function raises, the folder is as before. If the process is killed, no server can be started on
    the folder until the backup is restored once more.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the backup cannot be used or the server cannot load it,
    or if the folder has data; and :class:`~sbredis.exceptions.ServiceBusServerBusyError` if the disk has no room.
    """
    source, target = _read_source(Path(os.path.realpath(backup))), DataFolder(Path(os.path.realpath(folder)))
    _require_no_data(target)
    sizes = {name: (source.directory / name).stat().st_size for name in source.names}
    require_room(target.path, sum(sizes.values()))
    with ExitStack() as stack:
        stack.enter_context(_taken(target))
        _require_no_data(target)  # again, because no other process can change the folder now
        shutil.rmtree(target.restoring, ignore_errors=True)  # of a process that was killed
        stack.callback(shutil.rmtree, target.restoring, ignore_errors=True)
        copied = _copy(source, target)
        cut_bytes = cut_unfinished(copied)
        changed = max((source.directory / name).stat().st_mtime for name in source.names)
        with _loaded(target, binary, backup) as server:
            yield Restored(target.path, sum(sizes.values()), cut_bytes, datetime.fromtimestamp(changed, UTC), server)
        _finish(target)


def _read_source(backup: Path) -> DataFiles:
    if backup.is_dir():
        try:
            found = find_data(backup)
        except ServerUnsuitableError as error:
            raise ServerUnsuitableError(f"{backup} is not a backup. {error.message}") from error
        if found.last is not None and is_written(found.last):
            raise ServerUnsuitableError(
                f"A server is writing to {found.directory}. First make a backup of its data: sbredis server backup"
                f" {shlex.quote(str(backup))} NEW_FOLDER"
            )
        return found
    try:
        with backup.open("rb") as file:
            is_snapshot = file.read(6).startswith(SNAPSHOT_MAGIC)
    except OSError as error:
        raise ServerUnsuitableError(f"The backup {backup} cannot be read: {error.strerror}.") from error
    if not is_snapshot:
        raise ServerUnsuitableError(
            f"{backup} is not a backup: it is neither a folder with an append-only file nor a snapshot (an RDB file)."
        )
    return DataFiles(backup.parent, backup, backup.name, (), (_SNAPSHOT_LINE,))


def _require_no_data(folder: DataFolder) -> None:
    if folder.data.exists():
        path = folder.path
        used = " A server is running on it." if is_locked(folder.server_lock) else ""
        raise ServerUnsuitableError(
            f"{path} has data already.{used} Nothing was changed. Restore into a new folder, or keep the present data"
            f" under another name: sbredis server stop {shlex.quote(str(path))}, and rename the folder."
        )


@contextmanager
def _taken(folder: DataFolder) -> Generator[None]:
    """Make the folder, and keep others from using it during the block. If the block raises, remove what was made."""
    path, lock = folder.path, folder.owner_lock
    had_folder, had_lock = path.exists(), lock.exists()
    open_folder(path)
    os.close(os.open(lock, os.O_RDWR | os.O_CREAT, 0o600))
    with unused(folder):
        try:
            yield
        except BaseException:  # remove it while the lock is held, so that no other process has begun to use it
            if not had_lock:
                lock.unlink(missing_ok=True)
            if not had_folder:
                shutil.rmtree(path, ignore_errors=True)
            raise


def _copy(source: DataFiles, target: DataFolder) -> DataFiles:
    into = target.restoring
    into.mkdir(mode=0o700)
    is_snapshot = source.lines == (_SNAPSHOT_LINE,)
    for name in source.names:
        path = source.directory / name
        copy_file(path, into / (_BASE if is_snapshot else name), path.stat().st_size)
    write_file(into / MANIFEST, "".join(f"{line}\n" for line in source.lines))
    return find_data(into)


@contextmanager
def _loaded(
    target: DataFolder, binary: ServerBinary | str | None, backup: str | os.PathLike[str]
) -> Generator[LocalServer]:
    """Let a server load the copied files. When it has ended, the files are those that a server leaves."""
    quoted = str(target.path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    config = {
        "dir": f'"{quoted}"',
        "appendonly": "yes",
        "appenddirname": target.restoring.name,
        "auto-aof-rewrite-percentage": "0",
        "maxmemory-policy": "noeviction",
    }
    server = LocalServer(binary=binary, config=config, unix_socket=True)
    try:
        server.launch()
        try:
            server.await_ready(math.inf)
        except ServerUnsuitableError as error:
            raise ServerUnsuitableError(
                f"The backup {os.fspath(backup)} cannot be loaded, and nothing was changed. {error.message}"
            ) from error
        yield server
        server.kill(signal.SIGTERM)
    finally:
        server.stop()


def _finish(target: DataFolder) -> None:
    for each in target.restoring.iterdir():
        each.chmod(0o600)  # the server has made files for all users
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    sync(target.restoring)
    target.restoring.rename(target.data)
    sync(target.path)
