"""Maintenance of a namespace. One client does it for all: it publishes on topics and visits partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

if TYPE_CHECKING:
    from sbredis.maintenance._duty import DutyResources
    from sbredis.maintenance._library_judgement import LibraryState
    from sbredis.maintenance._maintenance import Maintenance
    from sbredis.maintenance._moving import Mover
    from sbredis.maintenance._offer import MaintenanceOffer
    from sbredis.maintenance._old_libraries import LibrariesOfMaster, examine_libraries
    from sbredis.maintenance._publishing import TopicPublisher

__all__ = [
    "DutyResources",
    "LibrariesOfMaster",
    "LibraryState",
    "Maintenance",
    "MaintenanceOffer",
    "Mover",
    "TopicPublisher",
    "examine_libraries",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_duty": ("DutyResources",),
            "_library_judgement": ("LibraryState",),
            "_maintenance": ("Maintenance",),
            "_moving": ("Mover",),
            "_offer": ("MaintenanceOffer",),
            "_old_libraries": ("LibrariesOfMaster", "examine_libraries"),
            "_publishing": ("TopicPublisher",),
        },
    )
