"""An accepted session, for code without an event loop."""

from __future__ import annotations

import threading
import weakref
from datetime import datetime
from typing import TYPE_CHECKING

from sbredis import aio
from sbredis._public import public
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["ServiceBusSession", "session_for"]


@public
@documented_by(aio.ServiceBusSession, then_own=True)
class ServiceBusSession(Facade[aio.ServiceBusSession]):
    """Any number of threads may use the session at the same time."""

    @property
    def session_id(self) -> str:
        return self._aio.session_id

    @property
    def locked_until_utc(self) -> datetime:
        return self._aio.locked_until_utc

    @property
    def fence(self) -> int:
        return self._aio.fence

    @property
    def locked(self) -> bool:
        return self._aio.locked

    @property
    def lock_handle(self) -> str:
        return self._aio.lock_handle

    @property
    def auto_renew_error(self) -> Exception | None:
        """The error that ended the automatic renewal of the session's lock; ``None`` if there was no error."""
        return self._aio.auto_renew_error

    def renew_lock(self, *, timeout: float | None = None) -> datetime:
        return self._bridge.call(self._aio.renew_lock, timeout=timeout)

    def get_state(self, *, timeout: float | None = None) -> bytes | None:
        return self._bridge.call(self._aio.get_state, timeout=timeout)

    def set_state(self, state: str | bytes | bytearray | None, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.set_state, state, timeout=timeout)

    def dead_letter_messages(
        self, reason: str | None = None, error_description: str | None = None, *, timeout: float | None = None
    ) -> int:
        return self._bridge.call(self._aio.dead_letter_messages, reason, error_description, timeout=timeout)

    def wait_lock_lost(self, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.wait_lock_lost, timeout=timeout)


# Both sides are weak references. A façade keeps its bridge alive, so the objects of the asynchronous client, which the
# bridge closes, must not keep the façade alive.
_facades: weakref.WeakKeyDictionary[aio.ServiceBusSession, weakref.ref[ServiceBusSession]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def session_for(bridge: Bridge, session: aio.ServiceBusSession) -> ServiceBusSession:
    """Return the façade of a session. All callers get the same object, as long as one of them keeps a reference."""
    with _lock:
        held = _facades.get(session)
        found = None if held is None else held()
        if found is None:
            found = ServiceBusSession(bridge, session)
            _facades[session] = weakref.ref(found)
        return found
