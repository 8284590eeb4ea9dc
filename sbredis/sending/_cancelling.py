"""Cancel messages that are scheduled and not enqueued yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sbredis.engine import MAXIMUM_CALL_MESSAGES, CallId, Partition, Request, Undone
from sbredis.exceptions import MessageNotFoundError, Outcome

if TYPE_CHECKING:
    from sbredis.client import Entity

__all__ = ["cancel_scheduled"]


async def cancel_scheduled(entity: Entity, numbers: Sequence[int], deadline: float) -> None:
    """Cancel scheduled messages by their sequence numbers.

    Raises :class:`MessageNotFoundError` if one of them is not scheduled. In this case no message was cancelled, or the
    error lists the messages that earlier calls had already cancelled.
    """
    places: dict[int, list[int]] = {}
    for number in numbers:
        partition, own = entity.place(number)
        places.setdefault(partition, []).append(own)
    cancelled: list[int] = []
    missing = [
        entity.base(at) + own
        for at, owns in places.items()
        for own in owns
        if at not in entity.numbers or not 0 < own < 10**15
    ]
    for partition, owns in () if missing else places.items():
        base = entity.base(partition)
        for at in range(0, len(owns), MAXIMUM_CALL_MESSAGES):
            part = owns[at : at + MAXIMUM_CALL_MESSAGES]
            gone = [] if missing else await _cancel(entity, partition, part, deadline)
            missing += [base + own for own in gone]
            if not missing:
                cancelled += [base + own for own in part]
    if missing:
        done = f" These messages were cancelled before: {cancelled}." if cancelled else " No message was cancelled."
        error = MessageNotFoundError(
            f"These messages are not scheduled, or are no longer scheduled: {', '.join(map(str, missing))}.{done}",
            outcome=Outcome.UNKNOWN if cancelled else Outcome.REFUSED,
        )
        error.entity = entity.name
        raise error


async def _cancel(entity: Entity, number: int, owns: Sequence[int], deadline: float) -> list[int]:
    """Cancel scheduled messages of one partition, but none if one of the messages is not scheduled.

    Return the messages that are missing.
    """
    names = [str(own) for own in owns]

    def make(partition: Partition, call_id: CallId) -> Request[Undone]:
        return partition.cancel(call_id, names)

    undone = await entity.partition_client(number).call("x", make, deadline)
    return [int(name) for name in undone.missing]
