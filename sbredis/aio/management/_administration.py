"""The administration client: a namespace and everything in it."""

from __future__ import annotations

from typing import Self, Unpack

from sbredis._public import public
from sbredis._server_url import url_or_default
from sbredis._tasks import loop_time
from sbredis.aio._client_options import (
    AdministrationClientOptions,
    Credential,
    InternalOptions,
    Provider,
    credited,
    internal_options,
)
from sbredis.aio.management._bulk import BulkAdministration
from sbredis.aio.management._partitions import PartitionAdministration
from sbredis.aio.management._queues import QueueAdministration
from sbredis.aio.management._rules import RuleAdministration
from sbredis.aio.management._subscriptions import SubscriptionAdministration
from sbredis.aio.management._topics import TopicAdministration
from sbredis.aio.management._unreadable import UnreadableAdministration
from sbredis.client import Connection, count_of, seconds_of
from sbredis.model import AZURE_ADMINISTRATION, ApiVersion, EntityAvailabilityStatus, NamespaceProperties, moment
from sbredis.registry import NamespaceFacts, UnreadableLog
from sbredis.transport import parse_target

__all__ = ["ServiceBusAdministrationClient"]


@public
class ServiceBusAdministrationClient(
    QueueAdministration,
    TopicAdministration,
    SubscriptionAdministration,
    RuleAdministration,
    PartitionAdministration,
    BulkAdministration,
    UnreadableAdministration,
):
    """Creates, finds, changes, counts, lists and deletes queues, topics, subscriptions and rules of a namespace.

    The client connects at the first call. Every call ends within its ``timeout`` in seconds. A call without a
    ``timeout`` has the time-out of the client. Calls may be made concurrently. Names are compared without regard to the
    case of ASCII letters. A mistake in a name, a property, a filter or an action raises :class:`ValueError` or
    :class:`TypeError` before anything is sent.

    If a creation, change or deletion fails in the middle, its error says so. The next call that names the entity
    completes it.

    Lists leave out entities and rules whose records cannot be read, and log each of them once at WARNING;
    :meth:`list_unreadable_entities` returns them. Such an entity can be deleted, if its record is damaged.
    """

    def __init__(
        self,
        fully_qualified_namespace: str | None = None,
        credential: Credential | None = None,
        *,
        namespace: str | None = None,
        slot_count: int | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        api_version: str | ApiVersion | None = None,
        **kwargs: Unpack[InternalOptions],
    ) -> None:
        """``fully_qualified_namespace`` is a connection string such as ``redis://localhost:6379?namespace=orders``.
        If it is not given, the client reads the variable ``SBREDIS_URL`` of the environment.

        ``namespace`` overrides the namespace in this string. ``credential`` is a user and a password, or a credential
        provider of redis-py, which the client asks again for every connection. ``slot_count`` is the number of
        slots of a new namespace, 256 by default. If the namespace exists with another number of slots, the first call
        raises :class:`~sbredis.exceptions.NamespaceSlotsError`. ``api_version`` is Azure's argument and
        has no effect. Other arguments of Azure's library cause a warning.
        """
        internal = internal_options(ServiceBusAdministrationClient, kwargs, AZURE_ADMINISTRATION)
        if api_version is not None:
            ApiVersion(api_version)  # this raises an error for an unknown version
        target, provider = credited(parse_target(url_or_default(fully_qualified_namespace)), credential)
        self._timeout = seconds_of(timeout, "timeout")
        self._connection = Connection(
            target,
            namespace=namespace,
            credential_provider=provider,
            connect_timeout=connect_timeout,
            slot_count=slot_count,
            clock=internal.get("_clock"),
            timings=internal.get("_timings"),
        )
        self._reference = self._connection.reference()
        self._unreadable = UnreadableLog()

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        slot_count: int | None = None,
        credential_provider: Provider | None = None,
        timeout: float = 60.0,
        **kwargs: Unpack[AdministrationClientOptions],
    ) -> Self:
        """Make a client from a connection string. This is Azure's name for the constructor; all arguments go there."""
        return cls(conn_str, credential_provider, slot_count=slot_count, timeout=timeout, **kwargs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_connection"):  # making it has failed
            return "<ServiceBusAdministrationClient, not made>"
        state = "closed" if self._connection.closed else "open"
        target = self._connection.target
        return f"<ServiceBusAdministrationClient {target}, namespace {target.namespace!r}, {state}>"

    async def close(self) -> None:
        """Close the connection. A closed client cannot be used again."""
        await self._connection.aclose()

    # -- the namespace -------------------------------------------------------------------------------------------------

    async def get_namespace_properties(self, *, timeout: float | None = None) -> NamespaceProperties:
        """Return the properties of the namespace; create it if it does not exist yet.

        The registry is spread over the slots of the namespace. If it cannot be reached in some of them, the counts
        leave out the entities there, ``availability_status`` is ``Limited``, and ``unreachable_slots`` names the slots.
        """
        until = self._deadline(timeout)
        await self._connection.open(until)
        return self._facts(await self._namespace.facts(timeout=until - loop_time()))

    async def set_namespace_limits(
        self, *, max_entities: int | None, max_size_in_megabytes: int | None, timeout: float | None = None
    ) -> NamespaceProperties:
        """Limit the namespace, and return its properties. ``None`` is no limit. An addition of sbredis.

        ``max_entities`` limits the number of queues, topics and subscriptions. ``max_size_in_megabytes`` limits the sum
        of the property of the same name of all queues and topics, which counts once for each of their partitions. Then
        creating an entity, or making it larger, raises
        :class:`~sbredis.exceptions.ServiceBusQuotaExceededError` if a limit would be exceeded. Entities that exist are
        kept, even if they are more. A limit protects against mistakes: a user who may create entities can change it,
        and two entities that are created or enlarged at the same moment may pass a limit together.
        """
        for limit, name in ((max_entities, "max_entities"), (max_size_in_megabytes, "max_size_in_megabytes")):
            if limit is not None:
                count_of(limit, name, 999_999_999_999, least=0)
        until = self._deadline(timeout)
        await self._connection.open(until)
        left = until - loop_time()
        facts = await self._namespace.limit(entities=max_entities, megabytes=max_size_in_megabytes, timeout=left)
        return self._facts(facts)

    def _facts(self, facts: NamespaceFacts) -> NamespaceProperties:
        made = moment(facts.created_at)
        return NamespaceProperties(
            self._namespace.name,
            created_at_utc=made,
            modified_at_utc=made,
            slot_count=facts.slots,
            entity_count=facts.entities + facts.subscriptions,
            max_entities=facts.most_entities,
            size_in_megabytes=facts.megabytes,
            max_size_in_megabytes=facts.most_megabytes,
            availability_status=EntityAvailabilityStatus.LIMITED
            if facts.unreachable
            else EntityAvailabilityStatus.AVAILABLE,
            unreachable_slots=facts.unreachable,
        )
