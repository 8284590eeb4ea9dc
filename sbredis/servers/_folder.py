"""The data folder of an embedded server: its files, and whether it may be used."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shlex
import stat
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError, ServiceBusError, ServiceBusServerBusyError
from sbredis.servers._data_files import DIRECTORY
from sbredis.servers._locks import FileLock, is_locked

__all__ = ["DataFolder", "full", "in_use", "open_folder", "unusable", "unused"]

_LONGEST_SOCKET_PATH = 100  # in bytes; the largest length that kernels permit is between 104 and 108
_MOST_LOG = 1_000_000
_ENDING = 45.0  # seconds; longer than a server that has no clients may take to end
_MOMENT = 5.0  # seconds; longer than a server that has ended may keep the lock of its owner
_OURS = "owner.lock"  # the first file that is made in a new folder


@dataclass(frozen=True)
class DataFolder:
    """The paths of the files of one embedded server."""

    path: Path

    @property
    def owner_lock(self) -> Path:
        """The lock that a process holds while it starts or ends the server."""
        return self.path / _OURS

    @property
    def clients_lock(self) -> Path:
        """The lock that every lease holds, shared."""
        return self.path / "clients.lock"

    @property
    def server_lock(self) -> Path:
        """The lock that the server holds as long as it is alive."""
        return self.path / "server.lock"

    @property
    def supervisor_lock(self) -> Path:
        """The lock that the embedded supervisor holds as long as it is alive."""
        return self.path / "supervisor.lock"

    @property
    def log(self) -> Path:
        """The log of the server and of the embedded supervisor."""
        return self.path / "server.log"

    @property
    def config(self) -> Path:
        """The server's configuration, which is written again before each start."""
        return self.path / "server.conf"

    @property
    def socket(self) -> Path:
        """The server's unix socket.

        It is in the folder unless its path would be too long for a socket. Then it is in a folder in ``/tmp``. The name
        of that folder is computed from the data folder's path alone, because other values, such as TMPDIR, may differ
        between processes.
        """
        inside = self.path / "server.sock"
        if len(os.fsencode(inside)) < _LONGEST_SOCKET_PATH:
            return inside
        shared = Path("/tmp") if Path("/tmp").is_dir() else Path(tempfile.gettempdir())  # noqa: S108 - see make_socket_folder
        name = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:20]
        return shared / f"sbredis-{os.geteuid()}-{name}" / "server.sock"

    @property
    def data(self) -> Path:
        """The data: the folder of the append-only file."""
        return self.path / DIRECTORY

    @property
    def restoring(self) -> Path:
        """The data that :func:`~sbredis.servers.restoring` has not finished. It becomes :attr:`data` at the end."""
        return self.path / ".restoring"

    def make_socket_folder(self) -> None:
        """Make the folder for the socket. Refuse a folder that another user has made."""
        where = self.socket.parent
        if where == self.path:
            return
        try:
            where.mkdir(mode=0o700)
        except FileExistsError:
            about = where.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o077:
                raise ServerUnsuitableError(
                    f"The socket of the embedded server of {self.path} must be in {where}, but this is not a folder "
                    "that only this user can use. Remove it, or choose a data folder with a shorter path."
                ) from None

    def turn_log(self) -> int:
        """Begin a new log if the present one is large. Return the size of the log that is used from now on."""
        try:
            size = self.log.stat().st_size
        except FileNotFoundError:
            return 0
        if size < _MOST_LOG:
            return size
        self.log.replace(self.log.with_suffix(".log.1"))
        return 0


def open_folder(path: str | os.PathLike[str]) -> DataFolder:
    """Make the folder, or check an existing one, and make it accessible to this user only.

    Raises :class:`~sbredis.exceptions.ServerUnsuitableError` if the path is not a folder, is a home folder, belongs to
    another user, may not be written, or holds links, or files that do not belong to an embedded server.
    """
    real = Path(os.path.realpath(path))
    try:
        made = not real.exists()
        real.mkdir(mode=0o700, parents=True, exist_ok=True)
        _require_own(real)
        if made:
            real.chmod(0o700)  # the umask may have taken rights from this user too
        entries = list(os.scandir(real))
        if links := sorted(entry.name for entry in entries if entry.is_symlink()):
            raise ServerUnsuitableError(
                f"{real} contains the link {links[0]!r}. An embedded server would write to the file to which it leads, "
                "so its folder may contain no links. Remove it; the folder itself may be a link."
            )
        strangers = sorted(entry.name for entry in entries if not _is_harmless(entry.name))
        # Look for owner.lock after listing the other files, because another process may be making the folder's first
        # files just now.
        if strangers and not (real / _OURS).exists():
            if DIRECTORY in strangers:
                raise ServerUnsuitableError(
                    f"{real} contains {DIRECTORY}, but no embedded server has used this folder. If it is a backup, or"
                    f" the folder of a server that does not run, restore it into a new folder: sbredis server restore"
                    f" {shlex.quote(str(real))} NEW_FOLDER"
                )
            raise ServerUnsuitableError(
                f"{real} contains files that are not from sbredis, for example {strangers[0]!r}. An embedded server "
                "needs a folder of its own: name a folder that is empty or does not exist."
            )
        about = real.stat()
        if stat.S_IMODE(about.st_mode) & 0o077:
            real.chmod(0o700)  # only this user may read the messages
    except FileExistsError:
        raise ServerUnsuitableError(f"{real} is a file. embedded:// needs the path of a folder.") from None
    except NotADirectoryError:
        raise ServerUnsuitableError(f"{real} cannot be a folder: a part of its path is a file.") from None
    except OSError as error:
        raise unusable(real, error) from error
    return DataFolder(real)


def _require_own(folder: Path) -> None:
    """Raise if a folder belongs to another user, or if it is a home folder, which must keep its rights and files."""
    owner = folder.stat().st_uid
    if owner != os.geteuid():
        raise ServerUnsuitableError(
            f"{folder} belongs to {_name_of(owner)}, who could read and change all messages. An embedded server needs "
            f"a folder that belongs to {_name_of(os.geteuid())}."
        )
    if any(os.path.realpath(home) == str(folder) for home in _homes()) or folder.parent == folder:
        raise ServerUnsuitableError(
            f"{folder} is a home folder. An embedded server needs a folder of its own, such as {folder / 'bus'}."
        )


def _homes() -> list[str]:
    """Return the home folders of this user, as the environment and the system name them."""
    import pwd

    homes = [os.environ.get("HOME", "")]
    with contextlib.suppress(KeyError):  # a user without an entry, as in some containers
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    return [home for home in homes if home]


def _name_of(user: int) -> str:
    import pwd

    try:
        return f"the user {pwd.getpwuid(user).pw_name!r}"
    except KeyError:
        return f"the user with the number {user}"


@contextlib.contextmanager
def unused(folder: DataFolder) -> Generator[None]:
    """Keep others from using the folder during the block. Raise if a server or a client uses it.

    A server without clients ends soon, so wait for its end. If the folder is not that of an embedded server, nothing
    keeps others from using it.
    """
    if not folder.owner_lock.exists():
        yield
        return
    _wait_for_end(folder)
    owner = FileLock(folder.owner_lock)
    try:
        if not owner.take(until=time.monotonic() + _MOMENT):
            raise ServerUnsuitableError(
                f"Another process is starting or ending the server of {folder.path}, or is working on its data."
            )
        if any(map(is_locked, (folder.clients_lock, folder.server_lock, folder.supervisor_lock))):
            raise in_use(folder.path)
        yield
        owner.drop()  # a child that another thread has forked since must not keep the lock
    finally:
        owner.close()


def _wait_for_end(folder: DataFolder) -> None:
    """Wait until the server has ended, unless it has clients."""
    until = time.monotonic() + _ENDING
    while is_locked(folder.supervisor_lock) and time.monotonic() < until:
        clients = FileLock(folder.clients_lock)
        try:
            if not clients.take() and clients.take(shared=True):  # clients share this lock, and a supervisor does not
                return
        finally:
            clients.close()
        time.sleep(0.02)


def in_use(path: Path) -> ServerUnsuitableError:
    """Return the error for a folder that must not be in use."""
    return ServerUnsuitableError(
        f"A server or a client is using {path}. Stop the programs that use it, and run: sbredis server stop"
        f" {shlex.quote(str(path))}"
    )


def full(path: Path, reason: str) -> ServiceBusServerBusyError:
    """Return the error for a folder on a disk that has no room."""
    return ServiceBusServerBusyError(
        f"The embedded server of {path} has no room for its data: {reason}. Make room on the disk. Acknowledged "
        "calls are kept, and the next call starts the server again."
    )


def unusable(path: Path, error: OSError) -> ServiceBusError:
    """Return the error for a folder that the system does not let us use."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return full(path, (error.strerror or str(error)).lower())
    return ServerUnsuitableError(
        f"The folder {path} cannot be used for an embedded server: {error.strerror or error}. It must be on a local"
        " disk, and this user must own it and have the right to write to it."
    )


def _is_harmless(name: str) -> bool:
    return name.startswith(".") or name == "lost+found"
