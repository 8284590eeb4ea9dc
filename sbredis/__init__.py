"""Azure Service Bus semantics on Redis: a message broker that needs nothing but Redis or Valkey.

This package has the API for code without an event loop. :mod:`sbredis.aio` has the API for asyncio, and
:mod:`sbredis.management` the administration. The names are the same as in ``azure.servicebus``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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

_SYNC = {
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
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that a server's supervisor imports only what it needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module("sbredis.sync" if name in _SYNC else "sbredis.model"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
