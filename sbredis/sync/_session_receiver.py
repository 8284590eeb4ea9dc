"""Receiving the messages of one session."""

# Made by tools/make_sync from sbredis/aio/_session_receiver.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from functools import partial

from sbredis import aio
from sbredis._public import public
from sbredis.sync._bridge import Bridge
from sbredis.sync._receiver import ServiceBusReceiver
from sbredis.sync._session import ServiceBusSession, session_for

__all__ = ["ServiceBusSessionReceiver", "receiver_for"]


@public
class ServiceBusSessionReceiver(ServiceBusReceiver):
    """Receives the messages of one session, in their order.

    Made by :meth:`ServiceBusClient.get_queue_receiver` and ``get_subscription_receiver`` with a ``session_id``, and by
    ``accept_next_session``. The receiver accepts the session when it is opened, and releases it when it is closed.

    If an :class:`Exception` ends the block of ``with receiver``, this counts as a failed delivery of each message
    that the application has received and not settled. So a message that makes its handler fail reaches the delivery
    limit. A cancellation, an interruption, a lost lock and :meth:`close` do not count as failed deliveries.
    """

    def __init__(self, bridge: Bridge, receiver: aio.ServiceBusSessionReceiver) -> None:
        super().__init__(bridge, receiver)
        self._of_session = receiver
        self._session: ServiceBusSession | None = None

    @property
    def session(self) -> ServiceBusSession:
        """The session that the receiver receives from. Raises :class:`ValueError` before the session is accepted."""
        if self._session is None:
            self._session = session_for(self._bridge, self._of_session.session)
        return self._session

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self, *, release_session: bool = True) -> None:
        """Stop receiving, and release the session with all of its messages, so that other receivers can accept it.

        With ``release_session=False``, the session stays locked until its lock ends. This is for an application whose
        thread still works on one of its messages and cannot be ended: nobody else gets the message meanwhile.
        """
        self._bridge.finish(partial(self._of_session.close, release_session=release_session))


def receiver_for(bridge: Bridge, receiver: aio.ServiceBusReceiver) -> ServiceBusReceiver:
    """Return the synchronous façade of a receiver."""
    if isinstance(receiver, aio.ServiceBusSessionReceiver):
        return ServiceBusSessionReceiver(bridge, receiver)
    return ServiceBusReceiver(bridge, receiver)
