"""Azure Service Bus semantics on Redis: a message broker that needs nothing but Redis or Valkey.

This package has the API for code without an event loop. :mod:`sbredis.aio` has the API for asyncio, and
:mod:`sbredis.management` the administration. The names are the same as in ``azure.servicebus``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily
from sbredis._version import __version__
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.model import (
        NEXT_AVAILABLE_SESSION,
        RedriveBudget,
        RedriveResult,
        ServiceBusMessage,
        ServiceBusMessageBatch,
        ServiceBusMessageState,
        ServiceBusReceivedMessage,
        ServiceBusReceiveMode,
        ServiceBusSessionFilter,
        ServiceBusSubQueue,
        TransportType,
    )
    from sbredis.sync import (
        AutoLockRenewer,
        SendResult,
        SendStream,
        ServiceBusClient,
        ServiceBusReceiver,
        ServiceBusRole,
        ServiceBusSender,
        ServiceBusSession,
        ServiceBusSessionReceiver,
        ServiceBusSettler,
        ServiceBusTransaction,
        Tick,
        check_connection,
    )

__all__ = [
    "NEXT_AVAILABLE_SESSION",
    "AutoLockRenewer",
    "RedriveBudget",
    "RedriveResult",
    "SendResult",
    "SendStream",
    "ServiceBusClient",
    "ServiceBusError",
    "ServiceBusMessage",
    "ServiceBusMessageBatch",
    "ServiceBusMessageState",
    "ServiceBusReceiveMode",
    "ServiceBusReceivedMessage",
    "ServiceBusReceiver",
    "ServiceBusRole",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusSessionFilter",
    "ServiceBusSessionReceiver",
    "ServiceBusSettler",
    "ServiceBusSubQueue",
    "ServiceBusTransaction",
    "Tick",
    "TransportType",
    "__version__",
    "check_connection",
]

if not TYPE_CHECKING:  # the supervisor of a server imports only what it needs
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "model": (
                "NEXT_AVAILABLE_SESSION",
                "RedriveBudget",
                "RedriveResult",
                "ServiceBusMessage",
                "ServiceBusMessageBatch",
                "ServiceBusMessageState",
                "ServiceBusReceivedMessage",
                "ServiceBusReceiveMode",
                "ServiceBusSessionFilter",
                "ServiceBusSubQueue",
                "TransportType",
            ),
            "sync": (
                "AutoLockRenewer",
                "SendResult",
                "SendStream",
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
            ),
        },
    )
