"""Renewing locks from a thread of its own."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Self

from sbredis._call_site import Line, calling_line, warn_of_line
from sbredis._public import public_name
from sbredis.aio._client import ServiceBusClient
from sbredis.aio._session import ServiceBusSession, renewed
from sbredis.client import connection_of, seconds_of
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.renewing import RenewalThread, StandInProcess

__all__ = ["BackgroundLockRenewer"]

LockLostCallback = Callable[[ServiceBusReceivedMessage | ServiceBusSession, Exception], object]
"""A function of the application. It gets the message or session whose lock is lost, and the error."""
_ENDING = 5.0
"""The most seconds that ``close`` waits for the thread."""


class BackgroundLockRenewer:
    """Renews the locks of everything that a program holds, from a thread of its own.

    So code that blocks the event loop does not lose its locks. The thread has an event loop and a connection of its
    own, to the same namespace and with the same credentials as ``client``. It renews a lock when a third of its
    duration has passed, with one call for all locks of a partition.

    ``held`` returns the messages and sessions that the program holds. The thread calls it about once a second, so it
    must be cheap and safe to call in any thread: ``lambda: list(held.values())``. Messages that are settled are left
    out. Locks are extended as they were taken: with a message, the other messages of the same receive call that are not
    settled stay locked too.

    ``on_lost(renewable, error)`` is called in the event loop of the program when a lock is lost, once for each message
    or session that is not settled. ``while_alive`` is called in the thread before each look; while it returns
    ``False``, no lock is renewed. After ``max_lock_renewal_duration`` seconds a message or session is no longer
    renewed, and is reported as lost when its lock has ended; ``None`` sets no limit.

    Code that keeps the GIL for most of a lock's duration (a slow regular expression, some extensions written in C)
    stops the thread too. With ``stand_in``, a process renews the locks meanwhile, for at most so many seconds without a
    word from this program. It does nothing while the thread runs. It costs some 30 MB of memory and a connection, and
    0.2 s of CPU at its start. It cannot ask a credential provider, and cannot reach ``memory://``: these raise
    ``ValueError``. If it cannot be started, :class:`~sbredis.exceptions.AutoLockRenewFailed` is raised. The process
    knows the locks that the thread has seen; :meth:`cover` tells it of new ones at once. A test that moves the clock by
    hand gets no process.

    The thread starts with ``async with``; on a test bus whose clock stands still, it starts when the clock is moved or
    runs again. It ends with :meth:`close`, and when the client is closed. An addition of sbredis.
    """

    def __init__(
        self,
        client: ServiceBusClient,
        held: Callable[[], Iterable[ServiceBusReceivedMessage | ServiceBusSession]],
        *,
        on_lost: LockLostCallback | None = None,
        while_alive: Callable[[], bool] | None = None,
        max_lock_renewal_duration: float | None = None,
        stand_in: float | None = None,
    ) -> None:
        if not isinstance(client, ServiceBusClient):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"A client of sbredis.aio is needed, not {public_name(client)}.")
        functions: dict[str, object] = {"held": held, "on_lost": on_lost, "while_alive": while_alive}
        for name, function in functions.items():
            if not callable(function) and (name == "held" or function is not None):
                raise TypeError(f"{name} must be a function, not {type(function).__name__}.")
        if max_lock_renewal_duration is not None:
            max_lock_renewal_duration = seconds_of(max_lock_renewal_duration, "max_lock_renewal_duration")
        if stand_in is not None:
            stand_in = seconds_of(stand_in, "stand_in")
        self._client = client
        self._patience = stand_in
        self._make: Callable[[StandInProcess | None], RenewalThread] = lambda process: RenewalThread(
            connection_of(client),
            lambda: [renewed(each) for each in held()],
            on_lost,
            while_alive,
            max_lock_renewal_duration,
            stand_in=process,
        )
        self._thread: RenewalThread | None = None
        self._closed = False
        self._made_at = calling_line()
        self._detach_finalizer: Callable[[], object] = lambda: None
        self._unwatch: Callable[[], object] = lambda: None

    async def __aenter__(self) -> Self:
        """Start the thread."""
        if self._closed:
            raise ServiceBusError(
                "The BackgroundLockRenewer is closed and cannot be used again: make another BackgroundLockRenewer."
            )
        connection_of(self._client).check_open()
        if self._thread is None:
            process = None
            connection = connection_of(self._client)
            if self._patience is not None and connection.clock.kind == "server":
                process = StandInProcess(connection.for_other_process(), str(connection.target), self._patience)
                await process.start()
            if connection.clock.still:  # nothing is due before the clock is moved, and most tests end without that
                self._unwatch = connection.clock.when_moved(self._start)
            else:
                self._start(process)
        return self

    def _start(self, process: StandInProcess | None = None) -> None:
        if self._thread is None and not self._closed:  # another thread may move the clock just before the end
            thread = self._thread = self._make(process)
            thread.start()
            finalizer = weakref.finalize(self, _forgotten, thread, self._made_at)
            finalizer.atexit = False
            self._detach_finalizer = finalizer.detach

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def cover(
        self, *held: ServiceBusReceivedMessage | ServiceBusSession, max_lock_renewal_duration: float | None = None
    ) -> None:
        """Tell the process of these messages and sessions now, before code runs that may keep the GIL.

        The process renews them for at most ``max_lock_renewal_duration`` seconds from now on; ``None`` sets no other
        limit than that of the renewer. Without a process this does nothing. Called in the event loop of the program.
        """
        for each in held:
            if not isinstance(each, (ServiceBusReceivedMessage, ServiceBusSession)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
                raise TypeError(f"A renewer covers received messages and sessions, not {type(each).__name__}.")
        if (thread := self._thread) is not None:
            thread.cover(map(renewed, held), max_lock_renewal_duration)

    async def close(self) -> None:
        """Stop renewing, and wait for the end of the thread. Each lock lasts until its current end."""
        self._closed = True
        self._unwatch()
        self._detach_finalizer()
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.stop()
            loop, ended = asyncio.get_running_loop(), asyncio.Event()

            def tell(_: object) -> None:
                with suppress(RuntimeError):  # the event loop was closed
                    loop.call_soon_threadsafe(ended.set)

            thread.ended.add_done_callback(tell)
            with suppress(TimeoutError):
                async with asyncio.timeout(_ENDING):
                    await ended.wait()
                    thread.join()

    @property
    def closed(self) -> bool:
        """Whether the renewer is closed."""
        return self._closed


def _forgotten(thread: RenewalThread, made_at: Line) -> None:
    if thread.is_alive():
        thread.stop()
        warn_of_line("A BackgroundLockRenewer was not closed.", ResourceWarning, made_at)
