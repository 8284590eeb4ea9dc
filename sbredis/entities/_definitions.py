"""Create, change and describe entities: convert between the properties of users and the records of the registry.

Queues, topics and subscriptions differ only in their properties and in how they are created. A ``path`` is the name of
a queue or topic, or ``topic/subscriptions/name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from sbredis._nearest import with_nearest
from sbredis._quoting import quoted, shortened
from sbredis._tasks import loop_time
from sbredis.engine import Clock, PartitionSettings, entity_name, subscription_name
from sbredis.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError, Outcome
from sbredis.model import (
    DEFAULT_RULE,
    Described,
    EntityAvailabilityStatus,
    EntityStatus,
    QueueOptions,
    QueueProperties,
    RuleProperties,
    StoredEntity,
    SubscriptionOptions,
    SubscriptionProperties,
    TopicOptions,
    TopicProperties,
    entity_created,
    entity_differences,
    entity_revised,
    entity_values,
    rule_created,
)
from sbredis.registry import (
    DESTINATIONS,
    LAYOUT,
    EntityChangedError,
    EntityRecord,
    Kind,
    Namespace,
    require_properties,
    require_unreserved,
    split_path,
    unreadable,
)

if TYPE_CHECKING:
    from typing import Unpack

    from sbredis.client import Creation
    from sbredis.rules import Rule

__all__ = [
    "DEFINITIONS",
    "QUEUES",
    "SUBSCRIPTIONS",
    "TOPICS",
    "Definition",
    "given_in",
    "queue_creation",
    "rules_of",
    "subscription_creation",
    "topic_creation",
]

P = TypeVar("P", bound=Described)

_TRIES = 10
_LONGEST_LIST = 300
_NO_OPTIONS = ("name", "availability_status")
_OTHERS = ("colocate_with", *DESTINATIONS)
_STATES = {"creating": EntityStatus.CREATING, "deleting": EntityStatus.DELETING}


def given_in(function: str, kind: type[P], entity: P | Mapping[str, object], changes: Mapping[str, object]) -> P:
    """Return the properties that an update by ``function`` sets; ``changes`` take precedence over ``entity``."""
    word = kind.kind.lower()
    if isinstance(entity, Mapping):
        given = {name: value for name, value in entity.items() if name != "name"}
        if "name" not in entity:
            raise ValueError(f"the {word} to update is a mapping without 'name': add its name")
        name = cast("str", entity["name"])
    elif isinstance(entity, kind):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        given, name = dict(entity.given), entity.name
        if entity.read_as is not None:
            raise MessagingEntityNotFoundError(
                f"The {word} {quoted(entity.read_as)} cannot be renamed to {quoted(name)}. Create another {word} "
                "with the new name, or assign the old name again.",
                outcome=Outcome.NEVER_SENT,
            )
    else:
        raise TypeError(f"{function} takes {kind.__name__} or a mapping of them, not {type(entity).__name__}")
    _require_known(function, kind, {**given, **changes})
    found = kind.shown(name, {})
    for property_name, value in {**given, **changes}.items():
        setattr(found, property_name, value)
    return found


def rules_of(given: Sequence[RuleProperties] | None) -> tuple[Rule, ...]:
    """Return the rules of a new subscription: the given ones, or ``$Default``, which accepts every message."""
    if given is None:
        return (rule_created(RuleProperties(DEFAULT_RULE)),)
    listed = cast("object", given)  # for callers without type checks
    if not isinstance(listed, Sequence):  # an iterator could be read only once
        raise TypeError(f"rules must be a list of RuleProperties, not {type(listed).__name__}")
    for each in given:
        if not isinstance(each, RuleProperties):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(f"rules must be a list of RuleProperties, not of {type(each).__name__}")
    return tuple(map(rule_created, given))


class Definition(Generic[P]):
    """One kind of entity: its properties, and how to check, create and describe it."""

    def __init__(self, properties: type[P], settings: PartitionSettings) -> None:
        self.properties = properties
        self.word: Kind = cast("Kind", properties.kind.lower())
        self._settings = settings

    # -- pure ----------------------------------------------------------------------------------------------------------

    def check(
        self, function: str, name: str, options: Mapping[str, object], *, clock: Clock = "server"
    ) -> StoredEntity:
        """Return the entity that these options would create. An option of ``None`` counts as not given.

        Raise if an option is wrong. ``function`` is the name to use in the error about an unknown option.
        """
        (subscription_name if self.word == "subscription" else entity_name)(name)
        kept = entity_created(
            self.properties, self._given(function, name, options), replace(self._settings, clock=clock)
        )
        require_properties(kept.properties)
        return kept

    def described(self, record: EntityRecord, *, reachable: bool) -> P:
        """Return the properties of an entity for users.

        Raises :class:`~sbredis.exceptions.DataLayoutError` if a stored property cannot be read.
        """
        try:
            values = entity_values(self.properties, _stored(record))
        except Exception as error:  # noqa: BLE001 -- whatever the record contains, it costs this entity alone
            raise unreadable("record", record.path, LAYOUT.encode(), str(error)) from None
        if not reachable:
            values["availability_status"] = EntityAvailabilityStatus.LIMITED
        if record.state in _STATES:
            values["status"] = _STATES[record.state]
        return self.properties.shown(record.name, values)

    # -- asking the registry -------------------------------------------------------------------------------------------

    async def create(
        self,
        namespace: Namespace,
        path: str,
        timeout: float,
        kept: StoredEntity,
        rules: Sequence[Rule] = (),
    ) -> EntityRecord:
        """Create an entity from checked properties. A subscription gets these rules."""
        if self.word == "subscription":
            topic, name = _parts(path)
            return await namespace.create_subscription(
                topic, name, kept.settings, properties=kept.properties, rules=rules, timeout=timeout
            )
        return await namespace.create_entity(
            path,
            kept.settings,
            kind=self.word,
            partitioned=kept.partitioned,
            partitions=kept.partitions,
            colocate_with=kept.colocated_with,
            properties=kept.properties,
            timeout=timeout,
        )

    async def find(self, namespace: Namespace, path: str, timeout: float) -> EntityRecord:
        """Return the entity with this path. If it is of another kind, raise an error that names the kind."""
        return await namespace.get_entity(path, kind=self.word, timeout=timeout)

    async def create_or_get(
        self,
        namespace: Namespace,
        path: str,
        timeout: float,
        options: Mapping[str, object],
        *,
        clock: Clock = "server",
        rules: Sequence[RuleProperties] | None = None,
    ) -> EntityRecord:
        """Return the entity with this path. If it is missing, create it with ``options``.

        Several clients may do this at the same time. An existing entity is not changed. Raises :class:`ValueError` if
        it differs from ``options`` in a property that cannot be changed. A subscription is created with ``rules``, or
        with ``$Default``.
        """
        name = _parts(path)[1] if self.word == "subscription" else path
        function = f"ensure_{self.word}"
        kept = self.check(function, name, options, clock=clock)  # wrong options are refused even if the entity exists
        given = self._given(function, name, options)
        made = rules_of(rules) if self.word == "subscription" else ()
        until = loop_time() + timeout
        for tries in range(1, _TRIES + 1):
            try:
                record = await namespace.get_entity(path, timeout=until - loop_time())
            except MessagingEntityNotFoundError:
                try:
                    return await self.create(namespace, path, until - loop_time(), kept, made)
                except MessagingEntityAlreadyExistsError:
                    continue  # another client has created the entity first
                except MessagingEntityNotFoundError:
                    # Another client has deleted the entity meanwhile. Or one of these is missing: an entity that
                    # ``given`` names, the namespace, or the topic of the subscription.
                    if tries == _TRIES or any(given.get(other) is not None for other in _OTHERS):
                        raise
                    if self.word == "subscription":
                        await TOPICS.find(namespace, _parts(path)[0], until - loop_time())
            else:
                return self._require_same(record, given)
        return self._require_same(await namespace.get_entity(path, timeout=until - loop_time()), given)

    async def revise(
        self, namespace: Namespace, path: str, timeout: float, given: Mapping[str, object]
    ) -> EntityRecord:
        """Set these properties of an entity, and keep the values of all other properties. The last update wins."""
        until = loop_time() + timeout
        while True:
            record = await self.find(namespace, path, until - loop_time())
            if given.get(DESTINATIONS[0]) is not None:
                require_unreserved(record, f"{DESTINATIONS[0]} cannot be set")
            kept = entity_revised(self.properties, given, _stored(record))
            try:
                return await namespace.update_entity(
                    record, kept.settings, properties=kept.properties, timeout=until - loop_time()
                )
            except EntityChangedError:
                continue  # another client has changed the record first: apply the update to the new record

    def _given(self, function: str, name: str, options: Mapping[str, object]) -> Mapping[str, object]:
        _require_known(function, self.properties, options, _NO_OPTIONS)
        found = self.properties.shown(name, {})
        for option, value in options.items():
            if value is not None:
                setattr(found, option, value)
        return found.given

    def _require_same(self, record: EntityRecord, given: Mapping[str, object]) -> EntityRecord:
        if record.kind != self.word:
            raise MessagingEntityAlreadyExistsError(
                f"'{record.path}' already exists, and is a {record.kind}, not a {self.word}. "
                "Use it as it is, delete it first, or choose another name.",
                outcome=Outcome.REFUSED,
            )
        differences = entity_differences(self.properties, given, _stored(record))
        if differences:
            raise ValueError(
                f"The {self.word} '{record.path}' already exists with other properties, which cannot be changed: "
                f"{'; '.join(differences)}. Use it as it is, delete it first, or choose another name."
            )
        return record


QUEUES = Definition(QueueProperties, PartitionSettings())
TOPICS = Definition(TopicProperties, PartitionSettings(topic=True))
SUBSCRIPTIONS = Definition(SubscriptionProperties, PartitionSettings(shared=True))
DEFINITIONS: Mapping[Kind, Definition[Any]] = {"queue": QUEUES, "topic": TOPICS, "subscription": SUBSCRIPTIONS}


# -- for senders and receivers -----------------------------------------------------------------------------------------


def queue_creation(*, clock: Clock = "server", **options: Unpack[QueueOptions]) -> Creation:
    """Return a function that creates a missing queue for senders and receivers. Refuse wrong properties immediately."""
    return _creation(QUEUES, options, clock)


def topic_creation(*, clock: Clock = "server", **options: Unpack[TopicOptions]) -> Creation:
    """Return a function that creates a missing topic for senders. Refuse wrong properties immediately."""
    return _creation(TOPICS, options, clock)


def subscription_creation(
    *,
    clock: Clock = "server",
    rules: Sequence[RuleProperties] | None = None,
    **options: Unpack[SubscriptionOptions],
) -> Creation:
    """Return a function that creates a missing subscription for receivers. Refuse wrong properties immediately."""
    rules_of(rules)
    return _creation(SUBSCRIPTIONS, options, clock, rules)


def _creation(
    definition: Definition[P],
    options: Mapping[str, object],
    clock: Clock,
    rules: Sequence[RuleProperties] | None = None,
) -> Creation:
    definition.check("create_if_missing", definition.word, options)

    async def create_missing(namespace: Namespace, path: str, timeout: float) -> EntityRecord:
        return await definition.create_or_get(namespace, path, timeout, options, clock=clock, rules=rules)

    return create_missing


# ----------------------------------------------------------------------------------------------------------------------


def _parts(path: str) -> tuple[str, str]:
    """Return the topic and the name in the path of a subscription."""
    topic, name = split_path(path)
    if name is None:
        raise ValueError(f"{quoted(path)} is not the path of a subscription. Write it as 'topic/subscriptions/name'.")
    return topic, name


def _require_known(
    function: str, kind: type[Described], given: Mapping[str, object], besides: tuple[str, ...] = ()
) -> None:
    known = kind.fields().keys() - besides
    unknown = [with_nearest(name, known) for name in given if name not in known]
    if unknown:
        raise TypeError(f"{function} does not take {shortened(', '.join(unknown), _LONGEST_LIST)}")


def _stored(record: EntityRecord) -> StoredEntity:
    return StoredEntity(
        settings=record.settings,
        properties=record.properties,
        partitioned=record.partitioned,
        partitions=len(record.partitions) if record.partitioned else None,
        colocated_with=record.colocated_with,
    )
