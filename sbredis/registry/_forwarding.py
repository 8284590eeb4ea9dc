"""Check where an entity forwards messages to, before it is created or changed.

The destination must be a queue or topic of the namespace. From there the check follows the chain: a queue leads to the
destination of its messages, and a topic leads to the destinations of its subscriptions. No chain may come back to the
entity, and no chain may have more than four hops. A circle is also a circle if one of its hops takes dead letters.

The check reads the registry step by step, so another client may make a change in between that completes a circle, and a
chain may become too long at its other end. A message that makes too many hops goes to a dead-letter queue in any case.
So the check reads only a limited number of entities, and permits the rest.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from sbredis._nearest import nearest_name
from sbredis._quoting import quoted
from sbredis.engine import MOST_HOPS, entity_name, name_key
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.registry._buckets import EntityList
from sbredis.registry._entity import EntityRecord, Json, split_path
from sbredis.registry._pages import SubscriptionPages
from sbredis.registry._refusals import add_sentence
from sbredis.registry._steps import DESTINATIONS, Steps

__all__ = ["Hop", "judge_destination", "require_destinations"]

_, FORWARD_DEAD = DESTINATIONS

_MOST_READS = 100
_MOST_NAMES = 5000
"""The number of names among which the nearest one to an unknown destination is looked for."""


async def require_destinations(
    steps: Steps, path: str, properties: Mapping[str, Json] | None, before: Mapping[str, Json], until: float
) -> None:
    """Raise if an entity must not forward messages as ``properties`` say; check only what differs from ``before``.
    ``None`` stands for unchanged properties.

    Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if a destination does not exist, and otherwise
    :class:`ValueError`.
    """
    if properties is None:
        return
    chains = _Chains(steps, until)
    for name in DESTINATIONS:
        destination, earlier = properties.get(name), before.get(name)
        if not isinstance(destination, str):
            continue
        if not isinstance(earlier, str) or name_key(earlier) != name_key(destination):
            await chains.require(path, name, destination)


class _ChainEnd(NamedTuple):
    """A queue or topic on a chain."""

    key: str
    dead: bool
    """Whether a hop before this place takes dead letters."""
    counted: bool
    """Whether the hops before this place count for the limit."""


class Hop(NamedTuple):
    """A hop that an entity makes with its messages or its dead letters."""

    source: str
    dead: bool
    destination: str

    def drawn(self, chain: str = "") -> str:
        """Return the text of a chain that ends with this hop."""
        if not chain:
            chain = self.source
        elif not name_key(chain).endswith(f"> {name_key(self.source)}"):  # from a topic to one of its subscriptions
            chain = f"{chain} > {self.source}"
        return f"{chain} {'=dead letters=' if self.dead else ''}> {self.destination}"


def judge_destination(path: str, name: str, destination: str) -> Generator[str, Sequence[Hop], None]:
    """Judge a destination of the entity with this path in the property ``name``.

    The generator yields the key of a queue or topic, first that of the destination, and wants the hops from there:
    those of the queue, or of the topic's subscriptions. Raises :class:`ValueError` if there is a circle, or too long a
    chain.
    """
    home, subscription = split_path(path)
    if subscription is None and name_key(home) == name_key(destination):
        raise ValueError(
            f"The entity '{path}' has an auto-forwarding policy to itself: {name}={quoted(destination)}. "
            f"Choose another destination, or leave out {name}."
        )
    first = Hop(path, name == FORWARD_DEAD, destination)
    level = {_ChainEnd(name_key(destination), first.dead, counted=True): first.drawn()}
    for hops in range(1, MOST_HOPS + 2):
        following: dict[_ChainEnd, str] = {}
        for place, chain in level.items():
            if place.key == name_key(home):
                raise ValueError(
                    f"{name}={quoted(destination)} of '{path}' would make a circle: {chain}. Choose another "
                    "destination, or first remove the destination of another entity of this circle."
                )
            if place.counted and hops > MOST_HOPS:
                raise ValueError(
                    f"{name}={quoted(destination)} of '{path}' would make a chain of more than {MOST_HOPS} hops, "
                    f"and a message makes at most {MOST_HOPS}: {chain}. Name a destination that is nearer to the "
                    "end of this chain."
                )
            for hop in (yield place.key):
                key = name_key(hop.destination)
                if not hop.dead:
                    following.setdefault(place._replace(key=key), hop.drawn(chain))
                elif not place.dead:
                    following.setdefault(_ChainEnd(key, dead=True, counted=False), hop.drawn(chain))
        level = following


class _Chains:
    """The chains of forwarding in a namespace, as far as they were read."""

    def __init__(self, steps: Steps, until: float) -> None:
        self._steps = steps
        self._until = until
        self._known: dict[str, list[Hop]] = {}
        self._reads = 0

    async def require(self, path: str, name: str, destination: str) -> None:
        """Raise if the entity with this path must not have this destination in the property ``name``."""
        judging = judge_destination(path, name, destination)
        with suppress(StopIteration):
            key = next(judging)
            await self._require_existing(path, name, destination)
            while True:
                key = judging.send(await self._onward(key))

    async def _require_existing(self, path: str, name: str, destination: str) -> None:
        try:
            await self._steps.existing(entity_name(destination), self._until)
        except MessagingEntityNotFoundError as error:
            error.message = f"'{path}' was to forward messages to '{destination}' ({name}). {error.message}"
            with suppress(ServiceBusError):
                if near := await self._nearest(path, destination):
                    add_sentence(error, f"Did you mean {near!r}?")
            raise

    async def _nearest(self, path: str, destination: str) -> str | None:
        """Return the name of another queue or topic that is nearest to an unknown destination."""
        names = [record.name for record in (await EntityList(self._steps).next(_MOST_NAMES, self._until)).records]
        home = name_key(split_path(path)[0])
        return nearest_name(destination, (each for each in names if name_key(each) != home))

    async def _onward(self, name: str) -> list[Hop]:
        """Return the hops from a queue, or from a topic's subscriptions."""
        if name not in self._known:
            self._known[name] = await self._read(name)
        return self._known[name]

    async def _read(self, name: str) -> list[Hop]:
        if not self._may_read():
            return []
        steps, found = self._steps, list[Hop]()
        try:
            record = await steps.read(name, self._until)
        except DataLayoutError:
            return found  # where it forwards to is not known, and no message gets further there
        if record is None:
            return found
        if record.kind != "topic":
            return _hops(record)
        with suppress(MessagingEntityNotFoundError):  # the topic is gone by now
            pages = SubscriptionPages(steps, name, self._until)
            while pages.more and self._may_read():
                for each in (await pages.next()).subscriptions:
                    found += _hops(each.record)
        return found

    def _may_read(self) -> bool:
        self._reads += 1
        return self._reads <= _MOST_READS


def _hops(record: EntityRecord) -> list[Hop]:
    named = ((name == FORWARD_DEAD, record.properties.get(name)) for name in DESTINATIONS)
    return [Hop(record.path, dead, value) for dead, value in named if isinstance(value, str)]
