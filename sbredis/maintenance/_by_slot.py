"""Entities to be asked, grouped by slot, because one call asks many entities of one slot. Pure."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BySlot"]


class BySlot:
    """Entities by the number of their slot. Batches are taken from the slots in turn, so no slot waits forever."""

    __slots__ = ("_slots",)

    def __init__(self) -> None:
        self._slots: dict[int, dict[str, None]] = {}

    def __bool__(self) -> bool:
        return bool(self._slots)

    def __contains__(self, number: int) -> bool:
        return number in self._slots

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the slots in which there are entities. The first one had to wait longest."""
        return iter(self._slots)

    def of(self, number: int) -> tuple[str, ...]:
        """Return the entities in a slot."""
        return tuple(self._slots.get(number, ()))

    def has(self, number: int, entity: str) -> bool:
        """Return whether an entity is in a slot."""
        return entity in self._slots.get(number, ())

    def add(self, number: int, entity: str) -> None:
        """Add an entity to a slot."""
        self._slots.setdefault(number, {})[entity] = None

    def discard(self, number: int, entity: str) -> None:
        """Take an entity out of a slot, if it is there."""
        entities = self._slots.get(number)
        if entities is not None:
            entities.pop(entity, None)
            if not entities:
                del self._slots[number]

    def take(self, number: int, most: int) -> tuple[str, ...]:
        """Take the first entities out of a slot. The slot then has to wait for the other slots."""
        entities = self._slots.pop(number)
        batch = tuple(entity for entity, _ in zip(entities, range(most), strict=False))
        for entity in batch:
            del entities[entity]
        if entities:
            self._slots[number] = entities
        return batch
