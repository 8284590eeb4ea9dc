"""The administration client: a namespace and everything in it."""

# Made by tools/make_sync from sbredis/aio/management/_administration.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from typing import Self, Unpack

from sbredis._public import public
from sbredis.aio import management as aio
from sbredis.aio._client_options import (
    AdministrationClientOptions,
    Credential,
    InternalOptions,
    Provider,
    internal_options,
)
from sbredis.client import connection_of
from sbredis.model import AZURE_ADMINISTRATION, ApiVersion, NamespaceProperties
from sbredis.sync._bridge import Bridge
from sbredis.sync.management._bulk import BulkAdministration
from sbredis.sync.management._partitions import PartitionAdministration
from sbredis.sync.management._queues import QueueAdministration
from sbredis.sync.management._rules import RuleAdministration
from sbredis.sync.management._subscriptions import SubscriptionAdministration
from sbredis.sync.management._topics import TopicAdministration
from sbredis.sync.management._unreadable import UnreadableAdministration

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

    Several threads may use the client at the same time.

    A client may be made before a fork. A client that was already used belongs to the process that used it. After a
    fork, make another client in the new process.
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
        client = aio.ServiceBusAdministrationClient(
            fully_qualified_namespace,
            credential,
            namespace=namespace,
            slot_count=slot_count,
            timeout=timeout,
            connect_timeout=connect_timeout,
            api_version=api_version,
            **internal,
        )
        super().__init__(Bridge(f"sbredis administration {connection_of(client).target}", client.close), client)

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

    def __enter__(self) -> Self:
        return self  # the first call connects

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_bridge"):  # making it has failed
            return "<ServiceBusAdministrationClient, not made>"
        state = "closed" if self._bridge.closed else "open"
        target = connection_of(self._aio).target
        return f"<ServiceBusAdministrationClient {target}, namespace {target.namespace!r}, {state}>"

    def close(self) -> None:
        """Close the connection, and end the background thread. A closed client cannot be used again."""
        self._bridge.close()

    # -- the namespace -------------------------------------------------------------------------------------------------

    def get_namespace_properties(self, *, timeout: float | None = None) -> NamespaceProperties:
        """Return the properties of the namespace; create it if it does not exist yet.

        The registry is spread over the slots of the namespace. If it cannot be reached in some of them, the counts
        leave out the entities there, ``availability_status`` is ``Limited``, and ``unreachable_slots`` names the slots.
        """
        return self._bridge.call(self._aio.get_namespace_properties, timeout=timeout)

    def set_namespace_limits(
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
        return self._bridge.call(
            self._aio.set_namespace_limits,
            max_entities=max_entities,
            max_size_in_megabytes=max_size_in_megabytes,
            timeout=timeout,
        )
