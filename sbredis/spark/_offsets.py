"""The offsets of a stream: how far each partition was read. Spark stores them as JSON in its checkpoint. Pure.

An offset names its format, the mode of its query, its entities with the sub-queue, and the incarnations of the
entities, so that a checkpoint of another release or of another query is recognised. The JSON of equal offsets is equal
text, because Spark compares texts. The offsets of one entity have a simpler format than those of several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sbredis._unreadable import MALFORMED
from sbredis.engine import name_key
from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import EntityChoice
from sbredis.spark._planning import ONE_TASK, TaskLimits

__all__ = ["FORMAT", "FORMAT_OF_SEVERAL", "EntityOffsets", "Offsets", "PartitionOffset"]

FORMAT, FORMAT_OF_SEVERAL = 1, 2
"""The formats of the offsets of one entity and of several. This release writes and reads both."""


class PartitionOffset(NamedTuple):
    """How far one partition was read: its birth, the number of the plan, and the last message."""

    birth: str
    plan: int
    number: int


@dataclass(frozen=True, slots=True)
class EntityOffsets:
    """How far a stream has read one entity."""

    name: str
    """The path of the entity, as its creator spelled it."""
    incarnation: str
    partitions: Mapping[int, PartitionOffset]
    began: Mapping[int, int] | None = None
    """The numbers after which the batch begins that ends here, if the offsets before do not tell.

    Spark does not store where a stream began. If the first batch runs again, ``latest`` would have another meaning.
    """

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores, without the name."""
        stored: dict[str, Any] = {
            "incarnation": self.incarnation,
            "partitions": {str(number): _stored(offset) for number, offset in sorted(self.partitions.items())},
        }
        if self.began is not None:
            stored["began"] = {str(number): after for number, after in sorted(self.began.items())}
        return stored

    @classmethod
    def from_json(cls, name: str, stored: Mapping[str, Any]) -> EntityOffsets:
        """Return what Spark has stored."""
        began = stored.get("began")
        return cls(
            name,
            str(stored["incarnation"]),
            {int(number): _partition_offset(offset) for number, offset in stored["partitions"].items()},
            None if began is None else {int(number): int(after) for number, after in began.items()},
        )


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far a stream has read its entities. Between two offsets is one batch."""

    entities: tuple[EntityOffsets, ...]
    tasks: TaskLimits = ONE_TASK
    """The limits of the tasks of the batch that ends here.

    If the batch runs again, on another machine or with other options, its rows must come in the same tasks, because
    sinks recognise the rows of a repeated batch by the number of their task.
    """
    mode: str = "browse"
    """``browse`` or ``consume``."""
    sub_queue: str | None = ""
    """The sub-queue, as the option names it; ``""`` for the main queue.

    It is ``None`` if the offsets do not tell: earlier builds did not store it.
    """

    @property
    def by_key(self) -> dict[str, EntityOffsets]:
        """The offsets of each entity, by its path in the form in which names are compared."""
        return {name_key(each.name): each for each in self.entities}

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        least, most, rows = self.tasks
        stored: dict[str, Any] = {
            "mode": self.mode,
            "tasks": [least, most] if rows is None else [least, most, rows],
        }
        if self.sub_queue is not None:
            stored["subQueue"] = self.sub_queue
        if len(self.entities) == 1:
            return {"format": FORMAT, "entity": self.entities[0].name, **self.entities[0].to_json(), **stored}
        by_name = {each.name: each.to_json() for _, each in sorted(self.by_key.items())}
        return {"format": FORMAT_OF_SEVERAL, "entities": by_name, **stored}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Offsets:
        """Return the offsets that Spark has stored. Raise :class:`SparkSetupError` if they are of no use."""
        if stored.get("format") not in (FORMAT, FORMAT_OF_SEVERAL):
            raise SparkSetupError(
                f"The checkpoint has offsets of the format {stored.get('format')!r}, but this release of sbredis reads "
                f"the formats {FORMAT} and {FORMAT_OF_SEVERAL}: go on with the release that wrote the checkpoint, or "
                "take a new checkpoint."
            )
        try:
            by_name = stored["entities"] if stored["format"] == FORMAT_OF_SEVERAL else {stored["entity"]: stored}
            entities = tuple(EntityOffsets.from_json(str(name), each) for name, each in by_name.items())
            # Earlier builds did not store the mode. Only a consuming query knows the birth of a partition.
            births = any(offset.birth for each in entities for offset in each.partitions.values())
            sub_queue = stored.get("subQueue")
            return cls(
                entities,
                TaskLimits(*map(int, stored["tasks"])),
                mode=str(stored.get("mode", "consume" if births else "browse")),
                sub_queue=None if sub_queue is None else str(sub_queue),
            )
        except MALFORMED as error:
            raise SparkSetupError(f"The offsets in the checkpoint cannot be read: {error!r}.") from None

    def refuse_other(self, entities: EntityChoice, mode: str, sub_queue: str = "") -> None:
        """Refuse offsets of other entities, of another mode or of another sub-queue than the options name."""
        paths = [each.name for each in self.entities]
        others = self.sub_queue is not None and self.sub_queue != sub_queue
        if not entities.fits(paths) or others:
            raise SparkSetupError(
                f"The checkpoint belongs to {_named(EntityChoice(tuple(paths)), self.sub_queue)}, but the query reads "
                f"{_named(entities, sub_queue)}: give each query a checkpoint of its own."
            )
        if self.mode != mode:
            raise SparkSetupError(
                f"The checkpoint belongs to a query with mode={self.mode}, but this query has mode={mode}: give each "
                "query a checkpoint of its own."
            )


def _named(entities: EntityChoice, sub_queue: str | None) -> str:
    return f"{entities} with subQueue={sub_queue}" if sub_queue else str(entities)


def _stored(offset: PartitionOffset) -> dict[str, Any]:
    return {"birth": offset.birth, "plan": offset.plan, "number": offset.number}


def _partition_offset(stored: Any) -> PartitionOffset:
    found = cast("Mapping[str, Any]", stored)
    birth, plan, number = found["birth"], found["plan"], found["number"]
    if not isinstance(birth, str) or type(plan) is not int or type(number) is not int or plan < 0 or number < 0:
        raise ValueError(f"partition {stored!r}")
    return PartitionOffset(birth, plan, number)
