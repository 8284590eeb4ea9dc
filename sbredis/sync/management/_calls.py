"""The base of the calls of a synchronous administration client."""

from __future__ import annotations

from sbredis.aio import management as aio
from sbredis.sync._portal import Portal

__all__ = ["Calls"]


class Calls:
    """The base class of the groups of calls: it holds the asynchronous client, and the portal to its event loop."""

    _aio: aio.ServiceBusAdministrationClient
    _portal: Portal
