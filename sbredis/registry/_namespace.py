"""A namespace and the operations on its entities. The steps of these operations are in ``_steps.py``."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, TypeVar, get_args

from sbredis._counting import counted
from sbredis._quoting import quoted
from sbredis._tasks import loop_time
from sbredis.engine import (
    MOST_PARTITIONS,
    USUAL_PARTITIONS,
    Partition,
    PartitionSettings,
    Request,
    ScriptCaller,
    entity_name,
    namespace_name,
    new_stamp,
    perform,
    require_slots,
    rule_name,
    slot_for_name,
    slot_salt,
    slots_for_name,
    subscription_name,
)
from sbredis.exceptions import (
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    ServiceBusServerBusyError,
)
from sbredis.registry._buckets import Buckets, EntityList
from sbredis.registry._entity import (
    IDLE_PROPERTY,
    JUDGING_PROPERTY,
    EntityDescription,
    EntityRecord,
    Json,
    Kind,
    decode,
    path_of,
    require_changeable,
    require_properties,
    split_path,
)
from sbredis.registry._forwarding import require_destinations
from sbredis.registry._pages import first_readable
from sbredis.registry._refusals import (
    BucketMissingError,
    SubscriptionGoneError,
    add_sentence,
    changed,
    exists,
    head_refusals,
    missing,
    missing_rule,
    rule_refusals,
)
from sbredis.registry._registry import (
    BucketChanges,
    Listing,
    NamespaceFacts,
    NamespaceHead,
    TopicFacts,
    read_namespace,
    refuse_former,
    register_namespace,
    require_bounds,
)
from sbredis.registry._removal import Before, Removal, delete, note_use, remove_if_idle
from sbredis.registry._routes import Routes, read_routes
from sbredis.registry._rulebook import Rulebook
from sbredis.registry._rules import KeptRule, require_rules, rule_name_at
from sbredis.registry._steps import TOPIC, Steps
from sbredis.registry._unreadable import Unreadable

if TYPE_CHECKING:
    from sbredis.rules import Rule

__all__ = ["SLOTS_OF_NEW", "Namespace"]

T = TypeVar("T")
SLOTS_OF_NEW = 256
"""The number of slots of a new namespace, if its first client gives no other."""
"""The number of slots of a new namespace, unless its creator names one."""


class Namespace:
    """The entities of a namespace. Every call succeeds or fails within its ``timeout`` in seconds.

    A call that fails in the middle leaves an entity half created or half deleted, and its error says so. The next call
    that names the entity continues the work. Several clients may make any calls at the same time. Names are compared
    without regard to case.
    """

    __slots__ = ("_buckets", "_rules", "_steps", "created_at", "name", "slots")

    def __init__(
        self,
        transport: ScriptCaller,
        name: str,
        slots: int,
        created_at: int,
        told: Callable[[], int | None] = lambda: None,
    ) -> None:
        """Use a namespace that is known to exist. If it may not exist, use :meth:`open`."""
        self._steps = Steps(transport, name, slots, told)
        self._buckets = Buckets(self._steps)
        self._rules = Rulebook(name, slots)
        self.name = name
        self.slots = slots
        self.created_at = created_at

    @classmethod
    async def open(
        cls,
        transport: ScriptCaller,
        name: str,
        slots: int | None = None,
        *,
        slots_of_new: int = SLOTS_OF_NEW,
        timeout: float = 60.0,
        told: Callable[[], int | None] = lambda: None,
    ) -> Self:
        """Open the namespace of this name. If it does not exist, create it with ``slots``, or ``slots_of_new``.

        ``told`` returns the time for partitions with a test clock.

        The number of slots cannot change. If the namespace has another number, this raises
        :class:`NamespaceSlotsError`.
        """
        namespace_name(name)
        if slots is not None:
            require_slots(slots)
        head = await _open_namespace(transport, name, slots, slots_of_new, timeout=timeout)
        return cls(transport, name, head.slots, head.created_at, told)

    async def facts(self, *, timeout: float = 60.0) -> NamespaceFacts:
        """Read the facts of the namespace; create it if it is missing.

        The sums leave out the parts of the registry that cannot be reached, and the result names their slots.
        """
        return await self._buckets.facts(loop_time() + timeout)

    async def limit(self, *, entities: int | None, megabytes: int | None, timeout: float = 60.0) -> NamespaceFacts:
        """Limit the number of entities, and the sum of the sizes of queues and topics; ``None`` is no limit.

        Entities that exist are kept, even if they are more. Two changes that are made at the same moment may pass a
        limit together.
        """
        return await self._buckets.limit(entities, megabytes, loop_time() + timeout)

    # -- queues and topics ----------------------------------------------------------------------------------------

    async def create_entity(
        self,
        name: str,
        settings: PartitionSettings,
        *,
        kind: Literal["queue", "topic"] = "queue",
        partitioned: bool = False,
        partitions: int | None = None,
        colocate_with: str | None = None,
        properties: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Create a queue or topic with one partition, or a ``partitioned`` one with this number of ``partitions``: by
        default 16, or the number of slots if that is smaller.

        With ``colocate_with``, which is the name of another entity, the partitions are in the slots of that entity.
        Otherwise the name of the new entity decides the slots. If an entity of this name is being deleted, its
        deletion is finished first. Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an
        entity of this name, of any kind. If several clients create the entity at the same time, only one succeeds.
        """
        entity_name(name)
        if properties is not None:
            require_properties(properties)
        _check_kind(name, kind, settings)
        self._check_partitions(name, partitions, partitioned=partitioned)
        until = loop_time() + timeout
        beside = None if colocate_with is None else await self._neighbour(name, colocate_with, until)
        await require_destinations(self._steps, name, properties, {}, until)
        description = EntityDescription(
            name=name,
            kind=kind,
            partitioned=partitioned,
            partitions=self._slots_of(name, beside, partitions, partitioned=partitioned),
            colocated_with=None if beside is None else beside.path,
            settings=settings,
            properties=properties or {},
        )
        incarnation, registry = new_stamp(), self._steps.registry

        def registration(checked: bool) -> Request[EntityRecord]:
            return registry.register(description, incarnation, checked=checked)

        while True:
            try:
                record = await self._buckets.within_limits(registration, until, name, begins=True)
            except BucketMissingError:
                await self._buckets.begin(name, until)
            except MessagingEntityAlreadyExistsError:
                await self._require_free(name, kind, until)
            else:
                return await self._made(record, until)

    async def get_entity(self, path: str, *, kind: Kind | Collection[Kind] = (), timeout: float = 60.0) -> EntityRecord:
        """Return the entity of this name; an unfinished creation or deletion is finished first.

        A subscription is ``topic/subscriptions/name``. Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError`
        if there is no such entity, or if ``kind`` is given and does not include the kind of the entity.
        """
        split_path(path)
        return await self._steps.existing(path, loop_time() + timeout, _kinds(kind))

    async def update_entity(
        self,
        record: EntityRecord,
        settings: PartitionSettings,
        *,
        properties: Mapping[str, Json] | None = None,
        timeout: float = 60.0,
    ) -> EntityRecord:
        """Give an entity other settings. If ``properties`` are left out, they do not change.

        ``record`` is the record that was read before. If another client has changed the entity after that, this raises
        :class:`EntityChangedError` and changes nothing. Every change of a topic's rules also changes the topic. If a
        partition cannot be reached, this raises the error. The next call that reaches the partition gives it the
        settings.
        """
        require_changeable(record, settings)
        if properties is not None:
            require_properties(properties)
        if record.state != "active":
            raise changed(record.path, f"it was {record.state} when it was read; get_entity finishes that")
        until = loop_time() + timeout
        steps, stamp = self._steps, new_stamp()
        await require_destinations(steps, record.path, properties, record.properties, until)
        revised = replace(
            record,
            version=record.version + 1,
            settings=settings,
            properties=record.properties if properties is None else properties,
        )
        if record.kind != "subscription":
            wanted = revised

            def revision(checked: bool) -> Request[EntityRecord]:
                return steps.registry.revise(wanted, stamp, checked=checked)

            revised = await self._buckets.within_limits(revision, until, record.path)
        else:
            judging = record.properties.get(JUDGING_PROPERTY) != revised.properties.get(JUDGING_PROPERTY)
            request = steps.registry.revise_subscription(revised, stamp, judging=judging)
            done = await steps.ask(request, until, record.path)
            revised = done.record
            if judging and done.topic is not None:
                await steps.told(done.topic, until)
        await steps.told(revised, until, use=True)
        return revised

    async def remove_if_idle(self, record: EntityRecord, idle: int, *, timeout: float = 60.0) -> Removal:
        """Delete an entity if no user has called it for ``idle`` ms and for one minute more.

        A call that a user makes at the same time is never lost: it takes the removal back, or is refused because the
        entity does not exist any more.
        """
        return await remove_if_idle(self._steps, record, idle, loop_time() + timeout)

    async def finish_deletion(self, record: EntityRecord, *, timeout: float = 60.0) -> None:
        """Finish a deletion that another client has begun."""
        await self._steps.settled(record, loop_time() + timeout)

    async def delete_entity(
        self, path: str, *, kind: Kind | Collection[Kind] = (), before: Before | None = None, timeout: float = 60.0
    ) -> None:
        """Delete an entity with all its messages, and a topic with its subscriptions.

        ``before`` is called before the deletion begins, and may raise an error that prevents it. A deletion that
        another client has begun is finished. Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there
        is no such entity, or if ``kind`` is given and does not include the kind of the entity.
        """
        split_path(path)
        await delete(self._steps, path, _kinds(kind), before, loop_time() + timeout)

    async def restore_entity(self, record: EntityRecord, *, timeout: float = 60.0) -> EntityRecord:
        """Create empty partitions in place of the partitions that a failover has lost; the other partitions keep their
        messages.

        Use this if a partition reports that the entity does not exist, but the registry has it. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if the registry does not have it.
        """
        return await self._steps.restored(record, loop_time() + timeout)

    async def list_entities(
        self, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[EntityRecord, ...]:
        """List queues and topics after the name ``after``, in the order of their names in lower case.

        ``limit`` is 1 to 1000. The next page begins after the last name of this page. After an empty page there is no
        further page. Entities that are half created or half deleted are listed with that state; the call does not
        continue their creation or deletion. Entities whose records cannot be read are left out.
        """
        return await first_readable(lambda on, left: self.page_of_entities(on, limit, timeout=left), after, timeout)

    async def page_of_entities(
        self, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> Listing[EntityRecord]:
        """Return a page of the list of :meth:`list_entities`, also with those whose records cannot be read."""
        require_bounds("an entity", after, limit)
        entities = self.entities(after)
        page = await entities.next(limit, loop_time() + timeout)
        if (error := entities.error) is not None:
            raise error
        return page

    def decode(self, path: str, record: bytes) -> EntityRecord:
        """Read the record of an entity in :meth:`changes`.

        Raises :class:`~sbredis.exceptions.DataLayoutError` if it cannot be read.
        """
        return decode(record, path, self.slots)

    def entities(self, after: str = "") -> EntityList:
        """Return the list of queues and topics after a name, for a caller that wants more than one page."""
        return EntityList(self._steps, after)

    async def find_entity(self, entity_id: str, *, timeout: float = 60.0) -> EntityRecord | None:
        """Return the entity with this id in any state, if it exists."""
        return await self._buckets.find(entity_id, loop_time() + timeout)

    async def changes(self, number: int, after: int, limit: int, *, timeout: float = 60.0) -> BucketChanges | None:
        """Return the changes of the bucket of this number after a number; ``None`` if the bucket does not exist."""
        return await self._buckets.changes(number, after, limit, loop_time() + timeout)

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
        """Create a subscription with these rules, in the partitions of its topic, which stores its messages.

        When this returns, every message that is sent to the topic is judged by the rules. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if the topic has a subscription of this name,
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic, and
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` if the topic would have too many subscriptions or
        filters.
        """
        path = path_of(entity_name(topic), subscription_name(name))
        if properties is not None:
            require_properties(properties)
        if not settings.shared:
            raise ValueError(
                f"the settings of the subscription {path!r} must be shared, because its topic stores the messages"
            )
        require_rules(rules)
        until = loop_time() + timeout
        steps, incarnation = self._steps, new_stamp()
        while True:
            owner = await steps.existing(topic, until, TOPIC)
            await require_destinations(steps, path, properties, {}, until)
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
            registration = partial(steps.registry.register_subscription, owner, description, incarnation, rules)
            try:
                record = await self._buckets.within_limits(registration, until, path)
            except MessagingEntityAlreadyExistsError:
                await self._require_free(path, "subscription", until)
            except MessagingEntityNotFoundError:
                # the topic was created anew, deleted, or is being deleted; reading it again shows which of these
                # happened
                continue
            else:
                return await self._made(record, until)

    async def list_subscriptions(
        self, topic: str, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[EntityRecord, ...]:
        """List subscriptions of a topic after the name ``after``, in the order of their names in lower case.

        A page has up to ``limit`` subscriptions (1 to 1000), and no more than fit into a reply of 1 MB. The next page
        begins after the last name of this page. After an empty page there is no further page. Subscriptions that are
        half created or half deleted are listed with that state; the call does not continue their creation or deletion.
        Subscriptions whose records cannot be read are left out.
        """
        until = loop_time() + timeout
        require_bounds("a subscription", after, limit)
        await self._steps.existing(entity_name(topic), until, TOPIC)
        timeout = until - loop_time()
        return await first_readable(
            lambda on, left: self.page_of_subscriptions(topic, on, limit, timeout=left), after, timeout
        )

    async def page_of_subscriptions(
        self, topic: str, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> Listing[EntityRecord]:
        """Return a page of the list of :meth:`list_subscriptions`, also with those whose records cannot be read.

        The record of the topic itself need not be readable.
        """
        request = self._steps.registry.subscriptions(entity_name(topic), after, limit)
        page = await self._steps.ask(request, loop_time() + timeout, topic)
        records = tuple(each.record for each in page.subscriptions)
        return Listing(records, tuple(each.subscription for each in page.unreadable), page.onward)

    async def topic_facts(self, topic: str, *, timeout: float = 60.0) -> TopicFacts:
        """Return a topic, and the numbers of its subscriptions and filters."""
        seen = await self._steps.seen(entity_name(topic), loop_time() + timeout, TOPIC)
        return TopicFacts(seen.record, seen.subscriptions, seen.sql_filters, seen.correlation_filters)

    async def routes(self, topic: str, known: Routes | None = None, *, timeout: float = 60.0) -> Routes:
        """Return the active subscriptions of a topic and their rules, at one version of the topic.

        ``known`` are routes that were read before: only rules that have changed since are read.
        """
        until = loop_time() + timeout
        return await read_routes(self._steps, self._rules, entity_name(topic), known, until)

    # -- rules ----------------------------------------------------------------------------------------------------

    async def create_rule(self, topic: str, subscription: str, rule: Rule, *, timeout: float = 60.0) -> KeptRule:
        """Add a rule to a subscription. When this returns, every message that is then sent to the topic is also judged
        by the new rule.

        Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is a rule of this name,
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic or subscription, and
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` if the topic would have too many filters.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        require_rules([rule])
        until, stamp = loop_time() + timeout, new_stamp()
        record = await self._steps.existing(path, until)
        if IDLE_PROPERTY in record.properties:  # a removal that has begun is taken back before the rule is stored
            await note_use(self._steps, record, until)
        done = await self._changed(
            path, rule.name, lambda record: self._rules.create(record, rule, stamp), until, record
        )
        await self._steps.told(done.topic, until, use=True)
        return KeptRule(rule, done.created_at, stamp)

    async def update_rule(
        self, topic: str, subscription: str, rule: Rule, *, seen: KeptRule | None = None, timeout: float = 60.0
    ) -> KeptRule:
        """Replace the rule of this name, with the promises and errors of :meth:`create_rule`.

        ``seen`` is the rule as the caller has read it. With ``seen``, this raises :class:`EntityChangedError` if
        another client has changed the rule since then. Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError`
        if there is no rule of this name.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        require_rules([rule])
        until, stamp = loop_time() + timeout, new_stamp()
        seen_stamp = "" if seen is None else seen.stamp
        done = await self._changed(
            path, rule.name, lambda record: self._rules.update(record, rule, stamp, seen_stamp), until
        )
        await self._steps.told(done.topic, until)
        return KeptRule(rule, done.created_at, stamp)

    async def delete_rule(self, topic: str, subscription: str, name: str, *, timeout: float = 60.0) -> None:
        """Delete a rule of a subscription. When this returns, no message that is then sent to the topic is judged by
        the deleted rule.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic, subscription, or
        rule.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        rule_name(name)
        until, stamp = loop_time() + timeout, new_stamp()
        done = await self._changed(path, name, lambda record: self._rules.delete(record, name, stamp), until)
        await self._steps.told(done, until)

    async def get_rule(self, topic: str, subscription: str, name: str, *, timeout: float = 60.0) -> KeptRule:
        """Return a rule of a subscription.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such rule.
        """
        path = path_of(entity_name(topic), subscription_name(subscription))
        rule_name(name)
        until = loop_time() + timeout
        record = await self._steps.existing(path, until)
        kept = await self._steps.ask(self._rules.read(record, name), until, path)
        if kept is None:
            raise missing_rule(record.path, name)
        return kept

    async def list_rules(
        self, topic: str, subscription: str, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> tuple[KeptRule, ...]:
        """List rules of a subscription after the name ``after``, in the order of their names in lower case.

        The pages are like those of :meth:`list_subscriptions`. Rules that cannot be read are left out.
        """
        return await first_readable(
            lambda on, left: self.page_of_rules(topic, subscription, on, limit, timeout=left), after, timeout
        )

    async def page_of_rules(
        self, topic: str, subscription: str, after: str = "", limit: int = 100, *, timeout: float = 60.0
    ) -> Listing[KeptRule]:
        """Return a page of the list of :meth:`list_rules`, also with those that cannot be read."""
        path = path_of(entity_name(topic), subscription_name(subscription))
        require_bounds("a rule", after, limit)
        until = loop_time() + timeout
        record = await self._steps.existing(path, until)
        page = await self._steps.ask(self._rules.listed(record, after, limit), until, path)
        rules = [kept for _, kept in page.rules]
        return Listing(
            tuple(each for each in rules if isinstance(each, KeptRule)),
            tuple(each for each in rules if isinstance(each, Unreadable)),
            None if page.last is None else rule_name_at(page.last),
        )

    # -- partitions -----------------------------------------------------------------------------------------------

    def partition(self, record: EntityRecord, number: int) -> Partition:
        """Return one of the partitions of an entity; raise :class:`ValueError` if the entity has no such partition."""
        return self._steps.partitions.one(record, number)

    def salt(self, number: int) -> str:
        """Return the salt of a slot."""
        return slot_salt(self.name, number, self.slots)

    def _check_partitions(self, name: str, partitions: int | None, *, partitioned: bool) -> None:
        """Raise for a number of partitions that a new entity cannot have."""
        if partitions is None:
            return
        if not partitioned:
            raise ValueError(f"{quoted(name)} is not partitioned, so it has no number of partitions")
        if not 1 <= partitions <= MOST_PARTITIONS:
            raise ValueError(f"an entity has 1 to {MOST_PARTITIONS} partitions, not {partitions}")
        if partitions > self.slots:
            raise ValueError(
                f"{quoted(name)} cannot have {partitions} partitions, because the namespace '{self.name}' has "
                f"{counted(self.slots, 'slot')}, and each partition needs a slot of its own"
            )

    def _slots_of(
        self, name: str, beside: EntityRecord | None, partitions: int | None, *, partitioned: bool
    ) -> tuple[int, ...]:
        """Return the numbers of the slots of a new entity. ``beside`` is the entity with which it is colocated."""
        if beside is None:
            if not partitioned:
                return (slot_for_name(name, self.slots),)
            return slots_for_name(name, partitions or min(USUAL_PARTITIONS, self.slots), self.slots)
        there = f"{quoted(name)} cannot be colocated with '{beside.path}', which "
        if partitioned != beside.partitioned:
            raise ValueError(f"{there}is {'not ' * partitioned}partitioned: either both are partitioned, or neither is")
        if partitions not in {None, len(beside.partitions)}:
            raise ValueError(f"{there}has {counted(len(beside.partitions), 'partition')}, and not {partitions}")
        return beside.partitions

    async def _neighbour(self, name: str, neighbour: str, until: float) -> EntityRecord:
        """Return the entity that ``colocate_with`` names."""
        try:
            return await self._steps.existing(entity_name(neighbour), until)
        except MessagingEntityNotFoundError as error:
            error.message = f"'{name}' was to be colocated with '{neighbour}' (colocate_with). {error.message}"
            raise

    async def _require_free(self, path: str, kind: Kind, until: float) -> None:
        """Raise the error that the name is in use, unless it is free by now; ``kind`` is the kind to be created."""
        with suppress(MessagingEntityNotFoundError):
            found = await self._steps.existing(path, until)
            raise exists(self.name, found.path, found.kind, kind) from None

    async def _made(self, record: EntityRecord, until: float) -> EntityRecord:
        """Finish the creation of an entity that was just registered, and return it."""
        settled = await self._steps.settled(record, until)
        if settled is None:  # another client has already deleted the new entity
            raise missing(self.name, record.path)
        return settled

    async def _changed(
        self,
        path: str,
        rule: str,
        change: Callable[[EntityRecord], Request[T]],
        until: float,
        seen: EntityRecord | None = None,
    ) -> T:
        """Change a rule of a subscription; if the record ``seen`` is out of date, read it and try again."""
        while True:
            record, seen = seen or await self._steps.existing(path, until), None
            codes = rule_refusals(self.name, record.path, rule)
            with suppress(SubscriptionGoneError):  # the next round reads the subscription again
                return await self._steps.ask(change(record), until, codes=codes)


async def _open_namespace(
    transport: ScriptCaller, name: str, slots: int | None, slots_of_new: int, *, timeout: float
) -> NamespaceHead:
    """Return the facts of a namespace. If it is missing, create it with ``slots``, or ``slots_of_new``.

    A server that has reached its memory limit refuses to create a namespace. If every client tried that when it opens,
    no program could open a client any more and empty the server.
    """
    until, codes = loop_time() + timeout, head_refusals(name)
    head = await perform(transport, read_namespace(name, slots), timeout=timeout, refusals=codes)
    if head is not None:
        return head
    await perform(transport, refuse_former(name), timeout=until - loop_time(), refusals=codes)
    request = register_namespace(name, slots_of_new if slots is None else slots, exact=slots is not None)
    try:
        return await perform(transport, request, timeout=until - loop_time(), refusals=codes)
    except ServiceBusServerBusyError as error:
        add_sentence(error, f"The namespace '{name}' does not exist yet, and could not be created.")
        raise


def _kinds(kind: Kind | Collection[Kind]) -> Collection[Kind]:
    """Return the kinds that a caller accepts, or raise for an unknown kind."""
    found = (kind,) if isinstance(kind, str) else kind
    if unknown := set(found) - set(get_args(Kind)):
        raise ValueError(f"kind must be one or several of {', '.join(get_args(Kind))}, not {quoted(unknown)}")
    return found


def _check_kind(name: str, kind: Kind, settings: PartitionSettings) -> None:
    """Raise for settings that a queue or topic cannot have, and for a kind that is neither queue nor topic."""
    if kind not in {"queue", "topic"}:
        raise ValueError(f"{quoted(name)} must be a queue or a topic, not {quoted(kind)}")
    if settings.shared:
        raise ValueError(f"the {kind} {quoted(name)} stores its messages itself: its settings cannot be shared")
    if settings.topic != (kind == "topic"):
        raise ValueError(
            f"the settings of the {kind} {quoted(name)} are settings for a {'topic' if settings.topic else 'queue'}"
        )
