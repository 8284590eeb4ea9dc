"""The client: where senders and receivers come from."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from sbredis._public import public
from sbredis._quoting import quoted
from sbredis._tasks import to_the_end
from sbredis.aio._client_options import ClientOptions, InternalOptions, clock_in, creation_of, refuse_unfit
from sbredis.aio._credentials import Credential, credited
from sbredis.aio._handlers import Handlers
from sbredis.aio._options import (
    RECEIVER,
    SENDER,
    SESSION_RECEIVER,
    ReceiverKeywords,
    SenderKeywords,
    SessionReceiverKeywords,
)
from sbredis.aio._receiver import ServiceBusReceiver
from sbredis.aio._sender import ServiceBusSender
from sbredis.aio._session_receiver import ServiceBusSessionReceiver
from sbredis.aio.calls._arguments import deadline_of, seconds_of
from sbredis.aio.calls._connection import Connection
from sbredis.aio.entities._definitions import (
    QUEUES,
    queue_creation,
    subscription_creation,
    subscription_path,
    topic_creation,
)
from sbredis.aio.entities._entity_info import EntityInfo, describe
from sbredis.aio.entities._paging import AsyncItemPaged
from sbredis.aio.entities._session_lists import sessions_of
from sbredis.aio.entities._sub_queues import split_sub_queue
from sbredis.aio.maintenance._offer import MaintenanceOffer
from sbredis.aio.receiving._accepting import NoSessionError
from sbredis.aio.telemetry._telemetry import Telemetry
from sbredis.engine import entity_name
from sbredis.model import (
    NEXT_AVAILABLE_SESSION,
    NewSubscriptionOptions,
    QueueOptions,
    QueueOrSubscriptionOptions,
    QueueProperties,
    ServiceBusSessionFilter,
    TopicOptions,
    names_keywords,
)
from sbredis.transport import Backoff, Target, parse_target, target_of

if TYPE_CHECKING:
    from sbredis.aio.calls._clock import Clock

__all__ = ["ServiceBusClient"]


@public
class ServiceBusClient(Handlers):
    """Connects to a namespace on Redis or Valkey, and makes senders and receivers.

    ``fully_qualified_namespace`` is a connection string: ``redis://host:6379?namespace=orders``,
    ``redis+cluster://…``, ``embedded:///folder``, ``memory://name`` and the others of the documentation; ``namespace``
    stands above the one in it. ``credential`` is a user and a password, or a credential provider of redis-py, which is
    asked anew for every connection. Nothing is connected to before it is needed.

    A call is repeated, as long as that cannot do it twice, until its time-out: after ``retry_backoff_factor`` seconds
    and then twice as long each time, up to ``retry_backoff_max``, with ``retry_mode="fixed"`` always the same; at most
    ``retry_total`` times, if that is given: 0 is one attempt. What has to be sent again because a partition has moved,
    or because settings have changed, is no repetition. A call has 60 seconds where it is not given a ``timeout``.

    ``partition_count`` is how many partitions the namespace is made with if it
    does not exist yet: 16 unless said.

    With ``maintenance`` the client offers to do, beside its own work, what one client does for all. It hands messages
    that were scheduled on a topic to the topic's subscriptions when their time has come. It also visits queues and
    subscriptions when something is due in them and nobody calls: it activates scheduled messages, ends locks, and
    moves expired messages to the dead-letter queue. One of the clients that offer does it at a time. As long as there
    is none, messages scheduled on topics wait, and the rest is done by the next call to the queue or subscription.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
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
        clock = clock_in("ServiceBusClient", kwargs)
        target, provider = credited(parse_target(fully_qualified_namespace), credential)
        self._begin(
            target,
            provider,
            namespace,
            partition_count,
            _backoff(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode),
            connect_timeout,
            clock,
            maintenance=maintenance,
        )

    def _begin(  # noqa: PLR0917 -- both constructors end here
        self,
        target: Target,
        provider: Any,
        namespace: str | None,
        partition_count: int | None,
        retry: Backoff,
        connect_timeout: float,
        clock: Clock | None,
        *,
        maintenance: bool,
    ) -> None:
        self._offer = MaintenanceOffer(made=maintenance)
        self._connection = Connection(
            target,
            namespace=namespace,
            credential_provider=provider,
            connect_timeout=connect_timeout,
            partition_count=partition_count,
            retry=retry,
            clock=clock,
            when_opened=self._offer.begin,
        )
        endpoint = target.endpoints[0] if target.endpoints else None
        self._telemetry = Telemetry(
            self._connection.target.namespace, endpoint.host if endpoint else None, endpoint.port if endpoint else None
        )
        self._share = self._connection.share()
        self._connection.count_dropped = self._telemetry.dropped_duplicates
        self._handlers: set[ServiceBusSender | ServiceBusReceiver] = set()

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Unpack[ClientOptions]) -> Self:
        """The same, under the name that Azure gives it."""
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
        """A client for the server or the cluster that a client of redis-py is for: ``Redis`` or ``RedisCluster``.

        Its addresses, credentials and TLS settings are used, and nothing else of it: it stays its owner's.
        """
        target, provider = target_of(redis)
        made = cls.__new__(cls)
        retry = _backoff(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode)
        made._begin(target, provider, namespace, partition_count, retry, connect_timeout, None, maintenance=maintenance)
        return made

    @property
    def namespace(self) -> str:
        """The namespace that it works in."""
        return self._connection.target.namespace

    async def __aenter__(self) -> Self:
        with self._telemetry.operation("open", ""):
            await self._connection.open(deadline_of(None))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._connection.closed else "open"
        return f"<ServiceBusClient {self._connection.target}, namespace {self.namespace!r}, {state}>"

    # -- senders and receivers -----------------------------------------------------------------------------------------

    @names_keywords(SenderKeywords, SENDER)
    def get_queue_sender(
        self, queue_name: str, *, create_if_missing: bool | QueueOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        """A sender to a queue.

        ``create_if_missing``: whether to create the queue if there is none, with the properties that are given as a
        mapping or with those of Azure. ``max_in_flight`` messages of ``max_in_flight_bytes`` together are under way at
        most; who would send more waits.
        """
        create = creation_of(create_if_missing, self._connection, queue_creation)
        return self._sender("get_queue_sender", entity_name(queue_name), create, options)

    @names_keywords(SenderKeywords, SENDER)
    def get_topic_sender(
        self, topic_name: str, *, create_if_missing: bool | TopicOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        """A sender to a topic; the options are those of :meth:`get_queue_sender`."""
        create = creation_of(create_if_missing, self._connection, topic_creation)
        return self._sender("get_topic_sender", entity_name(topic_name), create, options)

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
        """A receiver from a queue or, with ``sub_queue``, from its dead-letter queue.

        With ``session_id`` it receives from that session, which it accepts when it is opened, or from the next one that
        is free: ``NEXT_AVAILABLE_SESSION``. ``max_wait_time`` is how long to wait for a message, or for a session to be
        free, where a call does not say it; it ends an iteration. ``prefetch_count`` messages, 0 to 50,000, are fetched
        ahead; with ``adaptive_prefetch`` as many of them as are handled in two seconds or a quarter of a lock. All
        messages, or the session, are registered with ``auto_lock_renewer``.
        """
        name, sub_queue = split_sub_queue(queue_name, options.get("sub_queue"))
        create = creation_of(create_if_missing, self._connection, queue_creation)
        return self._receiver("get_queue_receiver", entity_name(name), create, session_id, sub_queue, options)

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
        """A receiver from a subscription of a topic; the options are those of :meth:`get_queue_receiver`."""
        name, sub_queue = split_sub_queue(subscription_name, options.get("sub_queue"))
        path = subscription_path(topic_name, name)
        create = creation_of(create_if_missing, self._connection, subscription_creation)
        return self._receiver("get_subscription_receiver", path, create, session_id, sub_queue, options)

    # -- sessions ------------------------------------------------------------------------------------------------------

    @names_keywords(SessionReceiverKeywords, SESSION_RECEIVER)
    async def accept_next_session(
        self,
        queue_or_topic_name: str,
        subscription_name: str | None = None,
        *,
        create_if_missing: bool | QueueOrSubscriptionOptions = False,
        **options: Unpack[SessionReceiverKeywords],
    ) -> ServiceBusSessionReceiver | None:
        """A receiver of the next session of a queue or a subscription that is free, or ``None`` if there is none within
        ``max_wait_time`` seconds, 65 unless said. The other options are those of :meth:`get_queue_receiver`.

        An addition of sbredis: with the session filter of Azure, that there is none is an error.
        """
        refuse_unfit(options)
        if subscription_name is None:
            name, sub_queue = split_sub_queue(queue_or_topic_name, None)
            path = entity_name(name)
            create = creation_of(create_if_missing, self._connection, queue_creation)
        else:
            name, sub_queue = split_sub_queue(subscription_name, None)
            path = subscription_path(queue_or_topic_name, name)
            create = creation_of(create_if_missing, self._connection, subscription_creation)
        receiver = self._receiver("accept_next_session", path, create, NEXT_AVAILABLE_SESSION, sub_queue, options)
        assert isinstance(receiver, ServiceBusSessionReceiver)  # it was made with a session
        try:
            return await receiver.__aenter__()
        except NoSessionError:
            return None

    def list_queue_sessions(
        self,
        queue_name: str,
        *,
        state_updated_after: datetime | None = None,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[str]:
        """The sessions of a queue that have active messages or a state; or those whose state was set after a time.

        The first ``skip`` are left out, and at most ``top`` are listed. ``timeout`` bounds the reading of each page.
        """
        return sessions_of(self._connection, entity_name(queue_name), state_updated_after, timeout, skip=skip, top=top)

    def list_subscription_sessions(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        state_updated_after: datetime | None = None,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[str]:
        """The same for a subscription."""
        path = subscription_path(topic_name, subscription_name)
        return sessions_of(self._connection, path, state_updated_after, timeout, skip=skip, top=top)

    async def describe_entity(self, entity_path: str, *, timeout: float | None = None) -> EntityInfo:
        """The kind, the sub-queue and the settings of an entity, by a path such as ``news/Subscriptions/all``, behind
        which may stand ``/$DeadLetterQueue`` or ``/$Transfer/$DeadLetterQueue``; in letters of any case.
        """
        return await describe(self._connection, entity_path, deadline_of(timeout))

    async def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """The properties of a queue, created with these where there is none. One that is there stays as it is.

        Raises :class:`ValueError` if that differs from ``properties`` in what cannot be changed.
        """
        deadline = deadline_of(timeout)
        name = entity_name(queue_name)
        await self._connection.open(deadline)
        seconds = deadline - asyncio.get_running_loop().time()
        record = await QUEUES.create_or_get(
            self._connection.namespace, name, seconds, properties, clock=self._connection.clock.kind
        )
        return QUEUES.described(record, reachable=True)

    async def close(self) -> None:
        """Close all senders and receivers, each in its way, and then the connection.

        Where that is cut short, what is under way ends with an error that says what is known of it.
        """
        self._connection.check_loop()
        try:
            if not self._connection.orphaned:
                await asyncio.gather(*(handler.close() for handler in list(self._handlers)))
                await self._connection.all_seen_off()
        finally:
            await to_the_end(self._connection.aclose())


def _backoff(total: int | None, factor: float, longest: float, mode: str) -> Backoff:
    if total is not None and (type(total) is not int or total < 0):
        raise ValueError(f"retry_total must be a whole number from 0 on or None, not {quoted(total)}")
    if mode not in ("exponential", "fixed"):
        raise ValueError(f"retry_mode is 'exponential' or 'fixed', not {quoted(mode)}")
    first = seconds_of(factor, "retry_backoff_factor")
    return Backoff(
        first=first,
        longest=max(first, seconds_of(longest, "retry_backoff_max")),
        doubling=mode == "exponential",
        repetitions=total,
    )
