"""Reading samples of all entities at a limited pace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.operating._samples import SampledEntity, Sight, gets_all, sample_of

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["Sampler"]

_AT_ONCE = 16
"""The number of entities that are read at the same time, if the pace is not limited."""
_LISTING = 10.0
"""The seconds between two lists of the entities."""


class Sampler:
    """Reads the entities again and again.

    Entities that were not read yet are read first, as fast as the servers answer, because somebody waits for them. The
    others are read one after the other, slowly enough not to load the servers.
    """

    def __init__(self, administration: ServiceBusAdministrationClient, every: float, *, most_reads: float) -> None:
        """Read every ``every`` seconds, with at most ``most_reads`` reads a second, two for each partition.

        With ``math.inf``, all entities are always read as fast as the servers answer.
        """
        self.every = every
        self.sights: dict[str, Sight] = {}
        self.problem: str | None = None
        """Why nothing could be read, or which entities are missing, if that is so."""
        self._missing: str | None = None
        self._administration = administration
        self._pause = 1 / most_reads
        self._clock = asyncio.get_running_loop().time
        self._listed_at = float("-inf")
        self._entities: list[SampledEntity] = []
        self._news = asyncio.Event()

    @property
    def unread(self) -> int:
        """How many of the entities were not read yet."""
        return sum(entity.path not in self.sights for entity in self._entities)

    async def wait(self) -> None:
        """Wait until something new was read."""
        await self._news.wait()
        self._news.clear()

    async def run(self) -> None:
        """Read for ever. An error is shown, and the next round tries again."""
        while True:
            try:
                await self.round()
            except ServiceBusError as error:
                self.problem = error.message
            self._news.set()
            await asyncio.sleep(self.every)

    async def round(self) -> None:
        """Read every entity once. Those that were read before are read again even if others cannot be read."""
        if self._clock() - self._listed_at >= _LISTING:
            await self.find()
        known = set(self.sights) if self._pause else set[str]()
        failed: ServiceBusError | None = None
        try:
            await self._read_at_once(iter([entity for entity in self._entities if entity.path not in known]))
        except ServiceBusError as error:
            failed = error
        await self._read(iter([entity for entity in self._entities if entity.path in known]), self._pause)
        if failed is not None:
            raise failed
        self.problem = self._missing

    async def _read_at_once(self, waiting: Iterator[SampledEntity]) -> None:
        readers = [asyncio.ensure_future(self._read(waiting, 0.0)) for _ in range(_AT_ONCE)]
        try:
            await asyncio.gather(*readers)
        finally:
            for reader in readers:  # after an error, the others are still at work
                reader.cancel()

    async def _read(self, waiting: Iterator[SampledEntity], pause: float) -> None:
        """Read entities, with a ``pause`` for each read."""
        for entity in waiting:
            began = self._clock()
            with suppress(MessagingEntityNotFoundError, DataLayoutError):  # the next list leaves it out
                reads = await self._read_rules(entity)
                partitions = [each async for each in self._administration.list_partitions(entity.path)]
                reads += 2 * len(partitions)
                sample = sample_of(entity, partitions, self._clock(), datetime.now(UTC))
                before = self.sights.get(entity.path)
                self.sights[entity.path] = Sight(sample) if before is None else before.then(sample)
                await asyncio.sleep(max(0.0, began + reads * pause - self._clock()))

    async def find(self) -> None:
        """Find the entities."""
        from sbredis.operating._inspecting import readable_in  # it needs all properties, which help does not

        existing, incomplete = await readable_in(self._administration, rules=False)
        found = [SampledEntity(each.path, each.names if each.kind.parents else None) for each in existing]
        self._missing = None if incomplete is None else incomplete.message
        self._entities = found
        self._listed_at = self._clock()
        known = {entity.path for entity in found}
        self.sights = {path: sight for path, sight in self.sights.items() if path in known}

    async def _read_rules(self, entity: SampledEntity) -> int:
        """Find out whether a subscription gets all messages of its topic, once for each list. Return the reads made."""
        if entity.subscription is None or entity.gets_all is not None:
            return 0
        rules = [rule async for rule in self._administration.list_rules(*entity.subscription)]
        entity.gets_all = gets_all(rules)
        return 1
