"""What the scripts of the registry refuse, as errors that name the namespace and the entity."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sbredis.engine import MalformedCallError
from sbredis.exceptions import (
    DataLayoutError,
    MessagingEntityAlreadyExistsError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
)

__all__ = [
    "EntityChangedError",
    "NamespaceMissingError",
    "NamespacePartitionsError",
    "changed",
    "exists",
    "missing",
    "refusals",
]


class EntityChangedError(ServiceBusError):
    """Somebody else has changed the entity since it was read. Read it again, and do to that what is to be done."""

    is_transient = True


class NamespacePartitionsError(ServiceBusError, ValueError):
    """A namespace has another number of partitions than its caller says. It is fixed when the namespace is made."""


class NamespaceMissingError(MessagingEntityNotFoundError):
    """The namespace itself is not there any more: its servers have come back empty."""


_Made = tuple[type[ServiceBusError], str]


def _missing(namespace: str, entity: str) -> str:
    return (
        f"There is no entity '{entity}' in namespace '{namespace}', or no longer. "
        f"Create it with ServiceBusAdministrationClient.ensure_queue({entity!r}), or ask for the sender or receiver "
        "with create_if_missing=True, or look for the name in another namespace."
    )


def _exists(namespace: str, entity: str) -> str:
    return (
        f"There is an entity '{entity}' in namespace '{namespace}' already; names are compared without regard to case. "
        "Use it, delete it first, or choose another name."
    )


def _changed(entity: str, now: str) -> str:
    return f"The entity '{entity}' has been changed since it was read, and {now}. Read it again, and change that."


def missing(namespace: str, entity: str) -> MessagingEntityNotFoundError:
    """The error that there is no such entity."""
    return MessagingEntityNotFoundError(_missing(namespace, entity), outcome=Outcome.REFUSED)


def exists(namespace: str, entity: str) -> MessagingEntityAlreadyExistsError:
    """The error that the name is taken."""
    return MessagingEntityAlreadyExistsError(_exists(namespace, entity), outcome=Outcome.REFUSED)


def changed(entity: str, now: str) -> EntityChangedError:
    """The error that somebody else was first."""
    return EntityChangedError(_changed(entity, now), outcome=Outcome.REFUSED)


def refusals(namespace: str, entity: str = "") -> Mapping[str, Callable[[str], _Made]]:
    """The codes of the registry's scripts, in a call about this entity."""
    return {
        "NAMESPACE": lambda _: (
            NamespaceMissingError,
            f"There is no namespace '{namespace}', or no longer: whoever creates a queue in it, or opens it, makes it.",
        ),
        "LAYOUT": lambda form: (
            DataLayoutError,
            f"Namespace '{namespace}' is laid out in form {form}: install the release of sbredis that can read it.",
        ),
        "PARTITIONS": lambda number: (
            NamespacePartitionsError,
            f"Namespace '{namespace}' has {number} partitions, which cannot change: open it with that number, or none.",
        ),
        "EXISTS": lambda _: (MessagingEntityAlreadyExistsError, _exists(namespace, entity)),
        "GONE": lambda _: (MessagingEntityNotFoundError, _missing(namespace, entity)),
        "CHANGED": lambda version: (
            EntityChangedError,
            _changed(entity, f"its settings are version {version} now"),
        ),
        "BADCALL": lambda detail: (MalformedCallError, f"The call is malformed: {detail}."),
    }
