"""Interrupt an operation on a namespace after each of its steps."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from sbredis.exceptions import Outcome, ServiceBusCommunicationError
from sbredis.registry import Namespace
from sbredis.transport import Transport
from tests.registry.keys import Snapshot, keys_of, require_consistent, snapshot
from tests.registry.topics import decode
from tests.registry.turns import Cut
from tests.stored_settings import with_settings

__all__ = ["Cuts", "Operation", "opened", "settled"]

Operation = Callable[[Namespace], Awaitable[object]]


async def opened(
    transport: Transport, name: str, slots: int, told: Callable[[], int | None] = lambda: None
) -> Namespace:
    """Open a namespace, and begin all its buckets, so that the calls of tests do not depend on which are used first."""
    namespace = await Namespace.open(transport, name, slots, told=told)
    await namespace.limit(entities=None, megabytes=None)
    return namespace


def settled(found: Snapshot, namespace: str) -> dict[str, Any]:
    """Return the contents of a namespace without random values, ids, times and numbers of changes."""
    kept = keys_of(found, namespace)
    require_consistent(kept)
    kept = {_named(key, _paths(kept)): value for key, value in kept.items()}
    for key, value in kept.items():
        if key.endswith(":namespace"):
            kept[key] = {name: part for name, part in value.items() if name != b"created"}
        elif key.endswith(":bucket"):
            kept[key] = {name: part for name, part in value.items() if name.startswith((b"size:", b"megabytes"))}
        elif key.endswith((":changes", ":gone", ":ids")):
            kept[key] = {}  # the numbers differ, and the log has what was deleted
        elif key.endswith(":entities"):
            records = {name: decode(record) for name, record in value.items()}
            drawn: dict[str, Any] = {"id": "", "incarnation": "", "stamp": "", "created_at": 0, "updated_at": 0}
            kept[key] = {name: replace(record, **drawn, store=record.store and "0") for name, record in records.items()}
        elif key.endswith(":tallies"):
            kept[key] = {name: _tally(name, text) for name, text in value.items()}
        elif key.endswith(":rules"):
            kept[key] = {place: (rule.split()[1], rule.split(b" ", 4)[4]) for place, rule in value.items()}
        elif key.endswith(":store"):
            kept[key] = {name: part for name, part in value.items() if name != b"used"}
        elif key.endswith(":state"):
            drawn_or_timed = (b"run_id", b"channel", b"birth", b"used")
            same = with_settings(value[b"settings"], {"incarnation": ""})
            kept[key] = {name: part for name, part in value.items() if name not in drawn_or_timed} | {b"settings": same}
    return {key: value for key, value in kept.items() if value not in ({}, {b"megabytes": b"0"})}


def _paths(kept: dict[str, Any]) -> dict[str, str]:
    """Return the paths of all entities in lower case, by their ids."""
    records = [value for key, value in kept.items() if key.endswith(":entities")]
    return {decode(text).id: path.decode() for value in records for path, text in value.items()}


def _named(key: str, paths: dict[str, str]) -> str:
    """Return the name of a key with the path of its entity in the place of its id."""
    slot, *rest = key.split(":")
    return ":".join((slot, *(paths.get(part, part) for part in rest)))


def _tally(name: bytes, text: bytes) -> list[bytes]:
    _, _, mark, *counts = text.split()
    return [*counts, b"" if b"/subscriptions/" in name else mark]


class Cuts:
    """Runs an operation and interrupts it after each of its steps, each time in a fresh namespace."""

    def __init__(self, transport: Transport, first: Operation, operation: Operation, *, begun: bool = True) -> None:
        """Set the operation, and the preparation that it needs (``first``).

        ``begun`` says that all buckets of the registry are begun before.
        """
        self._begun = begun
        self._transport = transport
        self._first = first
        self._operation = operation
        self._number = 0
        self.whole: dict[str, Any] = {}

    async def fresh(self) -> Namespace:
        """Return a fresh namespace that is prepared for the operation."""
        self._number += 1
        name = f"ns{self._number}"
        namespace = await (opened if self._begun else Namespace.open)(self._transport, name, 3)
        await self._first(namespace)
        return namespace

    async def all(self) -> AsyncIterator[tuple[Namespace, int]]:
        """After each interruption, yield the namespace as another client sees it, and the number of steps taken."""
        namespace = await self.fresh()
        counting = Cut(self._transport, 1000, before=True)
        await self._operation(Namespace(counting, namespace.name, 3, 0))
        self.whole = settled(await snapshot(self._transport, namespace.name), namespace.name)
        assert counting.calls > 1
        for at in range(1, counting.calls + 1):
            for before in (True, False):
                namespace = await self.fresh()
                with pytest.raises(ServiceBusCommunicationError) as raised:
                    await self._operation(Namespace(Cut(self._transport, at, before=before), namespace.name, 3, 0))
                assert raised.value.outcome is Outcome.UNKNOWN
                yield namespace, at - before

    async def as_if_nothing_had_happened(self, namespace: Namespace) -> None:
        assert settled(await snapshot(self._transport, namespace.name), namespace.name) == self.whole
