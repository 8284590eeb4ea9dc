"""The API for code without an event loop: a façade over :mod:`sbredis.aio`. :mod:`sbredis` exports it.

Each client runs an asynchronous client in one background thread, which all users of the client share.
"""

from __future__ import annotations

from sbredis.aio import ConnectionReport, EntityInfo, SendResult, ServerReport, Tick
from sbredis.sync._check import check_connection
from sbredis.sync._client import ServiceBusClient
from sbredis.sync._receiver import ServiceBusReceiver
from sbredis.sync._renewer import AutoLockRenewer
from sbredis.sync._role import ServiceBusRole
from sbredis.sync._sender import ServiceBusSender
from sbredis.sync._session import ServiceBusSession
from sbredis.sync._session_receiver import ServiceBusSessionReceiver
from sbredis.sync._settler import ServiceBusSettler
from sbredis.sync._stream import SendStream
from sbredis.sync._transaction import ServiceBusTransaction

__all__ = [
    "AutoLockRenewer",
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
