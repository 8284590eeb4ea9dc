"""A namespace, and what is done with its entities as a whole. What that takes step by step is in ``_steps.py``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Literal, NamedTuple, Self, TypeVar, get_args

import anyio

from sbredis._quoting import quoted
from sbredis.engine import (
    Partition,
    PartitionSettings,
    Request,
    ScriptCaller,
    entity_name,
    namespace_name,
    new_token,
    partition_for_name,
    perform,
    rule_name,
    salts,
    subscription_name,
)
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError
from sbredis.registry._entity import (
    EntityDescription,
    EntityRecord,
    Json,
    Kind,
    path_of,
    require_properties,
    split_path,
)
from sbredis.registry._refusals import (
    EntityChangedError,
    NamespaceMissingError,
    SubscriptionGoneError,
    changed,
    exists,
    missing,
    missing_rule,
    refusals,
    rule_refusals,
)
from sbredis.registry._registry import register_namespace, require_bounds
from sbredis.registry._routes import Routes, read_routes
from sbredis.registry._rulebook import Rulebook
from sbredis.registry._rules import KeptRule, require_rules
from sbredis.registry._steps import TOPIC, Steps
from sbredis.rules import Rule

__all__ = ["JUDGING_PROPERTY", "Namespace", "TopicFacts"]

T = TypeVar("T")
_PARTITIONS = 16

JUDGING_PROPERTY = "dead_lettering_on_filter_evaluation_exceptions"
"""The property of a subscription by which messages are judged: who changes it raises the version of the topic."""


class TopicFacts(NamedTuple):
    """A topic, and how much it has of what. Of subscriptions that are being deleted only the rules are counted."""

    record: EntityRecord
    subscriptions: int
    sql_filters: int
    """Rules whose filter is no correlation filter, also one that is always true or false. The limit is about others."""
    correlation_filters: int


class Namespace:
    """The entities of a namespace. Every call ends, one way or the other, within its ``timeout`` in seconds.

    A call that fails in the middle leaves an entity half made or half deleted, and says so; the next call that names it
    goes on with it. Several clients may do anything at the same time. Names are compared without regard to case.
    """

    __slots__ = ("_rules", "_steps", "created_at", "name", "partitions")

    def __init__(
        self,
        transport: ScriptCaller,
        name: str,
        partitions: int,
        created_at: int,
        told: Callable[[], int | None] = lambda: None,
    ) -> None:
        """For a namespace that is known to be there; others are opened."""
        self._steps = Steps(transport, name, partitions, told)
        self._rules = Rulebook(name, partitions)
        self.name = name
        self.partitions = partitions
        self.created_at = created_at

    @classmethod
    async def open(
        cls,
        transport: ScriptCaller,
        name: str,
        partitions: int | None = None,
        *,
        timeout: float = 60.0,
        told: Callable[[], int | None] = lambda: None,
    ) -> Self:
        """The namespace of this name, made with ``partitions``, or 16, where there is none.

        ``told`` gives the time, where partitions go by a test clock.

        The number cannot change: :class:`NamespacePartitionsError` where another was asked for than it has.
        """
        namespace_name(name)
        wanted = _PARTITIONS if partitions is None else partitions
        salts(wanted)  # raises for what is no number of partitions
        request = register_namespace(name, wanted, exact=partitions is not None)
        facts = await perform(transport, request, timeout=timeout, refusals=refusals(name))
        return cls(transport, name, facts.partitions, facts.created_at, told)

    # -- queues and topics ----------------------------------------------------------------------------------------

    async def create_entity(
        self,
        name: str,
        settings: PartitionSettings,
        *,
        kind: Literal["queue", "topic"] = "queue",
        partitioned: bool = False,
        colocate_with: str | None = None,
        properties: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Create a queue or topic: in all partitions, or in one that its name or ``colocate_with``, another, decides.

        One that is being deleted under this name is deleted first. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is one, of whichever kind; of several
        clients that create it at once, one succeeds.
        """
        entity_name(name)
        if properties is not None:
            require_properties(properties)
        _check_kind(name, kind, settings)
        if partitioned and colocate_with is not None:
            raise ValueError(
                f"{quoted(name)} is to be partitioned, and so beside every other entity: leave out colocate_with"
            )
        until = anyio.current_time() + timeout
        beside = None if colocate_with is None else await self._neighbour(name, colocate_with, until)
        description = EntityDescription(
            name=name,
            kind=kind,
            partitioned=partitioned,
            partitions=tuple(range(self.partitions)) if partitioned else (self._place(name, beside),),
            colocated_with=None if beside is None else beside.path,
            settings=settings,
            properties=properties or {},
        )
        steps = self._steps
        registration = steps.registry.register(description, new_token())
        while True:
            try:
                record = await steps.ask(registration, until, name)
            except NamespaceMissingError:
                await steps.ask(register_namespace(self.name, self.partitions, exact=True), until)
            except MessagingEntityAlreadyExistsError:
                await self._require_free(name, kind, until)
            else:
                return await self._made(record, until)

    async def get_entity(self, path: str, *, kind: Kind | Collection[Kind] = (), timeout: float = 60.0) -> EntityRecord:
        """The entity of this name; one that is half made or half deleted is made or deleted first.

        A subscription is ``topic/subscriptions/name``. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none, or none of this ``kind``, or of one
        of these, if given.
        """
        split_path(path)
        return await self._steps.existing(path, anyio.current_time() + timeout, _kinds(kind))

    async def update_entity(
        self,
        record: EntityRecord,
        settings: PartitionSettings,
        *,
        properties: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Give an entity other settings; ``properties`` stay as they are if they are left out.

        ``record`` is what was read before. If somebody else has changed the entity since, this raises
        :class:`EntityChangedError` and changes nothing; a topic is changed by every change of its rules as well. A
        partition that cannot be reached is told by the next call that reaches it; that it could not be is raised all
        the same.
        """
        _check_changes(record, settings)
        if properties is not None:
            require_properties(properties)
        if record.state != "active":
            raise changed(record.path, f"it was {record.state} then; get_entity goes on with that")
        until = anyio.current_time() + timeout
        steps, stamp = self._steps, new_token()
        revised = replace(
            record,
            version=record.version + 1,
            settings=settings,
            properties=record.properties if properties is None else properties,
        )
        if record.kind != "subscription":
            revised = await steps.ask(steps.registry.revise(revised, stamp), until, record.path)
        else:
            judging = record.properties.get(JUDGING_PROPERTY) != revised.properties.get(JUDGING_PROPERTY)
            request = steps.registry.revise_subscription(revised, stamp, judging=judging)
            done = await steps.ask(request, until, record.path)
            revised = done.record
            if judging and done.topic is not None:
                await steps.told(done.topic, until)
        await steps.told(revised, until)
        return revised

    async def delete_entity(self, path: str, *, kind: Kind | Collection[Kind] = (), timeout: float = 60.0) -> None:
        """Delete an entity with all its messages, and a topic with its subscriptions.

        A deletion that somebody else has begun is brought to its end. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none, or none of this ``kind``, or of one
        of these, if given.
        """
        split_path(path)
        kinds = _kinds(kind)
        until = anyio.current_time() + timeout
        steps = self._steps
        while True:
            record = await steps.ask(steps.registry.read(path), until, path)
            if record is None:
                raise await steps.absence(path, until, kinds)
            steps.require_kind(record, kinds)
            if record.state != "deleting":
                try:
                    record = await steps.deleting(record, until)
                except (EntityChangedError, MessagingEntityNotFoundError):
                    continue  # somebody else was first: with what, the record says
            await steps.settled(record, until)
            return

    async def restore_entity(self, record: EntityRecord, *, timeout: float = 60.0) -> EntityRecord:
        """Make those partitions of an entity again that a failover has lost, empty, and leave the others as they are.

        For who is told by a partition that there is no such entity, while the registry says that there is. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the registry does not, or no longer.
        """
        return await self._steps.restored(record, anyio.current_time() + timeout)

    async def list_entities(
        self, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[EntityRecord, ...]:
        """Queues and topics in the order of their names in small letters, from after the name ``after`` on, 1 to 1000.

        The next page begins after the last name of this one; behind an empty one there is none. Those that are half
        made or half deleted are listed too, as such, and left as they are.
        """
        return await self._steps.ask(self._steps.registry.listed(after, limit), anyio.current_time() + timeout)

    # -- subscriptions --------------------------------------------------------------------------------------------

    async def create_subscription(
        self,
        topic: str,
        name: str,
        settings: PartitionSettings,
        *,
        properties: Mapping[str, Json] | None = None,
        rules: Sequence[Rule],
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Create a subscription in the partitions of its topic, which stores its messages, with these rules.

        When this returns, every message that is sent to the topic is judged by them. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if the topic has one of this name,
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic, and
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` if it would have too many subscriptions or filters.
        """
        path = path_of(entity_name(topic), subscription_name(name))
        if properties is not None:
            require_properties(properties)
        if not settings.shared:
            raise ValueError(f"the messages of the subscription {path!r} are its topic's: its settings must be shared")
        require_rules(rules)
        until = anyio.current_time() + timeout
        steps, incarnation = self._steps, new_token()
        while True:
            owner = await steps.existing(topic, until, TOPIC)
            description = EntityDescription(
                name=name,
                kind="subscription",
                parent=owner.name,
                store=owner.id,
                partitioned=owner.partitioned,
                partitions=owner.partitions,
                settings=settings,
                properties=properties or {},
            )
            registration = steps.registry.register_subscription(owner, description, incarnation, rules)
            try:
                record = await steps.ask(registration, until, path)
            except MessagingEntityAlreadyExistsError:
                await self._require_free(path, "subscription", until)
            except MessagingEntityNotFoundError:
                continue  # the topic is another by now, or gone, or going: which, is seen when it is read again
            else:
                return await self._made(record, until)

    async def list_subscriptions(
        self, topic: str, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[EntityRecord, ...]:
        """Subscriptions of a topic in the order of their names in small letters, from after the name ``after`` on.

        Up to ``limit``, 1 to 1000, and fewer where more would not fit into a reply of a MB. The next page begins after
        the last name of this one; behind an empty one there is none. Those that are half made or half deleted are
        listed too, as such, and left as they are.
        """
        request = self._steps.registry.subscriptions(entity_name(topic), after, limit)
        until = anyio.current_time() + timeout
        await self._steps.existing(topic, until, TOPIC)
        page = await self._steps.ask(request, until, topic)
        return tuple(each.record for each in page.subscriptions)

    async def topic_facts(self, topic: str, *, timeout: float = 60.0) -> TopicFacts:
        """A topic, and how many subscriptions and filters it has."""
        seen = await self._steps.seen(entity_name(topic), anyio.current_time() + timeout, TOPIC)
        return TopicFacts(seen.record, seen.subscriptions, seen.sql_filters, seen.correlation_filters)

    async def routes(self, topic: str, known: Routes | None = None, *, timeout: float = 60.0) -> Routes:
        """What the messages of a topic are judged by: its active subscriptions and their rules, at one version of it.

        ``known`` is what was read before: only what has changed since is read of the rules.
        """
        until = anyio.current_time() + timeout
        return await read_routes(self._steps, self._rules, entity_name(topic), known, until)

    # -- rules ----------------------------------------------------------------------------------------------------

    async def create_rule(self, topic: str, subscription: str, rule: Rule, *, timeout: float = 60.0) -> KeptRule:
        """Give a subscription another rule. When this returns, every message sent to the topic is judged by it too.

        Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is one of its name,
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic or subscription, and
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` if the topic would have too many filters.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        require_rules([rule])
        until, stamp = anyio.current_time() + timeout, new_token()
        done = await self._changed(path, rule.name, lambda record: self._rules.create(record, rule, stamp), until)
        await self._steps.told(done.topic, until)
        return KeptRule(rule, done.created_at, stamp)

    async def update_rule(
        self, topic: str, subscription: str, rule: Rule, *, seen: KeptRule | None = None, timeout: float = 60.0
    ) -> KeptRule:
        """Replace the rule of this name, with what :meth:`create_rule` promises and raises.

        With ``seen`` only that one, as it was read: :class:`EntityChangedError` if somebody else was first. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of its name.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        require_rules([rule])
        until, stamp = anyio.current_time() + timeout, new_token()
        mark = "" if seen is None else seen.stamp
        done = await self._changed(path, rule.name, lambda record: self._rules.update(record, rule, stamp, mark), until)
        await self._steps.told(done.topic, until)
        return KeptRule(rule, done.created_at, stamp)

    async def delete_rule(self, topic: str, subscription: str, name: str, *, timeout: float = 60.0) -> None:
        """Take a rule from a subscription. When this returns, no message sent to the topic is judged by it.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic, subscription, or
        rule.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        rule_name(name)
        until, stamp = anyio.current_time() + timeout, new_token()
        done = await self._changed(path, name, lambda record: self._rules.delete(record, name, stamp), until)
        await self._steps.told(done, until)

    async def get_rule(self, topic: str, subscription: str, name: str, *, timeout: float = 60.0) -> KeptRule:
        """A rule of a subscription; :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none."""
        path = path_of(entity_name(topic), subscription_name(subscription))
        rule_name(name)
        until = anyio.current_time() + timeout
        record = await self._steps.existing(path, until)
        kept = await self._steps.ask(self._rules.read(record, name), until, path)
        if kept is None:
            raise missing_rule(record.path, name)
        return kept

    async def list_rules(
        self, topic: str, subscription: str, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[KeptRule, ...]:
        """Rules of a subscription in the order of their names in small letters, from after the name ``after`` on.

        Pages are those of :meth:`list_subscriptions`.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        require_bounds("a rule", after, limit)
        until = anyio.current_time() + timeout
        record = await self._steps.existing(path, until)
        page = await self._steps.ask(self._rules.listed(record, after, limit), until, path)
        return tuple(kept for _, kept in page.rules)

    # -- partitions -----------------------------------------------------------------------------------------------

    def partition(self, record: EntityRecord, number: int) -> Partition:
        """One of the partitions of an entity; :class:`ValueError` if it is not there."""
        return self._steps.partition(record, number)

    async def _neighbour(self, name: str, neighbour: str, until: float) -> EntityRecord:
        """What an entity is to be created beside."""
        try:
            return await self._steps.existing(entity_name(neighbour), until)
        except MessagingEntityNotFoundError as error:
            error.message = f"'{name}' was to be created beside '{neighbour}', as colocate_with says. {error.message}"
            raise

    async def _require_free(self, path: str, kind: Kind, until: float) -> None:
        """Raise that there is an entity of this name, where one of this kind was to be, unless there is none now."""
        with suppress(MessagingEntityNotFoundError):
            found = await self._steps.existing(path, until)
            raise exists(self.name, found.path, found.kind, kind) from None

    async def _made(self, record: EntityRecord, until: float) -> EntityRecord:
        """What became of an entity that was registered just now."""
        settled = await self._steps.settled(record, until)
        if settled is None:  # it was there for a moment, and somebody else has deleted it
            raise missing(self.name, record.path)
        return settled

    async def _changed(self, path: str, rule: str, change: Callable[[EntityRecord], Request[T]], until: float) -> T:
        """Change a rule of a subscription, as the subscription is when that arrives."""
        while True:
            record = await self._steps.existing(path, until)
            codes = rule_refusals(self.name, record.path, rule)
            with suppress(SubscriptionGoneError):  # what it is now, is seen when it is read again
                return await self._steps.ask(change(record), until, codes=codes)

    def _place(self, name: str, beside: EntityRecord | None) -> int:
        """The one partition of an entity that is not partitioned."""
        if beside is None:
            return partition_for_name(name, self.partitions)
        if beside.partitioned:
            raise ValueError(
                f"{quoted(name)} cannot be put beside '{beside.path}', which is partitioned and so everywhere"
            )
        return beside.partitions[0]


def _kinds(kind: Kind | Collection[Kind]) -> Collection[Kind]:
    kinds = (kind,) if isinstance(kind, str) else kind
    if unknown := set(kinds) - set(get_args(Kind)):
        raise ValueError(f"kind is one of {', '.join(get_args(Kind))}, or several, not {quoted(unknown)}")
    return kinds


def _check_kind(name: str, kind: Kind, settings: PartitionSettings) -> None:
    """Raise for settings that no queue or topic can have, and for what is neither."""
    if kind not in {"queue", "topic"}:
        raise ValueError(f"{quoted(name)} is to be a queue or a topic, not {quoted(kind)}")
    if settings.shared:
        raise ValueError(f"the {kind} {quoted(name)} stores its messages itself: its settings cannot be shared")
    if settings.topic != (kind == "topic"):
        raise ValueError(
            f"the settings of the {kind} {quoted(name)} are those of a {'topic' if settings.topic else 'queue'}"
        )


def _check_changes(record: EntityRecord, settings: PartitionSettings) -> None:
    """Raise for a change of what is fixed, before the registry says what no partition would do."""
    for what in record.settings.fixed_differences(settings):
        raise ValueError(f"'{record.path}' cannot be changed so: {what} was decided when it was created")
