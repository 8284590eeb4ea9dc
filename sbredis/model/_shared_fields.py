"""Properties that entities of several kinds have: their limits, and where they are kept, said once."""

from __future__ import annotations

from datetime import timedelta

from sbredis.model._durations import UNLIMITED
from sbredis.model._entity_enums import EntityAvailabilityStatus, EntityStatus
from sbredis.model._fields import Choice, Duration, Flag, ListOf, Neighbour, Text, Whole
from sbredis.model._rights import AuthorizationRule, read_rule, rule_as_kept

__all__ = [
    "authorization_rules",
    "auto_delete",
    "availability",
    "duplicate_window",
    "forwarding",
    "largest_message",
    "lock_duration",
    "max_delivery_count",
    "metadata",
    "quota",
    "sessions",
    "status",
    "time_to_live",
]


def lock_duration() -> Duration:
    """How long a message is locked, for Azure's five minutes at most."""
    return Duration(
        timedelta(minutes=1),
        least=timedelta(seconds=5),
        most=timedelta(minutes=5),
        longest="The supplied lock time exceeds the allowed maximum of '5' minutes",
        setting="lock_duration",
    )


def max_delivery_count() -> Whole:
    """How often a message may be given out in vain."""
    return Whole(10, least=1, most=99_999, setting="max_delivery_count")


def time_to_live() -> Duration:
    """How long a message lives."""
    return Duration(UNLIMITED, least=timedelta(seconds=1), setting="time_to_live")


def duplicate_window() -> Duration:
    """For how long ids of messages are remembered."""
    return Duration(
        timedelta(minutes=10), least=timedelta(seconds=20), most=timedelta(days=7), setting="duplicate_window"
    )


def quota() -> Whole:
    """How much the messages may take."""
    return Whole(1024, least=1, most=900_000_000, unit=1024 * 1024, setting="quota")


def largest_message() -> Whole:
    """How large a message may be."""
    return Whole(1024, least=1, most=102_400, unit=1024, setting="largest_message")


def sessions() -> Flag:
    """Whether messages belong to sessions."""
    return Flag(False, fixed=True, setting="sessions")


def status(*ways: EntityStatus) -> Choice[EntityStatus]:
    """What may be done with it; ``ways`` are those in which it can be stopped by half."""
    settable = (EntityStatus.ACTIVE, EntityStatus.DISABLED, *ways)
    return Choice(EntityStatus.ACTIVE, settable=settable, setting="status")


def availability() -> Choice[EntityAvailabilityStatus]:
    """Whether all its partitions have a server."""
    return Choice(EntityAvailabilityStatus.AVAILABLE, told=True)


def metadata() -> Text:
    """A note."""
    return Text(longest=1024)


def authorization_rules() -> ListOf[AuthorizationRule]:
    """Rules without effect."""
    return ListOf(read_rule, rule_as_kept)


def auto_delete(what: str) -> Duration:
    """After how long without use it would be deleted."""
    return Duration(UNLIMITED, least=timedelta(minutes=5), planned=f"the removal of {what} that nobody uses is")


def forwarding() -> Neighbour:
    """Where messages would be forwarded to."""
    return Neighbour(planned="forwarding is")
