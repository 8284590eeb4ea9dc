"""Making and copying files that only this user can read, and that survive a loss of power."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import BinaryIO, Literal

from sbredis.exceptions import ServiceBusServerBusyError

__all__ = ["copy_file", "copy_open", "open_private", "private", "require_room", "sync", "write_file"]

_BLOCK = 1 << 20
_RESERVE = 1 << 20
"""The number of bytes that must stay free on the disk."""


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file of a data folder, as the ``opener`` of :func:`open`: never a link, and never for other users.

    The mode does not depend on the umask. A link could make a server write to any file of its user.
    """
    descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        if flags & os.O_CREAT:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def open_private(path: Path, mode: Literal["ab", "wb"]) -> BinaryIO:
    """Open a file to write to it as :func:`private` does: at its end (``ab``), or from its beginning (``wb``)."""
    begin = os.O_APPEND if mode == "ab" else os.O_TRUNC
    return os.fdopen(private(path, os.O_WRONLY | os.O_CREAT | begin), mode)


def require_room(folder: Path, size: int) -> None:
    """Raise if the disk of a folder has no room for this number of bytes. The folder may not exist yet."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    free = shutil.disk_usage(there).free
    if free < size + _RESERVE:
        raise ServiceBusServerBusyError(
            f"The disk of {folder} has no room: {size + _RESERVE:,} bytes are needed, and {free:,} are free. Nothing"
            " was changed."
        )


def copy_file(source: Path, target: Path, size: int) -> None:
    """Copy the first bytes of a file to a new file, which only this user can read, with the time of its last change."""
    with source.open("rb") as file:
        copy_open(file, target, size)


def copy_open(source: BinaryIO, target: Path, size: int) -> None:
    """Copy the first bytes of an open file, or all if there are fewer, as :func:`copy_file` does."""
    about = os.fstat(source.fileno())
    source.seek(0)
    with _new(target) as file:
        left = size
        while left and (block := source.read(min(left, _BLOCK))):
            file.write(block)
            left -= len(block)
        file.flush()
        os.fsync(file.fileno())
    os.utime(target, ns=(about.st_atime_ns, about.st_mtime_ns))


def write_file(target: Path, text: str) -> None:
    """Write a new file, which only this user can read."""
    with _new(target) as file:
        file.write(text.encode("utf-8", "surrogateescape"))
        file.flush()
        os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some file systems cannot do this
            raise
    finally:
        os.close(descriptor)


def _new(path: Path) -> BinaryIO:
    return os.fdopen(private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb")
