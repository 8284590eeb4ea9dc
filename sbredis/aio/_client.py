"""The client, which makes senders and receivers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, Unpack, overload

from sbredis import codec, entities
from sbredis._public import public
from sbredis._quoting import quoted
from sbredis._server_url import url_or_default
from sbredis._tasks import to_the_end
from sbredis.aio._client_options import (
    ClientOptions,
    Credential,
    InternalOptions,
    creation_of,
    credited,
    internal_options,
    refuse_unfit,
)
from sbredis.aio._options import (
    RECEIVER,
    SENDER,
    SESSION_RECEIVER,
    ReceiverKeywords,
    SenderKeywords,
    SessionReceiverKeywords,
    known_of,
    receiver_options,
)
from sbredis.aio._receiver import ServiceBusReceiver
from sbredis.aio._requests import Requests
from sbredis.aio._role import ServiceBusRole
from sbredis.aio._sender import ServiceBusSender
from sbredis.aio._session_receiver import ServiceBusSessionReceiver
from sbredis.aio._settler import ServiceBusSettler
from sbredis.aio._transaction import ServiceBusTransaction
from sbredis.client import (
    Connected,
    Connection,
    ConnectionObserver,
    Tick,
    deadline_of,
    identifier_of,
    next_tick,
    period_of,
    seconds_of,
)
from sbredis.engine import entity_name, identifier
from sbredis.entities import (
    AsyncItemPaged,
    EntityInfo,
    describe,
    server_time,
    sessions_of,
    split_sub_queue,
    state_of_session,
    subscription_path,
)
from sbredis.maintenance import MaintenanceOffer
from sbredis.model import (
    AZURE_CLIENT,
    NEXT_AVAILABLE_SESSION,
    NewSubscriptionOptions,
    PropertyMapping,
    QueueOptions,
    QueueOrSubscriptionOptions,
    QueueProperties,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
    TopicOptions,
    names_keywords,
)
from sbredis.receiving import NoSessionError
from sbredis.registry import path_of, split_path
from sbredis.telemetry import Telemetry
from sbredis.transport import Backoff, Target, parse_target, target_of

if TYPE_CHECKING:
    from sbredis.client import Creation, Entity
    from sbredis.registry import EntityRecord

__all__ = ["ServiceBusClient"]


class _Observer(ConnectionObserver):
    """Passes events of the client's connection on to its telemetry and to its offer of maintenance."""

    def __init__(self, telemetry: Telemetry, offer: MaintenanceOffer) -> None:
        self._telemetry = telemetry
        self._offer = offer

    def opened(self, connection: Connection) -> None:
        self._offer.begin(connection)

    def dropped_duplicates(self, entity: str, count: int) -> None:
        self._telemetry.dropped_duplicates(entity, count)

    def scheduled_on(self, connection: Connection, topic: Entity) -> None:
        self._offer.scheduled_on(connection, topic)

    async def spread(self, connection: Connection, topic: Entity, number: int, until: float) -> None:
        await self._offer.spread(connection, topic, number, until)

    def moves_from(self, connection: Connection, record: EntityRecord, *, waits: bool) -> None:
        self._offer.moves_from(connection, record, waits=waits)


@public
class ServiceBusClient(Connected):
    """Connects to a namespace on Redis or Valkey, and makes senders and receivers.

    ``fully_qualified_namespace`` is a connection string: ``redis://host:6379?namespace=orders``,
    ``redis+cluster://…``, ``embedded:///folder``, ``memory://name`` or another form from the documentation. If it is
    not given, the client reads the variable ``SBREDIS_URL`` of the environment.
    ``namespace`` overrides the namespace in the connection string. ``credential`` is a user and a password, or a
    credential provider of redis-py, which the client asks again for every connection. The client connects only when a
    connection is needed.

    The client repeats a failed call until the call's time-out, unless a repetition could execute the call twice. The
    first wait is ``retry_backoff_factor`` seconds, and each further wait is twice as long, up to ``retry_backoff_max``.
    With ``retry_mode="fixed"`` all waits are equally long. ``retry_total`` limits the number of repetitions: 0 allows
    one attempt, and ``None`` sets no limit. A call that must be sent again because a partition has moved, or because
    settings have changed, does not count as a repetition. The default time-out of a call is 60 seconds.

    If the namespace does not exist yet, it is created with ``slot_count`` slots, 256 by default.

    With ``maintenance`` the client offers to do background work for all clients. If several clients offer, only one of
    them does the work at a time. When a message that was scheduled on a topic is due, that client hands it to the
    topic's subscriptions. It also visits queues and subscriptions in which something is due while no client calls them.
    There it activates scheduled messages, ends locks, and moves expired messages to the dead-letter queue. If no client
    offers, messages scheduled on topics wait, and the next call to a queue or subscription does the work that is due
    there.
    """

    def __init__(
        self,
        fully_qualified_namespace: str | None = None,
        credential: Credential | None = None,
        *,
        namespace: str | None = None,
        slot_count: int | None = None,
        retry_total: int | None = None,
        retry_backoff_factor: float = 0.02,
        retry_backoff_max: float = 1.0,
        retry_mode: str = "exponential",
        connect_timeout: float = 5.0,
        maintenance: bool = False,
        **kwargs: Unpack[InternalOptions],
    ) -> None:
        internal = internal_options(ServiceBusClient, kwargs, AZURE_CLIENT)
        target, provider = credited(parse_target(url_or_default(fully_qualified_namespace)), credential)
        self._begin(
            target,
            provider,
            namespace,
            slot_count,
            _backoff(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode),
            connect_timeout,
            internal,
            maintenance=maintenance,
        )

    def _begin(  # noqa: PLR0917 -- both constructors call this
        self,
        target: Target,
        provider: Any,
        namespace: str | None,
        slot_count: int | None,
        retry: Backoff,
        connect_timeout: float,
        internal: InternalOptions,
        *,
        maintenance: bool,
    ) -> None:
        self._offer = MaintenanceOffer(made=maintenance)
        self._connection = Connection(
            target,
            namespace=namespace,
            credential_provider=provider,
            connect_timeout=connect_timeout,
            slot_count=slot_count,
            retry=retry,
            clock=internal.get("_clock"),
            timings=internal.get("_timings"),
        )
        endpoint = target.endpoints[0] if target.endpoints else None
        self._telemetry = Telemetry(
            self._connection.target.namespace, endpoint.host if endpoint else None, endpoint.port if endpoint else None
        )
        self._reference = self._connection.reference()
        self._connection.observer = _Observer(self._telemetry, self._offer)
        self._children: set[ServiceBusSender | ServiceBusReceiver] = set()
        self._forget = self._children.discard
        self._requests = Requests(self._connection)

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Unpack[ClientOptions]) -> Self:
        """Make a client from a connection string. This is Azure's name for the constructor."""
        return cls(conn_str, **kwargs)

    @classmethod
    def from_redis(
        cls,
        redis: Any,
        *,
        namespace: str | None = None,
        slot_count: int | None = None,
        retry_total: int | None = None,
        retry_backoff_factor: float = 0.02,
        retry_backoff_max: float = 1.0,
        retry_mode: str = "exponential",
        connect_timeout: float = 5.0,
        maintenance: bool = False,
    ) -> Self:
        """Make a client for the same server or cluster as a client of redis-py: ``Redis`` or ``RedisCluster``.

        Only its addresses, credentials and TLS settings are used. The owner of the redis-py client still has to close
        it.
        """
        target, provider = target_of(redis)
        made = cls.__new__(cls)
        retry = _backoff(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode)
        made._begin(target, provider, namespace, slot_count, retry, connect_timeout, {}, maintenance=maintenance)
        return made

    @property
    def namespace(self) -> str:
        """The namespace that the client works in."""
        return self._connection.target.namespace

    async def __aenter__(self) -> Self:
        with self._telemetry.operation("open", ""):
            await self._connection.open(deadline_of(None))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        if not hasattr(self, "_connection"):  # making it has failed
            return "<ServiceBusClient, not made>"
        state = "closed" if self._connection.closed else "open"
        return f"<ServiceBusClient {self._connection.target}, namespace {self.namespace!r}, {state}>"

    # -- senders and receivers -----------------------------------------------------------------------------------------

    @names_keywords(SenderKeywords, SENDER)
    def get_queue_sender(
        self, queue_name: str, *, create_if_missing: bool | QueueOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        """Make a sender to a queue.

        ``create_if_missing``: whether to create the queue if it does not exist. A mapping gives the properties of the
        new queue; ``True`` means Azure's defaults. At most ``max_in_flight`` messages, and ``max_in_flight_bytes`` in
        total, are under way at a time; further calls wait.
        """
        create = creation_of(create_if_missing, self._connection, "queue")
        return self._sender(self.get_queue_sender, entity_name(queue_name), create, options)

    @names_keywords(SenderKeywords, SENDER)
    def get_topic_sender(
        self, topic_name: str, *, create_if_missing: bool | TopicOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        """Make a sender to a topic; the options are those of :meth:`get_queue_sender`."""
        create = creation_of(create_if_missing, self._connection, "topic")
        return self._sender(self.get_topic_sender, entity_name(topic_name), create, options)

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
        """Make a receiver from a queue or, with ``sub_queue``, from its dead-letter queue.

        With ``session_id`` the receiver accepts that session when it is opened, and receives only its messages. With
        ``NEXT_AVAILABLE_SESSION`` it accepts the next free session. ``max_wait_time`` is the time in seconds to wait
        for a message or for a free session, unless a call gives its own time. If no message comes within that time, an
        iteration ends. The receiver fetches up to ``prefetch_count`` messages ahead, 0 to 50,000. With
        ``adaptive_prefetch`` it fetches only as many as the application handles in two seconds, or in a quarter of the
        lock duration if that is shorter. The receiver registers every message, or its session, with
        ``auto_lock_renewer``.
        """
        name, sub_queue = split_sub_queue(queue_name, options.get("sub_queue"))
        create = creation_of(create_if_missing, self._connection, "queue")
        return self._receiver(self.get_queue_receiver, entity_name(name), create, session_id, sub_queue, options)

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
        """Make a receiver from a subscription of a topic; the options are those of :meth:`get_queue_receiver`."""
        name, sub_queue = split_sub_queue(subscription_name, options.get("sub_queue"))
        path = subscription_path(topic_name, name)
        create = creation_of(create_if_missing, self._connection, "subscription")
        return self._receiver(self.get_subscription_receiver, path, create, session_id, sub_queue, options)

    @names_keywords(SenderKeywords, SENDER)
    def get_sender(self, entity_path: str, **options: Unpack[SenderKeywords]) -> ServiceBusSender:
        """Make a sender to the queue or topic of this name. The queue or topic must exist.

        The options are those of :meth:`get_queue_sender`.
        """
        path, sub_queue = split_sub_queue(entity_path, None)
        name, subscription = split_path(path)
        if sub_queue is not None or subscription is not None:
            raise ValueError(
                f"{quoted(entity_path)} is not a queue or a topic. Messages can be sent only to queues and topics."
            )
        return self._sender(self.get_sender, name, None, options)

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
        """Make a receiver from a path such as ``orders``, ``orders/$DeadLetterQueue`` or ``news/subscriptions/all``.

        The path has the form that :meth:`describe_entity` takes. The entity must exist. The options are those of
        :meth:`get_queue_receiver`.
        """
        path, sub_queue = split_sub_queue(entity_path, options.get("sub_queue"))
        name, subscription = split_path(path)
        path = name if subscription is None else path_of(name, subscription)
        return self._receiver(self.get_receiver, path, None, session_id, sub_queue, options)

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        """Make a settler, which settles messages that another process received from a queue, subscription or sub-queue.

        Its methods take lock tokens. The path has the form that :meth:`describe_entity` takes.
        """
        path, sub_queue = split_sub_queue(entity_path, None)
        name, subscription = split_path(path)
        self._connection.check_open()
        path = name if subscription is None else path_of(name, subscription)
        return ServiceBusSettler(self._connection, path, sub_queue, self._telemetry)

    def _sender(
        self, function: Callable[..., object], name: str, create: Creation | None, given: SenderKeywords
    ) -> ServiceBusSender:
        """Make a sender for the public function that was called with these keywords."""
        asked: dict[str, Any] = {**SENDER, **known_of(function, given, SENDER)}
        self._connection.check_open()
        sender = ServiceBusSender(
            self._connection,
            name,
            self._telemetry,
            client_identifier=identifier_of(asked["client_identifier"]),
            create=create,
            max_in_flight=asked["max_in_flight"],
            max_in_flight_bytes=asked["max_in_flight_bytes"],
            on_close=self._forget,
        )
        self._children.add(sender)
        return sender

    def _receiver(  # noqa: PLR0917 -- the public functions that make receivers pass these arguments
        self,
        function: Callable[..., object],
        path: str,
        create: Creation | None,
        session_id: str | ServiceBusSessionFilter | None,
        sub_queue: ServiceBusSubQueue | None,
        given: ReceiverKeywords | SessionReceiverKeywords,
    ) -> ServiceBusReceiver:
        """Make a receiver for the public function that was called with these keywords."""
        asked = known_of(function, given, RECEIVER)
        self._connection.check_open()
        options = receiver_options(asked, session_id, sub_queue)
        kind = ServiceBusReceiver if options.session_id is None else ServiceBusSessionReceiver
        return kind(
            self._connection,
            path,
            self._telemetry,
            client_identifier=identifier_of(asked.get("client_identifier")),
            create=create,
            options=options,
            among=self._children,
        )

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
        """Return a receiver of the next free session of a queue or a subscription, or ``None`` if no session is free.

        It waits up to ``max_wait_time`` seconds for a free session, 65 by default. The other options are those of
        :meth:`get_queue_receiver`.

        This method is an addition of sbredis. With Azure's session filter, it is an error if there is no free session.
        """
        refuse_unfit(options)
        if subscription_name is None:
            name, sub_queue = split_sub_queue(queue_or_topic_name, None)
            path = entity_name(name)
            create = creation_of(create_if_missing, self._connection, "queue")
        else:
            name, sub_queue = split_sub_queue(subscription_name, None)
            path = subscription_path(queue_or_topic_name, name)
            create = creation_of(create_if_missing, self._connection, "subscription")
        receiver = self._receiver(self.accept_next_session, path, create, NEXT_AVAILABLE_SESSION, sub_queue, options)
        assert isinstance(receiver, ServiceBusSessionReceiver)  # the session filter asks for a session
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
        """List the sessions of a queue that have active messages or a state.

        With ``state_updated_after`` it lists only the sessions whose state was set after that time. It leaves out the
        first ``skip`` sessions, and lists at most ``top``. ``timeout`` limits the reading of each page.
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
        """List the sessions of a subscription, as :meth:`list_queue_sessions` does for a queue."""
        path = subscription_path(topic_name, subscription_name)
        return sessions_of(self._connection, path, state_updated_after, timeout, skip=skip, top=top)

    async def peek_session_state(
        self, entity_path: str, session_id: str, *, timeout: float | None = None
    ) -> bytes | None:
        """Return the state of a session, or ``None``, without a lock on it: another receiver may hold the session, and
        change the state at any time. :meth:`ServiceBusSession.get_state` is for the holder.
        """
        identifier(session_id, "session_id", may_be_empty=True)
        return await state_of_session(self._connection, entity_path, session_id, deadline_of(timeout))

    # -- entities and calls --------------------------------------------------------------------------------------------

    async def describe_entity(self, entity_path: str, *, timeout: float | None = None) -> EntityInfo:
        """Return the kind, the sub-queue and the settings of an entity.

        An example of a path is ``news/subscriptions/all``. Upper and lower case do not matter, so Azure's spelling
        ``news/Subscriptions/all`` names the same subscription. The path may end with ``/$DeadLetterQueue`` or
        ``/$Transfer/$DeadLetterQueue``.
        """
        return await describe(self._connection, entity_path, deadline_of(timeout))

    async def server_time(
        self, entity_path: str, *, partition_key: str | None = None, timeout: float | None = None
    ) -> datetime:
        """Return the time now by the clock of an entity's server, which decides when messages are due and expire.

        The clock of this machine may be wrong. Half of the time that the call takes is uncertain. The partitions of an
        entity may be on several servers: ``partition_key`` names the one of its messages, and without it the server is
        that of the first partition.
        """
        if partition_key is not None:
            identifier(partition_key, "partition_key")
        return await server_time(self._connection, entity_path, partition_key, deadline_of(timeout))

    async def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """Return the properties of a queue; create it with ``properties`` if it does not exist.

        An existing queue is not changed. Raises :class:`ValueError` if the queue differs from ``properties`` in a
        property that cannot be changed.
        """
        deadline = deadline_of(timeout)
        name = entity_name(queue_name)
        await self._connection.open(deadline)
        seconds = deadline - asyncio.get_running_loop().time()
        record = await entities.QUEUES.create_or_get(
            self._connection.namespace, name, seconds, properties, clock=self._connection.clock.kind
        )
        return entities.QUEUES.described(record, reachable=True)

    async def request(
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
        """Send a value to a queue or topic, wait for the reply, and return its value.

        ``bytes`` and ``str`` are sent as they are, and every other value as JSON. The reply is decoded in the same way,
        to ``as_type`` if it is given. The message names the queue for the reply in ``reply_to``. The reply must have
        the message's id as its correlation id; the handler of a worker with ``replies=True`` sends such replies.

        All requests of a client share one queue for replies. The client makes it with the first request, for which it
        needs the right to manage entities, and the queue is removed when it is not used any more. A request expires
        after ``timeout`` seconds.

        Raises :class:`~sbredis.exceptions.OperationTimeoutError` if no reply comes within ``timeout`` seconds, and
        :class:`~sbredis.exceptions.MessageBodyError` if the reply does not fit ``as_type``. An addition of sbredis.
        """
        seconds = seconds_of(timeout, "timeout")
        encoded = codec.encode_body(value)
        message = ServiceBusMessage(
            encoded.body,
            application_properties=application_properties,
            session_id=session_id,
            subject=subject,
            content_type=encoded.content_type,
        )

        def receiver(queue: str, create: Creation | None) -> ServiceBusReceiver:
            mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
            return self._receiver(self.request, queue, create, None, None, {"receive_mode": mode})

        return await self._requests.request(entity, message, as_type, seconds, self.get_sender, receiver)

    def transaction(self, *, timeout: float | None = None) -> ServiceBusTransaction:
        """Make a transaction: sends and settlements that happen together at the end of its block, or not at all.

        ``timeout`` limits the call at the end of the block, in seconds; the default is 60.
        """
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        return ServiceBusTransaction(self._connection, self._telemetry, seconds)

    # -- one client of all ---------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def maintain(self) -> AsyncGenerator[None]:
        """Take part in maintenance while the block runs, as a client with ``maintenance=True`` does.

        At the end of the block, the client gives its duties up, and another client that takes part continues them.
        """
        await self._connection.open(deadline_of(None))
        self._offer.join(self._connection)
        try:
            yield
        finally:
            await self._offer.leave(self._connection)

    def claim_role(
        self, name: str, *, claim_duration: float = 15.0, max_wait_time: float | None = None
    ) -> ServiceBusRole:
        """Make a claim to a role, which only one client of the namespace has at a time: ``async with`` it.

        ``async with`` waits up to ``max_wait_time`` seconds for the role; by default there is no limit. If another
        client has the role for longer, it raises :class:`~sbredis.exceptions.OperationTimeoutError`. If the holder of
        the role dies, another client has it within ``claim_duration`` seconds, from 1 to 3600.
        """
        self._connection.check_open()
        return ServiceBusRole(self._connection, name, claim_duration, max_wait_time)

    async def tick(
        self, name: str, every: timedelta | float, *, max_wait_time: float = 0.0, timeout: float | None = None
    ) -> Tick | None:
        """Return a tick if this caller gets one, and otherwise ``None``. All other callers do not get this tick.

        The ticks of a ``name`` come at the multiples of ``every`` (1 second to 365 days) since 1970, in UTC by the
        server's clock. The first caller after a tick gets it. So if many clients ask in a loop, each tick is handled
        once. If no client asks between two ticks, the first of the two is missed. ``max_wait_time`` is the time in
        seconds to wait for a tick, and ``timeout`` limits each question to the server.

        A tick is given once, even if its caller then fails. If the work of a tick must not be lost, send a message for
        it, and let a receiver do the work.
        """
        period, wait = period_of(every), seconds_of(max_wait_time, "max_wait_time", zero=True)
        deadline = deadline_of(timeout)
        seconds = deadline - asyncio.get_running_loop().time()
        await self._connection.open(deadline)
        return await next_tick(self._connection, name, period, wait, seconds)

    async def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Wait until the client is closed, and return ``True``; return ``False`` if ``timeout`` seconds are over.

        A client is closed by :meth:`close`. An error that should not happen also closes it, and is logged with its
        traceback. So a program that runs for long can wait for the end of its client, and end too. Without a
        ``timeout`` there is no limit.
        """
        seconds = None if timeout is None else seconds_of(timeout, "timeout", zero=True)
        try:
            async with asyncio.timeout(seconds):
                await self._connection.closing.wait()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """Close all senders and receivers as their ``close`` does, and then the connection.

        If the closing is interrupted, calls that are under way end with an error. The error says what is known about
        their outcome.
        """
        self._connection.check_loop()
        try:
            if not self._connection.orphaned:
                await asyncio.gather(*(child.close() for child in list(self._children)))
                await self._connection.all_seen_off()
        finally:
            await to_the_end(self._connection.aclose())


def _backoff(total: int | None, factor: float, longest: float, mode: str) -> Backoff:
    if total is not None and (type(total) is not int or total < 0):
        raise ValueError(f"retry_total must be a whole number from 0 on or None, not {quoted(total)}")
    if mode not in ("exponential", "fixed"):
        raise ValueError(f"retry_mode must be 'exponential' or 'fixed', not {quoted(mode)}")
    first = seconds_of(factor, "retry_backoff_factor")
    return Backoff(
        first=first,
        longest=max(first, seconds_of(longest, "retry_backoff_max")),
        doubling=mode == "exponential",
        repetitions=total,
    )
