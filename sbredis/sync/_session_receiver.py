"""Receiving the messages of one session, from a thread."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sbredis import aio
from sbredis._public import public
from sbredis.sync._docstrings import documented_by
from sbredis.sync._receiver import ServiceBusReceiver
from sbredis.sync._session import ServiceBusSession, session_for

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["ServiceBusSessionReceiver", "receiver_for"]


@public
@documented_by(aio.ServiceBusSessionReceiver)
class ServiceBusSessionReceiver(ServiceBusReceiver):
    def __init__(self, bridge: Bridge, receiver: aio.ServiceBusSessionReceiver) -> None:
        super().__init__(bridge, receiver)
        self._of_session = receiver
        self._session: ServiceBusSession | None = None

    @property
    def session(self) -> ServiceBusSession:
        if self._session is None:
            self._session = session_for(self._bridge, self._of_session.session)
        return self._session

    def close(self, *, release_session: bool = True) -> None:
        self._bridge.finish(partial(self._of_session.close, release_session=release_session))


def receiver_for(bridge: Bridge, receiver: aio.ServiceBusReceiver) -> ServiceBusReceiver:
    """Return the synchronous façade of a receiver."""
    if isinstance(receiver, aio.ServiceBusSessionReceiver):
        return ServiceBusSessionReceiver(bridge, receiver)
    return ServiceBusReceiver(bridge, receiver)
