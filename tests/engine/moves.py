"""Partitions in three slots for tests of moves: sources, destinations, and a client that moves messages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sbredis.engine import (
    NO_CALL_ID,
    Batch,
    Content,
    Copy,
    Delivery,
    Destination,
    Lock,
    MovesRead,
    Origin,
    Outgoing,
    Partition,
    PartitionSettings,
    Request,
    Sent,
    SidePrefix,
    Taken,
    encode,
    read_record,
    transact,
    transfer,
)
from sbredis.engine._moving import Verdict
from sbredis.engine._state import FIELD_LISTS
from sbredis.transport import Transport
from tests.engine.bench import START
from tests.engine.calling import Caller
from tests.engine.taking import first_token, receiving, run_of
from tests.stored_settings import with_settings

__all__ = ["NAMESPACE", "START", "A", "B", "T", "Town"]

NAMESPACE = "moves"
SETTINGS = PartitionSettings(clock="test", lock_duration=30_000, max_delivery_count=3, duplicate_window=60_000)
A, B, T = Destination("a", 1), Destination("b", 2), Destination("t", 1)
"""The destinations: two queues, and a topic with one subscription."""

SALTS = {"q": "abc", "u": "abc", "n": "abc", "e": "abc", "a": "abd", "t": "abd", "s": "abd", "b": "abe"}
"""The salt of each entity: the sources are in one slot, and the destinations in two others."""


class Town(Caller):
    """The partitions, and a caller of them."""

    def __init__(self, transport: Transport, namespace: str = NAMESPACE) -> None:
        kinds: dict[str, tuple[PartitionSettings, str | None]] = {
            "q": (replace(SETTINGS, forwards=True, forwards_dead=True), None),
            "n": (SETTINGS, None),  # in the slot of the source
            "e": (replace(SETTINGS, sessions=True, forwards=True), None),  # a source with sessions
            "a": (SETTINGS, None),
            "b": (SETTINGS, None),
            "t": (replace(SETTINGS, topic=True), None),
            "s": (replace(SETTINGS, shared=True), "t"),
        }
        super().__init__(
            transport,
            {
                name: Partition(namespace, SALTS[name], name, f"the-{name}", 1, settings, store)
                for name, (settings, store) in kinds.items()
            },
        )

    # -- users ---------------------------------------------------------------------------------------------------------

    async def send(self, name: str, *bodies: bytes, time_to_live: int | None = None, level: int = 0) -> tuple[str, ...]:
        messages = [Outgoing(encode(Content(body)), time_to_live, level) for body in bodies]
        sent = await self.tell(self.of[name].send(self.call_id(), messages))
        return tuple(str(sent.first + place) for place in range(len(bodies)))

    async def transfer(self, name: str, destination: Destination, *bodies: bytes) -> tuple[str, ...]:
        """Store messages that wait as transfers, in a transaction of an entity."""
        to = self.of[destination.entity]
        works = [
            transfer(self.of[name], [Outgoing(encode(Content(body)))], to, destination.number, destination.entity)
            for body in bodies
        ]
        before = {each.name for each in (await self.waiting(name)).messages}
        await self.tell(transact(self.call_id(), works))
        return tuple(each.name for each in (await self.waiting(name)).messages if each.name not in before)

    async def bury(self, name: str, *bodies: bytes) -> tuple[str, ...]:
        """Send messages and move them to the dead-letter queue; return their names there."""
        await self.send(name, *bodies)
        token = first_token()
        found = await self.receive(name, token, len(bodies))
        await self.tell(self.of[name].dead_letter(self.call_id(), [Lock(token, each.name) for each in found]))
        return tuple(each.name for each in await self.peek(name, "d"))[-len(bodies) :]

    async def peek(self, name: str, side: SidePrefix = "") -> tuple[Delivery, ...]:
        request = self.of[name].peek(0, 1000, side=side, states="alwfsx", call_id=self.at())
        return (await self.tell(request)).messages

    async def bodies(self, name: str, side: SidePrefix = "") -> list[bytes]:
        return [body_of(each) for each in await self.peek(name, side)]

    async def received(self, name: str, side: SidePrefix = "") -> list[bytes]:
        """Return the bodies of the messages that a receiver gets."""
        return [body_of(each) for each in await self.receive(name, first_token(), 1000, side=side)]

    async def receive(self, name: str, token: str, wanted: int, **how: Any) -> tuple[Delivery, ...]:
        """Receive messages, as if the entity had begun to forward its messages only after that."""
        await self.put(name, forwards="0")
        of = self.of[name]
        run = run_of(self.transport, of)
        found = await self.tell(receiving(of, token, wanted, run=run, now=self.now, **how))
        await self.put(name, forwards=str(int(self.of[name].settings.forwards)))
        return found.messages

    async def due(self, name: str) -> None:
        while (await self.tell(self.of[name].due(self.at()))).more:
            pass

    # -- the mover -----------------------------------------------------------------------------------------------------

    async def waiting(self, name: str = "q", start: int = 0, wanted: int = 1000) -> MovesRead:
        return await self.tell(self.of[name].outgoing(now=self.now, start=start, wanted=wanted))

    async def birth(self, name: str = "q") -> str:
        found = await self.field(name, "state", "birth")
        assert found is not None
        return found.decode()

    async def read(self, destination: Destination, name: str = "q") -> MovesRead:
        return await self.tell(self.of[name].read_batch(destination, now=self.now))

    async def freeze(
        self, destination: Destination, *messages: Delivery, name: str = "q", purpose: bytes = b""
    ) -> Batch | None:
        birth, to = await self.birth(name), f"the-{destination.entity}"
        return await self.tell(self.of[name].freeze(birth, destination, to, messages, purpose=purpose, now=self.now))

    def sending(self, destination: Destination, *messages: Delivery) -> Request[Sent]:
        """Return the request that would store messages at their destination."""
        made = [Outgoing(read_record(each.record).payload) for each in messages]
        call_id = NO_CALL_ID._replace(now=self.now)
        if destination == T:
            return self.of["t"].publish(call_id, made, [(Copy(0),)] * len(made), [self.of["s"]])
        return self.of[destination.entity].send(call_id, made)

    def taking(self, batch: Batch, birth: str, *messages: Delivery, door: str = "", name: str = "q") -> Request[Taken]:
        of, sending = self.of[batch.destination.entity], self.sending(batch.destination, *messages)
        return of.take(Origin(name, birth), batch, door, sending, now=self.now)

    def settling(
        self,
        batch: Batch,
        verdict: Verdict,
        birth: str,
        *,
        names: tuple[str, ...] = (),
        changes: dict[str, bytes] | None = None,
        name: str = "q",
    ) -> Request[bool]:
        of = self.of[name]
        return of.settle_batch(
            birth, batch.destination, batch.number, verdict, names=names, changes=changes, now=self.now
        )

    async def move(self, destination: Destination, *messages: Delivery, name: str = "q") -> Taken:
        """Move messages between slots in three calls."""
        birth = await self.birth(name)
        batch = await self.freeze(destination, *messages, name=name)
        assert batch is not None
        taken = await self.tell(self.taking(batch, birth, *messages, name=name))
        if taken.verdict == "door":
            read = await self.read(destination, name)
            taken = await self.tell(self.taking(batch, birth, *read.messages, door=taken.detail, name=name))
        assert taken.verdict == "taken", taken
        assert await self.tell(self.settling(batch, "taken", birth, name=name))
        return taken

    # -- the data ------------------------------------------------------------------------------------------------------

    async def field(self, name: str, kind: str, field: str) -> bytes | None:
        key = next(key for key in self.of[name].keys if key.endswith(f":{kind}".encode()))
        found: bytes | None = await self.transport.command("HGET", key, field, key=key)
        return found

    async def put(self, name: str, **fields: str) -> None:
        """Set fields of a partition's state, or words of its settings."""
        key = self.of[name].keys[0]
        words = {word: fields.pop(word) for word in FIELD_LISTS["WORDS"] if word in fields}
        if words:
            held = await self.transport.command("HGET", key, "settings", key=key)
            await self.transport.command("HSET", key, "settings", with_settings(held, words), key=key)
        for field, value in fields.items():
            await self.transport.command("HSET", key, field, value, key=key)


def body_of(message: Delivery) -> bytes:
    return read_record(message.record).payload.rpartition(b"\x00")[2]
