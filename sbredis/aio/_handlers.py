"""Making senders and receivers: what all ways to name an entity come to, and naming it by its path."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Unpack, overload

from sbredis._quoting import quoted
from sbredis.aio._options import ReceiverKeywords, ReceiverOptions, split_sub_queue
from sbredis.aio._receiver import ServiceBusReceiver
from sbredis.aio._renewer import AutoLockRenewer
from sbredis.aio._sender import ServiceBusSender
from sbredis.aio._session_receiver import ServiceBusSessionReceiver
from sbredis.aio._settler import ServiceBusSettler
from sbredis.aio.calls._arguments import NoOptions, identifier_of, warn_of_unknown
from sbredis.model import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue
from sbredis.registry import path_of, split_path

if TYPE_CHECKING:
    from sbredis.aio.calls._connection import Connection
    from sbredis.aio.calls._entity_state import Creation
    from sbredis.aio.maintenance._offer import MaintenanceOffer
    from sbredis.aio.telemetry._telemetry import Telemetry

__all__ = ["Handlers"]


class Handlers:
    """The senders and receivers of a client: the part of it that makes them."""

    _connection: Connection
    _offer: MaintenanceOffer
    _telemetry: Telemetry
    _handlers: set[ServiceBusSender | ServiceBusReceiver]

    def get_sender(
        self,
        entity_path: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        max_in_flight: int = 1000,
        max_in_flight_bytes: int = 32 * 1024 * 1024,
        **kwargs: Unpack[NoOptions],
    ) -> ServiceBusSender:
        """A sender to the queue or the topic of this name, whichever it is. It must exist.

        The options are those of :meth:`get_queue_sender`.
        """
        del socket_timeout  # the calls' own time-outs bound all
        warn_of_unknown("get_sender", kwargs)
        path, sub_queue = split_sub_queue(entity_path, None)
        name, subscription = split_path(path)
        if sub_queue is not None or subscription is not None:
            raise ValueError(f"{quoted(entity_path)} is no queue and no topic: messages are sent to these only.")
        return self._sender(name, None, client_identifier, max_in_flight, max_in_flight_bytes)

    def _sender(
        self, name: str, create: Creation | None, identifier: str | None, messages: int, size: int
    ) -> ServiceBusSender:
        self._connection.check_open()
        sender = ServiceBusSender(
            self._connection,
            name,
            self._telemetry,
            client_identifier=identifier_of(identifier),
            create=create,
            max_in_flight=messages,
            max_in_flight_bytes=size,
            scheduled_on=partial(self._offer.scheduled_on, self._connection),
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

    def get_receiver(
        self,
        entity_path: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        session_id: str | ServiceBusSessionFilter | None = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int = 0,
        adaptive_prefetch: bool = False,
        **kwargs: Unpack[NoOptions],
    ) -> ServiceBusReceiver:
        """A receiver from what a path leads to: ``orders``, ``orders/$DeadLetterQueue``, ``news/Subscriptions/all``.

        The path is one that :meth:`describe_entity` takes. The entity must exist. The options are those of
        :meth:`get_queue_receiver`.
        """
        del socket_timeout  # the calls' own time-outs bound all
        warn_of_unknown("get_receiver", kwargs)
        path, sub_queue = split_sub_queue(entity_path, sub_queue)
        name, subscription = split_path(path)
        return self._receiver(
            name if subscription is None else path_of(name, subscription),
            None,
            client_identifier,
            ReceiverOptions(
                session_id=session_id,
                sub_queue=sub_queue,
                receive_mode=ServiceBusReceiveMode(receive_mode),
                max_wait_time=max_wait_time,
                auto_lock_renewer=auto_lock_renewer,
                prefetch_count=prefetch_count,
                adaptive_prefetch=adaptive_prefetch,
            ),
        )

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        """What settles messages of a queue, a subscription or a sub-queue that another process has received.

        It takes handles, which :meth:`ServiceBusReceiver.get_lock_handle` and :attr:`ServiceBusSession.lock_handle`
        make. The path is one that :meth:`describe_entity` takes.
        """
        path, sub_queue = split_sub_queue(entity_path, None)
        name, subscription = split_path(path)
        self._connection.check_open()
        path = name if subscription is None else path_of(name, subscription)
        return ServiceBusSettler(self._connection, path, sub_queue, self._telemetry)

    def _receiver(
        self, path: str, create: Creation | None, identifier: str | None, options: ReceiverOptions
    ) -> ServiceBusReceiver:
        self._connection.check_open()
        options.check()
        kind = ServiceBusReceiver if options.session_id is None else ServiceBusSessionReceiver
        receiver = kind(
            self._connection,
            path,
            self._telemetry,
            client_identifier=identifier_of(identifier),
            create=create,
            options=options,
            on_close=self._handlers.discard,
        )
        self._handlers.add(receiver)
        return receiver
