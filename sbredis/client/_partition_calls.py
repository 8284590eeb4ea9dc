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
        self, entity: Entity, called: Callable[[int, frozenset[str]], None], confirmed: Callable[[], None]
    ) -> None:
        """``called`` gets the index of a partition and what is ready there. ``confirmed`` is called when a subscription
        was made, or made again: earlier calls may be lost. Both run in the event loop, so they must not block.
        """
        self._connection = entity.connection
        self._channels: list[_CallChannel] = []
        namespace = entity.connection.namespace
        for place, number in enumerate(entity.numbers):
            name = ready_channel(namespace.name, namespace.salt(number), entity.record.id)
            channel = _CallChannel(place, called, confirmed)
            self._channels.append(channel)
            channel.subscription = entity.connection.transport.listen(name, channel, channel.refused)

    @property
    def heard(self) -> bool:
        """Whether the calls of all partitions are heard."""
        return all(channel.confirmed for channel in self._channels)

    def close(self) -> None:
        """Hear no more calls."""
        for channel in self._channels:
            if channel.subscription is not None and not self._connection.closed:
                channel.subscription.close()


class _CallChannel:
    """The channel on which a partition calls."""

    __slots__ = ("_called", "_confirmed", "_place", "confirmed", "subscription")

    def __init__(
        self, place: int, called: Callable[[int, frozenset[str]], None], confirmed: Callable[[], None]
    ) -> None:
        self._place, self._called, self._confirmed = place, called, confirmed
        self.subscription: Subscription | None = None
        self.confirmed = False
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
        self.confirmed = True
        self._confirmed()

    def refused(self, error: ServiceBusError) -> None:
        """Handle a refusal of the channel."""
        self.confirmed, self.subscription = False, None
        _log.info("the calls of a partition for receivers cannot be heard: %s", error)
