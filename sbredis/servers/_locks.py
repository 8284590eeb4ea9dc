"""Locks that the kernel keeps and that end with their holder: flock on a file.

Such a lock belongs to an *open file description*, which is one opening of the file. All its descriptors share the lock,
including inherited descriptors and those of forked children. The lock is dropped when the last of these descriptors is
closed. Two openings of a file compete for the lock, even in one process.
"""

from __future__ import annotations

import contextlib
import errno
import operator
import os
import signal
import time
import weakref
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers._storing import private

__all__ = ["FileLock", "is_locked", "is_written"]

_handed_on: weakref.WeakSet[FileLock] = weakref.WeakSet()


class FileLock:
    """One opening of a lock file. The file is made if it does not exist.

    ``handed_on`` is for a lock that will be given to another process. If another thread forks a child, the child must
    not get a share of the lock: the lock would then outlive the process that it is for.
    """

    def __init__(self, path: Path, *, handed_on: bool = False) -> None:
        self.path = path
        self.descriptor = private(path, os.O_RDWR | os.O_CREAT)
        if handed_on:
            _handed_on.add(self)

    def take(self, *, shared: bool = False, until: float = 0.0) -> bool:
        """Take the lock; wait until the monotonic time ``until``. Return ``False`` if it was not free until then."""
        import fcntl  # some systems have no fcntl; the callers check this before

        operation = (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB
        if self._try(operation):
            return True
        return time.monotonic() < until and self._keep_trying(operation, until)

    def _try(self, operation: int) -> bool:
        import fcntl

        try:
            fcntl.flock(self.descriptor, operation)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                raise
            raise ServerUnsuitableError(
                f"The file system of {self.path.parent} has no file locks ({error.strerror}), but processes that "
                "share an embedded server need them. Put the folder on a local disk."
            ) from error
        return True

    def _keep_trying(self, operation: int, until: float) -> bool:
        from tenacity import Retrying, retry_if_result, wait_exponential, wait_random  # this import takes 40 ms

        attempts = Retrying(
            retry=retry_if_result(operator.not_),
            stop=lambda _: time.monotonic() >= until,
            wait=wait_exponential(multiplier=0.001, max=0.01) + wait_random(0, 0.01),
            retry_error_callback=lambda _: False,
        )
        return attempts(self._try, operation)

    def drop(self) -> None:
        """Release the lock for all processes that share this opening of the file, forked children included."""
        import fcntl

        fcntl.flock(self.descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file in this process. Other processes that share this opening keep the lock. A second call does
        nothing.
        """
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def is_current(self) -> bool:
        """Whether the path still leads to the opened file; false if the folder was removed meanwhile."""
        try:
            there = self.path.stat()
        except OSError:
            return False
        return os.path.samestat(there, os.fstat(self.descriptor))


def is_locked(path: Path) -> bool:
    """Whether a lock is held. Without a lock file it is not, and none is made."""
    if not path.exists():
        return False
    lock = FileLock(path)
    try:
        if not lock.take():
            return True
        lock.drop()  # a child that another thread has forked since must not keep the lock
        return False
    finally:
        lock.close()


def is_written(path: Path) -> bool:
    """Whether another process has opened a file to write to it. Always false outside Linux.

    The kernel grants a read lease on a file only if nobody has opened the file to write. This also finds processes of
    other users and in containers, which the list of processes does not show.
    """
    import fcntl

    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    with path.open("rb") as file:
        # The signal that comes if the file is opened to write meanwhile. The usual one would end this process.
        fcntl.fcntl(file, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError as error:
            return error.errno == errno.EAGAIN  # other errors: the file system has no leases
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _close_handed_on() -> None:
    for lock in list(_handed_on):
        with contextlib.suppress(OSError):
            lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_handed_on)
