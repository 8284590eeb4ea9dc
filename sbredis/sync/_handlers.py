# pyright: reportPrivateUsage=false
"""Making senders and receivers for threads, from entities that are named by their paths."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, overload

from sbredis._public import public_name
from sbredis.aio._handlers import Handlers as AioHandlers
from sbredis.aio.calls._arguments import NoOptions, warn_of_unknown
from sbredis.model import ServiceBusReceiveMode, ServiceBusSessionFilter, ServiceBusSubQueue
from sbredis.sync._docstrings import documented_by
from sbredis.sync._options import ReceiverKeywords
from sbredis.sync._receiver import ServiceBusReceiver, ServiceBusSessionReceiver, receiver_for
from sbredis.sync._renewer import AutoLockRenewer
from sbredis.sync._sender import ServiceBusSender
from sbredis.sync._settler import ServiceBusSettler

if TYPE_CHECKING:
    from sbredis import aio
    from sbredis.sync._portal import Portal

__all__ = ["Handlers"]


@documented_by(AioHandlers)
class Handlers:
    _aio: aio.ServiceBusClient
    _portal: Portal

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
        warn_of_unknown("get_sender", kwargs)
        sender = self._portal.make(
            self._aio.get_sender,
            entity_path,
            client_identifier=client_identifier,
            socket_timeout=socket_timeout,
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
        )
        return ServiceBusSender(self._portal, sender)

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
        warn_of_unknown("get_receiver", kwargs)
        receiver = self._portal.make(
            self._aio.get_receiver,
            entity_path,
            client_identifier=client_identifier,
            socket_timeout=socket_timeout,
            session_id=session_id,
            sub_queue=sub_queue,
            receive_mode=receive_mode,
            max_wait_time=max_wait_time,
            auto_lock_renewer=self._renewer_of(auto_lock_renewer),
            prefetch_count=prefetch_count,
            adaptive_prefetch=adaptive_prefetch,
        )
        return receiver_for(self._portal, receiver)

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        return ServiceBusSettler(self._portal, self._portal.make(self._aio.get_settler, entity_path))

    def _renewer_of(self, given: AutoLockRenewer | None) -> aio.AutoLockRenewer | None:
        """What renews in the loop of this client."""
        if given is None:
            return None
        if not isinstance(given, AutoLockRenewer):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
            raise TypeError(f"auto_lock_renewer is a sbredis.AutoLockRenewer, not a {public_name(given)}")
        return given._within(self._portal)
