"""An entity, which all senders and receivers of a client share: its record, its partitions, and the routing of a topic.

The client's knowledge may be out of date. In that case a partition refuses the call, and the client reads the registry
again. It continues with the new settings, or with the entity that has replaced the old one, or it finds that the entity
is gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import randrange
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakValueDictionary

from sbredis.client._delivering import DefectError
from sbredis.client._partition_client import PartitionClient
from sbredis.client._routing import Routing, routing_for
from sbredis.engine import (
    MOST_PARTITIONS,
    CallId,
    Partition,
    SettingsBehindError,
    SettingsStaleError,
    partition_for_key,
    perform,
)
from sbredis.exceptions import (
    EntityReservedError,
    MessagingEntityNotFoundError,
    NamespaceMissingError,
    Outcome,
    ServiceBusError,
)
from sbredis.registry import EntityRecord, Namespace, reservation_of, say_reserved

if TYPE_CHECKING:
    from sbredis.client._connection import Connection

__all__ = ["Creation", "Entity", "KnownEntities"]

_log = logging.getLogger("sbredis.client")
_TURN: Final = 500
"""The largest number of sends in a turn of a partition."""
_GIVING_BACK = 10.0
"""The longest time for which to wait for what was given back, at all partitions together."""
_READ_AGAIN, _READING = 5.0, 30.0
"""The seconds between two readings of rules that cannot be read, and the time for a reading."""
Creation = Callable[[Namespace, str, float], Coroutine[Any, Any, EntityRecord]]
"""Creates a missing entity with this name within this number of seconds. It is used only with ``create_if_missing``."""


class EntityWatcher(Protocol):
    """A receiver, as far as it is told of changes of its entity. Its methods run in the event loop."""

    @property
    def source(self) -> str:
        """What it wants from partitions."""
        ...

    def entity_changed(self) -> None:
        """Handle a change of the registry's record."""
        ...

    def telling(self, error: ServiceBusError, /) -> Callable[[], None]:
        """Return a function that gives an error to the calls that wait now. Later calls ask for themselves."""
        ...


class Entity:
    """A queue, topic or subscription, shared by all its users in this client."""

    def __init__(self, connection: Connection, record: EntityRecord) -> None:
        self.connection = connection
        self.loop = asyncio.get_running_loop()
        """The event loop of the client."""
        self._lock = asyncio.Lock()
        self._confirming = asyncio.Lock()
        self._begun = self._confirmed = 0
        """The numbers of the last reading of :meth:`confirm` that began, and of the last one that succeeded."""
        self.routing: Routing | None = None
        """The routing of messages, if this is a topic to which the client sends."""
        self._routed = False
        self._rereading = False
        """Whether a task reads the rules again and again, because some of them cannot be read."""
        self.create: Creation | None = None
        """Creates the entity again if the namespace has vanished. ``None`` without ``create_if_missing``."""
        self.watchers: set[EntityWatcher] = set()
        """The receivers that are told of changes."""
        self._refused: set[str] = set()
        """The sources that nobody may receive from. Their receivers are being told so."""
        self._looking = False
        """Whether a task looks for a new entity in the place of this one, which is missing."""
        self.free_sessions: dict[tuple[int, int | None], Any] = {}
        """The inboxes of free sessions, by the number of messages that come with each session, and by hands."""
        self.searches: dict[str, Any] = {}
        """The searches for partitions that have something, by what receivers want: messages of a side, or sessions."""
        self._partition_clients: dict[int, PartitionClient] = {}
        self._at = randrange(MOST_PARTITIONS)
        """The place of the partition whose turn it is. It begins at random, so that many clients with few messages do
        not all send to the same partition.
        """
        self._turn: PartitionClient | None = None
        """The client of this partition; ``None`` before the first turn, and after the record has changed."""
        self._left = 0
        """The number of sends that are left of its turn."""
        self.adopt(record)

    def adopt(self, record: EntityRecord, routing: Routing | None = None) -> None:
        """Use this record from now on, and for a topic also the ``routing`` that belongs to the record."""
        self.record = record
        self.routing = routing
        self.gone = False
        """Whether the registry does not know the entity any more."""
        self.name = record.path
        self.partitioned = record.partitioned
        self.numbers = record.partitions
        self.requires_sessions = record.settings.sessions
        self.forwards = record.settings.forwards or (routing is not None and routing.forwards)
        self.detects_duplicates = record.settings.duplicate_window is not None
        self.largest_message = record.settings.largest_message
        self.keeps_messages = record.kind != "topic"
        """Whether messages can be received from it. A topic keeps only those that it could not pass on."""
        self.is_plain = record.kind == "queue" and not (self.requires_sessions or self.forwards)
        """Whether a message needs nothing but a partition and room to be sent."""
        self._partitions: dict[int, Partition] = {}
        self._turn = None
        hooks = self.connection.test_hooks
        if hooks is not None:
            for used in (record, *(() if routing is None else routing.records)):
                hooks.used(self.connection.target.namespace, used)
        if routing is not None and routing.judge.routes.has_unreadable_rules and not self._rereading:
            self._rereading = self.connection.attempt(f"{self.name}: the reading of rules", self._read_rules_again)
        for watcher in list(self.watchers):
            try:
                watcher.entity_changed()
            except Exception as defect:  # noqa: BLE001 -- the other watchers must learn of the change too
                _log.error("%s: a receiver ends its calls because of a defect", self.name, exc_info=defect)
                watcher.telling(DefectError(defect, None))()

    def refused(self, source: str, error: ServiceBusError) -> bool:
        """Tell the receive calls that wait for the same as one that nobody may receive it now. Return ``False`` if
        others are being told, so that this one was not among those that waited.

        By calls of their own, the last one of very many would learn it many seconds later. If the entity is missing,
        they are told a little later, and only if there is no new entity of its name then.
        """
        if isinstance(error, MessagingEntityNotFoundError):
            if not self._looking:
                self._looking = self.connection.attempt(f"{self.name}: the look for a new entity", self._look_for_new)
            return self._looking
        if source in self._refused:
            return False
        self._refused.add(source)
        self._tell([watcher for watcher in self.watchers if watcher.source == source], error)
        self.connection.openings.soon(partial(self._refused.discard, source))
        return True

    async def _look_for_new(self) -> None:
        try:
            await asyncio.sleep(self.connection.timings.missing)
            async with self._lock:
                if self.gone:
                    self.adopt(*await self._read_or_create(self.loop.time() + _READING))
        except MessagingEntityNotFoundError as error:
            self._tell(self.watchers, error)
        finally:
            self._looking = False

    def _tell(self, watchers: Iterable[EntityWatcher], error: ServiceBusError) -> None:
        for watcher in watchers:
            self.connection.openings.soon(watcher.telling(error))

    def partition(self, number: int) -> Partition:
        """Return a partition, as the current record describes it."""
        found = self._partitions.get(number)
        if found is None:
            if number not in self.numbers:
                raise ServiceBusError(
                    f"'{self.name}' was deleted and created again, and is in other partitions now. Create a new "
                    "client, and get a new sender or receiver from it.",
                    outcome=Outcome.NEVER_SENT,
                )
            found = self._partitions[number] = self.connection.namespace.partition(self.record, number)
        return found

    def base(self, number: int) -> int:
        """Return the number to add to a partition's own numbers to make sequence numbers."""
        return number << 48 if self.partitioned else 0

    def place(self, sequence_number: int) -> tuple[int, int]:
        """Split a sequence number into the partition, which may not exist, and the number inside the partition."""
        if not self.partitioned:
            return self.numbers[0], sequence_number
        return sequence_number >> 48, sequence_number & ((1 << 48) - 1)

    def partition_client(self, number: int) -> PartitionClient:
        """Return the client for a partition."""
        found = self._partition_clients.get(number)
        if found is None:
            found = self._partition_clients[number] = PartitionClient(self, number, self.next_partition_client)
        return found

    async def given_back(self, seconds: float = _GIVING_BACK) -> bool:
        """Wait at most these seconds until what receivers gave back is in the partitions. Return whether it is."""
        until = self.loop.time() + seconds
        partition_clients = [self.partition_client(number) for number in self.numbers]
        return all([await partition_client.giving_back.ended(until) for partition_client in partition_clients])

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the server of each partition that the client uses."""
        return all(link.connected for link in self._partition_clients.values() if link.number in self.numbers)

    def of_session(self, name: str) -> PartitionClient:
        """Return the client for the partition of a session."""
        return self.pinned(name) if self.partitioned else self.partition_client(self.numbers[0])

    def pinned(self, key: str | bytes) -> PartitionClient:
        """Return the client for the partition of a session id, a partition key or a message id."""
        return self.partition_client(self.numbers[partition_for_key(key, len(self.numbers))])

    def next_partition_client(self) -> PartitionClient:
        """Return the partition for messages that may go to any partition.

        Partitions take turns. But as long as messages gather for the next call of a partition, or its first call was
        just made, the method returns the same partition again, so that calls stay large. If a turn of messages waits
        there already, the partition is slow, and the others get the next ones. The method skips partitions that cannot
        be reached, and probes them in the background.
        """
        found = self._turn
        if found is not None and not found.down_until:
            if not self.partitioned:
                return found
            sending = found.sending
            if self._left and sending.gathers and len(sending.gathering.futures) < _TURN:
                self._left -= 1
                return found
        numbers, self._left = self.numbers, _TURN - 1
        for _ in numbers:
            self._at = (self._at + 1) % len(numbers)
            found = self._turn = self.partition_client(numbers[self._at])
            if not found.down_until:
                break
            found.probe_if_due()
        assert found is not None  # an entity has a partition
        return found

    def close(self) -> None:
        """Fail the jobs that wait at the partitions of the entity."""
        for inbox in self.free_sessions.values():
            inbox.leave()
        for partition_client in self._partition_clients.values():
            partition_client.close()

    def explain(self, error: ServiceBusError) -> None:
        """Let an error say more, if the record of the entity knows more than the partition that has refused a call."""
        if isinstance(error, EntityReservedError) and error.consumer is None:
            reservation = reservation_of(self.record)
            if reservation is not None:
                say_reserved(error, self.name, reservation, "no other receiver gets its messages")

    async def reload(self, seen: EntityRecord, until: float) -> None:
        """Read the registry again, unless another caller has already replaced the record ``seen``."""
        async with self._lock:
            if self.record is not seen:
                return
            found, routing = await self._read_or_create(until)
            learnt = self.routing is None and routing is not None  # a topic has replaced a queue
            same = found.incarnation == seen.incarnation and found.version <= seen.version and not learnt
            if same and (routing is None or not await self._recreate_lost(routing, until)):
                raise SettingsStaleError(
                    f"A partition of '{self.name}' has newer settings than the registry, which has version "
                    f"{found.version}. A failover has lost a change in the registry: make the change again."
                )
            self.adopt(replace(found), routing)  # a new object: callers that wait see that this was done
            _log.debug("%s: the client now uses version %d of the settings", self.name, self.record.version)

    async def recover(self, seen: EntityRecord, until: float) -> None:
        """Look the entity up in the registry, after a partition did not know it. If it exists, create what was lost.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the registry does not know it either.
        """
        async with self._lock:
            if self.record is not seen:
                return
            found, routing = await self._read_or_create(until)
            if found.incarnation == seen.incarnation:
                _log.warning("%s: a failover has lost a partition; the partition is created again, empty", self.name)
                found = await self.connection.namespace.restore_entity(found, timeout=until - self.loop.time())
                if routing is not None:
                    found, routing = await self._read_or_create(until)
            self.adopt(replace(found), routing)  # a new object, as above

    async def refresh(self, until: float) -> bool:
        """Read the registry once. Return whether the record has changed.

        A client does this before it decides against a message by its record, which no partition has confirmed.
        """
        seen = self.record
        async with self._lock:
            if self.record is seen:
                found, routing = await self._read_or_create(until)
                if (found.incarnation, found.version) != (seen.incarnation, seen.version):
                    self.adopt(found, routing)
        return self.record is not seen

    async def confirm(self, until: float) -> None:
        """Read the record of the entity, and adopt it if it has changed.

        A client does this before it relies on an entity in a call that the entity's partitions do not see. Callers that
        come during a reading share the next one, which begins after they came. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the entity does not exist any more.
        """
        begun = self._begun
        async with self._confirming:
            if self._confirmed <= begun:
                self._begun += 1
                number = self._begun
                try:
                    found = await self._read_record(until)
                except NamespaceMissingError:
                    await self.refresh(until)
                    return
                except MessagingEntityNotFoundError:
                    self.gone = True
                    raise
                if (found.incarnation, found.version) != (self.record.incarnation, self.record.version):
                    await self.refresh(until)
                self._confirmed = number

    async def require(self, check: Callable[[EntityRecord], None], until: float) -> None:
        """Check the record. If it fails the check, the entity may have changed: read the registry, and check it again.

        ``check`` raises a :class:`~sbredis.exceptions.ServiceBusError` if the record fails.
        """
        try:
            check(self.record)
        except ServiceBusError:
            if not await self.refresh(until):
                raise
            check(self.record)

    async def load_routing(self, until: float) -> None:
        """Read the rules of this topic now. Each later reload reads them too."""
        async with self._lock:
            if self.routing is None:
                self._routed = True
                self.adopt(*await self._read_or_create(until))

    async def _read_rules_again(self) -> None:
        """Read the rules of this topic until all of them can be read. Their repair by hand raises no version."""
        try:
            while self.routing is not None and self.routing.judge.routes.has_unreadable_rules and not self.gone:
                await asyncio.sleep(_READ_AGAIN)
                with suppress(ServiceBusError):
                    async with self._lock:
                        self.adopt(*await self._read(self.loop.time() + _READING))
        finally:
            self._rereading = False

    async def _read_or_create(self, until: float) -> tuple[EntityRecord, Routing | None]:
        try:
            return await self._read(until)
        except NamespaceMissingError:
            if self.create is None:
                raise
            _log.warning(
                "%s: the namespace is gone, because its servers have lost their data; the namespace is created again",
                self.name,
            )
            await self.create(self.connection.namespace, self.name, until - self.loop.time())
            self.connection.forget_entities()  # the other entities were lost too
            self.gone = False
            return await self._read(until)

    async def _read(self, until: float) -> tuple[EntityRecord, Routing | None]:
        try:
            if not self._routed:
                record = await self._read_record(until)
                if record.kind != "topic":
                    return record, None
            namespace, known = self.connection.namespace, self.routing
            try:
                routes = await namespace.routes(
                    self.name, None if known is None else known.judge.routes, timeout=until - self.loop.time()
                )
            except MessagingEntityNotFoundError:
                record = await self._read_record(until)
                if record.kind == "topic":
                    raise
                self._routed = False  # a queue has replaced the topic
                return record, None
            self._routed = True
            return routes.topic, await routing_for(namespace, routes, known, spreads=self.connection.test_hooks is None)
        except MessagingEntityNotFoundError:
            self.gone = True
            raise

    async def _read_record(self, until: float) -> EntityRecord:
        self.connection.check_open()
        try:
            return await self.connection.namespace.get_entity(self.name, timeout=until - self.loop.time())
        except ServiceBusError as error:
            error.entity = self.name
            raise

    async def _recreate_lost(self, routing: Routing, until: float) -> bool:
        """Create lost partitions of subscriptions again, empty, after a failover. Return whether any were lost."""
        namespace, transport = self.connection.namespace, self.connection.transport
        call_id, recreated = CallId("", 0, self.connection.clock.told()), False
        for number in self.numbers:
            for record, partition in routing.partitions(number):
                try:
                    await perform(transport, partition.count(call_id), timeout=until - self.loop.time())
                except MessagingEntityNotFoundError:
                    _log.warning(
                        "%s: a failover has lost a partition; the partition is created again, empty", record.path
                    )
                    await namespace.restore_entity(record, timeout=until - self.loop.time())
                    recreated = True
                except (SettingsBehindError, SettingsStaleError):
                    continue  # the partition exists
        return recreated


_MOST: Final = 1000


class KnownEntities:
    """The entities of a client by their keys. No two of them are of the same entity.

    A client may send one message to each of a million queues. So only ``most`` entities are kept, and each other one is
    forgotten when nothing refers to it: no sender, receiver or message, and no call under way. Python knows that better
    than any count of uses.
    """

    def __init__(self, most: int = _MOST) -> None:
        self.most = most
        self._by_key: WeakValueDictionary[str, Entity] = WeakValueDictionary()
        self._kept: OrderedDict[Entity, None] = OrderedDict()
        """The entities that are kept, in the order of their last use."""

    def __len__(self) -> int:
        """Return the number of entities that are not forgotten."""
        return len(self._by_key)

    def __iter__(self) -> Iterator[Entity]:
        """Return the entities that are not forgotten."""
        return iter(list(self._by_key.values()))

    def get(self, key: str) -> Entity | None:
        """Return an entity, and keep it for now."""
        found = self._by_key.get(key)
        if found is not None:
            self.keep(found)
        return found

    def add(self, key: str, entity: Entity) -> None:
        """Add an entity whose key is unknown, and keep it for now."""
        self._by_key[key] = entity
        self.keep(entity)

    def keep(self, entity: Entity) -> None:
        """Keep an entity until ``most`` others have been used."""
        self._kept[entity] = None
        self._kept.move_to_end(entity)
        while len(self._kept) > self.most:
            self._kept.popitem(last=False)
