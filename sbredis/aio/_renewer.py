"""Renewing the locks of messages and sessions while the application works on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from sbredis._public import public_name
from sbredis.aio._receiver import ServiceBusReceiver, report_of
from sbredis.aio._session import ServiceBusSession, renewed
from sbredis.client import seconds_of
from sbredis.exceptions import ServiceBusError
from sbredis.model import Hold, ServiceBusReceivedMessage, ServiceBusReceiveMode
from sbredis.renewing import LockRenewFailureCallback, Renewals

if TYPE_CHECKING:
    import asyncio

__all__ = ["AutoLockRenewer", "LockRenewFailureCallback"]


class AutoLockRenewer:
    """Renews the locks of the messages and sessions that are registered with it, each for a limited time.

    One loop renews all of them. The renewer renews a lock when a third of its duration or ten seconds are left,
    whichever is more. It renews a short lock when half of the duration is left. Renewals that are due at the same
    moment share a call. The renewals of a message end when the message is settled, and those of a session end when its
    receiver is closed. They also end if the lock is lost, if it cannot be renewed, or when the requested time is over.
    In these three cases the renewer sets ``auto_renew_error`` and calls ``on_lock_renew_failure(renewable, error)``,
    which may be a coroutine function.
    """

    def __init__(
        self,
        max_lock_renewal_duration: float = 300,
        on_lock_renew_failure: LockRenewFailureCallback | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        del loop  # Azure has this argument; sbredis uses the running loop
        self._duration = seconds_of(max_lock_renewal_duration, "max_lock_renewal_duration")
        self._on_failure = _callable(on_lock_renew_failure)
        self._renewals = Renewals()

    async def __aenter__(self) -> Self:
        self.check_open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

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
        self.check_open()
        if not isinstance(receiver, ServiceBusReceiver):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                f"A receiver of sbredis.aio is needed, not {public_name(receiver)}: asynchronous and synchronous "
                "objects cannot be mixed."
            )
        if not isinstance(renewable, (ServiceBusReceivedMessage, ServiceBusSession)):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"Only a received message or a session can be renewed, not {type(renewable).__name__}.")
        lock = renewed(renewable)
        hold = lock.hold
        lease = hold.lease
        if lease is None or (isinstance(hold, Hold) and hold.reception.mode is not ServiceBusReceiveMode.PEEK_LOCK):
            raise ValueError("The message has no lock that could be renewed: it was peeked, or received and deleted.")
        if hold.settled:
            what = "session" if isinstance(renewable, ServiceBusSession) else "message"
            raise ValueError(f"The {what} has no lock that could be renewed: it was settled.")
        if lease.session is not None and not isinstance(renewable, ServiceBusSession):
            raise ValueError("The message has no lock of its own that could be renewed: register its session instead.")
        asked = (
            self._duration
            if max_lock_renewal_duration is None
            else seconds_of(max_lock_renewal_duration, "max_lock_renewal_duration")
        )
        on_failure = _callable(on_lock_renew_failure) or self._on_failure
        self._renewals.add(lock, lease.until, asked, report_of(receiver), on_failure)

    async def close(self) -> None:
        """Stop renewing. Each lock lasts until its current end. Closing does not call the failure callbacks.

        The call does not wait for renewals that are under way. It waits at most five seconds for callbacks that are
        running, and then cancels them.
        """
        await self._renewals.close()

    @property
    def closed(self) -> bool:
        """Whether the renewer is closed."""
        return self._renewals.closed

    def check_open(self) -> None:
        """Raise if the renewer is closed."""
        if self._renewals.closed:
            raise ServiceBusError(
                "The AutoLockRenewer is closed and cannot be used again: make another AutoLockRenewer."
            )


def _callable(given: LockRenewFailureCallback | None) -> LockRenewFailureCallback | None:
    if given is not None and not callable(given):
        raise TypeError(f"on_lock_renew_failure must be a function, not {type(given).__name__}.")
    return given
