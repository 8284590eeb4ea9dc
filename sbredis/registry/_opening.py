"""Opening a namespace: read its facts, and create it only if it is missing.

A server that has reached its memory limit refuses to create a namespace. If every client tried that when it opens, no
program could open a client any more and empty the server.
"""

from __future__ import annotations

import anyio

from sbredis.engine import ScriptCaller, perform
from sbredis.exceptions import ServiceBusServerBusyError
from sbredis.registry._refusals import add_sentence, refusals
from sbredis.registry._registry import NamespaceFacts, read_namespace, register_namespace

__all__ = ["open_namespace"]

_PARTITIONS = 16


async def open_namespace(
    transport: ScriptCaller, name: str, partitions: int | None, *, timeout: float
) -> NamespaceFacts:
    """Return the facts of a namespace. If it is missing, create it with ``partitions``, or 16 by default."""
    until, codes = anyio.current_time() + timeout, refusals(name)
    facts = await perform(transport, read_namespace(name, partitions), timeout=timeout, refusals=codes)
    if facts is not None:
        return facts
    request = register_namespace(name, _PARTITIONS if partitions is None else partitions, exact=partitions is not None)
    try:
        return await perform(transport, request, timeout=until - anyio.current_time(), refusals=codes)
    except ServiceBusServerBusyError as error:
        add_sentence(error, f"The namespace '{name}' does not exist yet, and could not be created.")
        raise
