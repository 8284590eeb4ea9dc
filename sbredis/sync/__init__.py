"""The API for code without an event loop: the same as :mod:`sbredis.aio`, whose façade it is. :mod:`sbredis` shows it.

Each client runs the asynchronous one in a background thread. Whatever number of threads use it, they share that.
"""

from __future__ import annotations

from sbredis.aio import ConnectionReport, EntityInfo, SendResult, ServerReport
from sbredis.sync._client import ServiceBusClient, check_connection
from sbredis.sync._receiver import ServiceBusReceiver, ServiceBusSessionReceiver
from sbredis.sync._renewer import AutoLockRenewer
from sbredis.sync._sender import ServiceBusSender
from sbredis.sync._session import ServiceBusSession
from sbredis.sync._settler import ServiceBusSettler
from sbredis.sync._stream import SendStream

__all__ = [
    "AutoLockRenewer",
    "ConnectionReport",
    "EntityInfo",
    "SendResult",
    "SendStream",
    "ServerReport",
    "ServiceBusClient",
    "ServiceBusReceiver",
    "ServiceBusSender",
    "ServiceBusSession",
    "ServiceBusSessionReceiver",
    "ServiceBusSettler",
    "check_connection",
]
