"""The options of clients: the types of their keywords, and the checks of these keywords."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict

from sbredis import entities
from sbredis._quoting import quoted
from sbredis.model import refuse_unknown
from sbredis.transport import Target

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbredis.client import Clock, Connection, Creation, Timings
    from sbredis.model import ApiVersion
    from sbredis.registry import Kind

__all__ = [
    "AdministrationClientOptions",
    "ClientOptions",
    "Credential",
    "InternalOptions",
    "Provider",
    "creation_of",
    "credited",
    "internal_options",
    "refuse_unfit",
]


class Provider(Protocol):
    """A credential provider of redis-py: an object that the client asks for credentials at every connection."""

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return a password, or a user and a password."""
        ...


Credential: TypeAlias = Provider | tuple[str | None, str]
"""A credential provider, or a user and a password."""


class ClientOptions(TypedDict, total=False):
    """The keywords of ``ServiceBusClient``, whose docstring explains each."""

    credential: Credential | None
    namespace: str | None
    slot_count: int | None
    retry_total: int | None
    retry_backoff_factor: float
    retry_backoff_max: float
    retry_mode: str
    connect_timeout: float
    maintenance: bool


class AdministrationClientOptions(TypedDict, total=False):
    """The keywords of ``ServiceBusAdministrationClient`` that ``from_connection_string`` takes as ``**kwargs``."""

    namespace: str | None
    connect_timeout: float
    api_version: str | ApiVersion | None


class InternalOptions(TypedDict, total=False):
    """Further keywords of a client, which only tests use."""

    _clock: Clock | None
    _timings: Timings | None


def internal_options(client: type, given: InternalOptions, azure: Collection[str]) -> InternalOptions:
    """Return the options that a test has given. Refuse all other options, except those of Azure's library."""
    others = {name: value for name, value in given.items() if name not in InternalOptions.__annotations__}
    if "durability" in others:
        raise ValueError("durability belongs in the connection string, as in redis://host?durability=replicated")
    refuse_unknown(client, others, azure)
    return {"_clock": given.get("_clock"), "_timings": given.get("_timings")}


def credited(target: Target, credential: Credential | None) -> tuple[Target, Any]:
    """Return the target, with the user and password if they are given, and the credential provider if one is given."""
    if credential is None:
        return target, None
    if hasattr(credential, "get_credentials"):
        return target, credential
    given: object = credential  # for callers without type checks
    match given:
        case (str() | None as username, str() as password):
            return replace(target, username=username, password=password), None
        case _:
            raise TypeError(
                "credential must be a tuple of user and password, or a credential provider of redis-py, not "
                f"{type(given).__name__}; Redis cannot check tokens of Azure"
            )


def refuse_unfit(given: Mapping[str, object]) -> None:
    """Refuse the options of receivers that ``accept_next_session`` does not have, instead of ignoring them."""
    unfit = {"session_id", "sub_queue"} & given.keys()
    if unfit:
        raise TypeError(f"accept_next_session does not take {', '.join(sorted(unfit))}")


def creation_of(wanted: bool | Mapping[str, object], connection: Connection, kind: Kind) -> Creation | None:
    """Return the function that creates a missing entity, or ``None`` if the caller does not want it to be created."""
    if wanted is False:
        return None
    if wanted is not True and not isinstance(wanted, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise TypeError(f"create_if_missing must be True, False or a mapping of properties, not {quoted(wanted)}")
    options: dict[str, Any] = {} if wanted is True else dict(wanted)
    made: Callable[..., Creation]
    match kind:
        case "queue":
            made = entities.queue_creation
        case "topic":
            made = entities.topic_creation
        case "subscription":
            made = entities.subscription_creation
    return made(clock=connection.clock.kind, **options)
