# pyright: reportPrivateUsage=false
"""An entity as a client knows it: what the registry says, its partitions, and the lanes to them.

What a client knows may be old. A partition tells it so, and it reads the registry again and goes on: with other
settings, with the entity that has come in the place of the one it knew, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio

from sbredis.aio.calls._partition_client import PartitionClient
from sbredis.aio.calls._routing import Routing, routing_for
from sbredis.engine import Partition, SettingsBehindError, SettingsStaleError, Turn, partition_for_key, perform
from sbredis.exceptions import MessagingEntityNotFoundError, NamespaceMissingError, Outcome, ServiceBusError
from sbredis.registry import EntityRecord

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection, Creation
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["Entity"]

_log = logging.getLogger("sbredis.client")
_LARGE = 500


class Entity:
    """A queue, topic or subscription, as those who use it in this client share it."""

    def __init__(self, connection: Connection, record: EntityRecord) -> None:
        self.connection = connection
        self._lock = anyio.Lock()
        self._partition_clients: dict[int, PartitionClient] = {}
        self.routing: Routing | None = None
        """What becomes of messages, where they are sent to a topic."""
        self._routed = False
        self.create: Creation | None = None
        """Creates it again where the namespace has vanished, because a user of it said ``create_if_missing``."""
        self.watchers: set[Callable[[], None]] = set()
        """Called when the registry has said something else than before."""
        self.adopt(record)

    def adopt(self, record: EntityRecord, routing: Routing | None = None) -> None:
        """Go by what the registry says now; of a topic, ``routing`` is what belongs to that."""
        self.record = record
        self.routing = routing
        self.gone = False
        """The registry does not know it any more."""
        self.name = record.path
        self.partitioned = record.partitioned
        self.numbers = record.partitions
        self.detects_duplicates = record.settings.duplicate_window is not None
        self.largest_message = record.settings.largest_message
        self._partitions: dict[int, Partition] = {}
        self._at = 0
        for watcher in list(self.watchers):
            watcher()

    def partition(self, number: int) -> Partition:
        """A partition, by what is known of it now."""
        found = self._partitions.get(number)
        if found is None:
            if number not in self.numbers:
                raise ServiceBusError(
                    f"'{self.name}' has been deleted and created again, and is elsewhere now: get another sender or "
                    "receiver from another client.",
                    outcome=Outcome.NEVER_SENT,
                )
            found = self._partitions[number] = self.connection.namespace.partition(self.record, number)
        return found

    def partition_client(self, number: int) -> PartitionClient:
        """Where calls to a partition come together."""
        found = self._partition_clients.get(number)
        if found is None:
            found = self._partition_clients[number] = PartitionClient(self, number)
        return found

    def base(self, number: int) -> int:
        """What is added to a partition's own numbers to make sequence numbers."""
        return number << 48 if self.partitioned else 0

    def place(self, sequence_number: int) -> tuple[int, int]:
        """Partition and own number of a sequence number; a partition that is not there holds nothing either."""
        if not self.partitioned:
            return self.numbers[0], sequence_number
        return sequence_number >> 48, sequence_number & ((1 << 48) - 1)

    def partition_client_of(self, message: ServiceBusReceivedMessage) -> PartitionClient:
        """Where calls about a message of this entity come together."""
        return self.partition_client(message._base >> 48 if self.partitioned else self.numbers[0])

    def of_session(self, name: str) -> PartitionClient:
        """Where a session lies."""
        return self.pinned(name) if self.partitioned else self.partition_client(self.numbers[0])

    def pinned(self, key: str | bytes) -> PartitionClient:
        """The partition of a session id, a partition key or a message id."""
        return self.partition_client(self.numbers[partition_for_key(key, len(self.numbers))])

    def next_partition_client(self) -> PartitionClient:
        """The partition for what may go to any: one after the other, but no other while one still gathers for its next
        call, so that calls stay large; and past those that cannot be reached, which are tried again beside.
        """
        partition_client = self.partition_client(self.numbers[self._at])
        if 0 < partition_client.sending.gathering < _LARGE and not partition_client.down_until:
            return partition_client
        for _ in self.numbers:
            self._at = (self._at + 1) % len(self.numbers)
            partition_client = self.partition_client(self.numbers[self._at])
            if not partition_client.down_until:
                return partition_client
            if partition_client.down_until <= anyio.current_time():
                partition_client.probe()
        return partition_client

    async def reload(self, seen: EntityRecord, until: float) -> None:
        """Read the registry again, unless somebody else has done so since ``seen`` was current."""
        async with self._lock:
            if self.record is not seen:
                return
            found, routing = await self._found(until)
            learnt = self.routing is None and routing is not None  # it has come in the place of a queue
            if found.incarnation == seen.incarnation and found.version <= seen.version and not learnt:
                if routing is not None and await self._mended(routing, until):
                    self.adopt(found, routing)
                    return
                raise SettingsStaleError(
                    f"A partition of '{self.name}' has newer settings than version {found.version}, which is what the "
                    "registry has: a failover has lost a change. Change the settings again for this to be possible."
                )
            self.adopt(found, routing)
            _log.debug("%s: version %d of the settings", self.name, self.record.version)

    async def recover(self, seen: EntityRecord, until: float) -> None:
        """A partition says that the entity is not there: find out whether it is, and have it made again if so.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the registry does not know it either.
        """
        async with self._lock:
            if self.record is not seen:
                return
            found, routing = await self._found(until)
            if found.incarnation == seen.incarnation:
                _log.warning("%s: a failover has lost a partition; it is made again, empty", self.name)
                found = await self.connection.namespace.restore_entity(found, timeout=until - anyio.current_time())
                if routing is not None:
                    found, routing = await self._found(until)
            self.adopt(found, routing)

    async def load_routing(self, until: float) -> None:
        """Find out what becomes of messages that are sent to this topic, and from now on keep up with it."""
        async with self._lock:
            if self.routing is None:
                self._routed = True
                self.adopt(*await self._found(until))

    async def _found(self, until: float) -> tuple[EntityRecord, Routing | None]:
        try:
            return await self._read(until)
        except NamespaceMissingError:
            if self.create is None:
                raise
            _log.warning("%s: the namespace has vanished, its servers came back empty; creating it again", self.name)
            await self.create(self.connection.namespace, self.name, until - anyio.current_time())
            self.gone = False
            return await self._read(until)

    async def _read(self, until: float) -> tuple[EntityRecord, Routing | None]:
        try:
            if not self._routed:
                record = await self.connection.record(self.name, until)
                if record.kind != "topic":
                    return record, None
            namespace, known = self.connection.namespace, self.routing
            try:
                routes = await namespace.routes(
                    self.name, None if known is None else known.judge.routes, timeout=until - anyio.current_time()
                )
            except MessagingEntityNotFoundError:
                record = await self.connection.record(self.name, until)
                if record.kind == "topic":
                    raise
                self._routed = False  # a queue has come in its place
                return record, None
            self._routed = True
            return routes.topic, await routing_for(namespace, routes, known)
        except MessagingEntityNotFoundError:
            self.gone = True
            raise

    async def _mended(self, routing: Routing, until: float) -> bool:
        """Whether a partition of a subscription was missing, which a failover has lost; it is made again, empty."""
        namespace, transport = self.connection.namespace, self.connection.transport
        turn, mended = Turn("", 0, self.connection.clock.told()), False
        for number in self.numbers:
            for record, partition in routing.partitions(number):
                try:
                    await perform(transport, partition.count(turn), timeout=until - anyio.current_time())
                except MessagingEntityNotFoundError:
                    _log.warning("%s: a failover has lost a partition; it is made again, empty", record.path)
                    await namespace.restore_entity(record, timeout=until - anyio.current_time())
                    mended = True
                except (SettingsBehindError, SettingsStaleError):
                    continue  # it is there
        return mended

    def close(self) -> None:
        """End what waits at its partitions."""
        for partition_client in self._partition_clients.values():
            partition_client.close()
