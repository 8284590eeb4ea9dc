"""The clocks of the servers, by which messages are enqueued. The clock of this machine may differ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ServerClocks", "read_clocks"]


@dataclass(frozen=True, slots=True)
class ServerClocks:
    """The clocks of the servers at a moment. Later readings add the time that has passed since."""

    offsets: Mapping[str, float]
    """For the address of each server, the seconds from the monotonic clock of this machine to its clock."""


async def read_clocks(url: str) -> ServerClocks:
    """Ask all servers of a connection string for their time."""
    from sbredis.aio import check_connection

    report = await check_connection(url)
    here = time.time() - time.monotonic()
    return ServerClocks({str(server.facts.endpoint): here + server.clock_ahead for server in report.servers})
