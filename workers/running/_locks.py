"""Keep the locks of everything that handlers work on, from a thread that a blocked event loop does not stop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol, TypeVar

from sbredis.aio import BackgroundLockRenewer, ServiceBusClient, ServiceBusSession
from sbredis.exceptions import AutoLockRenewFailed, WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.observing._pulse import Pulse
from sbredis.workers.running._calls import HandlerCall
from sbredis.workers.schedules._time import Time

__all__ = ["LockHolder", "Locks", "Renewable", "RenewalLimit", "beating", "cover_nothing", "snapshot"]

T = TypeVar("T")

_log = logging.getLogger("sbredis.worker")
_BEAT: Final = 0.5
Renewable = ServiceBusReceivedMessage | ServiceBusSession


class LockHolder(Protocol):
    """A consumer, as its locks see it."""

    cover: Callable[[Sequence[Renewable], float | None], None]
    """Called before the work on messages or a session begins, with the seconds for which they are renewed at most."""

    def renewables(self) -> Iterable[Renewable]:
        """Return the messages and sessions that handlers work on now. Called in another thread."""
        ...

    def lost(self, renewable: Renewable) -> bool:
        """End the call of a message or session whose lock was lost. Return whether there is one."""
        ...


def cover_nothing(held: Sequence[Renewable], longest: float | None) -> None:
    """Do nothing: no process renews the locks of these messages and sessions."""
    del held, longest


@contextmanager
def beating(pulse: Pulse) -> Generator[None]:
    """Let a pulse show whether this event loop turns, while the block runs."""
    loop = asyncio.get_running_loop()
    timer: asyncio.Handle

    def beat() -> None:
        nonlocal timer
        pulse.turned(time.monotonic())
        timer = loop.call_later(_BEAT, beat)

    beat()
    try:
        yield
    finally:
        timer.cancel()


class Locks:
    """The locks of a worker.

    They are renewed for as long as the event loop turns. If the worker counts as stuck, its messages become free for
    others.
    """

    def __init__(
        self, client: ServiceBusClient, consumers: Iterable[LockHolder], pulse: Pulse, stand_in: float | None
    ) -> None:
        self._consumers = list(consumers)
        self._covers = stand_in is not None
        """Whether a process renews the locks while code of a handler keeps the GIL."""
        self._renewer = BackgroundLockRenewer(
            client,
            self._held,
            on_lost=self._lost,
            while_alive=lambda: not pulse.stuck(time.monotonic()),
            stand_in=stand_in,
        )

    async def __aenter__(self) -> None:
        try:
            await self._renewer.__aenter__()
        except (ValueError, AutoLockRenewFailed) as error:
            raise WorkerSetupError(f'renewal="process" is not possible here. {error}') from error
        if self._covers:
            for consumer in self._consumers:
                consumer.cover = self._cover

    def _cover(self, held: Sequence[Renewable], longest: float | None) -> None:
        self._renewer.cover(*held, max_lock_renewal_duration=longest)

    async def __aexit__(self, *_: object) -> None:
        await self._renewer.close()

    def _held(self) -> list[Renewable]:
        return [renewable for consumer in self._consumers for renewable in consumer.renewables()]

    def _lost(self, renewable: Renewable, error: Exception | None) -> None:
        for consumer in self._consumers:
            if consumer.lost(renewable):
                if isinstance(renewable, ServiceBusSession):
                    what = f"session {renewable.session_id!r}"
                else:
                    what = f"message {renewable.sequence_number}"
                _log.warning("the lock on %s was lost while its handler ran: %s", what, error)
                return


class RenewalLimit:
    """For how long the locks of a call are renewed."""

    def __init__(self, seconds: float | None, time: Time, lost: Callable[[Renewable], bool]) -> None:
        self._seconds = seconds
        self._time = time
        self._lost = lost
        """Ends the call of a lock that was lost."""
        self._loop = asyncio.get_running_loop()

    def allows(self, call: HandlerCall | None, locks: Sequence[Renewable]) -> bool:
        """Return whether the locks of a call are still renewed. If they are not, and one has ended, end the call.

        Called in another thread.
        """
        if self._seconds is None or call is None or time.monotonic() - call.began < self._seconds:
            return True
        now = self._time.utc()
        if not call.lock_lost and any((until := each.locked_until_utc) and until <= now for each in locks):
            with suppress(RuntimeError):  # the event loop has ended
                self._loop.call_soon_threadsafe(self._give_up, call, locks[0])
        return False

    def _give_up(self, call: HandlerCall, lock: Renewable) -> None:
        if not call.lock_lost and self._lost(lock):
            _log.warning("%s: a lock has ended, because it is not renewed for so long", call.entity)


def snapshot(values: Iterable[T]) -> list[T]:
    """Return the values of a dictionary that another thread may be changing."""
    while True:
        try:
            return list(values)
        except RuntimeError:  # it has changed in between
            continue
