"""The asynchronous API, on asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily

if TYPE_CHECKING:
    from sbredis.aio._background_renewer import BackgroundLockRenewer
    from sbredis.aio._check import ConnectionReport, ServerReport, check_connection
    from sbredis.aio._client import ServiceBusClient
    from sbredis.aio._receiver import ServiceBusReceiver
    from sbredis.aio._renewer import AutoLockRenewer
    from sbredis.aio._role import ServiceBusRole
    from sbredis.aio._sender import ServiceBusSender
    from sbredis.aio._session import ServiceBusSession
    from sbredis.aio._session_receiver import ServiceBusSessionReceiver
    from sbredis.aio._settler import ServiceBusSettler
    from sbredis.aio._stream import SendResult, SendStream
    from sbredis.aio._transaction import ServiceBusTransaction
    from sbredis.client import Tick
    from sbredis.entities import EntityInfo

__all__ = [
    "AutoLockRenewer",
    "BackgroundLockRenewer",
    "ConnectionReport",
    "EntityInfo",
    "SendResult",
    "SendStream",
    "ServerReport",
    "ServiceBusClient",
    "ServiceBusReceiver",
    "ServiceBusRole",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusSessionReceiver",
    "ServiceBusSettler",
    "ServiceBusTransaction",
    "Tick",
    "check_connection",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_background_renewer": ("BackgroundLockRenewer",),
            "_check": (
                "ConnectionReport",
                "ServerReport",
                "check_connection",
            ),
            "_client": ("ServiceBusClient",),
            "_receiver": ("ServiceBusReceiver",),
            "_renewer": ("AutoLockRenewer",),
            "_role": ("ServiceBusRole",),
            "_sender": ("ServiceBusSender",),
            "_session": ("ServiceBusSession",),
            "_session_receiver": ("ServiceBusSessionReceiver",),
            "_settler": ("ServiceBusSettler",),
            "_stream": (
                "SendResult",
                "SendStream",
            ),
            "_transaction": ("ServiceBusTransaction",),
            "sbredis.client": ("Tick",),
            "sbredis.entities": ("EntityInfo",),
        },
    )
