"""A witness of all calls of a run of removals: it counts what happens, and knows when an entity may be removed.

The witness sees each call when it is made, with its reply. It judges by definitions of its own: it does not use the
time of the last use that the partitions write, and it does not use the code of the removal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sbredis.engine import Request, slot_salt
from sbredis.engine._expansion import expand
from sbredis.engine._keys import KINDS
from sbredis.engine._lua_files import read_source
from sbredis.exceptions import ScriptRefusedError, ServiceBusError
from sbredis.registry import EntityRecord
from sbredis.transport import Argument, Script, Transport
from tests.registry.topics import decode

__all__ = ["IDLE", "MINUTE", "NAMESPACE", "PARTITIONS", "About", "Witness"]

MINUTE = 60_000
IDLE = 5 * MINUTE
NAMESPACE, PARTITIONS = "ns", 2
Read = Callable[[str], str | None]
PARTITION_KEYS = len(KINDS)

USES = frozenset({"complete", "dead_letter", "grant", "publish", "purge", "send", "touch", "transact"})
"""The scripts of users. A successful call is a use."""
NO_USES = frozenset({"close", "count", "freeze", "outgoing", "peek", "settle_batch"})
"""Scripts that are no use. At most they do due work, and enqueue a message that was scheduled."""
_REVISIONS = ("revise_entity", "revise_subscription")


@dataclass
class About:
    """The announcement of a client's next call."""

    due: int | None = None
    """The time for which the message is scheduled."""
    request: Request[Any] | None = None
    """The request of a receive, which can read the reply."""
    moved: int = 0
    """The number of messages in the batch."""
    waited: int = 0
    """The number of these messages that are transfers or dead letters."""


@dataclass
class Entity:
    """An entity of a run, as the witness knows it."""

    record: EntityRecord
    uses: dict[int, int] = field(default_factory=dict[int, int])
    """The time of the last use of each partition; the uses of subscriptions are uses of their topic too."""
    dues: dict[int, list[int]] = field(default_factory=dict[int, list[int]])
    """The times of scheduled messages, by partition."""
    messages: Counter[int] = field(default_factory=Counter[int])
    """The number of messages in each partition."""
    waiting: Counter[int] = field(default_factory=Counter[int])
    """The number of transfers, and of dead letters that are to be forwarded, in each partition. Those in a batch count.
    """
    batches: dict[int, int] = field(default_factory=dict[int, int])
    """The number of the batch that is outstanding, by partition."""
    removed: bool = False
    """Whether a client has decided to delete the entity because it is not used."""

    def used(self) -> int:
        """Return the time since which nobody has used the entity. A scheduled message is a use until it is active."""
        return max([0, *self.uses.values(), *(due for dues in self.dues.values() for due in dues)])


class Witness:
    """The knowledge about all entities, and the counts of all events."""

    def __init__(self, transport: Transport, tally: Counter[str], read: Read = read_source) -> None:
        self._transport = transport
        self._read = read
        self._scripts: dict[str, Script] = {}
        self._numbers = {slot_salt(NAMESPACE, number, PARTITIONS): number for number in range(PARTITIONS)}
        self.now = 0
        self.tally = tally
        self.entities: dict[str, Entity] = {}
        """All entities that ever were, by id."""
        self.there: dict[str, str] = {}
        """The ids of the entities in the registry, by path in lower case."""

    def at(self, path: str) -> Entity | None:
        """Return the entity of this name, if the registry has it."""
        id_ = self.there.get(path.lower())
        return None if id_ is None else self.entities[id_]

    def family(self, entity: Entity) -> list[Entity]:
        """Return an entity and its subscriptions that are in the registry."""
        own = [each for each in map(self.at, self.there) if each and each.record.store == entity.record.id]
        return [entity, *own]

    # -- calls ---------------------------------------------------------------------------------------------------------

    def place(self, keys: Sequence[bytes]) -> tuple[str, int] | None:
        """Return the entity's id and the partition's number of a call to a partition."""
        _, _, salt, *rest = keys[0].decode().split(":")
        number = self._numbers.get(salt.strip("{}"))
        return (rest[0], number) if number is not None and len(rest) == 2 else None

    async def noted(self, keys: Sequence[bytes]) -> tuple[int, int]:
        """Return the times of the last use that a partition has written, its own and that of its store."""
        own = await self._transport.command("HGET", keys[0], "used", key=keys[0])
        store = await self._transport.command("HGET", keys[8], "used", key=keys[0])
        return int(own or 0), int(store or 0)

    def _script(self, script: Script) -> Script:
        """Return the script to send. A run with another function ``read`` sends changed scripts."""
        if self._read is read_source:
            return script
        if script.name not in self._scripts:
            changed = Script(script.name, expand(script.name, self._read), script.takes_run_id)
            self._scripts[script.name] = changed
        return self._scripts[script.name]

    async def call(
        self, role: str, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], about: About
    ) -> Any:
        """Make a call, and learn from it."""
        place = None if script.name == "quiet" else self.place(keys)
        before = await self.noted(keys) if place is not None and script.name in NO_USES else None
        try:
            reply = await self._transport.call(self._script(script), keys, arguments)
        except ScriptRefusedError as error:
            self.tally[f"{_of(script.name, role)} refused {error.reply_code}"] += 1
            raise
        if script.name == "quiet":
            self._quiet(keys, reply)
        elif place is not None:
            await self._partition(role, script.name, place, keys, arguments, reply)
            self._count_messages(script.name, place, keys, reply, about)
            if before is not None:
                after = await self.noted(keys)
                due = after[0] <= self.now and self._was_due(place, after[0])
                assert after == before or before[0] == 0 or due, f"{script.name} counts as a use"
        elif reply is not None:
            self._registry(role, script.name, arguments, reply)
        return reply

    def _was_due(self, place: tuple[str, int], at: int) -> bool:
        return at in self.entities[place[0]].dues.get(place[1], ())

    async def _partition(  # noqa: PLR0917 -- a call has these parts
        self, role: str, name: str, place: tuple[str, int], keys: Sequence[bytes], arguments: Sequence[Any], reply: Any
    ) -> None:
        id_, number = place
        entity = self.entities[id_]
        if name == "configure" and arguments[5] == 1 and number not in entity.uses:
            self._use(entity, number)  # the partition was made
        if name in USES or (name == "configure" and arguments[8] == 1):
            assert not entity.removed, f"{name} of {role} is accepted, but {entity.record.path} is removed: not used"
            self._use(entity, number)
            own, store = await self.noted(keys)
            topic = None if entity.record.store is None else self.entities[entity.record.store]
            recent = own if topic is None or topic.record.state == "deleting" else min(own, store)
            assert recent >= self.now - MINUTE + 1, f"{name} was not noted in {entity.record.path}"
            self.tally[f"{entity.record.kind} used by {name}"] += 1
        if name == "close":
            self._closed(entity, number, arguments, reply)

    def _count_messages(
        self, name: str, place: tuple[str, int], keys: Sequence[bytes], reply: Any, about: About
    ) -> None:
        id_, number = place
        entity = self.entities[id_]
        if about.due is not None and name in ("send", "publish"):
            entity.dues.setdefault(number, []).append(about.due)
        if name in ("send", "transact"):
            entity.messages[number] += 1
            entity.waiting[number] += name == "transact"
        elif name == "dead_letter":
            entity.waiting[number] += entity.record.settings.forwards_dead
        elif name == "freeze" and int(reply[1]):
            entity.batches[number] = int(reply[1])
        elif name == "settle_batch" and reply[1]:
            del entity.batches[number]
            entity.messages[number] -= about.moved
            entity.waiting[number] -= about.waited
            self.tally[f"a batch of a {entity.record.kind} moved"] += 1
        elif name == "publish":
            for key in keys[PARTITION_KEYS:]:
                *_, target, kind = key.decode().split(":")
                if kind == "state":
                    self.entities[target].messages[number] += 1
        elif name == "grant" and about.request is not None:
            entity.messages[number] -= len(about.request.read(reply).messages)

    def _use(self, entity: Entity, number: int) -> None:
        entity.uses[number] = self.now
        if entity.record.store is not None:
            self.entities[entity.record.store].uses[number] = self.now

    def _closed(self, entity: Entity, number: int, arguments: Sequence[Any], reply: Any) -> None:
        kind, (closed, quiet), version = entity.record.kind, reply, int(arguments[1])
        if number in entity.batches:
            self.tally[f"{kind} partition asked: with a batch"] += 1
        elif entity.waiting[number]:
            self.tally[f"{kind} partition asked: with waiting messages"] += 1
        if int(arguments[6]) > version:
            self.tally[f"{kind} partition {'closed' if closed else 'not closed'}"] += 1
        elif entity.record.state == "removing":
            self.tally[f"{kind} partition {'still idle' if closed else 'used again'}"] += 1
        else:
            self.tally[f"{kind} partition asked: {'idle' if closed else 'used' if quiet else 'in use'}"] += 1

    def _quiet(self, keys: Sequence[bytes], reply: Any) -> None:
        for at, answer in enumerate(reply):
            place = self.place(keys[2 * at :])
            assert place is not None
            id_, number = place
            entity = self.entities[id_]
            if not answer or number not in entity.uses:
                self.tally["quiet: not here"] += 1
                continue
            first = entity.uses[number]
            last = max([first, *(due for due in entity.dues.get(number, ()) if due <= self.now)])
            quiet = int(answer)
            assert self.now - last <= quiet, f"{entity.record.path}, partition {number}: a use that never was"
            assert quiet < self.now - first + MINUTE, f"{entity.record.path}, partition {number}: a use is missing"
            self.tally[f"quiet: {entity.record.kind}"] += 1

    # -- the registry --------------------------------------------------------------------------------------------------

    def _registry(self, role: str, name: str, arguments: Sequence[Any], reply: Any) -> None:
        if name in ("register_entity", "register_subscription") or name == "revise_entity":
            self._recorded(role, decode(reply))
        elif name in ("revise_subscription", "create_rule"):
            for text in reply[:2]:
                if isinstance(text, bytes) and text:
                    self._recorded(role, decode(text))
        elif name == "unregister_entity":
            entity = self.at(str(arguments[1]))
            if entity is not None and reply[0] and not reply[1]:
                del self.there[entity.record.path.lower()]
                self.tally[f"{entity.record.kind} gone"] += 1

    def _recorded(self, role: str, record: EntityRecord) -> None:
        entity = self.entities.get(record.id)
        if entity is None:
            entity = self.entities[record.id] = Entity(record)
            self.there[record.path.lower()] = record.id
            self.tally[f"{record.kind} registered"] += 1
            return
        before, entity.record = entity.record, record
        if before.stamp == record.stamp:
            return
        self.tally[f"{record.kind} {before.state} -> {record.state}"] += 1
        if before.state == "removing":
            self.tally[f"{record.kind} removing -> {record.state} by {role}"] += 1
        topic = None if record.parent is None else self.at(record.parent)
        own = topic is None or topic.record.state != "deleting"
        if role == "remover" and record.state == "deleting" and before.state != "creating" and own:
            self._must_be_idle(entity)
            for each in self.family(entity):
                each.removed = True

    def _must_be_idle(self, entity: Entity) -> None:
        path = entity.record.path
        unused = self.now - entity.used()
        assert unused >= IDLE, f"{path} is removed, but it was used {unused} ms ago"
        for each in self.family(entity):
            assert not each.record.settings.forwards, f"{path} is removed, but {each.record.path} forwards its messages"
            assert not each.waiting.total(), f"{path} is removed, but messages of {each.record.path} wait to be moved"
            assert not each.batches, f"{path} is removed, but a batch of {each.record.path} is outstanding"

    # -- outcomes ------------------------------------------------------------------------------------------------------

    def ended(self, role: str, what: str, error: BaseException | None) -> None:
        """Count the end of an operation."""
        ending = "done" if error is None else "died" if not isinstance(error, ServiceBusError) else type(error).__name__
        self.tally[f"{what} by {role}: {ending}"] += 1


def _of(script: str, role: str) -> str:
    if script in _REVISIONS:
        return f"{script} by {role}"
    return "a use" if script in USES or script in ("peek", "count", "due") else script
