"""Renewing locks while the application works on messages and sessions, even if it blocks its own threads."""

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
from sbredis.client import seconds_of
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.sync._facade import bridge_of, twin_of
from sbredis.sync._receiver import ServiceBusReceiver
from sbredis.sync._session import ServiceBusSession, session_for

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["AutoLockRenewer", "LockRenewFailureCallback", "renewer_in"]

_log = logging.getLogger("sbredis.client")
_CLOSING = 5.0
"""The seconds that ``close`` waits for threads that run callbacks."""
LockRenewFailureCallback = Callable[[Any, Exception | None], Any]
"""Called in a thread of an executor with the message or session that could not be renewed, and the reason."""
_LoopCallback = Callable[[ServiceBusReceivedMessage | aio.ServiceBusSession, Exception | None], Awaitable[None]]


class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it, each for a limited time.

    The renewals run in the event loops of the clients. So a handler may keep its own thread busy, and more messages
    need no more threads. The renewer renews a lock when a third of its duration or ten seconds are left, whichever is
    more. It renews a short lock when half of the duration is left. The renewals of a message end when the message is
    settled, and those of a session end when its receiver is closed. They also end if the lock is lost, if it cannot be
    renewed, or when the requested time is over. In these three cases the renewer sets ``auto_renew_error`` and calls
    ``on_lock_renew_failure(renewable, error)`` in a thread of ``executor``. Without an ``executor`` the renewer uses
    one of its own, with at most ``max_workers`` threads.
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
        self._renewers: weakref.WeakKeyDictionary[Bridge, aio.AutoLockRenewer] = weakref.WeakKeyDictionary()
        self._loop_callbacks: weakref.WeakKeyDictionary[Bridge, tuple[LockRenewFailureCallback, _LoopCallback]] = (
            weakref.WeakKeyDictionary()
        )
        self._calling = threading.local()
        self._running: set[Future[None]] = set()
        """The callbacks that are running or waiting for a thread."""
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
        """Renew the lock of a message or a session from now on.

        The renewals end when the message is settled, when the receiver of the session is closed, or when the duration
        is over.

        Raises :class:`ValueError` for a message without a lock, and :class:`TypeError` for any other object.
        """
        if not isinstance(receiver, ServiceBusReceiver):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                f"A receiver of sbredis is needed, not {public_name(receiver)}: asynchronous and synchronous "
                "objects cannot be mixed."
            )
        bridge = bridge_of(receiver)
        inner: ServiceBusReceivedMessage | aio.ServiceBusSession
        if isinstance(renewable, ServiceBusSession):
            if bridge_of(renewable) is not bridge:
                raise ValueError("The session belongs to another client than the receiver.")
            inner = twin_of(renewable)
        elif isinstance(renewable, ServiceBusReceivedMessage):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            inner = renewable
        else:
            raise TypeError(f"Only a received message or a session can be renewed, not {type(renewable).__name__}.")
        callback = None if on_lock_renew_failure is None else self._in_thread(bridge, on_lock_renew_failure)
        bridge.run(self._renewer_in(bridge).register, twin_of(receiver), inner, max_lock_renewal_duration, callback)

    def close(self, wait: bool = True) -> None:
        """Stop renewing. Each lock lasts until its current end. Closing does not call the failure callbacks.

        The call does not wait for renewals that are under way. It waits for callbacks that are running: up to five
        seconds in the loop of each client, and five more for all threads. It does not wait for callbacks if ``wait`` is
        false, or if a callback itself closes the renewer.
        """
        with self._lock:
            self._closed = True
            renewers = list(self._renewers.items())
            self._renewers.clear()
        waits = wait and not getattr(self._calling, "now", False)
        for bridge, renewer in renewers:
            bridge.finish(renewer.close if waits else _without_waiting(renewer.close))
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
        """Whether the renewer is closed."""
        return self._closed

    def check_open(self) -> None:
        """Raise if the renewer is closed."""
        if self._closed:
            raise ServiceBusError(
                "The AutoLockRenewer is closed and cannot be used again: make another AutoLockRenewer."
            )

    def _renewer_in(self, bridge: Bridge) -> aio.AutoLockRenewer:
        """Return the asynchronous renewer in the loop of a client. Make a renewer if there is none."""
        with self._lock:
            self.check_open()
            found = self._renewers.get(bridge)
            if found is None:
                callback = None if self._on_failure is None else self._in_thread(bridge, self._on_failure)
                found = self._renewers[bridge] = aio.AutoLockRenewer(self._duration, callback)
            return found

    def _in_thread(self, bridge: Bridge, callback: LockRenewFailureCallback) -> _LoopCallback:
        """Return a coroutine function that runs ``callback`` in a thread.

        For the same callback, return the same function.
        """
        known = self._loop_callbacks.get(bridge)
        if known is not None and known[0] == callback:
            return known[1]
        held = weakref.ref(bridge)  # weak, so that a registered message does not keep its client open

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
                    return  # the application has dropped that client
                shown = session_for(owner, renewable)
            else:
                shown = renewable
            executor = self._given or self._own
            assert executor is not None  # the renewer makes an executor if the application passed none
            running = executor.submit(call, shown, error)
            self._running.add(running)
            running.add_done_callback(self._running.discard)
            await asyncio.wrap_future(running)

        self._loop_callbacks[bridge] = callback, tell
        return tell


def renewer_in(renewer: AutoLockRenewer, bridge: Bridge) -> aio.AutoLockRenewer:
    """Return the asynchronous renewer that works for a renewer in the loop of a client."""
    return renewer._renewer_in(bridge)  # pyright: ignore[reportPrivateUsage]


_ending: set[asyncio.Task[None]] = set()


def _without_waiting(close: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], Coroutine[Any, Any, None]]:
    """Return a function that starts ``close`` and does not wait for callbacks."""

    async def begin() -> None:
        task = asyncio.get_running_loop().create_task(close())
        _ending.add(task)  # a loop references its tasks only weakly
        task.add_done_callback(_ending.discard)
        await asyncio.sleep(0)

    return begin
