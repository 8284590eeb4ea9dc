# pyright: reportPrivateUsage=false
"""Renewing locks while what they are on is being worked on, whatever keeps the thread that works on it."""

from __future__ import annotations

import asyncio
import logging
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import TYPE_CHECKING, Any, Self

from sbredis import aio
from sbredis._public import public_name
from sbredis.aio.calls._arguments import seconds_of
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.sync._docstrings import documented_by
from sbredis.sync._receiver import ServiceBusReceiver
from sbredis.sync._session import ServiceBusSession, session_for

if TYPE_CHECKING:
    from sbredis.sync._portal import Portal

__all__ = ["AutoLockRenewer", "LockRenewFailureCallback"]

_log = logging.getLogger("sbredis.client")
_CLOSING = 5.0
"""How long closing waits for threads in which callbacks are running."""
LockRenewFailureCallback = Callable[[Any, Exception | None], Any]
"""Called in a worker thread with what could not be renewed, and why."""
_Told = Callable[[ServiceBusReceivedMessage | aio.ServiceBusSession, Exception | None], Awaitable[None]]


@documented_by(aio.AutoLockRenewer)
class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it, for a limited time each.

    Renewing happens in the event loops of the clients whose they are, so a handler that keeps its own thread busy is no
    obstacle, and no number of messages needs more threads. A lock is renewed when a third of it is left, or ten
    seconds, whichever is more; of a short one half. A message is let go when it is settled, a session when its receiver
    is closed. If a lock is lost, cannot be renewed, or has been renewed for as long as was asked for,
    ``auto_renew_error`` says so, and ``on_lock_renew_failure(renewable, error)`` is called, in a thread of
    ``executor``; of its own if none is given, of at most ``max_workers``.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = 300,
        on_lock_renew_failure: LockRenewFailureCallback | None = None,
        executor: Executor | None = None,
        max_workers: int | None = None,
    ) -> None:
        self._duration = seconds_of(max_lock_renewal_duration, "max_lock_renewal_duration")
        self._on_failure = on_lock_renew_failure
        self._given = executor
        self._own = None if executor is not None else ThreadPoolExecutor(max_workers, "sbredis on_lock_renew_failure")
        self._renewers: weakref.WeakKeyDictionary[Portal, aio.AutoLockRenewer] = weakref.WeakKeyDictionary()
        self._told: weakref.WeakKeyDictionary[Portal, tuple[LockRenewFailureCallback, _Told]] = (
            weakref.WeakKeyDictionary()
        )
        self._calling = threading.local()
        self._running: set[Future[None]] = set()
        """Callbacks that are running, or are about to."""
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        self.check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def register(
        self,
        receiver: ServiceBusReceiver,
        renewable: ServiceBusReceivedMessage | ServiceBusSession,
        max_lock_renewal_duration: float | None = None,
        on_lock_renew_failure: LockRenewFailureCallback | None = None,
    ) -> None:
        if not isinstance(receiver, ServiceBusReceiver):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise TypeError(
                f"A receiver of sbredis is needed, not {public_name(receiver)}: what is "
                "asynchronous and what is not cannot be mixed."
            )
        portal = receiver._portal
        inner: ServiceBusReceivedMessage | aio.ServiceBusSession
        if isinstance(renewable, ServiceBusSession):
            if renewable._portal is not portal:
                raise ValueError("The session is one of another client than the receiver.")
            inner = renewable._aio
        elif isinstance(renewable, ServiceBusReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            inner = renewable
        else:
            raise TypeError(
                f"What is renewed is a message that was received, or a session, not {type(renewable).__name__}."
            )
        told = None if on_lock_renew_failure is None else self._in_worker(portal, on_lock_renew_failure)
        portal.run(self._within(portal).register, receiver._aio, inner, max_lock_renewal_duration, told)

    def close(self, wait: bool = True) -> None:
        """Renew no more. Locks run on for as long as they have been renewed; nobody is called for that.

        Does not wait for renewals that are under way. Waits for callbacks that are running, for five seconds in the
        loop of each client and five in all for their threads, unless told not to or called by one of them.
        """
        with self._lock:
            self._closed = True
            renewers = list(self._renewers.items())
            self._renewers.clear()
        waits = wait and not getattr(self._calling, "now", False)
        for portal, renewer in renewers:
            portal.finish(renewer.close if waits else _begun(renewer.close))
        late = wait_for(list(self._running), timeout=_CLOSING).not_done if waits else set[Future[None]]()
        if late:
            _log.warning(
                "the AutoLockRenewer is closed; %d calls of on_lock_renew_failure are still running in their threads",
                len(late),
            )
        if self._own is not None:
            self._own.shutdown(wait=waits and not late, cancel_futures=bool(late))

    @property
    def closed(self) -> bool:
        return self._closed

    def check_open(self) -> None:
        if self._closed:
            raise ServiceBusError("The AutoLockRenewer is closed and cannot be used again: make another one.")

    def _within(self, portal: Portal) -> aio.AutoLockRenewer:
        """The one that renews in the loop of a client."""
        with self._lock:
            self.check_open()
            found = self._renewers.get(portal)
            if found is None:
                told = None if self._on_failure is None else self._in_worker(portal, self._on_failure)
                found = self._renewers[portal] = aio.AutoLockRenewer(self._duration, told)
            return found

    def _in_worker(self, portal: Portal, callback: LockRenewFailureCallback) -> _Told:
        """A callback for the loop that calls this one in a thread; the same one for the same callback."""
        known = self._told.get(portal)
        if known is not None and known[0] == callback:
            return known[1]
        held = weakref.ref(portal)  # what is renewed does not keep its client open

        def call(renewable: ServiceBusReceivedMessage | ServiceBusSession, error: Exception | None) -> None:
            self._calling.now = True
            try:
                callback(renewable, error)
            finally:
                self._calling.now = False

        async def tell(renewable: ServiceBusReceivedMessage | aio.ServiceBusSession, error: Exception | None) -> None:
            shown: ServiceBusReceivedMessage | ServiceBusSession
            if isinstance(renewable, aio.ServiceBusSession):
                owner = held()
                if owner is None:
                    return  # nobody has anything of that client any more
                shown = session_for(owner, renewable)
            else:
                shown = renewable
            executor = self._given or self._own
            assert executor is not None  # there is one of its own where none was given
            running = executor.submit(call, shown, error)
            self._running.add(running)
            running.add_done_callback(self._running.discard)
            await asyncio.wrap_future(running)

        self._told[portal] = callback, tell
        return tell


_ending: set[asyncio.Task[None]] = set()


def _begun(close: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
    """What begins to close, and does not wait for callbacks."""

    async def begin() -> None:
        task = asyncio.get_running_loop().create_task(close())
        _ending.add(task)  # a loop holds its tasks weakly
        task.add_done_callback(_ending.discard)
        await asyncio.sleep(0)

    return begin
