"""The entities that a client knows: those that it has used lately, and all others that are in use."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from sbredis.client._entity import Entity

__all__ = ["KnownEntities"]

_MOST: Final = 1000


class KnownEntities:
    """The entities of a client by their keys. No two of them are of the same entity.

    A client may send one message to each of a million queues. So only ``most`` entities are kept, and each other one is
    forgotten when nothing refers to it: no sender, receiver or message, and no call under way. Python knows that better
    than any count of uses.
    """

    def __init__(self, most: int = _MOST) -> None:
        self.most = most
        self._by_key: WeakValueDictionary[str, Entity] = WeakValueDictionary()
        self._kept: OrderedDict[Entity, None] = OrderedDict()
        """The entities that are kept, in the order of their last use."""

    def __len__(self) -> int:
        """Return the number of entities that are not forgotten."""
        return len(self._by_key)

    def __iter__(self) -> Iterator[Entity]:
        """Return the entities that are not forgotten."""
        return iter(list(self._by_key.values()))

    def get(self, key: str) -> Entity | None:
        """Return an entity, and keep it for now."""
        found = self._by_key.get(key)
        if found is not None:
            self.keep(found)
        return found

    def add(self, key: str, entity: Entity) -> None:
        """Add an entity whose key is unknown, and keep it for now."""
        self._by_key[key] = entity
        self.keep(entity)

    def keep(self, entity: Entity) -> None:
        """Keep an entity until ``most`` others have been used. Then end its idle tasks, which would refer to it."""
        self._kept[entity] = None
        self._kept.move_to_end(entity)
        while len(self._kept) > self.most:
            unused, _ = self._kept.popitem(last=False)
            unused.rest()
