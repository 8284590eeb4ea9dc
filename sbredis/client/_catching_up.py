"""Read a partition after doing all work that is due there."""

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
    """A script's view of a partition."""

    @property
    def more(self) -> bool | int:
        """Whether more work was due than the script could take into account."""
        ...


Shown = TypeVar("Shown", bound=_Reading)


async def do_due(transport: ScriptCaller, partition: Partition, told: int | None, deadline: float) -> bool:
    """Do a large share of the work that is due in a partition. Return whether more is left."""
    request = partition.due(CallId("", 0, told))
    return (await perform(transport, request, timeout=deadline - anyio.current_time())).more


async def read_after_due(
    place: object, read: Callable[[], Awaitable[Shown]], due: Callable[[], Awaitable[bool]]
) -> Shown:
    """Read a partition with ``read``. If too much work is due for one read, do it with ``due``, and read again.

    A script that reads can take only a limited number of due events into account. If the other due work cannot be done,
    because this is not permitted or takes too long, the result contains only the events that the script could take into
    account. The partition is read again only once. Work that becomes due later was not due when the caller asked, and
    in a busy partition there is always such work.
    """
    result = await read()
    if not result.more:
        return result
    try:
        while await due():
            pass
    except ServiceBusError as error:
        _log.info(
            "%s: the due work could not be finished, so the result does not include all its effects: %s", place, error
        )
        return result
    return await read()
