"""Moving messages from one partition to another: forwarding, transactions elsewhere, and redriving dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

if TYPE_CHECKING:
    from sbredis.moving._carrying import Carrier, ask
    from sbredis.moving._choosing import Condition, condition_of
    from sbredis.moving._chosen import ChosenMover, finding
    from sbredis.moving._destinations import Destinations, Finder, MoveSource, NotKnownYetError
    from sbredis.moving._redrive_limits import LONGEST_LINE, NO_REASON, fingerprint
    from sbredis.moving._redriving import RedriveArguments, Redriver
    from sbredis.moving._reserve import has_reserve
    from sbredis.moving._sides import MessageSide
    from sbredis.moving._sweeping import SweepEnd, Sweeper, SweptSource, destination_of_all

__all__ = [
    "LONGEST_LINE",
    "NO_REASON",
    "Carrier",
    "ChosenMover",
    "Condition",
    "Destinations",
    "Finder",
    "MessageSide",
    "MoveSource",
    "NotKnownYetError",
    "RedriveArguments",
    "Redriver",
    "SweepEnd",
    "Sweeper",
    "SweptSource",
    "ask",
    "condition_of",
    "destination_of_all",
    "finding",
    "fingerprint",
    "has_reserve",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_carrying": ("Carrier", "ask"),
            "_choosing": ("Condition", "condition_of"),
            "_chosen": ("ChosenMover", "finding"),
            "_destinations": ("Destinations", "Finder", "MoveSource", "NotKnownYetError"),
            "_redrive_limits": ("LONGEST_LINE", "NO_REASON", "fingerprint"),
            "_redriving": ("RedriveArguments", "Redriver"),
            "_reserve": ("has_reserve",),
            "_sides": ("MessageSide",),
            "_sweeping": ("SweepEnd", "Sweeper", "SweptSource", "destination_of_all"),
        },
    )
