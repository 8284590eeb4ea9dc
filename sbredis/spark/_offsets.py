"""The offsets of a stream: how far each partition was read. Spark stores them as JSON in its checkpoint. Pure.

An offset names its format, its entity and the incarnation of the entity, so that a checkpoint of another release or of
another entity is recognised. The JSON of equal offsets is equal text, because Spark compares texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from sbredis.exceptions import SparkSetupError

__all__ = ["FORMAT", "Offsets", "Place"]

FORMAT = 1
"""The format of the offsets that this release writes. It reads this format only."""


class Place(NamedTuple):
    """How far one partition was read: its birth, the number of the plan, and the last message."""

    birth: str
    plan: int
    number: int


@dataclass(frozen=True, slots=True)
class Offsets:
    """How far a stream has read an entity. Between two offsets is one batch."""

    entity: str
    incarnation: str
    places: Mapping[int, Place]
    began: Mapping[int, int] | None = None
    """Of the first batch of a browsing stream: the numbers after which it begins.

    Spark does not store where a stream began. If the first batch runs again, ``latest`` would have another meaning.
    """
    tasks: tuple[int, int] = (1, 1)
    """The least and the largest number of tasks of the batch that ends here.

    If the batch runs again, on another machine or with other options, its rows must come in the same tasks, because
    sinks recognise the rows of a repeated batch by the number of their task.
    """

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        stored: dict[str, Any] = {
            "format": FORMAT,
            "entity": self.entity,
            "incarnation": self.incarnation,
            "tasks": list(self.tasks),
            "partitions": {str(number): _stored(place) for number, place in sorted(self.places.items())},
        }
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
            places = {int(number): _place(place) for number, place in stored["partitions"].items()}
            began = stored.get("began")
            first = None if began is None else {int(number): int(after) for number, after in began.items()}
            least, most = map(int, stored["tasks"])
            return cls(str(stored["entity"]), str(stored["incarnation"]), places, first, (least, most))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SparkSetupError(f"The offsets in the checkpoint cannot be read: {error!r}.") from None

    def refuse_other(self, entity: str) -> None:
        """Refuse offsets of another entity than the one that the options name."""
        if self.entity.lower() != entity.lower():
            raise SparkSetupError(
                f"The checkpoint belongs to '{self.entity}', but the query reads '{entity}': give each query a "
                "checkpoint of its own."
            )


def _stored(place: Place) -> dict[str, Any]:
    return {"birth": place.birth, "plan": place.plan, "number": place.number}


def _place(stored: Any) -> Place:
    found = cast("Mapping[str, Any]", stored)
    birth, plan, number = found["birth"], found["plan"], found["number"]
    if not isinstance(birth, str) or type(plan) is not int or type(number) is not int or plan < 0 or number < 0:
        raise ValueError(f"partition {stored!r}")
    return Place(birth, plan, number)
