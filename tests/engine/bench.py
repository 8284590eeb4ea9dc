"""A partition for tests: a test sets its clock, and can read everything that its keys hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from sbredis.engine import (
    NEVER,
    Accepted,
    Awoken,
    CallId,
    Counts,
    Delivery,
    Lock,
    Mode,
    Outgoing,
    Partition,
    PartitionSettings,
    Peeked,
    Purged,
    Received,
    Record,
    Redrive,
    Redriven,
    Renewed,
    Request,
    Sent,
    Settled,
    SidePrefix,
    new_token,
    perform,
    read_record,
)
from sbredis.engine._keys import entity_of, partition_keys
from sbredis.engine._scripts import load
from sbredis.transport import Argument, Script, Transport
from tests.engine.taking import ROOM, accepting, first_token, receiving, run_of
from tests.engine.terms import BAND_WIDTH, BANDS, State
from tests.engine.terms import Side as LifeSide

__all__ = [
    "ENTITY",
    "INCARNATION",
    "KEYS",
    "NAMESPACE",
    "SALT",
    "SETTINGS",
    "START",
    "Bench",
    "Everything",
    "Held",
    "everything",
    "set_to",
]

T = TypeVar("T")
Everything = dict[str, tuple[str, Any]]
"""The content of all existing keys: the type of each key, and its fields, or its members with their scores."""

NAMESPACE, SALT, ENTITY, INCARNATION = "bench", "abc", "e1", "first"
KEYS = partition_keys(NAMESPACE, SALT, ENTITY)
START = 1_700_000_000_000
SETTINGS = PartitionSettings(clock="test", lock_duration=30_000, max_delivery_count=3)


@dataclass(frozen=True)
class Held:
    """A locked message with the values that a receiver got."""

    token: str
    delivery: Delivery

    @property
    def name(self) -> str:
        return self.delivery.name

    @property
    def payload(self) -> bytes:
        return self.record.payload

    @property
    def deliveries(self) -> int:
        """The number of times the message was given out, including this time."""
        return self.delivery.failures + 1

    @property
    def reason(self) -> str:
        return self.delivery.reason

    @property
    def changes(self) -> bytes:
        return self.delivery.changes

    @property
    def record(self) -> Record:
        return read_record(self.delivery.record)

    def lock(self, changes: bytes = b"", delay: int = 0) -> Lock:
        return Lock(self.token, self.name, changes, delay)


_READ = """\
local all = {}
for i = 1, #KEYS do
  local kind = redis.call('TYPE', KEYS[i])
  kind = kind.ok or kind
  if kind == 'hash' then
    all[i] = { kind, redis.call('HGETALL', KEYS[i]) }
  elseif kind == 'zset' then
    all[i] = { kind, redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES') }
  elseif kind == 'stream' then
    local found = {}
    for _, record in ipairs(redis.call('XRANGE', KEYS[i], '-', '+')) do
      found[#found + 1], found[#found + 2] = record[1], table.concat(record[2], ' ')
    end
    all[i] = { kind, found }
  else
    all[i] = { kind, {} }
  end
end
return all
"""
"""A script that returns all keys in one reply: the type of each, and its fields with values, members with scores, or
records."""


async def everything(transport: Transport, keys: Sequence[bytes]) -> Everything:
    """Return the content of these keys, byte for byte; a key of another type than the scripts use is an error."""
    found: Everything = {}
    # a command, because calls of scripts are in the form that the tests check (tests/plugins/forms.py)
    replies = await transport.command("EVAL", _READ, len(keys), *keys, key=keys[0])
    for key, (kind, flat) in zip(keys, replies, strict=True):
        if kind == b"none":
            continue
        assert kind in {b"hash", b"zset", b"stream"}, f"{key!r} is a {kind!r}"
        pairs = zip(flat[::2], flat[1::2], strict=True)
        held = {member: int(float(score)) for member, score in pairs} if kind == b"zset" else dict(pairs)
        found[key.decode()] = (kind.decode(), held)
    return found


def set_to(**changes: Any) -> pytest.MarkDecorator:
    """Return a decorator that sets the settings of a test's partition from the beginning."""
    return pytest.mark.parametrize("settings", [replace(SETTINGS, **changes)], ids=["-"])


class Bench:
    """A partition, a caller of it, and the time of the caller."""

    def __init__(self, transport: Transport, partition: Partition) -> None:
        self.transport = transport
        self.partition = partition
        self.now = START
        self.run_id: str | None = None
        """The run id that later calls carry instead of that of the real server process."""
        self._numbers: dict[str, int] = {}

    # -- calling

    def call_id(self, lane: str = "bench") -> CallId:
        """Return the next call of a lane, at the present time."""
        self._numbers[lane] = self._numbers.get(lane, 0) + 1
        return CallId(lane, self._numbers[lane], self.now)

    def at(self) -> CallId:
        """Return a call without a lane, at the present time."""
        return CallId("", 0, self.now)

    def later(self, milliseconds: int) -> None:
        self.now += milliseconds

    async def tell(self, request: Request[T]) -> T:
        """Return the result of a request, or raise the error for its refusal."""
        if self.run_id is None:
            return await perform(self.transport, request)
        return request.read(await self.raw(request.script.name, self.run_id, *request.arguments))

    async def raw(self, script: str, *arguments: Argument, keys: Sequence[bytes] | None = None) -> Any:
        """Return the reply of a script to exactly these arguments, which include the run id."""
        exact = Script(script, load(script).source, function=script)
        return await self.transport.call(exact, self.partition.keys if keys is None else keys, arguments)

    # -- sending

    async def send(
        self,
        *payloads: bytes,
        time_to_live: int | None = None,
        level: int = 0,
        message_id: bytes = b"",
        due: int | None = None,
    ) -> list[str]:
        """Send messages that differ only in their payloads in one call, and return their names."""
        sent = await self.send_all(*(Outgoing(payload, time_to_live, level, message_id, due) for payload in payloads))
        return [str(sent.first + place) for place in range(len(payloads))]

    async def send_all(self, *messages: Outgoing) -> Sent:
        return await self.tell(self.partition.send(self.call_id(), messages))

    # -- receiving

    async def receive(self, wanted: int = 10, *, side: SidePrefix = "", mode: Mode = "lock") -> list[Held]:
        return (await self.receive_more(wanted, side=side, mode=mode))[0]

    async def receive_more(
        self, wanted: int = 10, *, side: SidePrefix = "", mode: Mode = "lock", room: int = ROOM
    ) -> tuple[list[Held], Received]:
        """Receive messages; return them and the rest of the answer."""
        token = first_token()
        received = await self.tell(self.receiving(token, wanted, side=side, mode=mode, room=room))
        return [Held(token, delivery) for delivery in received.messages], received

    def receiving(
        self,
        token: str,
        wanted: int,
        *,
        side: SidePrefix = "",
        mode: Mode = "lock",
        room: int = ROOM,
        session: str | None = None,
    ) -> Request[Received]:
        """Return a request for messages; those outside of a session will be locked under a ``first_token``."""
        return receiving(
            self.partition,
            token,
            wanted,
            run=self._run,
            now=self._time,
            side=side,
            mode=mode,
            room=room,
            session=session,
        )

    def accepting(self, token: str) -> Request[Accepted | None]:
        """Return a request for the next free session."""
        return accepting(self.partition, token, run=self._run, now=self._time)

    @property
    def _run(self) -> str:
        return run_of(self.transport, self.partition) if self.run_id is None else self.run_id[:8]

    @property
    def _time(self) -> int | None:
        return self.now if self.partition.settings.clock == "test" else None

    async def one(self, *, side: SidePrefix = "") -> Held:
        """Receive and return the oldest message; there must be one."""
        (message,) = await self.receive(1, side=side)
        return message

    async def payloads(self, *, side: SidePrefix = "") -> list[bytes]:
        """Receive messages, which locks them, and return their payloads."""
        return [message.payload for message in await self.receive(1000, side=side)]

    async def receive_deferred(self, *names: str, mode: Mode = "lock") -> tuple[list[Held], tuple[str, ...]]:
        """Receive deferred messages by number; return the messages, and the numbers that are missing."""
        token = new_token()
        received = await self.tell(self.partition.receive_deferred(self.call_id(), token, names, mode=mode))
        return [Held(token, delivery) for delivery in received.messages], received.missing

    # -- settling

    async def complete(self, *held: Held) -> Settled:
        return await self.tell(self.partition.complete(self.call_id(), [one.lock() for one in held]))

    async def abandon(self, *held: Held, changes: bytes = b"", delay: int = 0, counted: bool = True) -> Settled:
        locks = [one.lock(changes, delay) for one in held]
        return await self.tell(self.partition.abandon(self.call_id(), locks, counted=counted))

    async def defer(self, *held: Held, changes: bytes = b"") -> Settled:
        return await self.tell(self.partition.defer(self.call_id(), [one.lock(changes) for one in held]))

    async def dead_letter(self, *held: Held, changes: bytes = b"") -> Settled:
        return await self.tell(self.partition.dead_letter(self.call_id(), [one.lock(changes) for one in held]))

    async def renew(self, *held: Held) -> Renewed:
        return await self.tell(self.partition.renew(self.call_id(), [one.lock() for one in held]))

    async def redrive(self, *names: str, time_to_live: int | None = None, changes: bytes = b"") -> Redriven:
        """Move dead letters back to the main side."""
        messages = [Redrive(name, time_to_live, changes) for name in names]
        return await self.tell(self.partition.redrive(self.call_id(), messages))

    # -- administration

    async def cancel(self, *names: str) -> tuple[str, ...]:
        """Cancel scheduled messages. Return those that were not scheduled; if there is one, no message is cancelled."""
        return (await self.tell(self.partition.cancel(self.call_id(), names))).missing

    async def peek(
        self, start: int = 0, wanted: int = 100, *, side: SidePrefix = "", states: str = "alwfs"
    ) -> tuple[Delivery, ...]:
        call_id = self.at()
        shown: Peeked = await self.tell(self.partition.peek(start, wanted, side=side, states=states, call_id=call_id))
        return shown.messages

    async def states(self, *, side: SidePrefix = "") -> dict[str, str]:
        """Return the letter of each message's state, by message name."""
        return {message.name: message.state for message in await self.peek(side=side)}

    async def count(self) -> Counts:
        return await self.tell(self.partition.count(self.at()))

    async def purge(self, before: int = NEVER, *, side: SidePrefix = "", share: int = 1000, start: int = 0) -> Purged:
        request = self.partition.purge(self.call_id(), before, side=side, share=share, start=start)
        return await self.tell(request)

    async def due(self) -> Awoken:
        return await self.tell(self.partition.due(self.call_id()))

    async def change(self, **settings: Any) -> None:
        """Give the entity other settings, with the next version number."""
        before = self.partition
        self.partition = Partition(
            NAMESPACE,
            SALT,
            entity_of(before.keys[0]),
            before.incarnation,
            before.version + 1,
            replace(before.settings, **settings),
        )
        await self.tell(self.partition.configure(now=self.now if before.settings.clock == "test" else None))

    async def stored(self, state: State, side: LifeSide = LifeSide.MAIN) -> int:
        """Return the number of messages stored in a state, before due work."""
        of = BANDS[side, state]
        key = self.partition.keys[1]
        first, last = of.start * BAND_WIDTH, of.stop * BAND_WIDTH - 1
        return int(await self.transport.command("ZCOUNT", key, first, last, key=key))

    async def whole(self) -> Everything:
        return await everything(self.transport, self.partition.keys)
