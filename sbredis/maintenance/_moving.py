"""The duty of the role ``move``: move messages that are forwarded, and messages that a transaction sent elsewhere.

A partition says on the channel of its slot when messages begin to wait. It then says nothing more until all of them
were moved. Announcements may be lost, so the client also reads which partitions are calling: all partitions when it
takes the role, those of a slot after a gap, and each partition once in two hours.
:mod:`sbredis.maintenance._visiting` visits the partitions, and :mod:`sbredis.maintenance._mover` moves their
messages as :mod:`sbredis.moving._moves` decides.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from sbredis._tasks import wait_until
from sbredis.client._background_work import CALLING
from sbredis.client._role import MOVE
from sbredis.engine import read_call
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.maintenance._agenda import VisitPace
from sbredis.maintenance._duty import Duty, Shared, Tenure
from sbredis.maintenance._mover import Mover
from sbredis.maintenance._slot_channels import is_move_announcement
from sbredis.maintenance._visiting import Visitor

if TYPE_CHECKING:
    from sbredis.maintenance._agenda import Read, VisitPlace
    from sbredis.registry import EntityRecord

__all__ = ["PACE", "MovingDuty"]

PACE = VisitPace(visits_at_once=16, round=7200.0)


class MovingDuty(Duty):
    """Moves the messages of all partitions in which messages wait to be moved."""

    role = MOVE

    def __init__(self, shared: Shared) -> None:
        super().__init__(shared)
        pace = PACE if self.connection.test_hooks is None else VisitPace(visits_at_once=16, between_reads=0.0)
        self._news = asyncio.Event()
        self.visitor = Visitor(shared, self, pace, self._news.set)
        self.mover = Mover(shared)

    def called(self) -> None:
        """Do nothing: the partitions themselves call, on the channels of their slots."""

    async def run(self, tenure: Tenure) -> None:
        """Move messages whenever some wait, until the task is cancelled."""
        del tenure  # two clients that move messages at the same time do no harm, so the calls carry no fence
        loop = asyncio.get_running_loop()
        ended_reading = self.shared.census.use(self._census_read)
        try:
            await self.visitor.begin()
            while True:
                self._news.clear()
                await wait_until(self._news, loop.time() + self.visitor.act())
        finally:
            ended_reading()
            await self.visitor.close()

    def _census_read(self) -> None:
        census = self.shared.census
        self.visitor.set_entities([*census.topics, *census.others])
        if self.mover.knows_the_gone():
            self.visitor.start(self.mover.forget_the_gone())

    # -- the errand of the visits --------------------------------------------------------------------------------------

    def clock(self) -> float:
        """Return the time of the event loop."""
        return asyncio.get_running_loop().time()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity whose partition says that messages wait, and the present time."""
        return (read_call(payload), self.clock()) if is_move_announcement(payload) else None

    async def read(self, read: Read) -> list[float | None]:
        """Read which partitions are calling."""
        return [self.clock() if calls else None for calls in await self.mover.calling(read.number, read.entities)]

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        """Move the messages that wait at a place. Return the present time if more messages wait."""
        until = self.clock() + CALLING
        source = await self.shared.find(record.path, until)
        if source.record.id != record.id:
            await source.refresh(until)
        if source.record.id != record.id:
            raise MessagingEntityNotFoundError(f"'{record.path}' was deleted and created again.")
        return None if await self.mover.move_all(source, place.number) else self.clock()
