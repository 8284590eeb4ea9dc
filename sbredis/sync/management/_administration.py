"""The synchronous administration client: a namespace and everything in it."""

from __future__ import annotations

from typing import Self, Unpack

from sbredis._public import public
from sbredis.aio import management as aio
from sbredis.aio._client_options import AdministrationClientOptions, Credential, InternalOptions, Provider, clock_in
from sbredis.client import connection_of
from sbredis.model import AZURE_ADMINISTRATION, ApiVersion, NamespaceProperties
from sbredis.sync._bridge import Bridge
from sbredis.sync._docstrings import documented_by
from sbredis.sync.management._bulk import BulkAdministration
from sbredis.sync.management._partitions import PartitionAdministration
from sbredis.sync.management._queues import QueueAdministration
from sbredis.sync.management._rules import RuleAdministration
from sbredis.sync.management._subscriptions import SubscriptionAdministration
from sbredis.sync.management._topics import TopicAdministration
from sbredis.sync.management._unreadable import UnreadableAdministration

__all__ = ["ServiceBusAdministrationClient"]


@public
@documented_by(aio.ServiceBusAdministrationClient, then_own=True)
class ServiceBusAdministrationClient(
    QueueAdministration,
    TopicAdministration,
    SubscriptionAdministration,
    RuleAdministration,
    PartitionAdministration,
    BulkAdministration,
    UnreadableAdministration,
):
    """Several threads may use the client at the same time.

    A client may be made before a fork. A client that was already used belongs to the process that used it. After a
    fork, make another client in the new process.
    """

    def __init__(
        self,
        fully_qualified_namespace: str | None = None,
        credential: Credential | None = None,
        *,
        namespace: str | None = None,
        partition_count: int | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        api_version: str | ApiVersion | None = None,
        **kwargs: Unpack[InternalOptions],
    ) -> None:
        clock = clock_in(ServiceBusAdministrationClient, kwargs, AZURE_ADMINISTRATION)
        client = aio.ServiceBusAdministrationClient(
            fully_qualified_namespace,
            credential,
            namespace=namespace,
            partition_count=partition_count,
            timeout=timeout,
            connect_timeout=connect_timeout,
            api_version=api_version,
            _clock=clock,
        )
        super().__init__(Bridge(f"sbredis administration {connection_of(client).target}", client.close), client)

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        partition_count: int | None = None,
        credential_provider: Provider | None = None,
        timeout: float = 60.0,
        **kwargs: Unpack[AdministrationClientOptions],
    ) -> Self:
        return cls(conn_str, credential_provider, partition_count=partition_count, timeout=timeout, **kwargs)

    def __enter__(self) -> Self:
        return self

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
        return self._bridge.call(self._aio.get_namespace_properties, timeout=timeout)

    def set_namespace_limits(
        self, *, max_entities: int | None, max_size_in_megabytes: int | None, timeout: float | None = None
    ) -> NamespaceProperties:
        return self._bridge.call(
            self._aio.set_namespace_limits,
            max_entities=max_entities,
            max_size_in_megabytes=max_size_in_megabytes,
            timeout=timeout,
        )
