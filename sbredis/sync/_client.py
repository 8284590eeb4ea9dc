"""The client, which makes senders and receivers."""

# Made by tools/make_sync from sbredis/aio/_client.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, Self, Unpack, overload

from sbredis import aio
from sbredis._public import public, public_name
from sbredis.aio._client_options import ClientOptions, Credential, InternalOptions, internal_options, refuse_unfit
from sbredis.aio._options import RECEIVER, SENDER, SESSION_RECEIVER, SenderKeywords, known_of
from sbredis.client import Tick, connection_of
from sbredis.entities import EntityInfo
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

__all__ = ["ServiceBusClient"]


@public
class ServiceBusClient(Facade[aio.ServiceBusClient]):
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

    Any number of threads may use the client, its senders and its receivers at the same time.

    All of them share one connection, which a background thread keeps until :meth:`close`. A client, its senders and
    its receivers may be made before a fork: then each process has a connection of its own. A client that was
    already used belongs to the process that used it. After a fork, make another client in the new process.
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
        self._hold(
            aio.ServiceBusClient(
                fully_qualified_namespace,
                credential,
                namespace=namespace,
                slot_count=slot_count,
                retry_total=retry_total,
                retry_backoff_factor=retry_backoff_factor,
                retry_backoff_max=retry_backoff_max,
                retry_mode=retry_mode,
                connect_timeout=connect_timeout,
                maintenance=maintenance,
                **internal,
            )
        )

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
        made = cls.__new__(cls)
        made._hold(
            aio.ServiceBusClient.from_redis(
                redis,
                namespace=namespace,
                slot_count=slot_count,
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
        """The namespace that the client works in."""
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
        """Make a sender to a queue.

        ``create_if_missing``: whether to create the queue if it does not exist. A mapping gives the properties of the
        new queue; ``True`` means Azure's defaults. At most ``max_in_flight`` messages, and ``max_in_flight_bytes`` in
        total, are under way at a time; further calls wait.
        """
        given = known_of(self.get_queue_sender, options, SENDER)
        made = self._bridge.make(self._aio.get_queue_sender, queue_name, create_if_missing=create_if_missing, **given)
        return ServiceBusSender(self._bridge, made)

    @names_keywords(SenderKeywords, SENDER)
    def get_topic_sender(
        self, topic_name: str, *, create_if_missing: bool | TopicOptions = False, **options: Unpack[SenderKeywords]
    ) -> ServiceBusSender:
        """Make a sender to a topic; the options are those of :meth:`get_queue_sender`."""
        given = known_of(self.get_topic_sender, options, SENDER)
        made = self._bridge.make(self._aio.get_topic_sender, topic_name, create_if_missing=create_if_missing, **given)
        return ServiceBusSender(self._bridge, made)

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
        given = self._passed_on(self.get_queue_receiver, options)
        made = self._bridge.make(
            lambda: self._aio.get_queue_receiver(
                queue_name, session_id=session_id, create_if_missing=create_if_missing, **given
            )
        )
        return receiver_for(self._bridge, made)

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
        given = self._passed_on(self.get_subscription_receiver, options)
        made = self._bridge.make(
            lambda: self._aio.get_subscription_receiver(
                topic_name, subscription_name, session_id=session_id, create_if_missing=create_if_missing, **given
            )
        )
        return receiver_for(self._bridge, made)

    @names_keywords(SenderKeywords, SENDER)
    def get_sender(self, entity_path: str, **options: Unpack[SenderKeywords]) -> ServiceBusSender:
        """Make a sender to the queue or topic of this name. The queue or topic must exist.

        The options are those of :meth:`get_queue_sender`.
        """
        given = known_of(self.get_sender, options, SENDER)
        made = self._bridge.make(self._aio.get_sender, entity_path, **given)
        return ServiceBusSender(self._bridge, made)

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
        given = self._passed_on(self.get_receiver, options)
        made = self._bridge.make(lambda: self._aio.get_receiver(entity_path, session_id=session_id, **given))
        return receiver_for(self._bridge, made)

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        """Make a settler, which settles messages that another process received from a queue, subscription or sub-queue.

        Its methods take lock tokens. The path has the form that :meth:`describe_entity` takes.
        """
        made = self._bridge.make(self._aio.get_settler, entity_path)
        return ServiceBusSettler(self._bridge, made)

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
        """Return a receiver of the next free session of a queue or a subscription, or ``None`` if no session is free.

        It waits up to ``max_wait_time`` seconds for a free session, 65 by default. The other options are those of
        :meth:`get_queue_receiver`.

        This method is an addition of sbredis. With Azure's session filter, it is an error if there is no free session.
        """
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
        """List the sessions of a queue that have active messages or a state.

        With ``state_updated_after`` it lists only the sessions whose state was set after that time. It leaves out the
        first ``skip`` sessions, and lists at most ``top``. ``timeout`` limits the reading of each page.
        """
        return ItemPaged(
            self._bridge,
            self._aio.list_queue_sessions(
                queue_name, state_updated_after=state_updated_after, skip=skip, top=top, timeout=timeout
            ),
        )

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
        """List the sessions of a subscription, as :meth:`list_queue_sessions` does for a queue."""
        return ItemPaged(
            self._bridge,
            self._aio.list_subscription_sessions(
                topic_name,
                subscription_name,
                state_updated_after=state_updated_after,
                skip=skip,
                top=top,
                timeout=timeout,
            ),
        )

    def peek_session_state(self, entity_path: str, session_id: str, *, timeout: float | None = None) -> bytes | None:
        """Return the state of a session, or ``None``, without a lock on it: another receiver may hold the session, and
        change the state at any time. :meth:`ServiceBusSession.get_state` is for the holder.
        """
        return self._bridge.call(self._aio.peek_session_state, entity_path, session_id, timeout=timeout)

    # -- entities and calls --------------------------------------------------------------------------------------------

    def describe_entity(self, entity_path: str, *, timeout: float | None = None) -> EntityInfo:
        """Return the kind, the sub-queue and the settings of an entity.

        An example of a path is ``news/subscriptions/all``. Upper and lower case do not matter, so Azure's spelling
        ``news/Subscriptions/all`` names the same subscription. The path may end with ``/$DeadLetterQueue`` or
        ``/$Transfer/$DeadLetterQueue``.
        """
        return self._bridge.call(self._aio.describe_entity, entity_path, timeout=timeout)

    def server_time(
        self, entity_path: str, *, partition_key: str | None = None, timeout: float | None = None
    ) -> datetime:
        """Return the time now by the clock of an entity's server, which decides when messages are due and expire.

        The clock of this machine may be wrong. Half of the time that the call takes is uncertain. The partitions of an
        entity may be on several servers: ``partition_key`` names the one of its messages, and without it the server is
        that of the first partition.
        """
        return self._bridge.call(self._aio.server_time, entity_path, partition_key=partition_key, timeout=timeout)

    def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        """Return the properties of a queue; create it with ``properties`` if it does not exist.

        An existing queue is not changed. Raises :class:`ValueError` if the queue differs from ``properties`` in a
        property that cannot be changed.
        """
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
        """Make a transaction: sends and settlements that happen together at the end of its block, or not at all.

        ``timeout`` limits the call at the end of the block, in seconds; the default is 60.
        """
        made = self._bridge.make(self._aio.transaction, timeout=timeout)
        return ServiceBusTransaction(self._bridge, made)

    # -- one client of all ---------------------------------------------------------------------------------------------

    @contextmanager
    def maintain(self) -> Generator[None]:
        """Take part in maintenance while the block runs, as a client with ``maintenance=True`` does.

        At the end of the block, the client gives its duties up, and another client that takes part continues them.
        """
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
        """Make a claim to a role, which only one client of the namespace has at a time: ``with`` it.

        ``with`` waits up to ``max_wait_time`` seconds for the role; by default there is no limit. If another
        client has the role for longer, it raises :class:`~sbredis.exceptions.OperationTimeoutError`. If the holder of
        the role dies, another client has it within ``claim_duration`` seconds, from 1 to 3600.
        """
        made = self._bridge.make(self._aio.claim_role, name, claim_duration=claim_duration, max_wait_time=max_wait_time)
        return ServiceBusRole(self._bridge, made)

    def tick(
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
        return self._bridge.call(self._aio.tick, name, every, max_wait_time=max_wait_time, timeout=timeout)

    def wait_closed(self, *, timeout: float | None = None) -> bool:
        """Wait until the client is closed, and return ``True``; return ``False`` if ``timeout`` seconds are over.

        A client is closed by :meth:`close`. An error that should not happen also closes it, and is logged with its
        traceback. So a program that runs for long can wait for the end of its client, and end too. Without a
        ``timeout`` there is no limit.
        """
        return self._bridge.call(self._aio.wait_closed, timeout=timeout)

    def close(self) -> None:
        """Close all senders and receivers as their ``close`` does. Then end the connection and background thread."""
        self._bridge.close()

    def _hold(self, client: aio.ServiceBusClient) -> None:
        super().__init__(Bridge(f"sbredis client {connection_of(client).target}", client.close), client)

    def _passed_on(
        self, function: Callable[..., object], given: ReceiverKeywords | SessionReceiverKeywords
    ) -> dict[str, Any]:
        """Return the keywords for the asynchronous receiver, with its renewer. Refuse unknown keywords."""
        passed = known_of(function, given, RECEIVER)
        renewer = passed.get("auto_lock_renewer")
        if renewer is not None:
            if not isinstance(renewer, AutoLockRenewer):
                raise TypeError(f"auto_lock_renewer must be a sbredis.AutoLockRenewer, not a {public_name(renewer)}")
            passed["auto_lock_renewer"] = renewer_in(renewer, self._bridge)
        return passed
