"""Do the work that is due in partitions, on behalf of all clients of a namespace.

A partition does due work when a client calls it. If no client sends or receives, the client that maintains the
namespace must call the partition at the right time. Otherwise dead letters, counters and forwarded messages come late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from sbredis.maintenance._slot_channels import is_move_announcement

if TYPE_CHECKING:
    from sbredis.maintenance._agenda import Read, VisitPlace
    from sbredis.maintenance._duty import Shared
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
        self._connection = shared.connection
        self._salts = salts(self._connection.namespace.partitions)

    def clock(self) -> float:
        """Return the time of the client's clock. A test moves it by hand."""
        return self._connection.clock.now()

    def announced(self, payload: bytes) -> tuple[str, float] | None:
        """Return the entity id and the due time in an announcement."""
        if is_move_announcement(payload):
            return None
        announcement = read_announcement(payload)
        told = self._connection.clock.told()  # on a test bus, the servers use the clock of the test too
        milliseconds = announcement.due - (announcement.said if told is None else told)
        return announcement.entity, self.clock() + milliseconds / 1000 + _ROUNDING

    async def read(self, read: Read) -> list[float | None]:
        """Read the next due times of places."""
        connection, since = self._connection, self.clock()
        request = upcoming(connection.namespace.name, self._salts[read.number], read.entities, connection.clock.told())
        times = await perform(connection.transport, request, timeout=_READING)
        return [None if each is None else since + each / 1000 + _ROUNDING for each in times]

    async def visit(self, place: VisitPlace, record: EntityRecord) -> float | None:
        """Do a share of the work that is due. Return the time of the next visit, if one is needed."""
        connection, since = self._connection, self.clock()
        partition = connection.namespace.partition(record, place.number)
        call_id = CallId("", 0, connection.clock.told())
        try:
            awoken = await perform(connection.transport, partition.due(call_id), timeout=_VISITING)
        except SettingsBehindError:
            await perform(connection.transport, partition.configure(now=connection.clock.told()), timeout=_VISITING)
            return since
        except SettingsStaleError:
            newer = await connection.namespace.get_entity(record.path, timeout=_VISITING)
            if newer.incarnation != record.incarnation or newer.version <= record.version:
                raise
            self._census.changed(newer)
            return since
        except MessagingEntityNotFoundError:
            found = await connection.namespace.get_entity(record.path, timeout=_VISITING)
            if found.incarnation != record.incarnation:
                raise
            return None  # a failover has lost the partition; its next user creates it again, empty
        if awoken.more:
            return self.clock()
        return since + awoken.due / 1000 + _ROUNDING if awoken.due else None
