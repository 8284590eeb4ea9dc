"""The calls of partitions for receivers: a partition has something, and no receiver is there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from sbredis.engine import read_call_for_receivers, ready_channel
from sbredis.exceptions import DataLayoutError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.client._entity import Entity
    from sbredis.transport import Subscription

__all__ = ["PartitionCalls"]

_log = logging.getLogger("sbredis.client")


class PartitionCalls:
    """Hears the calls of all partitions of an entity, until it is closed."""

    def __init__(
        self,
        entity: Entity,
        called: Callable[[int, frozenset[str]], None],
        confirmed: Callable[[], None],
        refused: Callable[[], None],
    ) -> None:
        """``called`` gets the index of a partition and what is ready there. ``confirmed`` is called when a subscription
        was made, or made again: earlier calls may be lost. ``refused`` is called when a channel cannot be heard any
        more. All run in the event loop, so they must not block.
        """
        self._connection = entity.connection
        self._channels: list[_CallChannel] = []
        self._unheard = len(entity.numbers)
        self._confirmed, self._refused = confirmed, refused
        namespace = entity.connection.namespace
        for place, number in enumerate(entity.numbers):
            name = ready_channel(namespace.name, namespace.salt(number), entity.record.id)
            channel = _CallChannel(place, called, self._channel_changed)
            self._channels.append(channel)
            channel.subscription = entity.connection.transport.listen(name, channel, channel.refused)

    @property
    def heard(self) -> bool:
        """Whether the calls of all partitions are heard."""
        return not self._unheard

    def _channel_changed(self, change: int) -> None:
        """Handle a confirmation of a channel, or its refusal if ``change`` is one more channel that is not heard."""
        self._unheard += change
        (self._refused if change > 0 else self._confirmed)()

    def close(self) -> None:
        """Hear no more calls."""
        for channel in self._channels:
            if channel.subscription is not None and not self._connection.closed:
                channel.subscription.close()


class _CallChannel:
    """The channel on which a partition calls."""

    __slots__ = ("_called", "_changed", "_confirmed", "_place", "subscription")

    def __init__(
        self, place: int, called: Callable[[int, frozenset[str]], None], changed: Callable[[int], None]
    ) -> None:
        """``changed`` gets by how many more channels are not heard, with each confirmation and refusal."""
        self._place, self._called, self._changed = place, called, changed
        self.subscription: Subscription | None = None
        self._confirmed = False
        """Whether the server has confirmed the subscription, and has not refused it."""

    def message(self, payload: bytes) -> None:
        """Handle a call of the partition."""
        try:
            ready = read_call_for_receivers(payload)
        except DataLayoutError as error:
            _log.debug("a call for receivers is ignored: %s", error)
        else:
            self._called(self._place, ready)

    def gap(self) -> None:
        """Handle a new subscription."""
        before, self._confirmed = self._confirmed, True
        self._changed(0 if before else -1)

    def refused(self, error: ServiceBusError) -> None:
        """Handle a refusal of the channel."""
        before, self._confirmed, self.subscription = self._confirmed, False, None
        _log.info("the calls of a partition for receivers cannot be heard: %s", error)
        if before:
            self._changed(1)
