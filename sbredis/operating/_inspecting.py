"""Find out about entities: the facts of one, the messages in it, and all entities of a namespace."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sbredis._counting import counted
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import Described, PartitionRuntimeProperties
from sbredis.operating._kinds import NESTED, QUEUE, RULE, SUBSCRIPTION, TOPIC, EntityKind, Existing, Key, Names, path_of
from sbredis.operating._measures import STATES
from sbredis.operating._properties import written

if TYPE_CHECKING:
    from sbredis.aio.management import ServiceBusAdministrationClient
    from sbredis.registry import IncompleteListError

__all__ = ["MessageCount", "existing_in", "held_in", "inspect_entity", "messages_in", "readable_in"]


async def inspect_entity(
    administration: ServiceBusAdministrationClient, kind: EntityKind, entity: Names
) -> dict[str, Any]:
    """Return what is known about an entity, as it is printed in JSON."""
    properties: Described = await kind.call(administration, "get")(*entity)
    path = path_of((*entity[:-1], properties.name))
    found: dict[str, Any] = {
        "kind": kind.word,
        "name": path,
        "properties": {name: written(value) for name, value in properties.items() if name != "name"},
    }
    if kind is RULE:
        return found
    partitions = [each async for each in administration.list_partitions(path)]
    found |= summed(partitions, datetime.now(UTC), sessions=properties.get("requires_session", False))
    if kind in (QUEUE, SUBSCRIPTION):
        found["reservation"] = await _reservation(administration, path)
    found["partitions"] = [_row(each, datetime.now(UTC)) for each in partitions]
    return found


def summed(partitions: Sequence[PartitionRuntimeProperties], now: datetime, *, sessions: bool) -> dict[str, Any]:
    """Return the sums over the partitions, and the age of the oldest message."""
    ages = [_age(each, now) for each in partitions if each.oldest_enqueued_at_utc is not None]
    found: dict[str, Any] = {
        "messages": {state: sum(getattr(each, f"{state}_message_count") for each in partitions) for state in STATES},
        "size_in_bytes": sum(each.size_in_bytes for each in partitions),
        "age_of_the_oldest_message": max(filter(None, ages), default=None),
        "waiting_receivers": sum(each.waiting_receiver_count for each in partitions),
    }
    if sessions:
        found["sessions"] = {
            "waiting": sum(each.waiting_session_count for each in partitions),
            "locked": sum(each.locked_session_count for each in partitions),
        }
    found["partitions_without_an_answer"] = [each.number for each in partitions if not each.available]
    return found


def _age(partition: PartitionRuntimeProperties, now: datetime) -> timedelta | None:
    oldest = partition.oldest_enqueued_at_utc
    return None if oldest is None else max(now - oldest, timedelta())


def _row(partition: PartitionRuntimeProperties, now: datetime) -> dict[str, Any]:
    return {
        "partition": partition.number,
        "server": partition.server,
        **{state: getattr(partition, f"{state}_message_count") for state in STATES},
        "bytes": partition.size_in_bytes,
        "oldest": _age(partition, now),
        "waiting_receivers": partition.waiting_receiver_count,
    }


async def _reservation(administration: ServiceBusAdministrationClient, path: str) -> dict[str, Any] | None:
    shown = ("consumer", "owner", "since", "last_seen", "state", "stale")
    found = [each async for each in administration.list_reservations(entity_path=path)]
    return {name: getattr(found[0], name) for name in shown} if found else None


@dataclass(frozen=True, slots=True)
class MessageCount:
    """The messages in an entity, those of a topic's subscriptions included."""

    count: int
    """The number of messages in the partitions that answer."""
    silent: int | None = 0
    """The number of partitions that do not answer; ``None`` if nothing is known, because the record is damaged."""

    @property
    def number(self) -> int | None:
        """The number of messages, or ``None`` if it is not known."""
        return None if self.silent or self.silent is None else self.count

    def __str__(self) -> str:
        if self.silent is None:
            return "an unknown number of messages, because its record is damaged"
        if not self.silent:
            return counted(self.count, "message")
        return (
            f"an unknown number of messages ({self.count:,} without those of {counted(self.silent, 'partition')}, "
            f"which {'does' if self.silent == 1 else 'do'} not answer)"
        )


async def messages_in(administration: ServiceBusAdministrationClient, kind: EntityKind, entity: Names) -> MessageCount:
    """Count the messages in an entity, those of a topic's subscriptions included."""
    if kind is RULE:
        return MessageCount(0)
    counts = await kind.call(administration, "get", of="_runtime_properties")(*entity)
    if kind is not TOPIC:
        return MessageCount(counts.total_message_count, len(counts.unreachable_partitions))
    here = counts.scheduled_message_count + counts.transfer_message_count + counts.transfer_dead_letter_message_count
    silent = len(counts.unreachable_partitions)
    async for each in SUBSCRIPTION.call(administration, "list", of="_runtime_properties")(*entity):
        here += each.total_message_count
        silent += len(each.unreachable_partitions)
    return MessageCount(here, silent)


async def existing_in(administration: ServiceBusAdministrationClient, *, rules: bool = True) -> list[Existing]:
    """Return all queues, topics and subscriptions of the namespace, and ``rules`` too.

    Each topic is followed by its subscriptions, and each of these by its rules. Entities that are deleted meanwhile are
    left out. Raises an error if a part of the registry cannot be read.
    """
    found, incomplete = await readable_in(administration, rules=rules)
    if incomplete is not None:
        raise incomplete
    return found


async def readable_in(
    administration: ServiceBusAdministrationClient, *, rules: bool = True
) -> tuple[list[Existing], IncompleteListError | None]:
    """Return the entities of :func:`existing_in` that can be read, and the error that some are missing, if some are."""
    from sbredis.registry import read_to_end  # help does not need it

    found: list[Existing] = []
    incomplete: IncompleteListError | None = None

    async def add(kind: EntityKind, parents: Names = ()) -> None:
        nonlocal incomplete
        listed: list[Described] = []
        with suppress(MessagingEntityNotFoundError):  # of the parent
            listed, error = await read_to_end(kind.call(administration, "list")(*parents))
            incomplete = incomplete or error
        for each in listed:
            found.append(Existing(kind, (*parents, each.name), dict(each)))
            inside = NESTED.get(kind)
            if inside is not None and (rules or inside is not RULE):
                await add(inside, found[-1].names)

    await add(QUEUE)
    await add(TOPIC)
    return found, incomplete


async def held_in(
    administration: ServiceBusAdministrationClient, entities: Iterable[Existing]
) -> dict[Key, int | None]:
    """Return the number of messages in each of these entities, or ``None`` if it may have some that do not answer."""
    found = {each.key: await messages_in(administration, each.kind, each.names) for each in entities}
    return {key: held.count or held.number for key, held in found.items()}
