"""Checking a connection, without an event loop."""

from __future__ import annotations

from sbredis import aio
from sbredis.sync._bridge import Bridge

__all__ = ["check_connection"]


def check_connection(url: str, *, timeout: float = 10.0) -> aio.ConnectionReport:
    """Connect as a client would, run a script on every master, and return a report.

    Raises the errors that a client would raise: :class:`~sbredis.exceptions.InvalidConnectionStringError`,
    :class:`~sbredis.exceptions.ServiceBusConnectionError` or a subclass of the latter. Each error says what to change.
    """
    bridge = Bridge("sbredis check_connection", _nothing)
    try:
        return bridge.call(aio.check_connection, url, timeout=timeout)
    finally:
        bridge.close()


async def _nothing() -> None:
    """Do nothing, because no client has to be closed."""
