"""The channels on which partitions push to a client: one for each partition, shared by all receivers of the client.

A channel is open while a receiver needs it. A push names the receiver and the side, so it goes to the right one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from sbredis.engine import CreditPush, Delivery, push_channel, read_push
from sbredis.exceptions import DataLayoutError, ServiceBusError

if TYPE_CHECKING:
    from sbredis.client._connection import Connection
    from sbredis.transport import Subscription

__all__ = ["PushChannels", "PushListener", "PushMember"]

_log = logging.getLogger("sbredis.client")
_RUN = 8
"""The number of characters of a run id that grants and pushes have."""


class PushListener(Protocol):
    """The part of a receiver that hears pushes. Its methods run in the event loop, so they must not block."""

    def pushed(self, push: CreditPush[Delivery]) -> None:
        """Handle a push."""
        ...

    def subscribed(self, run: str) -> None:
        """Handle a new subscription, which the server process ``run`` has confirmed. Earlier pushes may be lost.

        It was made after the listener has joined the channel.
        """
        ...

    def refused(self, error: ServiceBusError) -> None:
        """Handle a refusal of the channel. The membership has ended."""
        ...


class PushMember:
    """A receiver that hears a channel, until it leaves."""

    __slots__ = ("_channel", "_key", "_known", "listener")

    def __init__(self, channel: _PushChannel, key: tuple[str, str], listener: PushListener) -> None:
        self._channel, self._key, self.listener = channel, key, listener
        self._known = 0
        """The number of the latest subscription that the receiver knows of."""

    @property
    def channel(self) -> bytes:
        """The name of the channel."""
        return self._channel.name

    @property
    def run(self) -> str | None:
        """The server process that has confirmed the subscription last; ``None`` while none has."""
        return self._channel.run

    def learn(self) -> None:
        """Note that the receiver knows of the latest subscription, so that it is not told of it."""
        self._known = self._channel.subscriptions

    def tell(self) -> None:
        """Tell the receiver of the latest subscription, unless it knows of it."""
        if self._known < self._channel.subscriptions and (run := self.run) is not None:
            self.learn()
            self.listener.subscribed(run)

    def leave(self) -> None:
        """Stop hearing the channel."""
        self._channel.leave(self._key)


class PushChannels:
    """The open channels of a client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: dict[tuple[int, str], _PushChannel] = {}
        """The channels by the slots and the ids of their entities."""

    def join(self, place: tuple[int, str], receiver: str, source: str, listener: PushListener) -> PushMember:
        """Let a receiver hear the pushes for one source of a partition, which has a slot and the id of its entity.

        The listener is told when the subscription is confirmed. If it is confirmed already, the member says by which
        server process.
        """
        channel = self._open.get(place)
        if channel is None:
            connection, namespace = self._connection, self._connection.namespace
            slot, entity = place
            name = push_channel(namespace.name, namespace.salt(slot), entity, connection.id)
            channel = self._open[place] = _PushChannel(name, partial(self._ended, place), connection.turns.soon)
            channel.subscription = connection.transport.listen(name, channel, channel.refused)
        return channel.join((receiver, source), listener)

    def hears(self, place: tuple[int, str]) -> bool:
        """Return whether receivers of the client hear this partition: a server process has confirmed the channel."""
        channel = self._open.get(place)
        return channel is not None and channel.run is not None

    def _ended(self, place: tuple[int, str]) -> None:
        channel = self._open.pop(place)
        if channel.subscription is not None and not self._connection.closed:  # otherwise it ends with the connection
            channel.subscription.close()


class _PushChannel:
    """A channel that receivers hear."""

    def __init__(self, name: bytes, ended: partial[None], soon: Callable[[Callable[[], None]], None]) -> None:
        """``soon`` does some work in a later turn of the event loop, because there may be very many members."""
        self.name = name
        self._soon = soon
        self.subscription: Subscription | None = None
        self.subscriptions = 0
        """The number of subscriptions that were confirmed so far."""
        self._ended = ended
        self._members: dict[tuple[str, str], PushMember] = {}

    @property
    def run(self) -> str | None:
        found = None if self.subscription is None or not self.subscriptions else self.subscription.run_id
        return None if found is None else found[:_RUN].decode()

    def join(self, key: tuple[str, str], listener: PushListener) -> PushMember:
        if key in self._members:
            raise ValueError(f"the receiver {key[0]} hears this channel already")
        member = self._members[key] = PushMember(self, key, listener)
        if self.run is not None:
            member.learn()
        return member

    def leave(self, key: tuple[str, str]) -> None:
        if self._members.pop(key, None) is not None and not self._members:
            self._ended()

    def _tell(self, key: tuple[str, str]) -> None:
        """Tell a member, if it has not left, that the subscription is confirmed."""
        member = self._members.get(key)
        if member is not None:
            member.tell()

    # -- a listener of the transport -----------------------------------------------------------------------------------

    def message(self, payload: bytes) -> None:
        try:
            heard = read_push(payload)
        except DataLayoutError as error:
            _log.debug("a push on %r is ignored: %s", self.name, error)
            return
        member = self._members.get((heard.receiver, heard.source))
        if member is not None:
            member.listener.pushed(heard.push)

    def gap(self) -> None:
        self.subscriptions += 1
        for key in self._members:
            self._soon(partial(self._tell, key))

    def refused(self, error: ServiceBusError) -> None:
        members, self._members = self._members, {}
        if members:  # otherwise it has ended before, and the end of the connection is what is told
            self._ended()
        for member in members.values():
            member.listener.refused(error)
