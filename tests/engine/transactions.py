"""Entities of one slot for tests of transactions: three queues, one of them with sessions, and a topic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sbredis.engine import (
    Content,
    Copy,
    Lock,
    Operation,
    Outgoing,
    Partition,
    PartitionSettings,
    SessionLock,
    encode,
    read_record,
)
from sbredis.engine._transaction import TransactionStep
from sbredis.transport import Transport
from tests.engine.bench import START
from tests.engine.calling import Caller
from tests.engine.taking import receiving, run_of

__all__ = ["ELSEWHERE", "SETTINGS", "START", "World", "of_session"]

SETTINGS = PartitionSettings(clock="test", lock_duration=30_000, max_delivery_count=3, duplicate_window=60_000)

ELSEWHERE = Partition("world", "xyz", "e", "the-e", 1, SETTINGS)
"""A partition in another slot."""


def of_session(session: str, body: bytes) -> bytes:
    """Return the payload of a message of a session."""
    return encode(Content(body, session_id=session))


class World(Caller):
    """Entities of one slot, and a caller of them."""

    def __init__(self, transport: Transport, namespace: str = "world") -> None:
        shared = replace(SETTINGS, shared=True)
        kinds: dict[str, tuple[PartitionSettings, str | None]] = {
            "a": (SETTINGS, None),
            "b": (SETTINGS, None),
            "c": (replace(SETTINGS, sessions=True), None),
            "t": (replace(SETTINGS, topic=True), None),
            "s": (shared, "t"),
        }
        super().__init__(
            transport,
            {
                name: Partition(namespace, "abc", name, f"the-{name}", 1, settings, store)
                for name, (settings, store) in kinds.items()
            },
        )

    async def alone(self, operation: Operation) -> Any:
        """Run an operation without others. It runs in a transaction only if there is no script that does it alone."""
        if isinstance(operation.request, TransactionStep):
            return await self.transact(operation)
        return await self.tell(operation.request)

    async def send(self, name: str, *payloads: bytes) -> None:
        await self.alone(self.sending(name, *map(Outgoing, payloads)))

    def sending(self, name: str, *messages: Outgoing) -> Operation:
        return Operation(self.of[name], self.of[name].send(self.call_id(), messages))

    def publishing(self, *routed: tuple[Outgoing, tuple[Copy, ...]]) -> Operation:
        """Return an operation that publishes messages on the topic; the target of all copies is the subscription."""
        messages = [message for message, _ in routed]
        routes = [route for _, route in routed]
        return Operation(self.of["t"], self.of["t"].publish(self.call_id(), messages, routes, [self.of["s"]]))

    async def lock(self, name: str, token: str, wanted: int = 1, *, session: str | None = None) -> list[Lock]:
        """Receive messages under a token and return their locks."""
        of = self.of[name]
        run = run_of(self.transport, of)
        request = receiving(of, token, wanted, run=run, now=self.now, session=session)
        return [Lock(token, each.name) for each in (await self.tell(request)).messages]

    async def accept(self, session: str, token: str) -> SessionLock:
        await self.tell(self.of["c"].accept_session(self.call_id(), token, session))
        return SessionLock(session, token)

    def settling(self, what: str, name: str, *locks: Lock) -> Operation:
        return Operation(self.of[name], getattr(self.of[name], what)(self.call_id(), locks))

    async def bodies(self, name: str, side: str = "") -> list[bytes]:
        """Return the payloads of all messages of an entity, in every state."""
        request = self.of[name].peek(0, 100, side="d" if side else "", call_id=self.at())
        return [read_record(each.record).payload for each in (await self.tell(request)).messages]

    async def data(self) -> dict[str, Any]:
        """Return the content of all keys, by entity and kind, without the lanes and without what is drawn at random."""
        held = await self.everything()
        for kind, fields in held.values():
            if kind == "hash":
                fields.pop(b"birth", None)
        return {
            name.partition("}:")[2]: content for name, content in held.items() if not name.endswith((":ops", ":words"))
        }
