"""Carry messages from one partition to another: make the calls that :mod:`sbredis.moving._moves` decides."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sbredis.client import CALLING
from sbredis.engine import (
    NO_CALL_ID,
    Batch,
    CallId,
    Changes,
    Delivery,
    MessagesMovedError,
    Operation,
    Origin,
    Outgoing,
    Partition,
    PartRefusedError,
    Recipient,
    Request,
    Sent,
    SettingsBehindError,
    SettingsStaleError,
    decode_changes,
    encode_changes,
    is_full,
    perform,
    transact,
    withdraw,
)
from sbredis.exceptions import (
    DataLayoutError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ScriptRefusedError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)
from sbredis.model import read_purpose
from sbredis.moving._destinations import Destinations, Heap, fault_of
from sbredis.moving._moves import (
    MOST_AT_ONCE,
    Bound,
    Ended,
    Fault,
    Freeze,
    Move,
    MoveAtOnce,
    MoveGroup,
    ReadBatch,
    Settle,
    Take,
)
from sbredis.moving._reserve import has_reserve

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity
    from sbredis.engine import Destination, Taken, Transacted
    from sbredis.registry import EntityRecord

__all__ = ["Carrier", "ask", "ask_to_store", "sending_of"]

_log = logging.getLogger("sbredis.maintenance")
T = TypeVar("T")
_CODES: tuple[tuple[type[ServiceBusError], str], ...] = (
    (ServiceBusQuotaExceededError, "QUOTA"),
    (MessagingEntityDisabledError, "DISABLED"),
    (MessageSizeExceededError, "TOOLARGE"),
    (MessagingEntityNotFoundError, "GONE"),
)
"""The refusals of a destination within the same slot, and their codes."""


_SLOTS_APART = "CROSSSLOT"
"""The refusal of what looks like one server, and is a proxy in front of several: keys of several slots in one call."""


async def ask(connection: Connection, entity: Entity, number: int, make: Callable[[Partition], Request[T]]) -> T:
    """Make a call to a partition. If the client's knowledge of the entity is out of date, correct it and repeat.

    Raises :class:`MessagingEntityNotFoundError` if the entity does not exist any more.
    """
    loop = asyncio.get_running_loop()
    until, entity_id = loop.time() + CALLING, entity.record.id
    while True:
        record = entity.record
        if record.id != entity_id:
            raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        try:
            return await perform(connection.transport, make(entity.partition(number)), timeout=until - loop.time())
        except SettingsBehindError:
            await entity.partition_client(number).tell(until)
        except SettingsStaleError:
            await entity.reload(record, until)
        except MessagingEntityNotFoundError:
            await _recover(entity, until)


async def ask_to_store(
    connection: Connection, entity: Entity, number: int, make: Callable[[Partition], Request[T]], *, neutral: bool
) -> T:
    """Make a call that stores messages that a server has accepted already.

    A server at its memory limit runs the call if it is ``neutral``, which means that the server stores no more
    afterwards than before; or if the server may still take from its reserve.
    """
    try:
        return await ask(connection, entity, number, lambda partition: make(partition)._replace(at_limit=neutral))
    except ServiceBusServerBusyError as error:
        if not is_full(error) or not await has_reserve(connection, entity.partition(number).keys[0]):
            raise
    return await ask(connection, entity, number, lambda partition: make(partition)._replace(at_limit=True))


async def _recover(entity: Entity, until: float) -> None:
    """Find out why a partition does not exist. If a failover has lost it, create it again.

    Another entity of the same name does not take the place of this one, because the messages are not meant for it.
    """
    record = entity.record
    await entity.recover(record, until)
    if entity.record.id != record.id:
        raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")


class Carrier:
    """Carries messages out of one source partition."""

    def __init__(
        self,
        source: Entity,
        number: int,
        birth: str,
        destinations: Destinations,
        doors: Mapping[Destination, str] | None = None,
        *,
        one_server: bool = False,
    ) -> None:
        self._connection = source.connection
        self._source = source
        self._number = number
        self._origin = Origin(source.record.id, birth)
        self.one_server = one_server
        """Whether one server has all slots, so that one script may use the keys of several: until it refuses that."""
        self.destinations = destinations
        self.doors = dict(doors or {})
        """The doors of destinations: before a move, those that were known before the messages were read."""
        self.carried: set[str] = set()
        """The names of messages that calls of this carrier have moved or frozen, or may have moved.

        A batch that another mover has frozen is not among them if batches have the mover in their purpose.
        """
        self.given_up: set[str] = set()
        """The names of messages that no destination takes. Their source has them with the reason."""
        self.strangers: dict[Origin, tuple[Entity, int]] = {}
        """Older sources that a destination knows, each with the destination and the number of its partition."""

    async def carry_all(self, heaps: Iterable[Heap], outstanding: Iterable[Destination] = ()) -> ServiceBusError | None:
        """Carry messages to all their destinations at the same time. Return an error if one failed.

        The messages for a destination wait until an ``outstanding`` batch for it is complete.
        """
        works = {place: self.carry(place, None) for place in outstanding}
        for heap in heaps:
            if heap.destination not in works:
                works[heap.destination] = self.carry(heap.destination, heap.entity, heap.moves)
        failed: ServiceBusError | None = None
        for result in await asyncio.gather(*works.values(), return_exceptions=True):
            if isinstance(result, MessagingEntityNotFoundError) or not isinstance(result, ServiceBusError | None):
                raise result  # the source does not exist any more, or there is a fault in the program
            failed = result or failed
        return failed

    async def carry(self, destination: Destination, entity: Entity | None, moves: Sequence[Move] = ()) -> None:
        """Carry messages to one destination, or complete the outstanding batch if there are no ``moves``.

        ``entity`` is ``None`` if the messages cannot be moved to any destination.
        """
        one_script = entity is not None and (destination.number == self._number or self._takes_transfers(moves))
        # A call that moves messages to a topic also deletes them at their source, so it makes fewer copies than a send.
        routing = None if entity is None else entity.routing
        most = MOST_AT_ONCE if routing is None else min(MOST_AT_ONCE, max(1, routing.most // 2))
        group = MoveGroup(moves, one_script=one_script, door=self.doors.get(destination, ""), most=most)
        try:
            await self._carry(group, destination, entity)
        finally:
            self.carried |= group.carried
            self.given_up |= group.given_up

    def _takes_transfers(self, moves: Sequence[Move]) -> bool:
        """Return whether one script can move messages to another slot: transfers, on a server that has all slots."""
        return self.one_server and all([move.message.delivery.state == "x" for move in moves])  # noqa: C419 -- faster

    async def _carry(self, group: MoveGroup, destination: Destination, entity: Entity | None) -> None:
        incarnation = (entity or self._source).record.incarnation
        batch: Batch | None = None
        while True:
            match action := group.next():
                case Ended():
                    if group.door:
                        self.doors[destination] = group.door
                    return
                case MoveAtOnce():
                    assert entity is not None  # one script moves only to a destination that exists
                    await self._at_once(group, entity, destination, action)
                case Freeze():
                    batch = await self._freeze(group, destination, incarnation, action)
                case ReadBatch():
                    batch, entity = await self._read(group, destination, entity)
                case Take():
                    assert batch is not None
                    await self._take(group, destination, entity, batch, action)
                case Settle():
                    assert batch is not None
                    await self._settle(group, destination, batch, action)

    async def _at_once(self, group: MoveGroup, entity: Entity, destination: Destination, action: MoveAtOnce) -> None:
        bound = [move.message for move in action.moves]
        now, record, number = self._connection.clock.told(), entity.record, destination.number
        if record.id != destination.entity:
            self._gone_at_once(group, record.path)
            return

        def make(source: Partition) -> Request[Transacted]:
            withdrawal = withdraw(source, self._origin.birth, [each.delivery for each in bound])
            try:
                sending = sending_of(entity, number, bound, now)
            except (SettingsStaleError, MessageSizeExceededError) as error:
                raise PartRefusedError(error, operation=1) from None
            operations = [withdrawal, Operation(entity.partition(number), sending)]
            return transact(CallId("", 0, now), operations, in_one_slot=not self.one_server)

        try:
            await ask_to_store(
                self._connection, self._source, self._number, make, neutral=entity.record.kind != "topic"
            )
        except PartRefusedError as refusal:
            await self._refused_at_once(group, entity, destination.number, record, refusal)
        except ScriptRefusedError as error:
            if error.reply_code != _SLOTS_APART:
                raise
            self.one_server = False
            group.overtaken()  # what the next reading finds is moved by three calls
        except ServiceBusError as error:
            if error.outcome is not Outcome.UNKNOWN:
                raise
            group.lost()
        else:
            group.moved()

    async def _refused_at_once(
        self, group: MoveGroup, entity: Entity, number: int, record: EntityRecord, refusal: PartRefusedError
    ) -> None:
        """Give up what the destination has refused, or correct the client's knowledge of the destination."""
        error, until = refusal.reason, asyncio.get_running_loop().time() + CALLING
        code = _code_of(error)
        if isinstance(error, MessagesMovedError):
            group.absent(refusal.detail.split())
        elif isinstance(error, SettingsBehindError):
            await entity.partition_client(number).tell(until)
        elif isinstance(error, SettingsStaleError):
            await entity.reload(record, until)
        elif code == "GONE":
            try:
                await _recover(entity, until)
            except MessagingEntityNotFoundError:
                self._gone_at_once(group, record.path)
        elif code == "TOOLARGE" and await entity.refresh(until):
            return  # the limit may be another one now
        elif code is not None:
            group.refused(code, refusal.detail, fault_of(code, record.path))
        else:
            raise error

    def _gone_at_once(self, group: MoveGroup, path: str) -> None:
        if self.destinations.purpose.chosen:
            group.refused("GONE", "", fault_of("GONE", path))
        else:
            group.overtaken()  # there may be another entity of this name; the next reading finds it

    async def _freeze(
        self, group: MoveGroup, destination: Destination, incarnation: str, action: Freeze
    ) -> Batch | None:
        messages = [move.message.delivery for move in action.moves]
        purpose, now = self.destinations.purpose.stored(), self._connection.clock.told()
        batch = await self._ask(
            lambda source: source.freeze(
                self._origin.birth, destination, incarnation, messages, purpose=purpose, now=now
            )
        )
        if batch is None:
            group.overtaken()
        else:
            group.frozen(batch.number, batch.names, foreign=batch.purpose != purpose)
        return batch

    async def _read(
        self, group: MoveGroup, destination: Destination, entity: Entity | None
    ) -> tuple[Batch | None, Entity | None]:
        now = self._connection.clock.told()
        while True:
            waiting = await self._ask(lambda source: source.read_batch(destination, now=now))
            if not waiting.more:
                break
        if not waiting.batches:
            group.overtaken()
            return None, entity
        (batch,) = waiting.batches
        heap = await self.destinations.of_batch(batch, waiting.messages, waiting.now)
        group.read(batch.number, heap.moves)
        return batch, heap.entity

    async def _take(
        self, group: MoveGroup, destination: Destination, entity: Entity | None, batch: Batch, action: Take
    ) -> None:
        if entity is None:
            # The batch was frozen to give its messages up, but some of them have a destination now. Or its destination
            # was deleted. The next reading finds the present destination of each message, if there is one.
            group.judged("over")
            return
        path = entity.record.path
        try:
            while True:
                taken = await self._ask_to_take(destination, entity, batch, action)
                if not taken.more:
                    break
        except MessagingEntityNotFoundError:
            if read_purpose(batch.purpose).chosen:
                group.judged("GONE", "", fault=fault_of("GONE", path))
            else:
                group.judged("over")  # there may be another entity of this name; the next reading finds it
        else:
            for stranger in taken.strangers:
                self.strangers[stranger] = entity, destination.number
            # If a record is lost and the batch was not taken before, the next reading gives that message up.
            verdict = "over" if _is_incomplete(action) and taken.verdict == "TOOLARGE" else taken.verdict
            group.judged(verdict, taken.detail, taken.names, fault_of(taken.verdict, path))

    async def _ask_to_take(self, destination: Destination, entity: Entity, batch: Batch, action: Take) -> Taken:
        bound = [move.message for move in action.moves]
        now, number = self._connection.clock.told(), destination.number

        def make(partition: Partition, *, too_large: bool = False) -> Request[Taken]:
            sending = None if too_large else sending_of(entity, number, bound, now)
            return partition.take(self._origin, batch, action.door, sending, now=now)

        while entity.record.id == destination.entity:
            neutral = entity.record.kind != "topic" and self._is_beside(entity.partition(number))
            try:
                if _is_incomplete(action):
                    return await ask(self._connection, entity, number, partial(make, too_large=True))
                return await ask_to_store(self._connection, entity, number, make, neutral=neutral)
            except MessageSizeExceededError:
                # No call can carry the batch. The destination records this, unless it has judged the batch before. But
                # first find out whether the limits are still those that the client knows.
                if not await entity.refresh(asyncio.get_running_loop().time() + CALLING):
                    return await ask(self._connection, entity, number, partial(make, too_large=True))
        raise MessagingEntityNotFoundError(f"'{entity.record.path}' was deleted and created again.")

    def _is_beside(self, destination: Partition) -> bool:
        """Return whether a partition is on the server of the source, which deletes each batch after it was taken."""
        transport, source = self._connection.transport, self._source.partition(self._number)
        return transport.endpoint_of(destination.keys[0]) == transport.endpoint_of(source.keys[0])

    async def _settle(self, group: MoveGroup, destination: Destination, batch: Batch, action: Settle) -> None:
        to = read_purpose(batch.purpose).to
        recipient = None if to is None else Recipient(destination.entity, batch.incarnation, destination.number, to)
        changes = {
            move.message.name: _with_reason(move.message.delivery, fault, recipient) for move, fault in action.given_up
        }
        now = self._connection.clock.told()
        done = await self._ask(
            lambda source: source.settle_batch(
                self._origin.birth,
                destination,
                action.batch,
                action.verdict,
                names=action.names,
                changes=changes,
                now=now,
            )
        )
        for move, fault in action.given_up if done else ():
            _log.info(
                "%s: message %s cannot be moved and is dead-lettered: %s: %s",
                self._source.name,
                move.message.name,
                fault.reason,
                fault.description,
            )
        group.settled(done=done)

    async def _ask(self, make: Callable[[Partition], Request[T]]) -> T:
        return await ask(self._connection, self._source, self._number, make)


def _is_incomplete(action: Take) -> bool:
    """Return whether a record of the batch is lost, so that no call can carry the batch."""
    return any(move.message.outgoing is None for move in action.moves)


def _outgoing(bound: Sequence[Bound]) -> list[Outgoing]:
    made = [each.outgoing for each in bound]
    return [each for each in made if each is not None]


def sending_of(entity: Entity, number: int, bound: Sequence[Bound], now: int | None) -> Request[Sent]:
    """Return the request that stores messages in a partition of their destination."""
    partition, call_id, made = entity.partition(number), NO_CALL_ID._replace(now=now), _outgoing(bound)
    if entity.record.kind != "topic":
        return partition.send(call_id, made)
    if entity.routing is None:
        raise SettingsStaleError("The entity is a topic, and this client has not read its rules yet.")
    return entity.routing.published(partition, number, call_id, made, [each.facts for each in bound]).request


def _code_of(error: ServiceBusError) -> str | None:
    return next((code for kind, code in _CODES if isinstance(error, kind)), None)


def _with_reason(delivery: Delivery, fault: Fault, recipient: Recipient | None) -> bytes:
    """Return the changes of a message that is given up: the reason is added to all earlier changes.

    If a client has chosen the message, its destination is the ``recipient``, from which a redrive can send it again.
    """
    try:
        before = decode_changes(delivery.changes)
    except DataLayoutError:
        before = Changes()
    after = replace(before, reason=fault.reason, description=fault.description)
    return encode_changes(after) if recipient is None else recipient.changes(after)
