"""The link from lanes to their partition: its keys and clock, and whether it can be reached."""

from __future__ import annotations

import asyncio
import logging
import math
from typing import TYPE_CHECKING

from sbredis.aio.calls._catching_up import do_due
from sbredis.aio.core._pauses import Pauses
from sbredis.engine import (
    CallId,
    OverdueError,
    SettingsBehindError,
    SettingsStaleError,
    perform,
    salts,
    touch,
    waiting_channel,
)
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.model import MessageLease

if TYPE_CHECKING:
    from sbredis.aio.calls._entity_state import EntityState
    from sbredis.engine import Partition
    from sbredis.registry import EntityRecord
    from sbredis.transport import Transport

__all__ = ["PartitionLink"]

_log = logging.getLogger("sbredis.client")
_CATCHING_UP = 60.0
"""The seconds that one call may take to do due work."""
_MARGIN = 0.002
"""The seconds by which the client ends a lock earlier than its server, because servers count whole milliseconds."""
_NOTING = 60.0
_FIRST_PAUSE, _LONGEST_PAUSE, _PROBING = 1.0, 30.0, 5.0


class PartitionLink:
    """One partition of an entity: the keys, settings and state that calls to it need."""

    def __init__(self, entity: EntityState, number: int) -> None:
        self.entity = entity
        self.runtime = entity.runtime
        self.number = number
        self._loop = asyncio.get_running_loop()
        self._catching_up = False
        self._pauses = Pauses(_FIRST_PAUSE, _LONGEST_PAUSE)
        self.down_until = 0.0
        """The time until which movable messages go to other partitions; 0 while the partition can be reached."""
        self._noted_at = -math.inf

    def __str__(self) -> str:
        return f"{self.entity.name}, partition {self.number}"

    @property
    def transport(self) -> Transport:
        """The transport of the client."""
        return self.runtime.transport

    @property
    def partition(self) -> Partition:
        """The engine's partition for the current record of the entity. It builds the requests."""
        return self.entity.partition(self.number)

    @property
    def base(self) -> int:
        """The number to add to the partition's own numbers to make sequence numbers."""
        return self.entity.base(self.number)

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the server of the partition."""
        if self.number not in self.entity.numbers:
            return False
        return self.runtime.transport.server_of(self.partition.keys[0]) is not None

    def channel(self, identity: str) -> bytes:
        """Return the name of the channel on which this partition wakes a waiter with this identity."""
        namespace = self.runtime.namespace
        salt = salts(namespace.partitions)[self.number]
        return waiting_channel(namespace.name, salt, self.entity.record.id, identity)

    def lease(self, token: str, milliseconds: int, since: float, fence: int = 0) -> MessageLease:
        """Return the lease from a call that was sent at ``since``. It ends no later than the lock in the partition."""
        clock = self.runtime.clock
        now = clock.now()
        until = since + milliseconds / 1000 - _MARGIN
        return MessageLease(token, until, clock.utc() + until - now, fence)

    # -- its settings, and what is due ---------------------------------------------------------------------------------

    async def tell(self, until: float) -> None:
        """Send the settings in the registry to the partition."""
        try:
            request = self.partition.configure(now=self.runtime.clock.told())
            await perform(self.runtime.transport, request, timeout=until - self._loop.time())
        except (SettingsStaleError, MessagingEntityNotFoundError):
            return  # another client has sent newer settings, or the partition is gone: the next call shows which

    async def overcome(self, error: ServiceBusError, record: EntityRecord, until: float) -> bool:
        """Remove the obstacle for which a part of a transaction was refused. Return whether there was one.

        The transaction may then be made again. It was built from ``record``.
        """
        if isinstance(error, SettingsBehindError):
            await self.tell(until)
        elif isinstance(error, SettingsStaleError):
            await self.entity.reload(record, until)
        elif isinstance(error, MessagingEntityNotFoundError):
            await self.entity.recover(record, until)
        else:
            return isinstance(error, OverdueError) and self._loop.time() < until
        return True

    def catch_up(self) -> None:
        """Do the due work in the background, after a call reported that more is due than one call does."""
        if not self._catching_up:
            self._catching_up = True
            self.runtime.attempt(f"{self}: due work", self._catch_up)

    async def _catch_up(self) -> None:
        try:
            while await self.do_due(self._loop.time() + _CATCHING_UP):
                pass
        except ServiceBusError as error:
            _log.debug("%s: due work could not be done and is left to the next call: %s", self, error)
        finally:
            self._catching_up = False

    async def do_due(self, deadline: float) -> bool:
        """Do a large share of the work that is due in the partition. Return whether more is left."""
        return await do_due(self.runtime.transport, self.partition, self.runtime.clock.told(), deadline)

    # -- its use -------------------------------------------------------------------------------------------------------

    def note_use(self) -> None:
        """Note in the background that a user has read the partition. One call a minute is enough.

        All other calls of users are noted by their own scripts. A user who may only read cannot note anything.
        """
        now = self.runtime.clock.now()
        if now - self._noted_at >= _NOTING:
            self._noted_at = now
            self.runtime.attempt(f"{self}: the note of a use", self._note_use)

    async def _note_use(self) -> None:
        try:
            request = touch(self.partition, CallId("", 0, self.runtime.clock.told()))
            await perform(self.runtime.transport, request, timeout=_PROBING)
        except ServiceBusError as error:
            _log.debug("%s: it could not be noted that the partition was read: %s", self, error)

    # -- whether it can be reached -------------------------------------------------------------------------------------

    def reached(self) -> None:
        """Record that the partition answered."""
        if self.down_until:
            self.down_until = 0.0
            self._pauses.reset()

    def missed(self) -> None:
        """Record that the partition could not be reached. For a while, movable messages go to other partitions."""
        pause = self._pauses.next()
        self.down_until = self._loop.time() + pause
        _log.info(
            "%s cannot be reached; for %.0f s, messages that may be sent to any partition are sent to other partitions",
            self,
            pause,
        )

    def probe_if_due(self) -> None:
        """If the pause is over, test in the background whether the partition can be reached again."""
        now = self._loop.time()
        if self.down_until <= now:
            self.down_until = now + 2 * _PROBING
            self.runtime.attempt(f"{self}: a test of the partition", self._probe)

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
