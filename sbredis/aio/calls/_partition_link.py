"""What a client knows of one partition of an entity: its place, its clock, and whether it can be reached."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from sbredis.aio.calls._catching_up import do_due
from sbredis.aio.core._pauses import Pauses
from sbredis.engine import CallId, SettingsStaleError, perform, salts, waiting_channel
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.model import MessageLease

if TYPE_CHECKING:
    from sbredis.aio.calls._entity_state import EntityState
    from sbredis.engine import Partition
    from sbredis.transport import Transport

__all__ = ["PartitionLink"]

_log = logging.getLogger("sbredis.client")
_CATCHING_UP = 60.0
"""How many seconds each call for what is due may take."""
_MARGIN = 0.002
"""A lock is taken to end so many seconds early: the servers count whole milliseconds."""
_FIRST_PAUSE, _LONGEST_PAUSE, _PROBING = 1.0, 30.0, 5.0


class PartitionLink:
    """One partition of an entity, as far as the calls to it go."""

    def __init__(self, entity: EntityState, number: int) -> None:
        self.entity = entity
        self.runtime = entity.runtime
        self.number = number
        self._loop = asyncio.get_running_loop()
        self._catching_up = False
        self._pauses = Pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.down_until = 0.0
        """Until when what may go elsewhere does; 0 while the partition can be reached."""

    def __str__(self) -> str:
        return f"{self.entity.name}, partition {self.number}"

    @property
    def transport(self) -> Transport:
        """What its calls go through."""
        return self.runtime.transport

    @property
    def partition(self) -> Partition:
        """What makes the calls, by what is known of the entity now."""
        return self.entity.partition(self.number)

    @property
    def base(self) -> int:
        """What is added to the partition's own numbers to make sequence numbers."""
        return self.entity.base(self.number)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the server that the partition is on."""
        if self.number not in self.entity.numbers:
            return False
        return self.runtime.transport.server_of(self.partition.keys[0]) is not None

    def channel(self, identity: str) -> bytes:
        """Where somebody who waits at this partition is woken."""
        namespace = self.runtime.namespace
        return waiting_channel(namespace.name, salts(namespace.partitions)[self.number], identity)

    def lease(self, token: str, milliseconds: int, since: float) -> MessageLease:
        """A lease that a call brought which was sent at ``since``: counted from there, it ends no later than theirs."""
        clock = self.runtime.clock
        now = clock.now()
        until = since + milliseconds / 1000 - _MARGIN
        return MessageLease(token, until, clock.utc() + until - now)

    # -- its settings, and what is due ---------------------------------------------------------------------------------

    async def tell(self, until: float) -> None:
        """Give the partition the settings that the registry has."""
        try:
            request = self.partition.configure(now=self.runtime.clock.told())
            await perform(self.runtime.transport, request, timeout=until - self._loop.time())
        except (SettingsStaleError, MessagingEntityNotFoundError):
            return  # somebody else has told it more, or it is gone: the next call says so

    def catch_up(self) -> None:
        """Have what is due in the partition done, beside everything else: a call said that it was too much for it."""
        if not self._catching_up:
            self._catching_up = True
            self.runtime.start(self._catch_up())

    async def _catch_up(self) -> None:
        try:
            while await self.do_due(self._loop.time() + _CATCHING_UP):
                pass
        except ServiceBusError as error:
            _log.debug("%s: what is due is left to the next call: %s", self, error)
        finally:
            self._catching_up = False

    async def do_due(self, deadline: float) -> bool:
        """Do a large share of what is due in the partition. Returns whether more is left."""
        return await do_due(self.runtime.transport, self.partition, self.runtime.clock.told(), deadline)

    # -- whether it can be reached -------------------------------------------------------------------------------------

    def reached(self) -> None:
        """Take note that it answered."""
        if self.down_until:
            self.down_until = 0.0
            self._pauses.reset()

    def missed(self) -> None:
        """Take note that it could not be reached: what may go elsewhere does for a while."""
        pause = self._pauses.next()
        self.down_until = self._loop.time() + pause
        _log.info("%s cannot be reached; what may go elsewhere does for %.0f s", self, pause)

    def probe_if_due(self) -> None:
        """Find out beside everything else whether it can be reached again, if the pause is over."""
        now = self._loop.time()
        if self.down_until <= now:
            self.down_until = now + 2 * _PROBING
            self.runtime.start(self._probe())

    async def _probe(self) -> None:
        try:
            call_id = CallId("", 0, self.runtime.clock.told())
            await perform(self.runtime.transport, self.partition.count(call_id), timeout=_PROBING)
        except ServiceBusError as error:
            if error.outcome is Outcome.REFUSED:
                self.reached()
            else:
                self.missed()
        else:
            _log.info("%s can be reached again", self)
            self.reached()
