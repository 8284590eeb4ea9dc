"""Maintenance of a namespace. One client does it for all: it publishes on topics and visits partitions."""

from __future__ import annotations

from sbredis.maintenance._duty import DutyResources
from sbredis.maintenance._libraries import LibraryState
from sbredis.maintenance._maintenance import MaintenanceOffer
from sbredis.maintenance._moving import Mover
from sbredis.maintenance._old_libraries import LibrariesOfMaster, examine_libraries
from sbredis.maintenance._publishing import TopicPublisher

__all__ = [
    "DutyResources",
    "LibrariesOfMaster",
    "LibraryState",
    "MaintenanceOffer",
    "Mover",
    "TopicPublisher",
    "examine_libraries",
]
