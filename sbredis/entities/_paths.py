"""The paths of subscriptions, sub-queues and their paths."""

from __future__ import annotations

from sbredis._quoting import quoted
from sbredis.engine import SidePrefix, entity_name, subscription_name
from sbredis.model import ServiceBusSubQueue
from sbredis.registry import path_of

__all__ = ["SIDES", "SUB_QUEUES", "SUFFIXES", "split_sub_queue", "subscription_path"]

SUFFIXES: dict[ServiceBusSubQueue | None, str] = {
    None: "",
    ServiceBusSubQueue.DEAD_LETTER: "/$DeadLetterQueue",
    ServiceBusSubQueue.TRANSFER_DEAD_LETTER: "/$Transfer/$DeadLetterQueue",
}
"""A mapping from each sub-queue to the suffix that its path has after the path of the entity."""
SIDES: dict[ServiceBusSubQueue | None, SidePrefix] = {
    None: "",
    ServiceBusSubQueue.DEAD_LETTER: "d",
    ServiceBusSubQueue.TRANSFER_DEAD_LETTER: "t",
}
"""A mapping from each sub-queue to the side of partitions that has its messages."""
SUB_QUEUES = {side: sub_queue for sub_queue, side in SIDES.items()}
_BY_SUFFIX = {
    "/$transfer/$deadletterqueue": ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
    # This suffix is last, because the longer suffix ends with it too.
    "/$deadletterqueue": ServiceBusSubQueue.DEAD_LETTER,
}


def subscription_path(topic: str, name: str) -> str:
    """Return the path of a subscription; raise :class:`ValueError` if one of the names is invalid."""
    return path_of(entity_name(topic), subscription_name(name))


def split_sub_queue(name: str, sub_queue: ServiceBusSubQueue | str | None) -> tuple[str, ServiceBusSubQueue | None]:
    """Return the name of an entity, and the sub-queue. The sub-queue is given separately or at the end of ``name``."""
    if sub_queue is not None:
        sub_queue = ServiceBusSubQueue(sub_queue)
    lowered = str(name).lower()
    for suffix, kind in _BY_SUFFIX.items():
        if lowered.endswith(suffix):
            if sub_queue is not None and sub_queue is not kind:
                raise ValueError(
                    f"{quoted(name)} names another sub-queue than sub_queue={sub_queue!r}. Name the sub-queue only "
                    "once."
                )
            return name[: -len(suffix)], kind
    return name, sub_queue
