"""The offsets of a stream: how far each partition was read. Spark stores them as JSON in its checkpoint. Pure.

An offset names its format, the mode of its query, its entity with the sub-queue, and the incarnation of the entity, so
that a checkpoint of another release or of another query is recognised. The JSON of equal offsets is equal text, because
Spark compares texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sbredis._unreadable import MALFORMED
from sbredis.exceptions import SparkSetupError

__all__ = ["FORMAT", "Offsets", "PartitionOffset"]

FORMAT = 1
"""The format of the offsets that this release writes. It reads this format only."""


class PartitionOffset(NamedTuple):
    """How far one partition was read: its birth, the number of the plan, and the last message."""

    birth: str
    plan: int
    number: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far a stream has read an entity. Between two offsets is one batch."""

    entity: str
    incarnation: str
    partitions: Mapping[int, PartitionOffset]
    began: Mapping[int, int] | None = None
    """Of the first batch of a browsing stream: the numbers after which it begins.

    Spark does not store where a stream began. If the first batch runs again, ``latest`` would have another meaning.
    """
    tasks: tuple[int, int] = (1, 1)
    """The least and the largest number of tasks of the batch that ends here.

    If the batch runs again, on another machine or with other options, its rows must come in the same tasks, because
    sinks recognise the rows of a repeated batch by the number of their task.
    """
    mode: str = "browse"
    """``browse`` or ``consume``."""
    sub_queue: str | None = ""
    """The sub-queue, as the option names it; ``""`` for the main queue.

    It is ``None`` if the offsets do not tell: earlier builds did not store it.
    """

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        stored: dict[str, Any] = {
            "format": FORMAT,
            "entity": self.entity,
            "incarnation": self.incarnation,
            "mode": self.mode,
            "tasks": list(self.tasks),
            "partitions": {str(number): _stored(offset) for number, offset in sorted(self.partitions.items())},
        }
        if self.sub_queue is not None:
            stored["subQueue"] = self.sub_queue
        if self.began is not None:
            stored["began"] = {str(number): after for number, after in sorted(self.began.items())}
        return stored

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offsets:
        """Return the offsets that Spark has stored. Raise :class:`SparkSetupError` if they are of no use."""
        if stored.get("format") != FORMAT:
            raise SparkSetupError(
                f"The checkpoint has offsets of the format {stored.get('format')!r}, but this release of sbredis reads "
                f"the format {FORMAT}: go on with the release that wrote the checkpoint, or take a new checkpoint."
            )
        try:
            partitions = {int(number): _partition_offset(offset) for number, offset in stored["partitions"].items()}
            began = stored.get("began")
            first = None if began is None else {int(number): int(after) for number, after in began.items()}
            least, most = map(int, stored["tasks"])
            # Earlier builds did not store the mode. Only a consuming query knows the birth of a partition.
            usual = "consume" if any(offset.birth for offset in partitions.values()) else "browse"
            sub_queue = stored.get("subQueue")
            return cls(
                entity=str(stored["entity"]),
                incarnation=str(stored["incarnation"]),
                partitions=partitions,
                began=first,
                tasks=(least, most),
                mode=str(stored.get("mode", usual)),
                sub_queue=None if sub_queue is None else str(sub_queue),
            )
        except MALFORMED as error:
            raise SparkSetupError(f"The offsets in the checkpoint cannot be read: {error!r}.") from None

    def refuse_other(self, entity: str, mode: str, sub_queue: str = "") -> None:
        """Refuse offsets of another entity, mode or sub-queue than the options name."""
        others = self.sub_queue is not None and self.sub_queue != sub_queue
        if self.entity.lower() != entity.lower() or others:
            raise SparkSetupError(
                f"The checkpoint belongs to {_named(self.entity, self.sub_queue)}, but the query reads "
                f"{_named(entity, sub_queue)}: give each query a checkpoint of its own."
            )
        if self.mode != mode:
            raise SparkSetupError(
                f"The checkpoint belongs to a query with mode={self.mode}, but this query has mode={mode}: give each "
                "query a checkpoint of its own."
            )


def _named(entity: str, sub_queue: str | None) -> str:
    return f"'{entity}' with subQueue={sub_queue}" if sub_queue else f"'{entity}'"


def _stored(offset: PartitionOffset) -> dict[str, Any]:
    return {"birth": offset.birth, "plan": offset.plan, "number": offset.number}


def _partition_offset(stored: Any) -> PartitionOffset:
    found = cast("Mapping[str, Any]", stored)
    birth, plan, number = found["birth"], found["plan"], found["number"]
    if not isinstance(birth, str) or type(plan) is not int or type(number) is not int or plan < 0 or number < 0:
        raise ValueError(f"partition {stored!r}")
    return PartitionOffset(birth, plan, number)
