"""Trying out a connection string: who answers, whether the broker can work there, and how far away it is."""

from __future__ import annotations

import time
from dataclasses import dataclass
from importlib.resources import files

from sbredis.transport import SLOTS, Endpoint, Script, ServerFacts, Target, open_transport, parse_target

__all__ = ["ConnectionReport", "ServerReport", "check_connection"]


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server that was tried."""

    facts: ServerFacts
    round_trip: float
    """Seconds that a script took, there and back."""
    clock_ahead: float
    """Seconds by which its clock is ahead of ours; negative if it is behind. Known to half a round trip."""


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """What a connection string leads to. Its text is fit to be printed."""

    target: Target
    servers: tuple[ServerReport, ...]

    def __str__(self) -> str:
        lines = [f"{self.target}: namespace {self.target.namespace!r}, durability {self.target.durability}"]
        lines += [
            f"  {server.facts}: {server.round_trip * 1000:.2f} ms, clock {server.clock_ahead:+.3f} s"
            for server in self.servers
        ]
        return "\n".join(lines)


async def check_connection(url: str, *, timeout: float = 10.0) -> ConnectionReport:
    """Connect as a client would, run a script on every master, and tell what was found.

    Raises what a client would get: :class:`~sbredis.exceptions.InvalidConnectionStringError`,
    :class:`~sbredis.exceptions.ServiceBusConnectionError` or one of its kind, each with what to change.
    """
    target = parse_target(url)
    probe = Script("probe", (files("sbredis") / "lua" / "probe.lua").read_text(encoding="utf-8"), takes_run_id=True)
    async with await open_transport(target, scripts=[probe], connect_timeout=timeout) as transport:
        # One key for each master, found by trying tags until every master has been met.
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
            await transport.call(probe, (key,), timeout=timeout, repeatable=True)  # whoever is first pays for the way
            sent_at, clock = time.time(), time.perf_counter()
            server_time, _, _ = await transport.call(probe, (key,), timeout=timeout, repeatable=True)
            round_trip = time.perf_counter() - clock
            facts = transport.server_of(key)
            assert facts is not None  # it has just answered
            reports.append(ServerReport(facts, round_trip, server_time / 1e6 - (sent_at + round_trip / 2)))
        return ConnectionReport(target, tuple(reports))
