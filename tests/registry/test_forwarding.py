"""Compares the check of chains of forwarding with an enumeration of all paths, in random namespaces."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, cast

import anyio
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from sbredis.engine import MOST_HOPS, name_key
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.registry import DESTINATIONS
from sbredis.registry._forwarding import require_destinations

Destinations = Mapping[str, str]
Entities = dict[str, list[Destinations]]
"""The destinations of each queue, in a list of one; of each topic, those of all its subscriptions."""

QUEUES, TOPICS = "abcd", "tu"
FORWARD, FORWARD_DEAD = DESTINATIONS
EMPTY: Entities = {name: [{}] for name in QUEUES + TOPICS}
named = st.sampled_from([*QUEUES, *QUEUES.upper(), *TOPICS])
destinations = st.dictionaries(st.sampled_from(DESTINATIONS), named)
entities = st.fixed_dictionaries(
    {name: destinations.map(lambda one: [one]) for name in QUEUES}
    | {name: st.lists(destinations, max_size=3) for name in TOPICS}
)


class Namespace:
    """The steps of a namespace that is a dictionary."""

    def __init__(self, held: Entities) -> None:
        self.held = held
        self.registry = self
        self.slots = 1
        self.pages = 0

    async def read(self, path: str, _: float) -> object:
        kind = "topic" if path in TOPICS else "queue"
        properties = self.held[path][0] if kind == "queue" else {}
        return SimpleNamespace(kind=kind, path=path, name=path, properties=properties)

    def listed(self, *_: object) -> list[tuple[bytes, bytes]]:
        """Return no names: the nearest one to an unknown destination does not matter here."""
        return []

    def subscriptions(self, topic: str, after: str, _: int) -> object:
        """Return a page of one subscription, although the caller asks for more."""
        self.pages += 1
        at = int(after or 0)
        found = [
            SimpleNamespace(
                record=SimpleNamespace(path=f"{topic}/subscriptions/{at + 1}", name=str(at + 1), properties=one)
            )
            for one in self.held[topic][at : at + 1]
        ]
        return SimpleNamespace(subscriptions=found, onward=str(at + 1) if at + 1 < len(self.held[topic]) else None)

    async def ask(self, answer: object, *_: object) -> object:
        return answer

    ask_bucket = ask

    async def existing(self, path: str, _: float) -> object:
        if name_key(path) not in self.held:
            raise MessagingEntityNotFoundError(f"There is no entity '{path}'.")
        return await self.read(name_key(path), 0.0)


def paths(held: Entities, at: str, hops: tuple[str, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the place at the end of each path of up to five hops, and the properties that name its hops.

    A path may have one hop of dead letters.
    """
    yield at, hops
    if len(hops) <= MOST_HOPS:
        for one in held[at]:
            for name, onward in one.items():
                if name == FORWARD or FORWARD_DEAD not in hops:
                    yield from paths(held, name_key(onward), (*hops, name))


def is_refused(held: Entities, home: str, name: str, destination: str) -> bool:
    """Return whether a path comes back to ``home``, or has too many hops of messages after its first hop."""
    return any(
        at == home or (len(hops) > MOST_HOPS and FORWARD_DEAD not in hops[1:])
        for at, hops in paths(held, name_key(destination), (name,))
    )


def check(held: Entities, path: str, name: str, destination: str) -> None:
    """Check the destination as a new property of the entity at this path."""

    async def checked() -> None:
        steps = cast("Any", Namespace(held))
        done: Awaitable[None] = require_destinations(steps, path, {name: destination}, {}, 0.0)
        await done

    anyio.run(checked)


@settings(max_examples=300)
@given(
    held=entities,
    path=st.sampled_from(["a", "b", "t/subscriptions/9", "u/subscriptions/9"]),
    name=st.sampled_from(DESTINATIONS),
    destination=named,
)
@example(held=EMPTY | {"t": [{}, {FORWARD: "A"}]}, path="a", name=FORWARD, destination="t")
@example(held=EMPTY | {"b": [{FORWARD_DEAD: "a"}]}, path="a", name=FORWARD_DEAD, destination="b")
@example(held=EMPTY | {"b": [{FORWARD_DEAD: "c"}], "c": [{FORWARD_DEAD: "a"}]}, path="a", name=FORWARD, destination="b")
def test_a_destination_is_refused_exactly_if_a_path_from_it_is_a_circle_or_too_long(
    held: Entities, path: str, name: str, destination: str
) -> None:
    home = path.split("/", maxsplit=1)[0]
    if is_refused(held, home, name, destination):
        event("refused")
        with pytest.raises(ValueError, match=r"auto-forwarding policy to itself|would make a circle|more than 4 hops"):
            check(held, path, name, destination)
    else:
        event("permitted")
        check(held, path, name, destination)


CHAIN: Entities = {**EMPTY, "a": [{FORWARD: "b"}], "b": [{FORWARD: "c"}], "c": [{FORWARD: "t"}], "t": [{FORWARD: "d"}]}
LONGER = CHAIN | {"d": [{FORWARD: "u"}]}
WITHIN = EMPTY | {"t": [{}, {FORWARD: "a"}], "a": [{FORWARD: "u"}]}


@pytest.mark.parametrize(
    ("held", "path", "name", "text"),
    [
        (CHAIN, "d", FORWARD, "^forward_to='A' of 'd' would make a circle: d > A > b > c > t > t/subscriptions/1 > d"),
        (CHAIN, "d", FORWARD_DEAD, "^forward_dead_.* of 'd' would make a circle: d =dead letters=> A > b > "),
        (WITHIN, "u/subscriptions/9", FORWARD, "would make a circle: u/subscriptions/9 > A > u"),
        (LONGER, "u/subscriptions/9", FORWARD, r"more than 4 hops, and .*: u/subscriptions/9 > A > b > c > t > "),
    ],
)
def test_the_error_shows_the_path(held: Entities, path: str, name: str, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check(held, path, name, "A")


@pytest.mark.parametrize("name", DESTINATIONS)
def test_a_destination_that_does_not_change_is_not_checked(name: str) -> None:
    async def checked(properties: Destinations | None, before: Destinations) -> None:
        await require_destinations(cast("Any", Namespace({})), "a", properties, before, 0.0)

    anyio.run(checked, {name: "Gone"}, {name: "gone"})
    anyio.run(checked, None, {name: "gone"})
    anyio.run(checked, {}, {name: "gone"})
    with pytest.raises(MessagingEntityNotFoundError, match=rf"'a' was to forward messages to 'Gone' \({name}\)"):
        anyio.run(checked, {name: "Gone"}, {name: "another"})
