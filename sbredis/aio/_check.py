"""Check a connection string: which servers answer, whether the broker can work there, and how far away they are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sbredis._tasks import loop_time
from sbredis.engine import Request, perform, whole_library
from sbredis.entities import read_clock
from sbredis.exceptions import ServiceBusConnectionError, ServiceBusError
from sbredis.transport import (
    SLOTS,
    Endpoint,
    ServerFacts,
    Target,
    as_mapping,
    open_transport,
    parse_info,
    parse_target,
)

if TYPE_CHECKING:
    from sbredis.transport import Transport

__all__ = ["ConnectionReport", "ServerReport", "check_connection"]

_log = logging.getLogger("sbredis.client")
_ANSWER = 5.0
_SETTINGS = ("maxmemory", "min-replicas-to-write", "cluster-node-timeout", "save", "proto-max-bulk-len")
_DANGEROUS = {
    "FLUSHALL": ("FLUSHALL",),
    "EVAL": ("EVAL", "return 1", "0"),
    "CONFIG GET": ("CONFIG", "GET", "requirepass"),
    "FUNCTION LOAD": ("FUNCTION", "LOAD", "#!lua name=x"),
    "SCAN": ("SCAN", "0"),
}
"""Commands that a user for applications should not have."""
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
    has_library: bool = False
    """Whether the server has the scripts as one library of functions, and not as single scripts."""
    library_refusal: str = ""
    """Why the server does not take the library, although the connection string asks for it."""
    info: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The answer to INFO. This and all below are read only with ``details``; what may not be read is missing."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """Some settings of the server, from CONFIG GET."""
    rights: Mapping[str, bool] = field(default_factory=dict[str, bool], repr=False)
    """A mapping from ``publish`` and from the names of some dangerous commands to whether the user has the right."""


@dataclass(frozen=True, slots=True)
class ConnectionReport:
    """A report about the servers of a connection string. ``str(report)`` is a text to print."""

    target: Target
    servers: tuple[ServerReport, ...]
    nodes: str = field(default="", repr=False)
    """The answer of a cluster to CLUSTER NODES, read only with ``details``."""
    shards: tuple[frozenset[str], ...] = field(default=(), repr=False)
    """The ids of the nodes of each shard, as CLUSTER SHARDS groups them, read only with ``details``."""
    away: Mapping[Endpoint, ServiceBusError] = field(default_factory=dict[Endpoint, ServiceBusError])
    """The masters that cannot be used, with the reasons. It is always empty without ``details``."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that do not prevent the connection: servers that can lose messages, and clocks that differ."""
        return tuple(_warnings(self.servers))

    def __str__(self) -> str:
        lines = [f"{self.target}: namespace {self.target.namespace!r}, durability {self.target.durability}"]
        lines += [
            f"  {server.facts}: {server.round_trip * 1000:.2f} ms, clock {server.clock_ahead:+.3f} s{_form(server)}"
            for server in self.servers
        ]
        lines += [f"  {endpoint}: {error.message}" for endpoint, error in self.away.items()]
        lines += [f"  Warning: {warning}" for warning in self.warnings]
        return "\n".join(lines)


def _form(server: ServerReport) -> str:
    if server.library_refusal:
        return f", single scripts, because it takes no library of functions: {server.library_refusal}"
    return ", library of functions" if server.has_library else ""


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


async def check_connection(url: str, *, timeout: float = 10.0, details: bool = False) -> ConnectionReport:
    """Connect as a client would, run a script on every master, and return a report.

    With ``details``, the report also has facts for a closer examination: the answers to INFO and CLUSTER NODES, some
    settings and some rights. What the user may not read is left out. Masters that cannot be used are then a part of the
    report, and cause no error if a connection to any master can be made.

    Raises the errors that a client would raise: :class:`~sbredis.exceptions.InvalidConnectionStringError`,
    :class:`~sbredis.exceptions.ServiceBusConnectionError` or a subclass of the latter. Each error says what to change,
    and names all masters that cannot be used.
    """
    target = parse_target(url)
    library = whole_library() if target.has_library else None
    scripts = [_probe(b"").script]
    async with await open_transport(target, scripts=scripts, library=library, connect_timeout=timeout) as transport:
        keys = _keys_of_masters(transport, target)
        # The first call to each server also connects, so all are made at once: silent servers cost their time together.
        tried = await asyncio.gather(*(_failure_of(transport, key, timeout) for key in keys.values()))
        away = {endpoint: error for endpoint, error in zip(keys, tried, strict=True) if error is not None}
        until, reports = loop_time() + timeout, list[ServerReport]()
        for endpoint in [each for each in keys if each not in away]:
            try:
                reports.append(await _report_of(transport, keys[endpoint], until, details=details))
            except ServiceBusError as error:  # it has gone since
                away[endpoint] = error
        if away and not details:
            raise _error_of(away, len(keys))
        report = ConnectionReport(target, tuple(reports), away=away)
        if details and target.kind == "cluster":
            report = await _with_nodes(report, transport)
        for warning in report.warnings:
            _log.warning("%s: %s", target, warning)
        return report


def _keys_of_masters(transport: Transport, target: Target) -> dict[Endpoint, bytes]:
    """Return a key for each master: try tags until every master has one."""
    keys: dict[Endpoint, bytes] = {}
    for number in range(SLOTS):
        key = b"sb:%b:{probe%d}:probe" % (target.namespace.encode(), number)  # within a user's rights
        endpoint = transport.endpoint_of(key)
        if endpoint is not None:
            keys.setdefault(endpoint, key)
        if len(keys) == len(transport.masters):
            break
    return keys


async def _failure_of(transport: Transport, key: bytes, timeout: float) -> ServiceBusError | None:
    """Run a script on the server of a key. Return the error, if there is one."""
    try:
        await perform(transport, _probe(key), timeout=timeout)
    except ServiceBusError as error:
        return error
    return None


async def _report_of(transport: Transport, key: bytes, until: float, *, details: bool) -> ServerReport:
    """Return the report about the server of a key, which has answered before."""
    read = await read_clock(lambda: perform(transport, _probe(key), timeout=until - loop_time()))
    facts = transport.server_of(key)
    if facts is None:  # the connection was lost at this moment
        raise ServiceBusConnectionError(f"{transport.endpoint_of(key)} has closed the connection.")
    form = transport.form_of(key)
    refusal = form.refusal if form else None
    report = ServerReport(
        facts,
        read.round_trip,
        read.ahead,
        transport.loses_acknowledged(facts),
        has_library=form is not None and form.has_library,
        library_refusal=f"{refusal.code} {refusal.detail}" if refusal else "",
    )
    return await _with_details(report, transport, key) if details else report


def _error_of(away: Mapping[Endpoint, ServiceBusError], masters: int) -> ServiceBusError:
    """Return the one error for all masters that cannot be used: that of a server that must change, if there is one."""
    worst = min(away.values(), key=lambda error: error.is_transient)
    if len(away) > 1:
        said = "; ".join(f"{endpoint}: {error.message}" for endpoint, error in away.items())
        worst.message = f"{len(away)} of {masters} masters cannot be used: {said}"
    return worst


def _probe(key: bytes) -> Request[float]:
    """Return the request for the time of the server of a key, in seconds since 1970."""
    return Request.of("probe", (key,), (), lambda reply: float(reply[0]) / 1e6)


async def _with_details(report: ServerReport, transport: Transport, key: bytes) -> ServerReport:
    """Return the report with what the server of the key tells about itself."""
    info = await _asked(transport, "INFO", "everything", key=key)
    settings: dict[str, str] = {}
    for name in _SETTINGS:
        settings |= _texts(await _asked(transport, "CONFIG", "GET", name, key=key))
    rights = {"publish": await _asked(transport, "SPUBLISH", key, b"", key=key) is not None}
    user = await _asked(transport, "ACL", "WHOAMI", key=key)
    if isinstance(user, bytes):
        for name, command in _DANGEROUS.items():
            allowed = await _asked(transport, "ACL", "DRYRUN", user, *command, key=key)
            rights |= {} if allowed is None else {name: allowed in (b"OK", "OK")}
    return replace(report, info=parse_info(_text(info)) if info else {}, settings=settings, rights=rights)


async def _with_nodes(report: ConnectionReport, transport: Transport) -> ConnectionReport:
    """Return the report with what the cluster tells about its nodes."""
    nodes = await _asked(transport, "CLUSTER", "NODES")
    shards: list[Any] = await _asked(transport, "CLUSTER", "SHARDS") or []
    members: list[list[Any]] = [as_mapping(shard).get(b"nodes", []) for shard in shards]
    ids = tuple(frozenset(_text(as_mapping(node).get(b"id", b"")) for node in each) for each in members)
    return replace(report, nodes=_text(nodes) if nodes else "", shards=ids)


async def _asked(transport: Transport, *command: str | bytes, key: bytes | None = None) -> Any:
    """Return the answer of a server, or ``None`` if it refuses the question or does not know it."""
    try:
        return await transport.command(*command, key=key, timeout=_ANSWER)
    except ServiceBusError:
        return None


def _texts(answer: Any) -> dict[str, str]:
    """Return the names and values in an answer to CONFIG GET."""
    return {_text(name): _text(value) for name, value in as_mapping(answer).items()} if answer else {}


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
