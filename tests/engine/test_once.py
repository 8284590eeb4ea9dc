"""The keys of transactions: a partition remembers each for a window, and refuses a transaction with a known key."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sbredis.engine import NEVER, MalformedCallError, Outgoing, Transacted, once
from tests.engine.transactions import World

MINUTE = 60_000


async def remember(world: World, *keys: bytes, window: int = MINUTE, name: str = "a") -> Transacted:
    """Send a message in a transaction that remembers keys."""
    return await world.transact(
        once(world.of[name], dict.fromkeys(keys, window)), world.sending("b", Outgoing(b"of " + keys[0][:20]))
    )


async def remembered(world: World, name: str = "a") -> Mapping[bytes, float]:
    """Return the keys that a partition has stored, and the ends of their windows."""
    stored = (await world.data()).get(f"{name}:once")
    return {} if stored is None else dict(stored[1])


async def counted(world: World, name: str = "a") -> tuple[int, int]:
    """Return the bytes of the remembered keys, and the number of keys that were forgotten too early."""
    fields = (await world.data())[f"{name}:state"][1]
    return int(fields[b"once_bytes"]), int(fields[b"once_forgotten"])


async def test_keys_whose_windows_have_ended_are_deleted(world: World) -> None:
    for number in range(3):
        await remember(world, *(b"%d-%d" % (number, key) for key in range(100)), window=100 + number)
    assert len(await remembered(world)) == 300
    world.now += 101
    await remember(world, b"one")
    assert len(await remembered(world)) == 200  # the call deletes up to 100 keys more than it adds
    world.now += 10
    await remember(world, b"2-99")
    assert set(await remembered(world)) >= {b"one", b"2-99"}
    await remember(world, b"two")
    assert set(await remembered(world)) == {b"one", b"2-99", b"two"}
    assert await counted(world) == (10, 0)


@pytest.mark.parametrize("target", ["server"], indirect=True)  # memory has the same limit, and takes longest to fill
async def test_a_partition_without_room_forgets_the_keys_whose_windows_end_first(world: World) -> None:
    """The keys have up to 8 MB together."""
    long = [b"%0512d" % number for number in range(16_400)]
    at = 0
    while at < 16_384:
        window = 2 * MINUTE if at else MINUTE  # the windows of the first keys end first
        done = await remember(world, *long[at : at + 64], window=window)
        assert done.forgotten == 0
        at += 64
    assert await counted(world) == (8_388_608, 0)
    done = await remember(world, *long[16_384:16_390], window=1)
    assert 6 <= done.forgotten <= 15
    stored = await remembered(world)
    assert set(long[64:16_390]) <= set(stored)
    bytes_, forgotten = await counted(world)
    assert (bytes_, forgotten) == (512 * len(stored), done.forgotten)
    assert bytes_ <= 8_388_608


async def test_a_transaction_takes_up_to_a_hundred_keys_of_up_to_512_bytes(world: World) -> None:
    many = {b"%d" % number: 1 for number in range(101)}
    for keys in ({}, many, {b"": 1}, {b"x" * 513: 1}, {b"x": 0}, {b"x": NEVER + 1}):
        with pytest.raises(ValueError, match=r"a (transaction takes|key has) 1 to|window must be"):
            once(world.of["a"], keys)


async def test_a_key_in_two_operations_of_a_transaction_is_refused(world: World) -> None:
    key = once(world.of["a"], {b"x": 1})
    with pytest.raises(MalformedCallError, match="once"):
        await world.transact(key, key)
