"""The client for code without an event loop; it makes senders and receivers."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Self, Unpack, overload

from sbredis import aio
from sbredis._public import public, public_name
from sbredis.aio import EntityInfo, Tick
from sbredis.aio._client_options import ClientOptions, Credential, InternalOptions, clock_in, refuse_unfit
from sbredis.aio._options import RECEIVER, SENDER, SESSION_RECEIVER, SenderKeywords, known_of
from sbredis.client import connection_of
from sbredis.model import (
    AZURE_CLIENT,
    NewSubscriptionOptions,
    PropertyMapping,
    QueueOptions,
    QueueOrSubscriptionOptions,
    QueueProperties,
    ServiceBusSessionFilter,
    TopicOptions,
    names_keywords,
)
from sbredis.sync._bridge import Bridge
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._options import ReceiverKeywords, SessionReceiverKeywords
from sbredis.sync._paging import ItemPaged
from sbredis.sync._receiver import ServiceBusReceiver
from sbredis.sync._renewer import AutoLockRenewer, renewer_in
from sbredis.sync._role import ServiceBusRole
from sbredis.sync._sender import ServiceBusSender
from sbredis.sync._session_receiver import ServiceBusSessionReceiver, receiver_for
from sbredis.sync._settler import ServiceBusSettler
from sbredis.sync._transaction import ServiceBusTransaction

__all__ = ["ServiceBusClient", "check_connection", "is_closed"]


@public
@documented_by(aio.ServiceBusClient, then_own=True)
class ServiceBusClient(Facade[aio.ServiceBusClient]):
    """Any number of threads may use the client, its senders and its receivers at the same time.

    All of them share one connection, which a background thread keeps until :meth:`close`. A client, its senders and its
    receivers may be made before a fork: then each process has a connection of its own. A client that was already used
    belongs to the process that used it. After a fork, make another client in the new process.
    """

    def __init__(
        self,
        fully_qualified_namespace: str | None = None,
        credential: Credential | None = None,
        *,
        namespace: str | None = None,
        partition_count: int | None = None,
        retry_total: int | None = None,
        retry_backoff_factor: float = 0.02,
        retry_backoff_max: float = 1.0,
        retry_mode: str = "exponential",
        connect_timeout: float = 5.0,
        maintenance: bool = False,
        **kwargs: Unpack[InternalOptions],
    ) -> None:
        clock = clock_in(ServiceBusClient, kwargs, AZURE_CLIENT)
        self._hold(
            aio.ServiceBusClient(
                fully_qualified_namespace,
                credential,
                namespace=namespace,
                partition_count=partition_count,
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
                connect_timeout=connect_timeout,
                maintenance=maintenance,
                _clock=clock,
            )
        )

    def _hold(self, client: aio.ServiceBusClient) -> None:
        super().__init__(Bridge(f"sbredis client {connection_of(client).target}", client.close), client)

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Unpack[ClientOptions]) -> Self:
        return cls(conn_str, **kwargs)

    @classmethod
    def from_redis(
        cls,
        redis: Any,
        *,
        namespace: str | None = None,
        partition_count: int | None = None,
        retry_total: int | None = None,
        retry_backoff_factor: float = 0.02,
        retry_backoff_max: float = 1.0,
        retry_mode: str = "exponential",
        connect_timeout: float = 5.0,
        maintenance: bool = False,
    ) -> Self:
        made = cls.__new__(cls)
        made._hold(
            aio.ServiceBusClient.from_redis(
                redis,
                namespace=namespace,
                partition_count=partition_count,
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
                connect_timeout=connect_timeout,
                maintenance=maintenance,
            )
        )
        return made

    @property
    def namespace(self) -> str:
        return self._aio.namespace

    def __enter__(self) -> Self:
        try:
            self._bridge.call(self._aio.__aenter__)
        except BaseException:
            self.close()  # Python does not call __exit__ if __enter__ fails
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_bridge"):  # making it has failed
            return "<ServiceBusClient, not made>"
        state = "closed" if self._bridge.closed else "open"
        return f"<ServiceBusClient {connection_of(self._aio).target}, namespace {self.namespace!r}, {state}>"

    # -- senders and receivers -----------------------------------------------------------------------------------------

    @names_keywords(SenderKeywords, SENDER)
    def get_queue_sender(
        self, queue_name: str, *, create_if_missing: bool | QueueOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        given = known_of(self.get_queue_sender, options, SENDER)
        sender = self._bridge.make(self._aio.get_queue_sender, queue_name, create_if_missing=create_if_missing, **given)
        return ServiceBusSender(self._bridge, sender)

    @names_keywords(SenderKeywords, SENDER)
    def get_topic_sender(
        self, topic_name: str, *, create_if_missing: bool | TopicOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        given = known_of(self.get_topic_sender, options, SENDER)
        sender = self._bridge.make(self._aio.get_topic_sender, topic_name, create_if_missing=create_if_missing, **given)
        return ServiceBusSender(self._bridge, sender)

    @overload
    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: str | ServiceBusSessionFilter,
        create_if_missing: bool | QueueOptions = False,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusSessionReceiver: ...

    @overload
    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        create_if_missing: bool | QueueOptions = False,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusReceiver: ...

    @names_keywords(ReceiverKeywords, RECEIVER)
    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        create_if_missing: bool | QueueOptions = False,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusReceiver:
        given = self._passed_on(self.get_queue_receiver, options)
        receiver = self._bridge.make(
            lambda: self._aio.get_queue_receiver(
                queue_name, session_id=session_id, create_if_missing=create_if_missing, **given
            )
        )
        return receiver_for(self._bridge, receiver)

    @overload
    def get_subscription_receiver(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        session_id: str | ServiceBusSessionFilter,
        create_if_missing: bool | NewSubscriptionOptions = False,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusSessionReceiver: ...

    @overload
    def get_subscription_receiver(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        create_if_missing: bool | NewSubscriptionOptions = False,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusReceiver: ...

    @names_keywords(ReceiverKeywords, RECEIVER)
    def get_subscription_receiver(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        create_if_missing: bool | NewSubscriptionOptions = False,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusReceiver:
        given = self._passed_on(self.get_subscription_receiver, options)
        receiver = self._bridge.make(
            lambda: self._aio.get_subscription_receiver(
                topic_name, subscription_name, session_id=session_id, create_if_missing=create_if_missing, **given
            )
        )
        return receiver_for(self._bridge, receiver)

    @names_keywords(SenderKeywords, SENDER)
    def get_sender(self, entity_path: str, **options: Unpack[SenderKeywords]) -> ServiceBusSender:
        given = known_of(self.get_sender, options, SENDER)
        return ServiceBusSender(self._bridge, self._bridge.make(self._aio.get_sender, entity_path, **given))

    @overload
    def get_receiver(
        self, entity_path: str, *, session_id: str | ServiceBusSessionFilter, **options: Unpack[ReceiverKeywords]
    ) -> ServiceBusSessionReceiver: ...

    @overload
    def get_receiver(
        self,
        entity_path: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusReceiver: ...

    @names_keywords(ReceiverKeywords, RECEIVER)
    def get_receiver(
        self,
        entity_path: str,
        *,
        session_id: str | ServiceBusSessionFilter | None = None,
        **options: Unpack[ReceiverKeywords],
    ) -> ServiceBusReceiver:
        given = self._passed_on(self.get_receiver, options)
        receiver = self._bridge.make(lambda: self._aio.get_receiver(entity_path, session_id=session_id, **given))
        return receiver_for(self._bridge, receiver)

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        return ServiceBusSettler(self._bridge, self._bridge.make(self._aio.get_settler, entity_path))

    def _passed_on(
        self, function: Callable[..., object], given: ReceiverKeywords | SessionReceiverKeywords
    ) -> dict[str, Any]:
        """Return the keywords for the asynchronous receiver, with an asynchronous renewer. Refuse unknown keywords."""
        passed = known_of(function, given, RECEIVER)
        renewer = passed.get("auto_lock_renewer")
        if renewer is not None:
            if not isinstance(renewer, AutoLockRenewer):
                raise TypeError(f"auto_lock_renewer must be a sbredis.AutoLockRenewer, not a {public_name(renewer)}")
            passed["auto_lock_renewer"] = renewer_in(renewer, self._bridge)
        return passed

    # -- sessions ------------------------------------------------------------------------------------------------------

    @names_keywords(SessionReceiverKeywords, SESSION_RECEIVER)
    def accept_next_session(
        self,
        queue_or_topic_name: str,
        subscription_name: str | None = None,
        *,
        create_if_missing: bool | QueueOrSubscriptionOptions = False,
        **options: Unpack[SessionReceiverKeywords],
    ) -> ServiceBusSessionReceiver | None:
        refuse_unfit(options)
        given = self._passed_on(self.accept_next_session, options)
        accepted: list[ServiceBusSessionReceiver] = []

        async def accept() -> None:
            receiver = await self._aio.accept_next_session(
                queue_or_topic_name, subscription_name, create_if_missing=create_if_missing, **given
            )
            if receiver is not None:
                accepted.append(ServiceBusSessionReceiver(self._bridge, receiver))

        try:
            self._bridge.call(accept)
        except BaseException:
            for receiver in accepted:
                receiver.close()  # the caller was interrupted at the moment when the receiver was ready
            raise
        return accepted[0] if accepted else None

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        listed = self._aio.list_queue_sessions(
            queue_name, state_updated_after=state_updated_after, skip=skip, top=top, timeout=timeout
        )
        return ItemPaged(self._bridge, listed)

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[str]:
        listed = self._aio.list_subscription_sessions(
            topic_name, subscription_name, state_updated_after=state_updated_after, skip=skip, top=top, timeout=timeout
        )
        return ItemPaged(self._bridge, listed)

    def peek_session_state(self, entity_path: str, session_id: str, *, timeout: float | None = None) -> bytes | None:
        return self._bridge.call(self._aio.peek_session_state, entity_path, session_id, timeout=timeout)

    # -- entities and calls --------------------------------------------------------------------------------------------

    def describe_entity(self, entity_path: str, *, timeout: float | None = None) -> EntityInfo:
        return self._bridge.call(self._aio.describe_entity, entity_path, timeout=timeout)

    def server_time(
        self, entity_path: str, *, partition_key: str | None = None, timeout: float | None = None
    ) -> datetime:
        return self._bridge.call(self._aio.server_time, entity_path, partition_key=partition_key, timeout=timeout)

    def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        return self._bridge.call(self._aio.ensure_queue, queue_name, timeout=timeout, **properties)

    def request(
        self,
        entity: str,
        value: object,
        *,
        as_type: Any = Any,
        session_id: str | None = None,
        subject: str | None = None,
        application_properties: PropertyMapping | None = None,
        timeout: float = 5,
    ) -> Any:
        return self._bridge.call(
            self._aio.request,
            entity,
            value,
            as_type=as_type,
            session_id=session_id,
            subject=subject,
            application_properties=application_properties,
            timeout=timeout,
        )

    def transaction(self, *, timeout: float | None = None) -> ServiceBusTransaction:
        return ServiceBusTransaction(self._bridge, self._bridge.make(self._aio.transaction, timeout=timeout))

    # -- one client of all ---------------------------------------------------------------------------------------------

    @contextmanager
    def maintain(self) -> Generator[None]:
        block = self._bridge.make(self._aio.maintain)

        async def begin() -> None:
            await block.__aenter__()

        async def end() -> None:
            await block.__aexit__(None, None, None)

        self._bridge.call(begin)
        try:
            yield
        finally:
            self._bridge.finish(end)

    def claim_role(
        self, name: str, *, claim_duration: float = 15.0, max_wait_time: float | None = None
    ) -> ServiceBusRole:
        role = self._bridge.make(self._aio.claim_role, name, claim_duration=claim_duration, max_wait_time=max_wait_time)
        return ServiceBusRole(self._bridge, role)

    def tick(
        self, name: str, every: timedelta | float, *, max_wait_time: float = 0.0, timeout: float | None = None
    ) -> Tick | None:
        return self._bridge.call(self._aio.tick, name, every, max_wait_time=max_wait_time, timeout=timeout)

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.wait_closed, timeout=timeout)

    def close(self) -> None:
        """Close all senders and receivers as their ``close`` does. Then end the connection and background thread."""
        self._bridge.close()


def check_connection(url: str, *, timeout: float = 10.0) -> aio.ConnectionReport:
    """Connect as a client would, run a script on every master, and return a report.

    Raises the errors that a client would raise: :class:`~sbredis.exceptions.InvalidConnectionStringError`,
    :class:`~sbredis.exceptions.ServiceBusConnectionError` or a subclass of the latter. Each error says what to change.
    """
    bridge = Bridge("sbredis check_connection", _nothing)
    try:
        return bridge.call(aio.check_connection, url, timeout=timeout)
    finally:
        bridge.close()


async def _nothing() -> None:
    """Do nothing, because no client has to be closed."""


def is_closed(client: ServiceBusClient) -> bool:
    """Return whether a client was closed."""
    return client._bridge.closed
