"""Check before a worker receives that its entities and handlers fit together, and create entities that are missing."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis._counting import counted
from sbredis.exceptions import MessagingEntityNotFoundError, WorkerSetupError
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.included._idempotency import Idempotency
from sbredis.workers.running._processes import start_of

if TYPE_CHECKING:
    from sbredis.aio import EntityInfo, ServiceBusClient
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = [
    "SourceFacts",
    "check_targets",
    "create_missing",
    "facts_of",
    "require_processes",
    "require_single_messages",
    "warn_of_few_threads",
]

_log = logging.getLogger("sbredis.worker")


class SourceFacts(NamedTuple):
    """The properties of an entity that its handlers depend on."""

    requires_session: bool
    lock: float
    """The duration of locks in seconds."""
    max_delivery_count: int


def require_processes(plans: Sequence[EntityPlan]) -> None:
    """Raise if a handler is to run in a process that could not find it."""
    for plan in plans:
        for handler in plan.handlers:
            if handler.execution == "process":
                start_of(handler)


def require_single_messages(plans: Sequence[EntityPlan]) -> None:
    """Raise if one key is to be remembered for all messages of a batch."""
    for plan in plans:
        for handler in plan.handlers:
            if handler.settings.batch is not None and _is_idempotent(handler):
                raise WorkerSetupError(
                    f"{handler.name} takes batches of {plan.source.path!r}, but Idempotency remembers a key for a "
                    "single message: leave out batch=, or give Idempotency only to handlers of single messages."
                )


def _is_idempotent(handler: HandlerPlan) -> bool:
    return any(isinstance(each, Idempotency) for each in handler.middleware)


def warn_of_few_threads(plans: Sequence[EntityPlan], threads: int) -> None:
    """Warn if more plain functions may be called at once than there are threads for them."""
    in_threads = [plan for plan in plans if any(handler.execution == "thread" for handler in plan.handlers)]
    most = sum(plan.settings.max_concurrent_calls for plan in in_threads)
    if most > threads:
        _log.warning(
            "the handlers may call up to %d plain functions at once, but the worker has %d threads: the others wait "
            "with locked messages, which no other worker gets. Give the worker threads=%d, or lower "
            "max_concurrent_calls.",
            *(most, threads, most),
        )


async def create_missing(administration: ServiceBusAdministrationClient, plans: Sequence[EntityPlan]) -> None:
    """Create the entities of these handlers that do not exist.

    Raises :class:`~sbredis.exceptions.WorkerSetupError` for properties that no entity can have.
    """
    for plan in plans:
        source = plan.source
        given: Any = plan.settings.create_if_missing
        properties: dict[str, Any] = {} if given is True else dict(given)
        try:
            if source.topic is None:
                await administration.ensure_queue(source.name, **properties)
            else:
                await administration.ensure_topic(source.topic)
                await administration.ensure_subscription(source.topic, source.name, **properties)
        except (TypeError, ValueError) as error:
            raise WorkerSetupError(
                f"{plan.handlers[0].name} handles {source.path!r}, which cannot be created: "
                f"{str(error).removesuffix('.')}."
            ) from error


async def check_targets(client: ServiceBusClient, handler: HandlerPlan) -> None:
    """Raise if a queue or topic that gets a handler's results or replies does not exist."""
    does = "replies" if handler.settings.publishes is None else "publishes"
    for target in handler.settings.targets:
        try:
            info = await client.describe_entity(target)
        except MessagingEntityNotFoundError as error:
            raise WorkerSetupError(
                f"{handler.name} {does} to {target!r}, which does not exist. Create it before the worker starts, in "
                "its lifespan, or with create_if_missing=True of a handler of it."
            ) from error
        except ValueError as error:
            raise WorkerSetupError(f"{handler.name} {does} to {target!r}, which cannot exist: {error}.") from error
        if info.kind == "subscription" or info.sub_queue is not None:
            what = "a subscription" if info.sub_queue is None else "a dead-letter queue"
            raise WorkerSetupError(f"{handler.name} {does} to {target!r}, which is {what}: name a queue or a topic.")


async def facts_of(client: ServiceBusClient, plan: EntityPlan) -> SourceFacts:
    """Return the facts of an entity.

    Raises :class:`~sbredis.exceptions.WorkerSetupError` if there is no such entity, or if a handler does not fit it.
    """
    path = plan.source.path
    try:
        info = await client.describe_entity(path)
    except MessagingEntityNotFoundError as error:
        raise WorkerSetupError(
            f"{plan.handlers[0].name} handles {path!r}, which does not exist. Create it, or let the worker do it: "
            "create_if_missing=True."
        ) from error
    except ValueError as error:
        raise WorkerSetupError(f"{plan.handlers[0].name} handles {path!r}, which cannot exist: {error}.") from error
    if info.lock_duration is None:
        raise WorkerSetupError(
            f"{plan.handlers[0].name} handles {path!r}, which is a topic: handle one of its subscriptions."
        )
    properties: Any = info.properties
    facts = SourceFacts(bool(info.requires_session), info.lock_duration.total_seconds(), properties.max_delivery_count)
    if facts.requires_session and plan.settings.prefetch:
        raise WorkerSetupError(
            f"{plan.handlers[0].name} handles {path!r}, which has sessions: nothing is fetched ahead of a session, so "
            "leave out prefetch=."
        )
    longest = max(handler.settings.batch_wait for handler in plan.handlers)
    if plan.in_batches and not facts.requires_session and longest > facts.lock / 2:
        raise WorkerSetupError(
            f"A batch of {path!r} waits up to {longest:g} s for messages, but a lock lasts {facts.lock:g} s: let "
            f"batch_wait be at most {facts.lock / 2:g}, or the entity's lock_duration longer."
        )
    for handler in plan.handlers:
        attempts = handler.retries.attempts
        if attempts is not None and attempts > facts.max_delivery_count:
            raise WorkerSetupError(
                f"{handler.name} asks for {attempts} attempts, but {path!r} dead-letters a message after "
                f"{counted(facts.max_delivery_count, 'delivery', 'deliveries')}: set its max_delivery_count, or ask "
                "for fewer."
            )
    if any(_is_idempotent(handler) for handler in plan.handlers):
        await _warn_of_scattered_keys(client, plan, info)
    return facts


async def _warn_of_scattered_keys(client: ServiceBusClient, plan: EntityPlan, info: EntityInfo) -> None:
    """Warn of each handler whose messages of one key may be in several partitions. The senders decide whether they are,
    so the worker starts.
    """
    own: Any = info.properties
    topic = plan.source.topic
    stored: Any = own if topic is None else (await client.describe_entity(topic)).properties
    if not stored.enable_partitioning or own.requires_session:  # the session id decides about the partition
        return
    for handler in plan.handlers:
        keys = [each for each in handler.middleware if isinstance(each, Idempotency)]
        if keys and not (stored.requires_duplicate_detection and all(each.by_message_id for each in keys)):
            _log.warning(
                "%s: Idempotency remembers keys in each partition, and %r is partitioned. Two messages of one key "
                "count as one only if both are in one partition: let the senders give them the same partition_key.",
                *(handler.name, plan.source.path),
            )
