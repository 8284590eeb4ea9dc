"""The libraries of functions that the clients of a namespace call, and when a client named each of them last.

A library belongs to a server, and not to a namespace. So a registry knows only the libraries of its own clients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sbredis.engine import REFUSALS, Request, ScriptCaller, library_keys, perform
from sbredis.exceptions import ServiceBusError, ServiceBusQuotaExceededError

__all__ = ["NamedLibraries", "name_library", "read_libraries"]

_TIMEOUT = 30.0


class NamedLibraries(NamedTuple):
    """The libraries that clients of a namespace have named, by the clock of the registry's server."""

    now: int
    """The time in ms."""
    named: Mapping[str, int]
    """For each library the time in ms when a client named it last."""


def _full(detail: str) -> tuple[type[ServiceBusError], str]:
    return ServiceBusQuotaExceededError, (
        f"The registry remembers {detail} libraries of functions already, and clients have named all of them within "
        "seven days."
    )


_REFUSALS = {**REFUSALS, "FULL": _full}


async def name_library(transport: ScriptCaller, namespace: str, name: str) -> None:
    """Note that a client calls this library."""
    request = Request.of("name_library", library_keys(namespace), (name,), lambda _: None)
    await perform(transport, request, timeout=_TIMEOUT, refusals=_REFUSALS)


async def read_libraries(transport: ScriptCaller, namespace: str) -> NamedLibraries:
    """Read which libraries the clients of a namespace have named."""

    def read(reply: list[Any]) -> NamedLibraries:
        now, *rest = reply
        return NamedLibraries(now, {name.decode(): at for name, at in zip(rest[::2], rest[1::2], strict=True)})

    request = Request.of("read_libraries", library_keys(namespace), (), read)
    return await perform(transport, request, timeout=_TIMEOUT)
