"""Let destinations take batches. Batches for one destination that wait at the same time share a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from sbredis.engine import MOST_TAKEN, take_together
from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError
from sbredis.moving._carrying import ask_to_store
from sbredis.moving._moves import MOST_AT_ONCE, MOST_BYTES

if TYPE_CHECKING:
    from sbredis.client import Connection, Entity
    from sbredis.engine import Destination, Partition, Request, Taken

__all__ = ["TakeCalls", "TakenBatch"]


class TakenBatch(NamedTuple):
    """A batch that a destination shall take."""

    make: Callable[[Partition], Request[Taken]]
    """Makes the request from the partition of the destination, as the client knows it when it makes the call."""
    messages: int
    size: int
    """The bytes of the messages."""


@dataclass(eq=False, slots=True)
class _Share:
    """The batches of one caller. They are never divided between two calls."""

    batches: Sequence[TakenBatch]
    neutral: bool
    result: tuple[Taken, ...] | ServiceBusError | None = None


@dataclass(eq=False, slots=True)
class _Place:
    """A destination with those who wait for it. One call to it is under way at a time."""

    calling: asyncio.Lock = field(default_factory=asyncio.Lock)
    shares: list[_Share] = field(default_factory=list[_Share])


class TakeCalls:
    """The calls by which destinations take the batches of many sources."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._places: dict[Destination, _Place] = {}

    async def take(
        self, entity: Entity, destination: Destination, batches: Sequence[TakenBatch], *, neutral: bool
    ) -> tuple[Taken, ...]:
        """Return the verdict of a destination on each batch. All of them must fit into one call.

        ``neutral`` says whether the server stores no more afterwards than before, because the sources are on it too.
        """
        place = self._places.setdefault(destination, _Place())
        share = _Share(batches, neutral)
        place.shares.append(share)
        try:
            async with place.calling:
                if share.result is None:
                    await self._call(place, entity, destination)
        finally:
            if share in place.shares:  # this caller was cancelled before its turn
                place.shares.remove(share)
            if not place.shares and not place.calling.locked():
                self._places.pop(destination, None)
        assert share.result is not None
        if isinstance(share.result, ServiceBusError):
            raise share.result
        return share.result

    async def _call(self, place: _Place, entity: Entity, destination: Destination) -> None:
        """Make a call for the first callers, and tell them the result."""
        shares = list(_first_shares(place.shares, alone=entity.record.kind == "topic"))
        del place.shares[: len(shares)]
        makes = [batch.make for share in shares for batch in share.batches]
        if entity.record.id != destination.entity:
            for share in shares:
                share.result = MessagingEntityNotFoundError(f"'{entity.name}' was deleted and created again.")
            return
        try:
            taken = await ask_to_store(
                self._connection,
                entity,
                destination.number,
                lambda partition: take_together([make(partition) for make in makes]),
                neutral=all(share.neutral for share in shares),
            )
        except ServiceBusError as error:
            for share in shares:
                share.result = error
        except BaseException:
            place.shares[:0] = shares[1:]  # the others call again
            raise
        else:
            at = 0
            for share in shares:
                share.result = taken[at : at + len(share.batches)]
                at += len(share.batches)


def _first_shares(shares: Sequence[_Share], *, alone: bool) -> Iterator[_Share]:
    """Yield the first shares that fit into a call: at least one, and only one if the destination is a topic."""
    batches = messages = size = 0
    for share in shares:
        batches += len(share.batches)
        messages += sum(batch.messages for batch in share.batches)
        size += sum(batch.size for batch in share.batches)
        if share is not shares[0] and (alone or batches > MOST_TAKEN or messages > MOST_AT_ONCE or size > MOST_BYTES):
            return
        yield share
