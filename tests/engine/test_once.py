"""The keys of transactions: a partition remembers each for a window, and refuses a transaction with a known key."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sbredis.engine import NEVER, Lock, MalformedCallError, Operation, Outgoing, Transacted, once
from sbredis.engine._scripts import load, operations
from sbredis.engine._transaction import TransactionStep
from sbredis.exceptions import KeyAlreadyUsedError, MessageLockLostError
from sbredis.transport import forget_memory, open_transport
from tests.engine.transactions import World

pytestmark = pytest.mark.anyio

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


async def test_a_second_transaction_with_the_key_is_refused_and_changes_no_byte(world: World) -> None:
    await remember(world, b"order 1")
    await world.send("a", b"input")
    locks = await world.lock("a", "token-of-one")
    before = await world.everything()
    with pytest.raises(KeyAlreadyUsedError, match=r"^The transaction was refused and has changed nothing"):
        await world.transact(
            world.sending("b", Outgoing(b"again")),
            world.settling("complete", "a", *locks),
            once(world.of["a"], {b"new": MINUTE, b"order 1": MINUTE}),
        )
    assert await world.everything() == before
    assert await world.bodies("b") == [b"of order 1"]


async def test_a_repeated_call_is_not_refused_by_its_own_key(world: World) -> None:
    call_id = world.call_id()
    work = (once(world.of["a"], {b"order 1": MINUTE}), world.sending("b", Outgoing(b"x")))
    first = await world.transact(*work, call_id=call_id)
    before = await world.data()
    assert await world.transact(*work, call_id=call_id) == first
    assert await world.data() == before


async def test_a_refused_transaction_does_not_remember_its_key(world: World) -> None:
    with pytest.raises(MessageLockLostError):
        await world.transact(
            once(world.of["a"], {b"order 1": MINUTE}), world.settling("complete", "b", Lock("nobodys-lock", "1"))
        )
    assert await remembered(world) == {}
    await remember(world, b"order 1")


async def test_a_key_is_known_until_its_window_ends(world: World) -> None:
    await remember(world, b"order 1", window=100)
    world.now += 99
    with pytest.raises(KeyAlreadyUsedError):
        await remember(world, b"order 1", window=100)
    world.now += 1
    await remember(world, b"order 1", window=100)
    with pytest.raises(KeyAlreadyUsedError):
        await remember(world, b"order 1")
    assert await counted(world) == (7, 0)


async def test_each_partition_has_keys_of_its_own(world: World) -> None:
    await remember(world, b"order 1")
    for name in "bcts":
        await remember(world, b"order 1", name=name)
        with pytest.raises(KeyAlreadyUsedError):
            await remember(world, b"order 1", name=name)


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


@pytest.mark.slow
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


@pytest.mark.parametrize(
    "arguments",
    [
        ("1",),
        ("1", ""),
        ("0", "x"),
        ("x", "x"),
        ("1", "x", "1"),
        ("1", "x", "1", "x"),
        ("1", "x" * 513),
    ],
)
async def test_malformed_keys_are_refused(world: World, arguments: tuple[str, ...]) -> None:
    before = await world.everything()
    with pytest.raises(MalformedCallError, match="once"):
        await world.transact(Operation(world.of["a"], TransactionStep("once", arguments)))
    assert await world.everything() == before


async def test_a_key_in_two_operations_of_a_transaction_is_refused(world: World) -> None:
    key = once(world.of["a"], {b"x": 1})
    with pytest.raises(MalformedCallError, match="once"):
        await world.transact(key, key)


async def refusals(steps: list[tuple[int, list[int], int]]) -> tuple[list[bool], list[bool]]:
    """Remember keys at times. Return for each step whether it was refused, and whether it had to be."""
    name = uuid4().hex
    found: list[bool] = []
    expected: list[bool] = []
    ends: dict[int, int] = {}
    async with await open_transport(f"memory://{name}", scripts=[load(each) for each in operations()]) as transport:
        world = await World(transport).create()
        for later, keys, window in steps:
            world.now += later
            expected.append(any(ends.get(key, 0) > world.now for key in keys))
            try:
                await remember(world, *(b"%d" % key for key in keys), window=window)
            except KeyAlreadyUsedError:
                found.append(True)
            else:
                found.append(False)
                ends |= dict.fromkeys(keys, world.now + window)
        stored = await remembered(world)
        assert {int(key) for key in stored} >= {key for key, end in ends.items() if end > world.now}
        assert await counted(world) == (sum(map(len, stored)), 0)
        forget_memory(name)
    return found, expected


@pytest.fixture
def opened() -> None:
    """Import what a transport in memory needs. Python 3.11 may fail to compile a module below Hypothesis's frames."""
    asyncio.run(refusals([]))


@pytest.mark.slow
@pytest.mark.usefixtures("opened")
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.integers(0, 30), st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True), st.integers(1, 60)
        ),
        max_size=25,
    )
)
def test_a_transaction_is_refused_exactly_within_the_windows_of_its_keys(
    steps: list[tuple[int, list[int], int]],
) -> None:
    found, expected = asyncio.run(refusals(steps))
    gc.collect()  # an in-memory server ends as a reference cycle
    assert found == expected
