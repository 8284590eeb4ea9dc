# pyright: reportPrivateUsage=false
"""Make senders and receivers from the path of an entity, for code without an event loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Unpack, overload

from sbredis._public import public_name
from sbredis.aio._handlers import Handlers as AioHandlers
from sbredis.aio._options import RECEIVER, SENDER, SenderKeywords, known_of
from sbredis.model import PropertyMapping, ServiceBusSessionFilter, names_keywords
from sbredis.sync._docstrings import documented_by
from sbredis.sync._options import ReceiverKeywords, SessionReceiverKeywords
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

    @names_keywords(SenderKeywords, SENDER)
    def get_sender(self, entity_path: str, **options: Unpack[SenderKeywords]) -> ServiceBusSender:
        given = known_of(self.get_sender, options, SENDER)
        return ServiceBusSender(self._portal, self._portal.make(self._aio.get_sender, entity_path, **given))

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
        receiver = self._portal.make(lambda: self._aio.get_receiver(entity_path, session_id=session_id, **given))
        return receiver_for(self._portal, receiver)

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
        return self._portal.call(
            self._aio.request,
            entity,
            value,
            as_type=as_type,
            session_id=session_id,
            subject=subject,
            application_properties=application_properties,
            timeout=timeout,
        )

    def get_settler(self, entity_path: str) -> ServiceBusSettler:
        return ServiceBusSettler(self._portal, self._portal.make(self._aio.get_settler, entity_path))

    def _passed_on(
        self, function: Callable[..., object], given: ReceiverKeywords | SessionReceiverKeywords
    ) -> dict[str, Any]:
        """Return the keywords for the asynchronous receiver, with an asynchronous renewer. Refuse unknown keywords."""
        passed = known_of(function, given, RECEIVER)
        renewer = passed.get("auto_lock_renewer")
        if renewer is not None:
            if not isinstance(renewer, AutoLockRenewer):
                raise TypeError(f"auto_lock_renewer must be a sbredis.AutoLockRenewer, not a {public_name(renewer)}")
            passed["auto_lock_renewer"] = renewer._renewer_in(self._portal)
        return passed
