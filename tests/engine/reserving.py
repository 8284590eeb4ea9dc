"""A reader of a reserved partition, for tests: it plans ranges, reads them and commits them."""

from __future__ import annotations

from sbredis.engine import CallId, Committed, Delivery, Pin, Planned, Ranged, Unpinned, read_record
from tests.engine.bench import Bench

__all__ = ["Reader"]


class Reader:
    """A reader with a fence and a position."""

    def __init__(self, bench: Bench, fence: int = 1) -> None:
        self.bench = bench
        self.fence = fence
        self.committed: Committed | None = None

    def _call_id(self) -> CallId:
        return self.bench.at()

    async def begin(self) -> Planned:
        """Ask where to begin, and begin there."""
        planned = await self.ask(None)
        self.committed = planned.committed
        return planned

    async def ask(
        self, committed: Committed | None, rows: int = 1000, room: int = 1 << 30, *, accept: bool = False
    ) -> Planned:
        """Make one call of ``plan``."""
        request = self.bench.partition.plan(
            self.fence, committed, rows, room=room, accept=accept, call_id=self._call_id()
        )
        return await self.bench.tell(request)

    async def plan(self, rows: int = 1000, room: int = 1 << 30, *, accept: bool = False) -> Planned:
        """Plan the range after the position. The position does not change."""
        while True:
            planned = await self.ask(self.committed, rows, room, accept=accept)
            if not planned.more:
                return planned

    async def take(self, rows: int = 1000) -> list[bytes]:
        """Plan a range, read it, and commit it; return the payloads of its messages."""
        planned = await self.plan(rows)
        found = await self.read(planned)
        self.committed = planned.committed
        return [read_record(message.record).payload for message in found]

    async def settle(self) -> Planned:
        """Remove the messages of the committed range, and plan nothing."""
        return await self.plan(0)

    async def read(self, planned: Planned, wanted: int = 1000) -> list[Delivery]:
        """Read the messages of a plan."""
        found: list[Delivery] = []
        after = planned.floor
        while True:
            part = await self.part(planned.birth, after, planned.end, wanted)
            found += part.messages
            if not part.more:
                return found
            after = int(found[-1].name)

    async def part(
        self, birth: str, after: int, upto: int, wanted: int = 1000, room: int = 1 << 22, *, pinned: bool = True
    ) -> Ranged:
        """Make one call of ``read_range``."""
        partition, call_id = self.bench.partition, self._call_id()
        return await self.bench.tell(
            partition.read_range(birth, after, upto, wanted=wanted, room=room, pinned=pinned, call_id=call_id)
        )

    async def unpin(self) -> Unpinned:
        """Make one call of ``unpin``."""
        return await self.bench.tell(self.bench.partition.unpin(self.fence, call_id=self._call_id()))

    async def release(self) -> Unpinned:
        """Unpin everything."""
        while (unpinned := await self.unpin()).more:
            pass
        return unpinned

    async def pin(self) -> Pin:
        return await self.bench.tell(self.bench.partition.read_pin(call_id=self._call_id()))
