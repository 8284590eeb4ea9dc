"""Requests of a mover that share a call: batches for one destination, and sources in one slot. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sbredis.engine._moving import Swept, Taken, read_taken
from sbredis.engine._packing import within
from sbredis.engine._partition import COMMON_ARGUMENTS
from sbredis.engine._request import Request
from sbredis.transport import Argument, Keys

__all__ = ["MOST_SWEPT", "MOST_TAKEN", "sweep_together", "take_together"]

MOST_SWEPT = 50
"""The largest number of sources in one call."""
MOST_TAKEN = 100
"""The largest number of batches in one call."""
_LIMITS = 2
"""The number of arguments of a sweep that hold for all of its sources."""
_OF_A_BATCH = 4
"""The number of parts that the reply of a take has for each batch."""


def take_together(requests: Sequence[Request[Taken]]) -> Request[tuple[Taken, ...]]:
    """Let one partition of a queue judge several batches, one after the other."""
    within("the number of batches", len(requests), 1, MOST_TAKEN)
    first = requests[0]
    common = first.arguments[:COMMON_ARGUMENTS]
    if any(each.keys != first.keys or each.arguments[:COMMON_ARGUMENTS] != common for each in requests):
        raise ValueError("the batches of a call must be for one partition")
    rest = [part for each in requests for part in each.arguments[COMMON_ARGUMENTS:]]

    def read(reply: list[Any]) -> tuple[Taken, ...]:
        more, *parts = reply
        if len(parts) != _OF_A_BATCH * len(requests):
            raise ValueError("another number of batches was judged")
        return tuple(read_taken([more, *parts[at : at + _OF_A_BATCH]]) for at in range(0, len(parts), _OF_A_BATCH))

    at_limit = all(each.at_limit for each in requests)
    return Request(first.script, first.keys, (*common, *rest), read, repeatable=True, at_limit=at_limit)


def sweep_together(requests: Sequence[Request[Swept]]) -> Request[tuple[Swept, ...]]:
    """Sweep several partitions of one slot. The limits of the first request hold for all of them together."""
    within("the number of sources", len(requests), 1, MOST_SWEPT)
    first, *others = requests
    if len({each.keys[0].partition(b"}")[0] for each in requests}) > 1:
        raise ValueError("the sources of a call must be in one slot")
    if len({each.keys[0] for each in requests}) < len(requests):
        raise ValueError("a source is in a call only once")
    rest: list[Argument] = []
    for each in others:
        rest += each.arguments[:2]
        rest += each.arguments[COMMON_ARGUMENTS + _LIMITS :]

    def read(reply: list[Any]) -> tuple[Swept, ...]:
        more, now, *found = reply
        return tuple(request.read([more, now, one]) for request, one in zip(requests, found, strict=True))

    keys = Keys.joined(each.keys for each in requests)
    return Request(first.script, keys, (*first.arguments, *rest), read, repeatable=True)
