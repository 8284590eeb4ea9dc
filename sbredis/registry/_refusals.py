"""Refusals of the registry's scripts, as errors that name the namespace and the entity."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from sbredis.engine import MalformedCallError
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    NamespaceMissingError,
    NamespaceSlotsError,
    Outcome,
    ServiceBusCommunicationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.registry._entity import LAYOUT, Kind, split_path
from sbredis.registry._registry import NamespaceFacts
from sbredis.registry._rules import rule_path
from sbredis.registry._unreadable import unreadable_in_script

__all__ = [
    "BucketMissingError",
    "EntityChangedError",
    "IncompleteListError",
    "NamespaceLimitedError",
    "NamespaceMissingError",
    "NamespaceSlotsError",
    "Refusals",
    "SubscriptionGoneError",
    "add_sentence",
    "changed",
    "exists",
    "head_refusals",
    "missing",
    "missing_rule",
    "missing_subscription",
    "namespace_missing",
    "of_another_kind",
    "over_limit",
    "refusals",
    "rule_refusals",
]


class EntityChangedError(ServiceBusError):
    """Another client has changed the entity since it was read. Read it again, and change the new state."""

    code = "EntityChanged"
    is_transient = True


class SubscriptionGoneError(MessagingEntityNotFoundError):
    """The subscription was created anew, or it or its topic is being deleted.

    Reading the subscription again shows which of these happened.
    """


class BucketMissingError(MessagingEntityNotFoundError):
    """The bucket of an entity does not exist, because no entity was ever created in it, or its server lost its data."""


class NamespaceLimitedError(ServiceBusError):
    """The namespace has limits, which must be checked before the call. The text has what the call would add."""

    @property
    def additions(self) -> tuple[int, int]:
        """The number of entities and of megabytes that the call would add."""
        entities, megabytes = self.message.split()
        return int(entities), int(megabytes)


class IncompleteListError(ServiceBusCommunicationError):
    """A list lacks entities, because a part of the registry could not be read. It has all the others."""


_Made = tuple[type[ServiceBusError], str]
Refusals = Mapping[str, Callable[[str], _Made]]


def _missing(namespace: str, entity: str, kinds: Collection[Kind] = ()) -> str:
    topic, subscription = split_path(entity) if entity else (entity, None)
    if subscription is not None:
        return (
            f"There is no subscription '{subscription}' of a topic '{topic}' in namespace '{namespace}'. "
            f"Create it with ServiceBusAdministrationClient.create_subscription({topic!r}, {subscription!r}), or look "
            "for it in another namespace."
        )
    if list(kinds) == ["topic"]:
        return (
            f"There is no topic '{topic}' in namespace '{namespace}'. "
            f"Create it with ServiceBusAdministrationClient.create_topic({topic!r}), or look for the name in another "
            "namespace."
        )
    create = f"ensure_queue({entity!r})"
    if list(kinds) != ["queue"]:
        create += f" or ensure_topic({entity!r})"
    return (
        f"There is no entity '{entity}' in namespace '{namespace}'. "
        f"Create it with ServiceBusAdministrationClient.{create}, or get the sender or receiver "
        "with create_if_missing=True, or look for the name in another namespace."
    )


def _exists(namespace: str, entity: str) -> str:
    return (
        f"There is already an entity '{entity}' in namespace '{namespace}'; names are compared without regard to case. "
        "Use it, delete it first, or choose another name."
    )


def _exists_as(namespace: str, entity: str, kind: Kind, wanted: Kind) -> str:
    return (
        f"There is already an entity '{entity}' in namespace '{namespace}', and it is a {kind}, not a {wanted}; names "
        "are compared without regard to case. Delete it first, or choose another name."
    )


def _changed(entity: str, now: str) -> str:
    return f"The entity '{entity}' has changed since it was read: {now}. Read it again, and change the new state."


def over_limit(
    namespace: str, entity: str, facts: NamespaceFacts, entities: int, megabytes: int
) -> ServiceBusQuotaExceededError | None:
    """Return the error that a namespace may not have these additions; ``None`` if it may."""
    text = None
    most, most_megabytes = facts.most_entities, facts.most_megabytes
    if most is not None and entities and facts.entities + facts.subscriptions >= most:
        text = (
            f"Namespace '{namespace}' would have more than {most} entities, which is its limit. Delete "
            "some that are not needed, or raise the limit with 'sbredis namespace limit'."
        )
    elif most_megabytes is not None and megabytes and facts.megabytes + megabytes > most_megabytes:
        text = (
            f"The entities of namespace '{namespace}' may have {facts.megabytes} MB together, and with '{entity}' "
            f"they would have more than {most_megabytes} MB, which is the limit. Choose a smaller "
            "max_size_in_megabytes, which counts once for each partition, or raise the limit with 'sbredis namespace "
            "limit'."
        )
    return None if text is None else ServiceBusQuotaExceededError(text, outcome=Outcome.REFUSED)


def _quota(entity: str, detail: str) -> _Made:
    what, _, most = detail.partition(" ")
    topic, _ = split_path(entity)
    name = {"subscriptions": "subscriptions", "sql": "rules with SQL filters"}.get(
        what, "rules with correlation filters"
    )
    return ServiceBusQuotaExceededError, (
        f"The topic '{topic}' would have more than {most} {name}, which is the most that a topic may have. "
        "Delete some that are not needed, or divide the messages among several topics."
    )


def _layout(namespace: str, detail: str) -> _Made:
    """Return the error for a layout that cannot be read: that of a text, which the detail names, or the namespace's."""
    kind, _, rest = detail.partition(" ")
    layout, _, name = rest.partition(" ")
    if name:
        path = rule_path(name) if kind == "rule" else name
        return DataLayoutError, unreadable_in_script(kind, layout, path).message
    what = "Namespace" if kind == detail else "A part of the registry of namespace"
    layout = layout or detail
    if layout == "unreadable":
        return DataLayoutError, (
            f"{what} '{namespace}' cannot be read: it is damaged. If a newer release of sbredis has written it, "
            "install that release. Otherwise restore a backup of its server."
        )
    if layout.isdecimal() and int(layout) < int(LAYOUT):
        advice = "Use the release that wrote the data to empty the namespace, or use another namespace."
    else:
        advice = "Install a release that can read it, in all services of the namespace."
    return DataLayoutError, (
        f"{what} '{namespace}' has data layout {layout}, and this release of sbredis reads and writes layout "
        f"{LAYOUT}. {advice}"
    )


def _slots(namespace: str, detail: str) -> _Made:
    """Return the error for another number of slots: of the namespace, or of a part of its registry."""
    number = detail.rpartition(" ")[2]
    if detail != number:
        return NamespaceSlotsError, (
            f"A part of the registry of namespace '{namespace}' was written when the namespace had {number} slots. The "
            "servers have lost the namespace since then, and a client has created it with another number of slots. "
            f"Restore a backup, or delete the namespace and create it with {number} slots."
        )
    return NamespaceSlotsError, (
        f"Namespace '{namespace}' has {number} slots, which cannot change: name this number, or no number."
    )


def missing(namespace: str, entity: str, kinds: Collection[Kind] = ()) -> MessagingEntityNotFoundError:
    """Return the error that an entity does not exist; ``kinds`` are the permitted kinds, empty for any."""
    return MessagingEntityNotFoundError(_missing(namespace, entity, kinds), outcome=Outcome.REFUSED)


def missing_subscription(namespace: str, path: str, owner: Kind | None) -> MessagingEntityNotFoundError:
    """Return the error that a subscription does not exist; ``owner`` is the kind of the entity that has the topic's
    name.
    """
    topic, subscription = split_path(path)
    if owner == "topic":
        return missing(namespace, path)
    if owner is None:
        why = f"because there is no such topic. Create it with create_topic({topic!r}), and then the "
        why += "subscription, or look for the topic in another namespace."
    else:
        why = f"because '{topic}' is a {owner}, which has no subscriptions. Use it as a {owner}, or name a topic."
    return MessagingEntityNotFoundError(
        f"There is no subscription '{subscription}' of a topic '{topic}' in namespace '{namespace}', {why}",
        outcome=Outcome.REFUSED,
    )


def of_another_kind(namespace: str, entity: str, kind: Kind, kinds: Collection[Kind]) -> MessagingEntityNotFoundError:
    """Return the error that the entity has a kind that the caller does not accept."""
    looked_for = " or ".join(f"a {each}" for each in kinds)
    return MessagingEntityNotFoundError(
        f"'{entity}' in namespace '{namespace}' is a {kind}, not {looked_for}. "
        f"Use it as a {kind}, or choose another name.",
        outcome=Outcome.REFUSED,
    )


def exists(namespace: str, entity: str, kind: Kind, wanted: Kind) -> MessagingEntityAlreadyExistsError:
    """Return the error that the name is in use by an entity of this kind."""
    text = _exists(namespace, entity) if kind == wanted else _exists_as(namespace, entity, kind, wanted)
    return MessagingEntityAlreadyExistsError(text, outcome=Outcome.REFUSED)


def changed(entity: str, now: str) -> EntityChangedError:
    """Return the error that another client has changed the entity first."""
    return EntityChangedError(_changed(entity, now), outcome=Outcome.REFUSED)


def refusals(namespace: str, entity: str = "") -> Refusals:
    """Return the errors for the codes of the registry's scripts, in a call about this entity."""
    return {
        "NAMESPACE": lambda _: (BucketMissingError, _missing(namespace, entity)),
        "LAYOUT": lambda form: _layout(namespace, form),
        "SLOTS": lambda detail: _slots(namespace, detail),
        "LIMITED": lambda detail: (NamespaceLimitedError, detail),
        "EXISTS": lambda _: (MessagingEntityAlreadyExistsError, _exists(namespace, entity)),
        "GONE": lambda _: (MessagingEntityNotFoundError, _missing(namespace, entity)),
        "CHANGED": lambda version: (
            EntityChangedError,
            _changed(entity, f"its settings now have version {version}"),
        ),
        "QUOTA": lambda detail: _quota(entity, detail),
        "BADCALL": lambda detail: (MalformedCallError, f"The call is malformed: {detail}."),
    }


def head_refusals(namespace: str) -> Refusals:
    """Return the errors for the codes of the scripts about the namespace itself."""
    error = namespace_missing(namespace)
    return {**refusals(namespace), "NAMESPACE": lambda _: (NamespaceMissingError, error.message)}


def namespace_missing(namespace: str) -> NamespaceMissingError:
    """Return the error that there is no namespace of this name any more."""
    return NamespaceMissingError(
        f"There is no namespace '{namespace}'. The servers may have lost their data. Create the entity again, "
        "get the sender or receiver with create_if_missing=True, or open a new client: each of these creates "
        "the namespace.",
        outcome=Outcome.REFUSED,
    )


# -- of rules ----------------------------------------------------------------------------------------------------------


def _missing_rule(subscription: str, rule: str) -> str:
    return (
        f"The subscription '{subscription}' has no rule '{rule}'. Create it with "
        "ServiceBusAdministrationClient.create_rule, or list the existing rules."
    )


def _exists_rule(subscription: str, rule: str) -> str:
    return (
        f"The subscription '{subscription}' already has a rule '{rule}'; names are compared without regard to case. "
        "Change it with update_rule, delete it first, or choose another name."
    )


def missing_rule(subscription: str, rule: str) -> MessagingEntityNotFoundError:
    """Return the error that there is no such rule."""
    return MessagingEntityNotFoundError(_missing_rule(subscription, rule), outcome=Outcome.REFUSED)


def rule_refusals(namespace: str, subscription: str, rule: str) -> Refusals:
    """Return the errors for the codes of the registry's scripts, in a call about a rule; ``subscription`` is a path."""
    return {
        **refusals(namespace, subscription),
        "EXISTS": lambda _: (
            MessagingEntityAlreadyExistsError,
            _exists_rule(subscription, rule),
        ),
        "GONE": lambda _: (SubscriptionGoneError, _missing(namespace, subscription)),
        "MISSING": lambda _: (MessagingEntityNotFoundError, _missing_rule(subscription, rule)),
        "CHANGED": lambda _: (
            EntityChangedError,
            _changed(f"{subscription}/rules/{rule}", "it is now another rule"),
        ),
    }


def add_sentence(error: ServiceBusError, sentence: str) -> None:
    """Add a sentence to the text of an error. The text may be a server's or Python's, without a full stop."""
    error.message = f"{error.message}{'' if error.message.endswith(('.', '!', '?')) else '.'} {sentence}"
