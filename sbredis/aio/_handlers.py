"""Make senders and receivers: the steps that all of them share, and the methods that take the path of an entity."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack, overload

from sbredis._quoting import quoted
from sbredis.aio._options import (
    RECEIVER,
    SENDER,
    ReceiverKeywords,
    SenderKeywords,
    SessionReceiverKeywords,
    known_of,
    receiver_options,
)
from sbredis.aio._receiver import ServiceBusReceiver
from sbredis.aio._requests import Requests
from sbredis.aio._sender import ServiceBusSender
from sbredis.aio._session_receiver import ServiceBusSessionReceiver
from sbredis.aio._settler import ServiceBusSettler
from sbredis.client._arguments import deadline_of, identifier_of, seconds_of
from sbredis.client._connection import Connected
from sbredis.codec import encode_body
from sbredis.engine import identifier
from sbredis.entities._server_time import server_time
from sbredis.entities._sub_queues import split_sub_queue
from sbredis.entities._unlocked_sessions import state_of_session
from sbredis.model import (
    PropertyMapping,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSessionFilter,
    ServiceBusSubQueue,
    names_keywords,
)
from sbredis.registry import path_of, split_path

if TYPE_CHECKING:
    from sbredis.client._entity import Creation
    from sbredis.telemetry._telemetry import Telemetry

__all__ = ["Handlers"]


class Handlers(Connected):
    """The part of a client that makes its senders and receivers."""

    _telemetry: Telemetry
    _handlers: set[ServiceBusSender | ServiceBusReceiver]
    _requests: Requests

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
            on_close=self._handlers.discard,
        )
        self._handlers.add(sender)
        return sender

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
        encoded = encode_body(value)
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

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        """Make a settler, which settles messages that another process received from a queue, subscription or sub-queue.

        Its methods take handles, which :meth:`ServiceBusReceiver.get_lock_handle` and
        :attr:`ServiceBusSession.lock_handle` make. The path has the form that :meth:`describe_entity` takes.
        """
        path, sub_queue = split_sub_queue(entity_path, None)
        name, subscription = split_path(path)
        self._connection.check_open()
        path = name if subscription is None else path_of(name, subscription)
        return ServiceBusSettler(self._connection, path, sub_queue, self._telemetry)

    async def peek_session_state(
        self, entity_path: str, session_id: str, *, timeout: float | None = None
    ) -> bytes | None:
        """Return the state of a session, or ``None``, without a lock on it: another receiver may hold the session, and
        change the state at any time. :meth:`ServiceBusSession.get_state` is for the holder.
        """
        identifier(session_id, "session_id", may_be_empty=True)
        return await state_of_session(self._connection, entity_path, session_id, deadline_of(timeout))

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
        receiver = kind(
            self._connection,
            path,
            self._telemetry,
            client_identifier=identifier_of(asked.get("client_identifier")),
            create=create,
            options=options,
            on_close=self._handlers.discard,
        )
        self._handlers.add(receiver)
        return receiver
