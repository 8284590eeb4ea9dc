"""Check a connection string: which servers answer, whether the broker can work there, and how far away they are."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from sbredis.transport import SLOTS, Endpoint, Script, ServerFacts, Target, open_transport, parse_target

__all__ = ["ConnectionReport", "ServerReport", "check_connection"]

_log = logging.getLogger("sbredis.client")
_SKEW = 1.0
"""The largest difference between two clocks, in seconds, that causes no warning."""


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server that was checked."""

    facts: ServerFacts
    round_trip: float
    """The seconds between sending one script call and receiving its reply."""
    clock_ahead: float
    """The seconds by which the server's clock is ahead of the clock of this machine. Negative if it is behind.

    The error of this value is at most half a round trip.
    """
    can_lose_acknowledged: bool = False
    """Whether a crash of this server loses acknowledged messages, because it has no append-only file and no replica."""


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """A report about the servers of a connection string. ``str(report)`` is a text to print."""

    target: Target
    servers: tuple[ServerReport, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that do not prevent the connection: servers that can lose messages, and clocks that differ."""
        return tuple(_warnings(self.servers))

    def __str__(self) -> str:
        lines = [f"{self.target}: namespace {self.target.namespace!r}, durability {self.target.durability}"]
        lines += [
            f"  {server.facts}: {server.round_trip * 1000:.2f} ms, clock {server.clock_ahead:+.3f} s"
            for server in self.servers
        ]
        lines += [f"  Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def _warnings(servers: Sequence[ServerReport]) -> list[str]:
    found = [
        f"{server.facts} can lose acknowledged messages: it writes no append-only file and has no replica. Set "
        "appendonly yes, or give it a replica."
        for server in servers
        if server.can_lose_acknowledged
    ]
    for server in servers:
        if abs(server.clock_ahead) - server.round_trip / 2 > _SKEW:
            where = "ahead of" if server.clock_ahead > 0 else "behind"
            found.append(
                f"the clock of {server.facts} is {abs(server.clock_ahead):.1f} s {where} that of this machine. "
                "Messages carry the server's times: synchronise the clocks (NTP)."
            )
    if len(servers) > 1:
        first = min(servers, key=lambda server: server.clock_ahead)
        last = max(servers, key=lambda server: server.clock_ahead)
        apart = last.clock_ahead - first.clock_ahead
        if apart - (first.round_trip + last.round_trip) / 2 > _SKEW:
            found.append(
                f"the clocks of the servers differ by {apart:.1f} s: {last.facts} is the furthest ahead, {first.facts} "
                "the furthest behind. Synchronise the clocks (NTP)."
            )
    return found


async def check_connection(url: str, *, timeout: float = 10.0) -> ConnectionReport:
    """Connect as a client would, run a script on every master, and return a report.

    Raises the errors that a client would raise: :class:`~sbredis.exceptions.InvalidConnectionStringError`,
    :class:`~sbredis.exceptions.ServiceBusConnectionError` or a subclass of the latter. Each error says what to change.
    """
    target = parse_target(url)
    probe = Script("probe", (files("sbredis") / "lua" / "probe.lua").read_text(encoding="utf-8"), takes_run_id=True)
    async with await open_transport(target, scripts=[probe], connect_timeout=timeout) as transport:
        # Find one key for each master: try tags until every master has one.
        keys: dict[Endpoint, bytes] = {}
        for number in range(SLOTS):
            key = b"sb:{probe%d}:%b:probe" % (number, target.namespace.encode())
            endpoint = transport.endpoint_of(key)
            if endpoint is not None:
                keys.setdefault(endpoint, key)
            if len(keys) == len(transport.masters):
                break
        reports: list[ServerReport] = []
        for key in keys.values():
            await transport.call(probe, (key,), timeout=timeout, repeatable=True)  # the first call also connects
            sent_at, clock = time.time(), time.perf_counter()
            server_time, _, _ = await transport.call(probe, (key,), timeout=timeout, repeatable=True)
            round_trip = time.perf_counter() - clock
            facts = transport.server_of(key)
            assert facts is not None  # the server has just answered
            ahead = server_time / 1e6 - (sent_at + round_trip / 2)
            reports.append(ServerReport(facts, round_trip, ahead, transport.loses_acknowledged(facts)))
        report = ConnectionReport(target, tuple(reports))
        for warning in report.warnings:
            _log.warning("%s: %s", target, warning)
        return report
