"""Queues as they are created, changed and described: between what users say of them and what the registry keeps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

import anyio

from sbredis.engine import Clock, PartitionSettings, entity_name
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError
from sbredis.model import (
    EntityAvailabilityStatus,
    EntityStatus,
    KeptQueue,
    QueueOptions,
    QueueProperties,
    queue_created,
    queue_differences,
    queue_revised,
    queue_values,
)
from sbredis.registry import EntityChangedError, EntityRecord, Namespace, require_properties

if TYPE_CHECKING:
    from typing import Unpack

    from sbredis.aio._connection import Creation

__all__ = ["check_queue", "create", "create_or_get", "described", "given_in", "queue_creation", "revise"]

_TRIES = 10
_TOLD = ("name", "availability_status")
_STATES = {"creating": EntityStatus.CREATING, "deleting": EntityStatus.DELETING}


def check_queue(function: str, name: str, properties: Mapping[str, object], *, clock: Clock = "server") -> KeptQueue:
    """What a queue of these properties would be; ``None`` counts as not given. Raises for what is wrong.

    ``function`` is what did not know an option that there is not.
    """
    entity_name(name)
    _require_known(function, properties, _TOLD)
    given = QueueProperties(name, **properties).given  # type: ignore[arg-type]  # each is looked at when it is read
    kept = queue_created(given, PartitionSettings(clock=clock))
    require_properties(kept.properties)
    return kept


async def create(
    namespace: Namespace, name: str, timeout: float, properties: Mapping[str, object], *, clock: Clock = "server"
) -> EntityRecord:
    """Create a queue; nothing is sent where ``properties`` are wrong, which are those of :class:`QueueOptions`."""
    kept = check_queue("create_queue", name, properties, clock=clock)
    return await namespace.create_entity(
        name,
        kept.settings,
        partitioned=kept.partitioned,
        colocate_with=kept.colocated_with,
        properties=kept.properties,
        timeout=timeout,
    )


async def create_or_get(
    namespace: Namespace, name: str, timeout: float, properties: Mapping[str, object], *, clock: Clock = "server"
) -> EntityRecord:
    """The queue of this name, created with ``properties`` where there is none; several may do so at once.

    One that is there stays as it is. :class:`ValueError` if it differs in what cannot be changed.
    """
    check_queue("ensure_queue", name, properties)  # also where the queue is there
    given = QueueProperties(name, **properties).given  # type: ignore[arg-type]  # as in check_queue
    until = anyio.current_time() + timeout
    for tries in range(1, _TRIES + 1):
        try:
            record = await namespace.get_entity(name, timeout=until - anyio.current_time())
        except MessagingEntityNotFoundError:
            try:
                return await create(namespace, name, until - anyio.current_time(), properties, clock=clock)
            except MessagingEntityAlreadyExistsError:
                continue  # somebody else was first
            except MessagingEntityNotFoundError:
                # It was there for a moment, and somebody has deleted it; or its neighbour or the namespace is missing.
                if tries == _TRIES or given.get("colocate_with") is not None:
                    raise
        else:
            differences = queue_differences(given, _kept(record))
            if differences:
                raise ValueError(
                    f"The queue '{record.path}' is there already, and differs in what cannot be changed: "
                    f"{'; '.join(differences)}. Use it as it is, delete it first, or choose another name."
                )
            return record
    return await namespace.get_entity(name, timeout=until - anyio.current_time())


def queue_creation(*, clock: Clock = "server", **properties: Unpack[QueueOptions]) -> Creation:
    """How senders and receivers create a queue that is missing; wrong properties are refused at once."""
    check_queue("create_if_missing", "queue", properties)

    async def create_missing(namespace: Namespace, name: str, timeout: float) -> EntityRecord:
        return await create_or_get(namespace, name, timeout, properties, clock=clock)

    return create_missing


async def revise(namespace: Namespace, name: str, timeout: float, given: Mapping[str, object]) -> EntityRecord:
    """Give a queue these properties, and leave its others as they are at that moment. Of several, the last one wins."""
    until = anyio.current_time() + timeout
    while True:
        record = await namespace.get_entity(name, timeout=until - anyio.current_time())
        kept = queue_revised(given, _kept(record))
        try:
            return await namespace.update_entity(
                record, kept.settings, properties=kept.properties, timeout=until - anyio.current_time()
            )
        except EntityChangedError:
            continue  # somebody else was first: do the same to what it is now


def described(record: EntityRecord, *, reachable: bool) -> QueueProperties:
    """A queue as it is shown."""
    values = queue_values(_kept(record))
    if not reachable:
        values["availability_status"] = EntityAvailabilityStatus.LIMITED
    if record.state in _STATES:
        values["status"] = _STATES[record.state]
    return QueueProperties.shown(record.name, values)


def given_in(queue: QueueProperties | Mapping[str, object], changes: Mapping[str, object]) -> QueueProperties:
    """The properties of an update: ``changes`` stand above those of ``queue``."""
    if isinstance(queue, Mapping):
        given = {name: value for name, value in queue.items() if name != "name"}
        if "name" not in queue:
            raise ValueError("the queue to update is a mapping without 'name'")
        name = cast("str", queue["name"])
    elif isinstance(queue, QueueProperties):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        given, name = dict(queue.given), queue.name
    else:
        raise TypeError(f"update_queue takes QueueProperties or a mapping of them, not {type(queue).__name__}")
    _require_known("update_queue", {**given, **changes}, ())
    found = QueueProperties(name)
    for property_name, value in {**given, **changes}.items():
        setattr(found, property_name, value)
    return found


def _require_known(function: str, given: Mapping[str, object], besides: tuple[str, ...]) -> None:
    unknown = [name for name in given if name not in QueueProperties.fields() or name in besides]
    if unknown:
        raise TypeError(f"{function} does not know {', '.join(map(repr, unknown))}")


def _kept(record: EntityRecord) -> KeptQueue:
    return KeptQueue(
        settings=record.settings,
        properties=record.properties,
        partitioned=record.partitioned,
        colocated_with=record.colocated_with,
    )
