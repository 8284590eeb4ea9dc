"""The watermarks of a partition: a transaction advances one only from the value that it expects."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sbredis.engine import (
    MalformedCallError,
    Operation,
    Outgoing,
    Transacted,
    Watermark,
    advance,
    once,
    transfer,
)
from tests.engine.transactions import ELSEWHERE, World


async def move(world: World, expected: str | None, value: str | None, *bodies: bytes, name: str = "a") -> Transacted:
    """Advance the watermark ``mark`` in a transaction that sends messages."""
    sends = [world.sending(name, *(Outgoing(body) for body in bodies))] if bodies else []
    return await world.transact(*sends, advance(world.of[name], b"mark", expected, value))


def sending(world: World, name: str = "a") -> Operation:
    return world.sending(name, Outgoing(b"x"))


async def stored(world: World, name: str = "a") -> dict[bytes, bytes]:
    """Return everything that a partition remembers for good."""
    kept = (await world.data()).get(f"{name}:lasting")
    return {} if kept is None else dict(kept[1])


NUMBERS: dict[str, tuple[int, Callable[[World], list[Operation]]]] = {
    "several sends": (4, lambda world: [world.sending("a", Outgoing(b"2"), Outgoing(b"3")), sending(world)]),
    "a scheduled message": (2, lambda world: [world.sending("a", Outgoing(b"later", due=world.now + 1000))]),
    "a send to another queue": (0, lambda world: [sending(world, "b")]),
    "a send to two queues": (2, lambda world: [sending(world), sending(world, "b")]),
    "a message for another slot": (0, lambda world: [transfer(world.of["a"], [Outgoing(b"x")], ELSEWHERE, 9, "e")]),
    "no message": (0, lambda world: [once(world.of["a"], {b"key": 60_000})]),
}


@pytest.mark.parametrize("work", NUMBERS)
async def test_a_watermark_has_the_number_of_the_last_message_before_it(world: World, work: str) -> None:
    """Neither the messages of earlier transactions count, nor a message behind the watermark."""
    number, operations = NUMBERS[work]
    await world.send("a", b"1")
    done = await world.transact(*operations(world), advance(world.of["a"], b"mark", None, "1"), sending(world))
    assert done.results[-2] == number
    assert (await stored(world))[b"w:mark"] == b"%d 1" % number


async def listed(world: World, prefix: bytes = b"", name: str = "a") -> tuple[list[Watermark], int]:
    """Return the watermarks of a partition, and the number of parts."""
    found: list[Watermark] = []
    cursor, parts = None, 0
    while True:
        request = world.of[name].watermarks(prefix, cursor, call_id=world.at())
        part = await world.tell(request)
        found += part.watermarks
        cursor, parts = part.onwards, parts + 1
        if cursor is None:
            return sorted(found), parts


async def test_watermarks_are_listed_by_the_beginning_of_their_names(world: World) -> None:
    await move(world, None, "1 and more", b"x", b"y")
    for name in (b"mark-2", b"ma", b"other", b"w:mark", b"\xff"):
        await world.transact(advance(world.of["a"], name, None, "v"))
    await world.transact(once(world.of["a"], {b"mark-3": 60_000}))
    before = await world.everything()
    assert (await listed(world, b"mark"))[0] == [Watermark(b"mark", "1 and more", 2), Watermark(b"mark-2", "v", 0)]
    assert (await listed(world, b"m?*"))[0] == []
    assert len((await listed(world))[0]) == 6
    assert (await listed(world, name="b"))[0] == []
    assert await world.everything() == before


@pytest.mark.slow
async def test_many_watermarks_are_listed_in_parts(world: World) -> None:
    names = [b"%d" % number for number in range(3000)]
    for at in range(0, len(names), 100):
        await world.transact(*(advance(world.of["a"], name, None, "1") for name in names[at : at + 100]))
    found, parts = await listed(world)
    assert {each.name for each in found} == set(names)
    assert parts >= 3


async def test_a_watermark_advances_once_in_a_transaction(world: World) -> None:
    with pytest.raises(MalformedCallError, match="watermark"):
        await world.transact(advance(world.of["a"], b"mark", None, "1"), advance(world.of["a"], b"mark", None, "2"))


async def test_wrong_watermarks_are_refused_before_they_are_sent(world: World) -> None:
    for name, expected, value in ((b"", None, "1"), (b"x" * 513, None, "1"), (b"x", None, ""), (b"x", "\n", "1")):
        with pytest.raises(ValueError, match=r"name of a watermark has|printable ASCII"):
            advance(world.of["a"], name, expected, value)
    with pytest.raises(ValueError, match="cannot be removed"):
        advance(world.of["a"], b"x", None, None)
