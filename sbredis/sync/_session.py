"""An accepted session, as applications use it."""

# Made by tools/make_sync from sbredis/aio/_session.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

import threading
import weakref
from datetime import datetime
from uuid import UUID

from sbredis import aio
from sbredis._public import public
from sbredis.sync._bridge import Bridge
from sbredis.sync._facade import Facade

__all__ = ["ServiceBusSession", "session_for"]


@public
class ServiceBusSession(Facade[aio.ServiceBusSession]):
    """The session that a receiver has accepted: :attr:`ServiceBusReceiver.session`.

    The lock of the session covers all of its messages: no other receiver gets one of them while the lock holds. To work
    on the session for longer, renew the lock, or let an :class:`AutoLockRenewer` renew it.

    Any number of threads may use the session at the same time.
    """

    @property
    def auto_renew_error(self) -> Exception | None:
        """The error that ended the automatic renewal of the session's lock; ``None`` if there was no error."""
        return self._aio.auto_renew_error

    # -- properties ----------------------------------------------------------------------------------------------------

    @property
    def session_id(self) -> str:
        """The id of the session. An empty text is a valid id."""
        return self._aio.session_id

    @property
    def locked_until_utc(self) -> datetime:
        """The time when the lock ends, unless the lock is renewed."""
        return self._aio.locked_until_utc

    @property
    def fence(self) -> int:
        """A number with which an outside resource can recognise the later of two holders of this session.

        Each lock of a session gets a higher number than all earlier locks in the same partition. It stays the same when
        the lock is renewed. An addition of sbredis.
        """
        return self._aio.fence

    @property
    def locked(self) -> bool:
        """Whether the lock holds, as far as this client knows. False if the lock has ended or was released."""
        return self._aio.locked

    @property
    def lock_token(self) -> UUID:
        """An identifier of the lock, with which another process can use this session: see :class:`ServiceBusSettler`.

        It stays the same as long as the session is locked. The lock token of each message of the session does the same.
        """
        return self._aio.lock_token

    # -- operations ----------------------------------------------------------------------------------------------------

    def renew_lock(self, *, timeout: float | None = None) -> datetime:
        """Lock the session for the full duration from now on, and return the time when the lock ends."""
        return self._bridge.call(self._aio.renew_lock, timeout=timeout)

    def get_state(self, *, timeout: float | None = None) -> bytes | None:
        """Return the state of the session, which this or an earlier receiver has set; ``None`` if there is none."""
        return self._bridge.call(self._aio.get_state, timeout=timeout)

    def set_state(self, state: str | bytes | bytearray | None, *, timeout: float | None = None) -> None:
        """Set the state of the session, up to the size of a message. ``None`` removes the state.

        The state remains when the session has no more messages. Text is stored in UTF-8.
        """
        self._bridge.call(self._aio.set_state, state, timeout=timeout)

    def dead_letter_messages(
        self, reason: str | None = None, error_description: str | None = None, *, timeout: float | None = None
    ) -> int:
        """Move all messages of the session to the dead-letter queue. Return the number of moved messages.

        Deferred messages are moved too, and so are messages that callers have received and not settled. Scheduled
        messages are not moved, because they are not in the session yet.
        """
        return self._bridge.call(self._aio.dead_letter_messages, reason, error_description, timeout=timeout)

    def wait_lock_lost(self, *, timeout: float | None = None) -> bool:
        """Wait until the lock is lost, and return ``True``.

        Return ``False`` if the session is released before that, or if ``timeout`` seconds are over. Without a
        ``timeout`` there is no limit.

        The lock is lost when it has ended according to the clock of this process, or when a call has reported the loss.
        """
        return self._bridge.call(self._aio.wait_lock_lost, timeout=timeout)


# Both sides are weak references. A façade keeps its bridge alive, so the objects of the asynchronous client,
# which the bridge closes, must not keep the façade alive.
_facades: weakref.WeakKeyDictionary[aio.ServiceBusSession, weakref.ref[ServiceBusSession]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def session_for(bridge: Bridge, session: aio.ServiceBusSession) -> ServiceBusSession:
    """Return the façade of a session. All callers get the same object while one of them keeps a reference."""
    with _lock:
        held = _facades.get(session)
        found = None if held is None else held()
        if found is None:
            found = ServiceBusSession(bridge, session)
            _facades[session] = weakref.ref(found)
        return found
