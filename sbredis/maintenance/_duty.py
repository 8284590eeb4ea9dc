"""A duty: the work of the client that has a role."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
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
    """The list of all entities. It is read once for all duties."""
    failures: BackgroundFailures
    """The failures of maintenance, each of which is logged once."""

    @classmethod
    def of(cls, connection: Connection) -> Self:
        """Return the objects for the duties of a client."""
        failures = BackgroundFailures(_log, lambda: connection.closed)
        return cls(connection, Census(connection.namespace, failures, connection.timings), failures)


@dataclass(frozen=True, slots=True)
class Tenure:
    """The time for which a client has a role without interruption."""

    fence: Callable[[], int | None]
    """A function that returns the fence of the role; ``None`` on a test bus, where a client needs no role."""
    doubt: Callable[[], None]
    """A function to call when a partition has refused the fence, because another client seems to have the role."""


class Duty(ABC):
    """The work of the client that has a role. A client has one object for each of its duties."""

    role: ClassVar[str]
    """The role that has this duty."""

    def __init__(self, shared: DutyResources) -> None:
        self.shared = shared
        self.connection = shared.connection

    @abstractmethod
    async def run(self, tenure: Tenure) -> None:
        """Do the duty until the task is cancelled, because the client has lost the role or is being closed.

        The method begins anew each time the client takes the role, and leaves no task behind. If it raises an
        error, it is called again after a pause.
        """
