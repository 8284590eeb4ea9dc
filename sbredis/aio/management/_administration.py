"""Creating, finding, changing, counting, listing and deleting queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

import anyio

from sbredis.aio._arguments import deadline_of, seconds_of, warn_of_unknown
from sbredis.aio._connection import Connection
from sbredis.aio._counting import Counter
from sbredis.aio._credentials import credited
from sbredis.aio._paging import AsyncItemPaged, Page
from sbredis.aio._queues import check_queue, create, create_or_get, described, given_in, revise
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import (
    ApiVersion,
    AuthorizationRule,
    EntityStatus,
    NamespaceProperties,
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    moment,
)
from sbredis.registry import EntityRecord
from sbredis.transport import parse_target

if TYPE_CHECKING:
    from typing import Unpack

    from sbredis.aio._clock import Clock
    from sbredis.aio._credentials import Credential, Provider

__all__ = ["ServiceBusAdministrationClient"]

_PAGE = 100


class ServiceBusAdministrationClient:
    """Creates, finds, changes, counts, lists and deletes the queues of a namespace.

    Nothing is connected to before the first call. Every call ends within its ``timeout`` in seconds, or the client's,
    and may be made concurrently with others. Names are compared without regard to the case of ASCII letters. What is
    wrong about properties is a :class:`ValueError` or :class:`TypeError` before anything is sent.

    A creation, change or deletion that fails in the middle says so in its error; the next call that names the queue
    goes on with it.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: Credential | None = None,
        *,
        namespace: str | None = None,
        partition_count: int | None = None,
        timeout: float = 60.0,
        connect_timeout: float = 5.0,
        api_version: str | ApiVersion | None = None,
        **kwargs: Any,
    ) -> None:
        """``fully_qualified_namespace`` is a connection string such as ``redis://localhost:6379?namespace=orders``.

        ``namespace`` stands above the one in it. ``credential`` is a user and a password, or a credential provider of
        redis-py, which is asked anew for every connection. ``partition_count`` is the number of partitions that a new
        namespace is made with, 16 unless said; if the namespace is there and has another number, the first call raises
        :class:`~sbredis.registry.NamespacePartitionsError`. ``api_version`` is Azure's, and has no effect; of what else
        is given a warning is issued.
        """
        clock: Clock | None = kwargs.pop("_clock", None)
        warn_of_unknown("ServiceBusAdministrationClient", kwargs)
        if api_version is not None:
            ApiVersion(api_version)  # raises for what is none
        target, provider = credited(parse_target(fully_qualified_namespace), credential)
        self._timeout = seconds_of(timeout, "timeout")
        self._connection = Connection(
            target,
            namespace=namespace,
            credential_provider=provider,
            connect_timeout=connect_timeout,
            partition_count=partition_count,
            clock=clock,
        )
        self._counter: Counter | None = None

    @classmethod
    def from_connection_string(
        cls,
        conn_str: str,
        *,
        partition_count: int | None = None,
        credential_provider: Provider | None = None,
        timeout: float = 60.0,
        **kwargs: Any,
    ) -> Self:
        """The same, under the name that Azure gives it; what else is given is given to the constructor."""
        return cls(conn_str, credential_provider, partition_count=partition_count, timeout=timeout, **kwargs)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection. A closed client cannot be used again."""
        await self._connection.aclose()

    # -- queues --------------------------------------------------------------------------------------------------------

    async def create_queue(
        self,
        queue_name: str,
        *,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        default_message_time_to_live: timedelta | str | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        enable_batched_operations: bool | None = None,
        enable_express: bool | None = None,
        enable_partitioning: bool | None = None,
        lock_duration: timedelta | str | None = None,
        max_delivery_count: int | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        requires_session: bool | None = None,
        forward_to: str | None = None,
        user_metadata: str | None = None,
        forward_dead_lettered_messages_to: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        colocate_with: str | None = None,
        status: EntityStatus | str | None = None,
        timeout: float | None = None,
    ) -> QueueProperties:
        """Create a queue; the arguments are explained in :class:`~sbredis.management.QueueProperties`.

        Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an entity of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of the name ``colocate_with``.
        """
        properties: QueueOptions = {
            "authorization_rules": authorization_rules,
            "auto_delete_on_idle": auto_delete_on_idle,
            "dead_lettering_on_message_expiration": dead_lettering_on_message_expiration,
            "default_message_time_to_live": default_message_time_to_live,
            "duplicate_detection_history_time_window": duplicate_detection_history_time_window,
            "enable_batched_operations": enable_batched_operations,
            "enable_express": enable_express,
            "enable_partitioning": enable_partitioning,
            "lock_duration": lock_duration,
            "max_delivery_count": max_delivery_count,
            "max_size_in_megabytes": max_size_in_megabytes,
            "requires_duplicate_detection": requires_duplicate_detection,
            "requires_session": requires_session,
            "forward_to": forward_to,
            "user_metadata": user_metadata,
            "forward_dead_lettered_messages_to": forward_dead_lettered_messages_to,
            "max_message_size_in_kilobytes": max_message_size_in_kilobytes,
            "colocate_with": colocate_with,
            "status": status,
        }
        check_queue("create_queue", queue_name, properties)
        until = await self._open(timeout)
        left = until - anyio.current_time()
        return self._described(
            await create(self._connection.namespace, queue_name, left, properties, clock=self._connection.clock.kind)
        )

    async def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """The queue of this name, created with ``properties``, those of :meth:`create_queue`, where there is none.

        A queue that is there stays as it is: what can be changed and differs from ``properties`` is left to
        :meth:`update_queue`. A difference in what cannot be changed (partitions, duplicate detection, sessions, the
        neighbour) is a :class:`ValueError` that names it. Any number of clients may call this at once. An addition of
        sbredis.
        """
        check_queue("ensure_queue", queue_name, properties)
        until = await self._open(timeout)
        left = until - anyio.current_time()
        return self._described(
            await create_or_get(
                self._connection.namespace, queue_name, left, properties, clock=self._connection.clock.kind
            )
        )

    async def get_queue(self, queue_name: str, *, timeout: float | None = None) -> QueueProperties:
        """The properties of a queue.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        return self._described(await self._connection.record(queue_name, self._deadline(timeout)))

    async def get_queue_runtime_properties(
        self, queue_name: str, *, timeout: float | None = None
    ) -> QueueRuntimeProperties:
        """What is in a queue, counted in all its partitions at once.

        A partition that does not answer is no error: ``availability_status`` is then ``Limited``,
        ``unreachable_partitions`` names it, and the counts are those of the others.
        """
        until = self._deadline(timeout)
        return await self._counted(await self._connection.record(queue_name, until), until)

    async def update_queue(
        self, queue: QueueProperties | Mapping[str, Any], *, timeout: float | None = None, **kwargs: Any
    ) -> None:
        """Give a queue other properties: those of ``queue``, and above them those that are given by name.

        ``queue`` is what :meth:`get_queue` returned, with some assigned anew, or a mapping with ``name``. What it does
        not say stays as it is. Of several who change a queue at once the last one wins, in what it says: so a mapping
        of what is to change only, ``update_queue({"name": "orders"}, max_delivery_count=5)``, leaves the changes of
        others alone.

        Changed settings hold for calls that come after. A change of what cannot be changed is a :class:`ValueError`. If
        a partition could not be told, that is raised, and the next call that reaches the partition tells it.
        """
        given = given_in(queue, kwargs)
        until = await self._open(timeout)
        await revise(self._connection.namespace, given.name, until - anyio.current_time(), given.given)

    async def delete_queue(self, queue_name: str, *, timeout: float | None = None) -> None:
        """Delete a queue with all its messages. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        until = await self._open(timeout)
        await self._connection.namespace.delete_entity(queue_name, timeout=until - anyio.current_time())

    def list_queues(self, *, timeout: float | None = None) -> AsyncItemPaged[QueueProperties]:
        """All queues by name, to be gone through with ``async for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted are listed as such by their status.
        """

        async def read(after: str) -> Page[QueueProperties]:
            records = await self._listed(after, self._deadline(timeout))
            return Page([self._described(record) for record in records if record.kind == "queue"], _onwards(records))

        return AsyncItemPaged(read)

    def list_queues_runtime_properties(self, *, timeout: float | None = None) -> AsyncItemPaged[QueueRuntimeProperties]:
        """What is in all queues, by name, to be gone through with ``async for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted, or are deleted meanwhile, are left out.
        """

        async def read(after: str) -> Page[QueueRuntimeProperties]:
            until = self._deadline(timeout)
            records = await self._listed(after, until)
            found: dict[str, QueueRuntimeProperties] = {}

            async def count(record: EntityRecord) -> None:
                try:
                    found[record.path] = await self._counted(record, until)
                except MessagingEntityNotFoundError:
                    return

            async with anyio.create_task_group() as group:
                for record in records:
                    if record.kind == "queue" and record.state == "active":
                        group.start_soon(count, record)
            counts = [found[record.path] for record in records if record.path in found]
            return Page(counts, _onwards(records))

        return AsyncItemPaged(read)

    # -- the namespace -------------------------------------------------------------------------------------------------

    async def get_namespace_properties(self, *, timeout: float | None = None) -> NamespaceProperties:
        """What the namespace is; it is made, if it is not there yet."""
        await self._open(timeout)
        namespace = self._connection.namespace
        made = moment(namespace.created_at)
        return NamespaceProperties(
            namespace.name, created_at_utc=made, modified_at_utc=made, partition_count=namespace.partitions
        )

    # ------------------------------------------------------------------------------------------------------------------

    def _deadline(self, timeout: float | None) -> float:
        return deadline_of(self._timeout if timeout is None else timeout)

    async def _open(self, timeout: float | None) -> float:
        """Connect, if that was not done yet; the result is when the call has to end."""
        until = self._deadline(timeout)
        await self._connection.open(until)
        return until

    def _described(self, record: EntityRecord) -> QueueProperties:
        connection = self._connection
        keys = (connection.namespace.partition(record, number).keys[0] for number in record.partitions)
        return described(record, reachable=all(connection.transport.endpoint_of(key) is not None for key in keys))

    async def _counted(self, record: EntityRecord, until: float) -> QueueRuntimeProperties:
        if self._counter is None:
            connection = self._connection
            self._counter = Counter(connection.transport, connection.namespace, connection.clock)
        return await self._counter.count(record, until)

    async def _listed(self, after: str, until: float) -> Sequence[EntityRecord]:
        await self._connection.open(until)
        return await self._connection.namespace.list_entities(after, _PAGE, timeout=until - anyio.current_time())


def _onwards(records: Sequence[EntityRecord]) -> str | None:
    """Where the next page begins; a short one is the last."""
    return records[-1].path if len(records) == _PAGE else None
