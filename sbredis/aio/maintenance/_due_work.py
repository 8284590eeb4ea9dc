"""Do the work that is due in partitions, on behalf of all clients of a namespace.

A partition does due work when a client calls it. If no client sends or receives, the client that maintains the
namespace must call the partition at the right time. Otherwise dead letters, counters and forwarded messages come late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis.aio.maintenance._slot_channels import is_move_announcement
from sbredis.engine import (
    CallId,
    SettingsBehindError,
    SettingsStaleError,
    perform,
    read_announcement,
    salts,
    upcoming,
)
from sbredis.exceptions import MessagingEntityNotFoundError

if TYPE_CHECKING:
    from sbredis.aio.core._agenda import Place, Read
    from sbredis.aio.maintenance._duty import Shared
    from sbredis.registry import EntityRecord

__all__ = ["DueWork"]

_VISITING = 30.0
_READING = 5.0
_ROUNDING = 0.001
"""The seconds to add to a due time. Servers count whole milliseconds, so an exact visit could be too early."""


class DueWork:
    """The errand of visits that do due work."""

    def __init__(self, shared: Shared) -> None:
        self._census = shared.census
        self._runtime = shared.runtime
        self._salts = salts(self._runtime.namespace.partitions)

    def clock(self) -> float:
        """Return the time of the client's clock. A test moves it by hand."""
        return self._runtime.clock.now()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity id and the due time in an announcement."""
        if is_move_announcement(payload):
            return None
        announcement = read_announcement(payload)
        told = self._runtime.clock.told()  # on a test bus, the servers use the clock of the test too
        milliseconds = announcement.due - (announcement.said if told is None else told)
        return announcement.entity, self.clock() + milliseconds / 1000 + _ROUNDING

    async def read(self, read: Read) -> list[float | None]:
        """Read the next due times of places."""
        runtime, since = self._runtime, self.clock()
        request = upcoming(runtime.namespace.name, self._salts[read.number], read.entities, runtime.clock.told())
        times = await perform(runtime.transport, request, timeout=_READING)
        return [None if each is None else since + each / 1000 + _ROUNDING for each in times]

    async def visit(self, place: Place, record: EntityRecord) -> float | None:
        """Do a share of the work that is due. Return the time of the next visit, if one is needed."""
        runtime, since = self._runtime, self.clock()
        partition = runtime.namespace.partition(record, place.number)
        call_id = CallId("", 0, runtime.clock.told())
        try:
            awoken = await perform(runtime.transport, partition.due(call_id), timeout=_VISITING)
        except SettingsBehindError:
            await perform(runtime.transport, partition.configure(now=runtime.clock.told()), timeout=_VISITING)
            return since
        except SettingsStaleError:
            newer = await runtime.namespace.get_entity(record.path, timeout=_VISITING)
            if newer.incarnation != record.incarnation or newer.version <= record.version:
                raise
            self._census.changed(newer)
            return since
        except MessagingEntityNotFoundError:
            found = await runtime.namespace.get_entity(record.path, timeout=_VISITING)
            if found.incarnation != record.incarnation:
                raise
            return None  # a failover has lost the partition; its next user creates it again, empty
        if awoken.more:
            return self.clock()
        return since + awoken.due / 1000 + _ROUNDING if awoken.due else None
