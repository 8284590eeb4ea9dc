"""Transfers: a transaction stores messages for an entity in another slot. They wait until a client moves them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import NEVER, CallId, Changes, Outgoing, Partition, encode_changes, read_record, transfer
from sbredis.exceptions import MessageSizeExceededError, ServiceBusQuotaExceededError
from tests.engine.terms import Side, State, band, score
from tests.engine.transactions import ELSEWHERE, SETTINGS, World


async def stored(world: World, name: str, store: str) -> tuple[list[int], list[bytes], list[bytes], int]:
    """Return the numbers of the waiting transfers, their entries, their records, and the bytes of the store."""
    data = await world.data()
    first = score(band(Side.MAIN, State.TRANSFER), 0)
    members = {member: number - first for member, number in data[f"{name}:order"][1].items() if number >= first}
    waiting = [member for member, number in members.items() if member == b"%d" % number]
    entries = data[f"{name}:entries"][1]
    records = data[f"{store}:m0"][1]
    return (
        [int(member) for member in waiting],
        [entries[member] for member in waiting],
        [records[member] for member in waiting],
        int(data[f"{store}:store"][1][b"bytes"]),
    )


@pytest.mark.parametrize(("name", "store"), [("a", "a"), ("c", "c"), ("t", "t"), ("s", "t")])
async def test_a_transfer_is_stored_with_its_destination(world: World, name: str, store: str) -> None:
    await world.send("b", b"input")
    locks = await world.lock("b", "one-one-AAB")
    done = await world.transact(
        transfer(world.of[name], [Outgoing(b"one", 1000, 3), Outgoing(b"two")], ELSEWHERE, 9, "e"),
        world.settling("complete", "b", *locks),
    )
    assert done.results == (None, None)
    numbers, entries, records, held = await stored(world, name, store)
    assert numbers == [1, 2]
    place = encode_changes(Changes(destination="e the-e 9 e"))
    assert entries == [b"            3x-00000%d18;;;" % NEVER + place, b"            0x-00000%d18;;;" % NEVER + place]
    assert records == [b"a3%013done" % world.now, b"a0%013dtwo" % world.now]
    assert [read_record(record).payload for record in records] == [b"one", b"two"]
    assert held == 2 * (18 + len(place))
    assert await world.bodies("b") == []


async def test_a_waiting_transfer_is_neither_received_nor_peeked_and_does_not_expire(world: World) -> None:
    await world.transact(transfer(world.of["a"], [Outgoing(b"x", 1)], ELSEWHERE, 9, "e"))
    before = await stored(world, "a", "a")
    world.now += 10_000_000
    await world.send("a", b"later")
    assert await world.bodies("a") == [b"later"]
    assert [lock.name for lock in await world.lock("a", "one-one-AAB", 10)] == ["2"]
    purged = await world.tell(world.of["a"].purge(world.call_id(), NEVER))
    assert purged.count == 0
    after = await stored(world, "a", "a")
    assert after[:3] == before[:3]


async def test_a_repeated_transfer_is_stored_once(world: World) -> None:
    call_id = world.call_id()
    work = transfer(world.of["a"], [Outgoing(b"x")], ELSEWHERE, 9, "e")
    await world.transact(work, call_id=call_id)
    before = await world.data()
    await world.transact(work, call_id=call_id)
    assert await world.data() == before


async def test_transfers_and_sends_share_the_quota(world: World) -> None:
    full = Partition("world", "abc", "a", "the-a", 2, replace(SETTINGS, quota=70))
    await world.tell(full.configure(now=world.now))
    world.of["a"] = full
    work = transfer(full, [Outgoing(b"x" * 10)], ELSEWHERE, 9, "e")  # 40 bytes with its destination
    before = await world.everything()
    for works in ((work, work), (world.sending("a", Outgoing(b"y" * 40)), work)):
        with pytest.raises(ServiceBusQuotaExceededError, match=r"^The transaction was refused and has changed nothing"):
            await world.transact(*works)
        assert await world.everything() == before
    await world.transact(work, world.sending("a", Outgoing(b"y")))


@pytest.mark.slow
async def test_many_transfers_are_stored_in_the_hashes_of_their_numbers(world: World) -> None:
    for _ in range(41):
        await world.transact(transfer(world.of["a"], [Outgoing(b"x")] * 100, ELSEWHERE, 9, "e"))
    data = await world.data()
    assert (len(data["a:m0"][1]), len(data["a:m1"][1])) == (4095, 5)


async def test_a_deleted_subscription_gives_up_its_transfers(world: World) -> None:
    await world.transact(transfer(world.of["s"], [Outgoing(b"x")], ELSEWHERE, 9, "e"))
    while await world.tell(world.of["s"].destroy()):
        pass
    data = await world.data()
    assert data["t:store"][1][b"bytes"] == b"0"
    assert "t:m0" not in data


async def test_a_message_that_is_too_large_for_the_destination_is_refused_before_the_call(world: World) -> None:
    small = Partition("world", "xyz", "e", "the-e", 1, replace(SETTINGS, largest_message=3))
    with pytest.raises(MessageSizeExceededError):
        transfer(world.of["a"], [Outgoing(b"1234")], small, 9, "small")


async def test_a_lane_of_the_first_partition_recognises_the_call(world: World) -> None:
    """A transfer is an operation on the partition that stores it, not on its destination."""
    await world.transact(
        transfer(world.of["a"], [Outgoing(b"x")], ELSEWHERE, 9, "e"), call_id=CallId("lane", 1, world.now)
    )
    assert [key for key in await world.everything() if "xyz" in key] == []
