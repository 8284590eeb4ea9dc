"""Transactions: operations on partitions of one slot that one script runs, all of them or none. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sbredis.engine._keys import KINDS
from sbredis.engine._partition import CallId, Partition
from sbredis.engine._request import Request
from sbredis.engine._results import spelled_out
from sbredis.transport import Argument

__all__ = [
    "MAXIMUM_OPERATIONS",
    "MAXIMUM_PARTICIPANTS",
    "Operation",
    "Step",
    "Transacted",
    "TransactedSend",
    "transact",
]

MAXIMUM_PARTICIPANTS = 8
MAXIMUM_OPERATIONS = 100

_COMMON = 5
"""The number of arguments that every call has, without the run id, which the transport adds."""


class Step(NamedTuple):
    """An operation that only a transaction has, because there is no script that does it alone."""

    name: str
    arguments: tuple[Argument, ...]


class Operation(NamedTuple):
    """One operation of a transaction."""

    partition: Partition
    request: Request[Any] | Step
    """The request that makes this operation alone, whose call id is not used; or a step."""


class TransactedSend(NamedTuple):
    """The result of a send or a publish in a transaction."""

    first: int
    """The number of the first message. The numbers of the other messages follow."""
    dropped: tuple[int, ...]
    """The places, counted from 0, of the messages that were dropped as duplicates."""
    scheduled: tuple[int, ...]
    """On a topic: the numbers of the messages that will be published later."""


class Transacted(NamedTuple):
    """The result of a transaction."""

    more: bool
    """Whether due work is left in a partition."""
    results: tuple[TransactedSend | None, ...]
    """The result of each send and publish; None for the other operations."""


def transact(call_id: CallId, operations: Sequence[Operation]) -> Request[Transacted]:
    """Run operations on partitions of one slot, all of them or none.

    The call id belongs to the partition of the first operation. The operations are applied in their order, but all of
    them are checked before the first is applied.
    """
    if not 1 <= len(operations) <= MAXIMUM_OPERATIONS:
        raise ValueError(f"a transaction takes 1 to {MAXIMUM_OPERATIONS} operations, not {len(operations)}")
    places: dict[bytes, int] = {}
    participants: list[Partition] = []
    targets: list[bytes] = []
    rest: list[Argument] = []
    for partition, request in operations:
        if isinstance(request, Step):
            name, arguments = request
        elif partition.keys != request.keys[: len(KINDS)]:
            raise ValueError(f"{request.script.name!r} is a request of another partition")
        else:
            name, arguments = request.script.name, tuple(request.arguments[_COMMON:])
            targets += request.keys[len(KINDS) :]
        if partition.keys[0] not in places:
            participants.append(partition)
        place = places.setdefault(partition.keys[0], len(participants))
        rest += (place, name, len(arguments), *arguments)
    if len({each.keys[0].partition(b"}")[0] for each in participants}) > 1:
        raise ValueError("the partitions of a transaction must be in one slot")
    if len(participants) > MAXIMUM_PARTICIPANTS:
        raise ValueError(
            f"a transaction takes up to {MAXIMUM_PARTICIPANTS} partitions of entities, not {len(participants)}"
        )
    others = " ".join(f"{each.incarnation} {each.version}" for each in participants[1:])
    keys = tuple(key for each in participants for key in each.keys)
    request = participants[0].request("transact", call_id, _transacted, {"others": others}, rest)
    return request._replace(keys=(*keys, *targets))


def _transacted(reply: list[Any]) -> Transacted:
    return Transacted(bool(reply[0]), tuple(map(_sent, reply[1:])))


def _sent(text: bytes) -> TransactedSend | None:
    if not text:
        return None
    first, dropped, scheduled = text.split(b";")
    return TransactedSend(int(first), tuple(map(int, dropped.split())), spelled_out(scheduled))
