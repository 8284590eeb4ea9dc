"""Entities as they are created, changed and described: between what users say of them and what the registry keeps.

Queues, topics and subscriptions differ in their properties and in how they are created, and in nothing else. Where a
function takes a path, that is the name of a queue or a topic, or ``topic/subscriptions/name``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar, cast

import anyio

from sbredis._quoting import quoted, shortened
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
    EntityChangedError,
    EntityRecord,
    Kind,
    Namespace,
    path_of,
    require_properties,
    split_path,
)
from sbredis.rules import Rule

if TYPE_CHECKING:
    from typing import Unpack

    from sbredis.aio.calls._entity_state import Creation

__all__ = [
    "QUEUES",
    "SUBSCRIPTIONS",
    "TOPICS",
    "Definition",
    "given_in",
    "queue_creation",
    "rules_of",
    "subscription_creation",
    "subscription_path",
    "topic_creation",
]

P = TypeVar("P", bound=Described)

_TRIES = 10
_LONGEST_LIST = 300
_TOLD = ("name", "availability_status")
_STATES = {"creating": EntityStatus.CREATING, "deleting": EntityStatus.DELETING}


def subscription_path(topic: str, name: str) -> str:
    """The path of a subscription, if these are the names of a topic and of a subscription; else :class:`ValueError`."""
    return path_of(entity_name(topic), subscription_name(name))


def given_in(function: str, kind: type[P], entity: P | Mapping[str, object], changes: Mapping[str, object]) -> P:
    """The properties of an update, which ``function`` makes: ``changes`` stand above those of ``entity``."""
    word = kind.kind.lower()
    if isinstance(entity, Mapping):
        given = {name: value for name, value in entity.items() if name != "name"}
        if "name" not in entity:
            raise ValueError(f"the {word} to update is a mapping without 'name'")
        name = cast("str", entity["name"])
    elif isinstance(entity, kind):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        given, name = dict(entity.given), entity.name
        if entity.read_as is not None:
            raise MessagingEntityNotFoundError(
                f"The {word} {quoted(entity.read_as)} cannot be renamed, but its name was assigned, as {quoted(name)}. "
                f"Create another {word} under that name, or assign the old name again.",
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
    """The rules that a new subscription is to have: ``$Default``, which takes everything, unless others are given."""
    if given is None:
        return (rule_created(RuleProperties(DEFAULT_RULE)),)
    listed = cast("object", given)  # callers are not all typed
    if not isinstance(listed, Sequence):  # an iterator would be empty when the rules are made
        raise TypeError(f"rules are a list of RuleProperties, not {type(listed).__name__}")
    for each in given:
        if not isinstance(each, RuleProperties):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise TypeError(f"rules are a list of RuleProperties, not of {type(each).__name__}")
    return tuple(map(rule_created, given))


class Definition(Generic[P]):
    """What there is to know of entities of one kind."""

    def __init__(self, properties: type[P], settings: PartitionSettings) -> None:
        self.properties = properties
        self.word: Kind = cast("Kind", properties.kind.lower())
        self._settings = settings

    # -- pure ----------------------------------------------------------------------------------------------------------

    def check(
        self, function: str, name: str, options: Mapping[str, object], *, clock: Clock = "server"
    ) -> StoredEntity:
        """What an entity of these properties would be; ``None`` counts as not given. Raises for what is wrong.

        ``function`` is what did not know an option that there is not.
        """
        (subscription_name if self.word == "subscription" else entity_name)(name)
        kept = entity_created(
            self.properties, self._given(function, name, options), replace(self._settings, clock=clock)
        )
        require_properties(kept.properties)
        return kept

    def described(self, record: EntityRecord, *, reachable: bool) -> P:
        """An entity as it is shown."""
        values = entity_values(self.properties, _kept(record))
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
        """Create an entity as it was checked; a subscription with these rules."""
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
            colocate_with=kept.colocated_with,
            properties=kept.properties,
            timeout=timeout,
        )

    async def find(self, namespace: Namespace, path: str, timeout: float) -> EntityRecord:
        """The entity of this path. One of another kind is none, and the error says what it is."""
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
        """The entity of this path, created with ``options`` where there is none; several may do so at once.

        One that is there stays as it is. :class:`ValueError` if it differs in what cannot be changed. A subscription is
        created with ``rules``, or with ``$Default``.
        """
        name = _parts(path)[1] if self.word == "subscription" else path
        function = f"ensure_{self.word}"
        kept = self.check(function, name, options, clock=clock)  # also where it is there
        given = self._given(function, name, options)
        made = rules_of(rules) if self.word == "subscription" else ()
        until = anyio.current_time() + timeout
        for tries in range(1, _TRIES + 1):
            try:
                record = await namespace.get_entity(path, timeout=until - anyio.current_time())
            except MessagingEntityNotFoundError:
                try:
                    return await self.create(namespace, path, until - anyio.current_time(), kept, made)
                except MessagingEntityAlreadyExistsError:
                    continue  # somebody else was first
                except MessagingEntityNotFoundError:
                    # It was there for a moment, and somebody has deleted it; or its neighbour or the namespace is
                    # missing, or the topic of a subscription.
                    if tries == _TRIES or given.get("colocate_with") is not None:
                        raise
                    if self.word == "subscription":
                        await TOPICS.find(namespace, _parts(path)[0], until - anyio.current_time())
            else:
                return self._as_wanted(record, given)
        return self._as_wanted(await namespace.get_entity(path, timeout=until - anyio.current_time()), given)

    async def revise(
        self, namespace: Namespace, path: str, timeout: float, given: Mapping[str, object]
    ) -> EntityRecord:
        """Give an entity these properties, and leave its others as they are at that moment. The last one wins."""
        until = anyio.current_time() + timeout
        while True:
            record = await self.find(namespace, path, until - anyio.current_time())
            kept = entity_revised(self.properties, given, _kept(record))
            try:
                return await namespace.update_entity(
                    record, kept.settings, properties=kept.properties, timeout=until - anyio.current_time()
                )
            except EntityChangedError:
                continue  # somebody else was first: do the same to what it is now

    def _given(self, function: str, name: str, options: Mapping[str, object]) -> Mapping[str, object]:
        _require_known(function, self.properties, options, _TOLD)
        found = self.properties.shown(name, {})
        for option, value in options.items():
            if value is not None:
                setattr(found, option, value)
        return found.given

    def _as_wanted(self, record: EntityRecord, given: Mapping[str, object]) -> EntityRecord:
        if record.kind != self.word:
            raise MessagingEntityAlreadyExistsError(
                f"'{record.path}' is there already, and is a {record.kind}, no {self.word}. "
                "Use it as it is, delete it first, or choose another name.",
                outcome=Outcome.REFUSED,
            )
        differences = entity_differences(self.properties, given, _kept(record))
        if differences:
            raise ValueError(
                f"The {self.word} '{record.path}' is there already, and differs in what cannot be changed: "
                f"{'; '.join(differences)}. Use it as it is, delete it first, or choose another name."
            )
        return record


QUEUES = Definition(QueueProperties, PartitionSettings())
TOPICS = Definition(TopicProperties, PartitionSettings(topic=True))
SUBSCRIPTIONS = Definition(SubscriptionProperties, PartitionSettings(shared=True))


# -- for senders and receivers -----------------------------------------------------------------------------------------


def queue_creation(*, clock: Clock = "server", **options: Unpack[QueueOptions]) -> Creation:
    """How senders and receivers create a queue that is missing; wrong properties are refused at once."""
    return _creation(QUEUES, options, clock)


def topic_creation(*, clock: Clock = "server", **options: Unpack[TopicOptions]) -> Creation:
    """How senders create a topic that is missing; wrong properties are refused at once."""
    return _creation(TOPICS, options, clock)


def subscription_creation(
    *,
    clock: Clock = "server",
    rules: Sequence[RuleProperties] | None = None,
    **options: Unpack[SubscriptionOptions],
) -> Creation:
    """How receivers create a subscription that is missing, by its path; wrong properties are refused at once."""
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
    """The topic and the name of a subscription."""
    topic, name = split_path(path)
    if name is None:
        raise ValueError(f"{quoted(path)} is no path of a subscription, as 'topic/subscriptions/name' is one")
    return topic, name


def _require_known(
    function: str, kind: type[Described], given: Mapping[str, object], besides: tuple[str, ...] = ()
) -> None:
    unknown = [name for name in given if name not in kind.fields() or name in besides]
    if unknown:
        raise TypeError(f"{function} does not know {shortened(', '.join(map(quoted, unknown)), _LONGEST_LIST)}")


def _kept(record: EntityRecord) -> StoredEntity:
    return StoredEntity(
        settings=record.settings,
        properties=record.properties,
        partitioned=record.partitioned,
        colocated_with=record.colocated_with,
    )
