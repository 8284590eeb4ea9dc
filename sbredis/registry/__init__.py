"""Namespaces and their entities: the registry, and how entities are created, changed and deleted."""

from __future__ import annotations

from sbredis.registry._buckets import EntityList
from sbredis.registry._entity import (
    IDLE_PROPERTY,
    JUDGING_PROPERTY,
    LAYOUT,
    EntityRecord,
    Json,
    Kind,
    path_of,
    require_properties,
    split_path,
)
from sbredis.registry._forwarding import Hop, judge_destination
from sbredis.registry._named_libraries import NamedLibraries, name_library, read_libraries
from sbredis.registry._namespace import SLOTS_OF_NEW, Namespace
from sbredis.registry._pages import read_to_end
from sbredis.registry._refusals import EntityChangedError, IncompleteListError, NamespaceSlotsError
from sbredis.registry._registry import LONGEST_PAGE, BucketChanges, Listing, NamespaceFacts, TopicFacts
from sbredis.registry._reservation import (
    STALE_AFTER,
    KeptReservation,
    require_unreserved,
    reservation_of,
    reserved_error,
    say_reserved,
    with_reservation,
)
from sbredis.registry._routes import RoutedSubscription, Routes
from sbredis.registry._rules import KeptRule, place_of, rule_path
from sbredis.registry._steps import DESTINATIONS
from sbredis.registry._unreadable import Unreadable, UnreadableLog, unreadable

__all__ = [
    "DESTINATIONS",
    "IDLE_PROPERTY",
    "JUDGING_PROPERTY",
    "LAYOUT",
    "LONGEST_PAGE",
    "SLOTS_OF_NEW",
    "STALE_AFTER",
    "BucketChanges",
    "EntityChangedError",
    "EntityList",
    "EntityRecord",
    "Hop",
    "IncompleteListError",
    "Json",
    "KeptReservation",
    "KeptRule",
    "Kind",
    "Listing",
    "NamedLibraries",
    "Namespace",
    "NamespaceFacts",
    "NamespaceSlotsError",
    "RoutedSubscription",
    "Routes",
    "TopicFacts",
    "Unreadable",
    "UnreadableLog",
    "judge_destination",
    "name_library",
    "path_of",
    "place_of",
    "read_libraries",
    "read_to_end",
    "require_properties",
    "require_unreserved",
    "reservation_of",
    "reserved_error",
    "rule_path",
    "say_reserved",
    "split_path",
    "unreadable",
    "with_reservation",
]
