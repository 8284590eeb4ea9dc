"""The channels of all slots, on which partitions and buckets of the registry make announcements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from sbredis.engine import due_channel

if TYPE_CHECKING:
    from sbredis.client import BackgroundFailures, Connection
    from sbredis.exceptions import ServiceBusError
    from sbredis.transport import Subscription

__all__ = ["SlotChannels", "is_bucket_announcement"]

_log = logging.getLogger("sbredis.maintenance")
_PAUSE = 1.0
_CHANGED = b" changed"
"""The end of an announcement that a bucket has changed. Partitions make all other announcements."""


def is_bucket_announcement(payload: bytes) -> bool:
    """Return whether a bucket of the registry announces that it has changed."""
    return payload.endswith(_CHANGED)


@dataclass(frozen=True, slots=True)
class _AnnouncementListener:
    """Passes on the announcements of the partitions in one slot."""

    number: int
    heard: Callable[[int, bytes], None]
    missed: Callable[[int], None]

    def message(self, payload: bytes) -> None:
        """Pass on an announcement."""
        self.heard(self.number, payload)

    def gap(self) -> None:
        """Record that the client did not listen for a while."""
        self.missed(self.number)


class SlotChannels:
    """The channels of the slots that a client maintains. A slot that cannot be heard yet is tried again and again."""

    def __init__(
        self,
        connection: Connection,
        failures: BackgroundFailures,
        heard: Callable[[int, bytes], None],
        missed: Callable[[int], None],
    ) -> None:
        """``heard`` gets the number of a slot and an announcement. ``missed`` gets the number of a slot.

        ``missed`` is called whenever the client begins to hear a slot, because it may have missed announcements before.
        """
        self._connection = connection
        self._failures = failures
        self._heard = heard
        self._missed = missed
        self._chosen: frozenset[int] = frozenset()
        self._subscriptions: dict[int, Subscription] = {}
        self._heard_slots: set[int] = set()
        self._all_heard = asyncio.Event()
        """Set while the client hears all slots that it has chosen."""
        self._refused: dict[int, asyncio.TimerHandle] = {}
        """For each slot whose channel was refused, the timer that asks again."""

    def choose(self, numbers: frozenset[int]) -> bool:
        """Listen to these slots, and to no others. Return whether these are other slots than before."""
        if numbers == self._chosen:
            return False
        before, self._chosen = self._chosen, numbers
        for number in before - numbers:
            timer, subscription = self._refused.pop(number, None), self._subscriptions.pop(number, None)
            if timer is not None:
                timer.cancel()
            if subscription is not None and not self._connection.closed:  # otherwise it ends with the connection
                subscription.close()
            self._heard_slots.discard(number)
        self._all_heard.clear()
        for number in numbers - before:
            self._listen(number)
        self._check()
        return True

    async def opened(self) -> None:
        """Wait until the client hears the slots. If a slot does not answer soon, do not wait for it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await self._all_heard.wait()

    @property
    def all_open(self) -> bool:
        """Whether the client hears all slots that it has chosen."""
        return self._all_heard.is_set()

    def _check(self) -> None:
        if self._chosen and self._heard_slots >= self._chosen:
            self._all_heard.set()

    def _listen(self, number: int) -> None:
        namespace = self._connection.namespace
        channel = due_channel(namespace.name, namespace.salt(number))
        listener = _AnnouncementListener(number, self._heard, self._begun)
        refused = partial(self._ask_later, number)
        self._subscriptions[number] = self._connection.transport.listen(channel, listener, refused)

    def _begun(self, number: int) -> None:
        if number in self._chosen:
            self._heard_slots.add(number)
            self._check()
            self._missed(number)

    def _ask_later(self, number: int, error: ServiceBusError) -> None:
        """Ask again for a channel that was refused: its user may get the right."""
        self._subscriptions.pop(number, None)
        if self._connection.closed or number not in self._chosen:
            return
        _log.info("the announcements in slot %d cannot be received yet: %s", number, error)
        again = partial(self._failures.guard, f"listening to slot {number}", partial(self._ask_again, number))
        self._refused[number] = asyncio.get_running_loop().call_later(_PAUSE, again)

    def _ask_again(self, number: int) -> None:
        del self._refused[number]
        if not self._connection.closed:
            self._listen(number)
