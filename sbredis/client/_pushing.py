"""The channels on which partitions push to a client: one for each partition, shared by all receivers of the client.

A channel is open while a receiver needs it. A push names the receiver and the side, so it goes to the right one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
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
_AT_ONCE = 50
"""The largest number of receivers that are told of a subscription in one turn of the event loop."""


class PushListener(Protocol):
    """The part of a receiver that hears pushes. Its methods run in the event loop, so they must not block."""

    def pushed(self, push: CreditPush[Delivery]) -> None:
        """Handle a push."""
        ...

    def subscribed(self, run: str) -> None:
        """Handle a new subscription, which the server process ``run`` has confirmed. Earlier pushes may be lost."""
        ...

    def refused(self, error: ServiceBusError) -> None:
        """Handle a refusal of the channel. The membership has ended."""
        ...


class PushMember:
    """A receiver that hears a channel, until it leaves."""

    __slots__ = ("_channel", "_key")

    def __init__(self, channel: _PushChannel, key: tuple[str, str]) -> None:
        self._channel, self._key = channel, key

    @property
    def channel(self) -> bytes:
        """The name of the channel."""
        return self._channel.name

    @property
    def run(self) -> str | None:
        """The server process that has confirmed the subscription last; ``None`` while none has."""
        return self._channel.run

    def leave(self) -> None:
        """Stop hearing the channel."""
        self._channel.leave(self._key)


class PushChannels:
    """The open channels of a client."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._open: dict[tuple[int, str], _PushChannel] = {}
        """The channels by the slots and the ids of their entities."""
        self._untold: deque[tuple[_PushChannel, tuple[str, str]]] = deque()
        """The members of channels who must be told that the subscription is confirmed."""

    def join(self, place: tuple[int, str], receiver: str, source: str, listener: PushListener) -> PushMember:
        """Let a receiver hear the pushes for one source of a partition, which has a slot and the id of its entity.

        The listener is told when the subscription is confirmed, also if it was confirmed before.
        """
        channel = self._open.get(place)
        if channel is None:
            connection, namespace = self._connection, self._connection.namespace
            slot, entity = place
            name = push_channel(namespace.name, namespace.salt(slot), entity, connection.id)
            channel = self._open[place] = _PushChannel(name, partial(self._ended, place), self._tell)
            channel.subscription = connection.transport.listen(name, channel, channel.refused)
        return channel.join((receiver, source), listener)

    def _tell(self, channel: _PushChannel, member: tuple[str, str]) -> None:
        """Tell a member in the next turn of the event loop, or in a later one if there are many."""
        if not self._untold:
            asyncio.get_running_loop().call_soon(self._tell_some)
        self._untold.append((channel, member))

    def _tell_some(self) -> None:
        for _ in range(min(_AT_ONCE, len(self._untold))):
            channel, member = self._untold.popleft()
            channel.confirm(member)
        if self._untold:
            asyncio.get_running_loop().call_soon(self._tell_some)

    def _ended(self, place: tuple[int, str]) -> None:
        channel = self._open.pop(place)
        if channel.subscription is not None and not self._connection.closed:  # otherwise it ends with the connection
            channel.subscription.close()


class _PushChannel:
    """A channel that receivers hear."""

    def __init__(
        self, name: bytes, ended: partial[None], tell: Callable[[_PushChannel, tuple[str, str]], None]
    ) -> None:
        self.name = name
        self._tell = tell
        self.subscription: Subscription | None = None
        self._ended = ended
        self._members: dict[tuple[str, str], PushListener] = {}

    @property
    def run(self) -> str | None:
        found = None if self.subscription is None else self.subscription.run_id
        return None if found is None else found[:_RUN].decode()

    def join(self, key: tuple[str, str], listener: PushListener) -> PushMember:
        if key in self._members:
            raise ValueError(f"the receiver {key[0]} hears this channel already")
        self._members[key] = listener
        if self.run is not None:
            self._tell(self, key)
        return PushMember(self, key)

    def leave(self, key: tuple[str, str]) -> None:
        if self._members.pop(key, None) is not None and not self._members:
            self._ended()

    def confirm(self, key: tuple[str, str]) -> None:
        """Tell a member, if there is one, that the subscription is confirmed."""
        if key in self._members and (run := self.run) is not None:
            self._members[key].subscribed(run)

    # -- a listener of the transport -----------------------------------------------------------------------------------

    def message(self, payload: bytes) -> None:
        try:
            heard = read_push(payload)
        except DataLayoutError as error:
            _log.debug("a push on %r is ignored: %s", self.name, error)
            return
        listener = self._members.get((heard.receiver, heard.source))
        if listener is not None:
            listener.pushed(heard.push)

    def gap(self) -> None:
        for key in self._members:
            self._tell(self, key)

    def refused(self, error: ServiceBusError) -> None:
        members, self._members = self._members, {}
        self._ended()
        for listener in members.values():
            listener.refused(error)
