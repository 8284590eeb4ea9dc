"""Reading a partition as it is once all that is due has happened."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import anyio

from sbredis.engine import CallId, Partition, ScriptCaller, perform
from sbredis.exceptions import ServiceBusError

__all__ = ["Shown", "do_due", "read_after_due"]

_log = logging.getLogger("sbredis.client")


class _Reading(Protocol):
    """What a script shows of a partition."""

    @property
    def more(self) -> bool | int:
        """More was due than it worked out."""
        ...


Shown = TypeVar("Shown", bound=_Reading)


async def do_due(transport: ScriptCaller, partition: Partition, told: int | None, deadline: float) -> bool:
    """Do a large share of what is due in a partition. Returns whether more is left."""
    request = partition.due(CallId("", 0, told))
    return (await perform(transport, request, timeout=deadline - anyio.current_time())).more


async def read_after_due(
    place: object, read: Callable[[], Awaitable[Shown]], due: Callable[[], Awaitable[bool]]
) -> Shown:
    """Read a partition with ``read``; if more is due than that works out, do it with ``due`` first.

    A script that reads works out a bounded number of events. If doing the rest is not permitted, or takes too long, the
    result tells how far the script came. The partition is read again once: what becomes due after that was not due when
    the caller asked, and in a busy partition there is always some.
    """
    result = await read()
    if not result.more:
        return result
    try:
        while await due():
            pass
    except ServiceBusError as error:
        _log.info("%s: more has become due than could be read: %s", place, error)
        return result
    return await read()
