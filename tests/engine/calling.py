"""A caller of several partitions, with a clock that tests set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self, TypeVar

from sbredis.engine import (
    CallId,
    Operation,
    Partition,
    PartRefusedError,
    Request,
    Transacted,
    perform,
    transact,
)
from sbredis.transport import Transport
from tests.engine.bench import START, Everything, everything

__all__ = ["Caller"]

T = TypeVar("T")


class Caller:
    """The partitions by name, and a caller of them."""

    def __init__(self, transport: Transport, of: Mapping[str, Partition]) -> None:
        self.transport = transport
        self.of = dict(of)
        self.now = START
        self._number = 0

    async def create(self) -> Self:
        for partition in self.of.values():
            await self.tell(partition.configure(create=True, now=self.now))
        return self

    async def tell(self, request: Request[T]) -> T:
        return await perform(self.transport, request)

    def call_id(self) -> CallId:
        """Return the first call of a new lane."""
        self._number += 1
        return CallId(f"lane{self._number}", 1, self.now)

    def at(self) -> CallId:
        """Return a call id with the present time, for a call without a lane."""
        return CallId("", 0, self.now)

    async def transact(self, *operations: Operation, call_id: CallId | None = None) -> Transacted:
        """Run operations. A refusal raises the error that the application would get."""
        try:
            return await self.tell(transact(call_id or self.call_id(), operations))
        except PartRefusedError as refusal:
            raise refusal.reason from None

    async def everything(self, *names: str) -> Everything:
        """Return the content of all keys of some partitions, or of all."""
        by_slot: dict[bytes, dict[bytes, None]] = {}
        for key in (key for name in names or self.of for key in self.of[name].keys):
            by_slot.setdefault(key.partition(b"}")[0], {})[key] = None
        found: Everything = {}
        for keys in by_slot.values():
            found |= await everything(self.transport, tuple(keys))
        return found
