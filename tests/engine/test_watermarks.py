"""The watermarks of a partition: a transaction advances one only from the value that it expects."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sbredis.engine import (
    CallId,
    Lock,
    MalformedCallError,
    Operation,
    Outgoing,
    Transacted,
    TransactedSend,
    Watermark,
    advance,
    once,
    transfer,
)
from sbredis.engine._transaction import TransactionStep
from sbredis.exceptions import MessageLockLostError, ServiceBusQuotaExceededError, WatermarkChangedError
from tests.engine.transactions import ELSEWHERE, World

pytestmark = pytest.mark.anyio


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


async def test_a_watermark_is_stored_with_the_number_of_the_last_message(world: World) -> None:
    assert (await move(world, None, "1", b"x", b"y")).results == (TransactedSend(1, (), ()), 2)
    assert await stored(world) == {b"w:mark": b"2 1", b"watermarks": b"1"}
    assert (await move(world, "1", "2")).results == (2,)
    await world.send("a", b"z")
    assert (await move(world, "2", "3")).results == (2,)
    assert (await move(world, "3", "4", b"z")).results == (TransactedSend(4, (), ()), 4)
    assert await stored(world) == {b"w:mark": b"4 4", b"watermarks": b"1"}


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


@pytest.mark.parametrize("expected", [None, "2", "x" * 128])
async def test_another_value_than_the_expected_one_refuses_the_transaction(world: World, expected: str | None) -> None:
    await move(world, None, "1 and more", b"x")
    before = await world.everything()
    with pytest.raises(WatermarkChangedError, match=r"^The transaction was refused .*: 1 1 and more\. "):
        await move(world, expected, "3", b"y")
    assert await world.everything() == before


async def test_a_watermark_that_is_not_there_is_not_the_expected_one(world: World) -> None:
    before = await world.everything()
    with pytest.raises(WatermarkChangedError, match=r": -\. "):
        await move(world, "1", "2", b"x")
    assert await world.everything() == before


async def test_a_refused_transaction_does_not_advance_its_watermark(world: World) -> None:
    with pytest.raises(MessageLockLostError):
        await world.transact(
            advance(world.of["a"], b"mark", None, "1"), world.settling("complete", "b", Lock("nobodys-lock", "1"))
        )
    assert await stored(world) == {}


async def test_a_repeated_call_is_not_refused_by_its_own_watermark(world: World) -> None:
    call_id = world.call_id()
    work = (world.sending("a", Outgoing(b"x")), advance(world.of["a"], b"mark", None, "1"))
    first = await world.transact(*work, call_id=call_id)
    before = await world.data()
    assert await world.transact(*work, call_id=call_id) == first
    assert await world.data() == before


async def test_each_partition_has_watermarks_of_its_own(world: World) -> None:
    for name in "abcts":
        await world.transact(advance(world.of[name], b"mark", None, name))
    for name in "abcts":
        assert await stored(world, name) == {b"w:mark": b"0 " + name.encode(), b"watermarks": b"1"}


async def test_a_removed_watermark_can_be_set_anew(world: World) -> None:
    await move(world, None, "1", b"x")
    await move(world, "1", None)
    assert await stored(world) == {b"watermarks": b"0"}
    await move(world, None, "1")
    assert await stored(world) == {b"w:mark": b"0 1", b"watermarks": b"1"}


@pytest.mark.slow
async def test_a_partition_keeps_up_to_ten_thousand_watermarks(world: World) -> None:
    mine = world.of["a"]
    for at in range(0, 10_000, 100):
        await world.transact(*(advance(mine, b"%d" % number, None, "1") for number in range(at, at + 100)))
    before = await world.everything()
    with pytest.raises(ServiceBusQuotaExceededError, match="keeps 10000 watermarks already"):
        await move(world, None, "1", b"x")
    assert await world.everything() == before
    await world.transact(advance(mine, b"7", "1", "2"))
    await world.transact(advance(mine, b"7", "2", None), advance(mine, b"mark", None, "1"))
    with pytest.raises(ServiceBusQuotaExceededError):
        await world.transact(
            advance(mine, b"mark", "1", None), *(advance(mine, b"new %d" % number, None, "1") for number in (1, 2))
        )


async def listed(world: World, prefix: bytes = b"", name: str = "a") -> tuple[list[Watermark], int]:
    """Return the watermarks of a partition, and the number of parts."""
    found: list[Watermark] = []
    cursor, parts = None, 0
    while True:
        request = world.of[name].watermarks(prefix, cursor, call_id=CallId("", 0, world.now))
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


@pytest.mark.parametrize(
    "arguments",
    [("x",), ("x", ""), ("x", "", ""), ("", "", "1"), ("x", "", "1", ""), ("x", "", "\n"), ("x" * 513, "", "1")],
)
async def test_malformed_watermarks_are_refused(world: World, arguments: tuple[str, ...]) -> None:
    before = await world.everything()
    with pytest.raises(MalformedCallError, match="watermark"):
        await world.transact(Operation(world.of["a"], TransactionStep("advance", arguments)))
    assert await world.everything() == before


async def test_a_watermark_advances_once_in_a_transaction(world: World) -> None:
    with pytest.raises(MalformedCallError, match="watermark"):
        await world.transact(
            advance(world.of["a"], b"mark", None, "1"),
            advance(world.of["a"], b"mark", None, "2"),
        )


async def test_wrong_watermarks_are_refused_before_they_are_sent(world: World) -> None:
    for name, expected, value in ((b"", None, "1"), (b"x" * 513, None, "1"), (b"x", None, ""), (b"x", "\n", "1")):
        with pytest.raises(ValueError, match=r"name of a watermark has|printable ASCII"):
            advance(world.of["a"], name, expected, value)
    with pytest.raises(ValueError, match="cannot be removed"):
        advance(world.of["a"], b"x", None, None)
