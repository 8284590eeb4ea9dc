"""A duty: the work of the client that has a role."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from sbredis.client import BackgroundFailures
from sbredis.maintenance._census import Census

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["Duty", "DutyResources", "Tenure"]

_log = logging.getLogger("sbredis.maintenance")


@dataclass(frozen=True, slots=True)
class DutyResources:
    """The objects that all duties of a client use."""

    connection: Connection
    census: Census
    """All entities. It is read once for all duties."""
    failures: BackgroundFailures
    """The failures of maintenance, each of which is logged once."""

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """Return the objects for the duties of a client."""
        failures = BackgroundFailures(_log, lambda: connection.closed)
        return cls(connection, Census(connection, failures), failures)


_MOST_SHARDS = 8
"""The most shards of a role: as many as clients take part in it, so that each of them has one."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """The time for which a client has shards of a role without interruption. The shards may change meanwhile."""

    slots: int
    """The number of slots of the namespace."""
    shards: int
    """The number of shards of the role. Each has slots that follow each other, so a shard is on few masters."""
    fences: Callable[[], Mapping[int, int] | None]
    """Returns the client's shards, each with its fence; ``None`` on a test bus, where a client needs no role."""
    doubt: Callable[[], None]
    """A function to call when a partition has refused the fence, because another client seems to have the shard."""

    def fence(self, number: int) -> int | None:
        """Return the fence for the work in a slot: the lowest one of all if the shard was lost meanwhile."""
        fences = self.fences()
        return None if fences is None else fences.get(self._shard(number), 1)

    @property
    def numbers(self) -> frozenset[int]:
        """The numbers of the slots that the client maintains."""
        fences = self.fences()
        return frozenset(number for number in range(self.slots) if fences is None or self._shard(number) in fences)

    def _shard(self, number: int) -> int:
        return number * self.shards // self.slots


class Duty(ABC):
    """The work of the client that has a role. A client has one object for each of its duties."""

    role: ClassVar[str]
    """The role that has this duty."""
    by_slot: ClassVar[bool] = True
    """Whether the duty is divided by slots. Otherwise one client does all of it."""

    def __init__(self, shared: DutyResources) -> None:
        self.shared = shared
        self.connection = shared.connection

    @property
    def shards(self) -> int:
        """The number of shards of the role."""
        return min(_MOST_SHARDS, self.connection.namespace.slots) if self.by_slot else 1

    def shards_changed(self) -> None:  # noqa: B027 -- a duty that is not divided has nothing to do here
        """Begin with the slots of new shards, and stop with those of lost ones, while the duty runs."""

    @abstractmethod
    async def run(self, tenure: Tenure) -> None:
        """Do the duty until the task is cancelled, because the client has lost the role or is being closed.

        The method begins anew each time the client takes the role, and leaves no task behind. If it raises an
        error, it is called again after a pause.
        """
