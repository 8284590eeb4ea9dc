"""What all calls of an administration client from a thread go through."""

from __future__ import annotations

from sbredis.aio import management as aio
from sbredis.sync._portal import Portal

__all__ = ["Calls"]


class Calls:
    """What the groups of calls build on: the asynchronous client, and the way to its event loop."""

    _aio: aio.ServiceBusAdministrationClient
    _portal: Portal
