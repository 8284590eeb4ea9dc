# pyright: reportPrivateUsage=false
"""A session that was accepted, as threads see it."""

from __future__ import annotations

import threading
import weakref
from datetime import datetime
from typing import TYPE_CHECKING, Unpack

from sbredis.aio._arguments import NoOptions, warn_of_unknown

if TYPE_CHECKING:
    from sbredis import aio
    from sbredis.sync._portal import Portal

__all__ = ["ServiceBusSession", "session_for"]


class ServiceBusSession:
    """The session that a receiver has accepted: :attr:`ServiceBusReceiver.session`.

    Its lock stands over all of its messages: no other receiver gets one of them as long as it holds. Whoever works on
    the session for longer renews it, or lets an :class:`AutoLockRenewer` do so. Any number of threads may use it.
    """

    def __init__(self, portal: Portal, session: aio.ServiceBusSession) -> None:
        self._portal = portal
        self._aio = session

    def __repr__(self) -> str:
        return repr(self._aio)

    @property
    def session_id(self) -> str:
        """What it is called; the empty text is a name as well."""
        return self._aio.session_id

    @property
    def locked_until_utc(self) -> datetime:
        """When its lock ends, unless it is renewed."""
        return self._aio.locked_until_utc

    @property
    def locked(self) -> bool:
        """Whether its lock holds, as far as this client knows; not when it has ended or the session was given back."""
        return self._aio.locked

    @property
    def lock_handle(self) -> str:
        """What another process needs to renew, read, write or give back this session: :class:`ServiceBusSettler`.

        It stays the same as long as the session is locked. Whoever has it can do so: keep it out of logs.
        """
        return self._aio.lock_handle

    @property
    def auto_renew_error(self) -> Exception | None:
        """Why its lock could not be renewed automatically; ``None`` as long as nothing went wrong."""
        return self._aio.auto_renew_error

    def renew_lock(self, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]) -> datetime:
        """Lock it for the full duration from now on, and return when the lock ends."""
        warn_of_unknown("renew_lock", kwargs)
        return self._portal.call(self._aio.renew_lock, timeout=timeout)

    def get_state(self, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]) -> bytes | None:
        """What was kept for it, by this receiver or one before; ``None`` if nothing was, or no longer."""
        warn_of_unknown("get_state", kwargs)
        return self._portal.call(self._aio.get_state, timeout=timeout)

    def set_state(
        self, state: str | bytes | bytearray | None, *, timeout: float | None = None, **kwargs: Unpack[NoOptions]
    ) -> None:
        """Keep something for the session that outlives its messages, up to the size of a message; ``None`` for nothing.

        Text is kept in UTF-8.
        """
        warn_of_unknown("set_state", kwargs)
        self._portal.call(self._aio.set_state, state, timeout=timeout)

    def dead_letter_messages(
        self, reason: str | None = None, error_description: str | None = None, *, timeout: float | None = None
    ) -> int:
        """Move all of its messages to the dead-letter queue, also deferred ones and those in the hands of callers, and
        return how many it were. Scheduled ones are not there yet, and stay.
        """
        return self._portal.call(self._aio.dead_letter_messages, reason, error_description, timeout=timeout)

    def wait_lock_lost(self, *, timeout: float | None = None) -> bool:
        """Wait until the lock is lost, and return ``True``; ``False`` if the session is given back before, or if so
        many seconds have passed. Without a ``timeout`` there is no limit.

        The lock is lost when its time has passed by the clock of this process, or a call was told that it is lost.
        """
        return self._portal.call(self._aio.wait_lock_lost, timeout=timeout)


# Weak on both sides: what is shown holds the portal, and must not be held by what the portal closes.
_shown: weakref.WeakKeyDictionary[aio.ServiceBusSession, weakref.ref[ServiceBusSession]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def session_for(portal: Portal, session: aio.ServiceBusSession) -> ServiceBusSession:
    """What threads see of a session: the same object for everybody, as long as somebody holds it."""
    with _lock:
        held = _shown.get(session)
        found = None if held is None else held()
        if found is None:
            found = ServiceBusSession(portal, session)
            _shown[session] = weakref.ref(found)
        return found
