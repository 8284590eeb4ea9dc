"""A partition notes its last use, at most once a minute, and is closed only if it is idle."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.engine import Operation, Outgoing, Request, SettingsStaleError, SidePrefix, quiet, withdraw
from tests.engine.bench import ENTITY, NAMESPACE, SALT, START, Bench, set_to
from tests.engine.moves import A, B, T, Town
from tests.engine.taking import first_token

MINUTE = 60_000
IDLE = 5 * MINUTE


async def used(bench: Bench) -> int:
    return (await bench.count()).used


async def begun(bench: Bench) -> None:
    """Use the partition now."""
    assert await bench.tell(bench.partition.touch(bench.at()))
    assert await used(bench) == bench.now


async def test_a_use_is_noted_at_most_once_a_minute(bench: Bench) -> None:
    await begun(bench)
    bench.later(MINUTE - 1)
    await bench.send(b"m")
    assert await used(bench) == START
    bench.later(1)
    await bench.send(b"m")
    assert await used(bench) == START + MINUTE


@pytest.mark.parametrize("name", ["send", "schedule", "receive", "complete", "purge", "touch"])
async def test_calls_of_users_are_uses(bench: Bench, name: str) -> None:
    await begun(bench)
    await bench.send(b"m")
    (held,) = await bench.receive()
    bench.later(MINUTE)
    of, call_id = bench.partition, bench.call_id()
    requests: dict[str, Request[Any]] = {
        "send": of.send(call_id, [Outgoing(b"m")]),
        "schedule": of.send(call_id, [Outgoing(b"m", due=bench.now + 5)]),
        "receive": bench.receiving(first_token(), 1),
        "complete": of.complete(call_id, [held.lock()]),
        "purge": of.purge(call_id, bench.now),
        "touch": of.touch(bench.at()),
    }
    await bench.tell(requests[name])
    assert await used(bench) == bench.now


async def test_calls_of_maintenance_and_readers_are_no_uses(bench: Bench) -> None:
    await begun(bench)
    bench.later(2 * MINUTE)
    of, call_id = bench.partition, bench.at()
    requests: list[Request[Any]] = [
        of.due(call_id),
        of.count(call_id),
        of.peek(0, 5, call_id=call_id),
        of.configure(now=bench.now),
    ]
    for request in requests:
        await bench.tell(request)
    await bench.tell(of.close(3 * MINUTE, of.version, now=bench.now))
    assert await used(bench) == START
    await bench.tell(of.configure(use=True, now=bench.now))
    assert await used(bench) == bench.now


async def test_the_idle_time_begins_when_a_scheduled_message_is_enqueued(bench: Bench) -> None:
    await begun(bench)
    await bench.send(b"m", due=START + 2 * IDLE)
    bench.later(2 * IDLE - 1)
    assert await bench.tell(bench.partition.close(IDLE, bench.partition.version, now=bench.now)) == (False, 0)
    bench.later(MINUTE)
    await bench.tell(bench.partition.due(bench.at()))
    assert await used(bench) == START + 2 * IDLE


async def test_an_idle_partition_is_closed_for_all_who_do_not_know_the_next_version(bench: Bench) -> None:
    await begun(bench)
    of = bench.partition
    bench.later(IDLE + MINUTE - 1)
    before = await bench.whole()
    assert await bench.tell(of.close(IDLE, of.version + 1, now=bench.now)) == (False, IDLE + MINUTE - 1)
    bench.later(1)
    assert await bench.tell(of.close(IDLE, of.version + 1, now=bench.now)) == (True, IDLE + MINUTE)
    assert set(await bench.whole()) == set(before)
    with pytest.raises(SettingsStaleError):
        await bench.send(b"m")
    assert await bench.tell(of.close(IDLE, of.version + 1, again=True, now=bench.now)) == (True, IDLE + MINUTE)


@set_to(forwards=True)
async def test_a_partition_that_forwards_its_messages_is_never_idle(bench: Bench) -> None:
    await begun(bench)
    bench.later(100 * IDLE)
    assert await bench.tell(bench.partition.close(IDLE, bench.partition.version, now=bench.now)) == (False, 0)


async def idle_later(bench: Bench) -> bool:
    """Return whether the partition is idle after a long time without use."""
    bench.later(100 * IDLE)
    closing = await bench.tell(bench.partition.close(IDLE, bench.partition.version, now=bench.now))
    assert closing.closed == (closing.quiet > 0)
    return closing.closed


async def test_a_partition_with_dead_letters_is_idle_unless_it_forwards_them(bench: Bench) -> None:
    await bench.send(b"m")
    await bench.dead_letter(await bench.one())
    assert await idle_later(bench)
    await bench.change(forwards_dead=True)
    assert not await idle_later(bench)


@set_to(forwards_dead=True, dead_letter_expired=True)
async def test_a_message_that_becomes_a_dead_letter_to_be_forwarded_keeps_the_partition(bench: Bench) -> None:
    """The message expires after the last call, so the check that the partition is idle applies the expiry."""
    await bench.send(b"m", time_to_live=1000)
    assert not await idle_later(bench)
    assert (await bench.count()).dead_active == 1


@set_to(forwards_dead=True, max_delivery_count=1)
async def test_a_locked_message_that_becomes_a_dead_letter_to_be_forwarded_keeps_the_partition(bench: Bench) -> None:
    await bench.send(b"m")
    await bench.one()
    assert not await idle_later(bench)


@set_to(forwards_dead=True)
async def test_a_partition_with_much_due_work_is_in_use_until_the_work_is_done(bench: Bench) -> None:
    await bench.send(*[b"m"] * 900, time_to_live=1000)
    assert [await idle_later(bench) for _ in range(4)] == [False, False, False, True]


@pytest.mark.parametrize("side", ["", "d", "t"])
async def test_a_transfer_and_a_batch_from_any_side_keep_the_partition(town: Town, side: SidePrefix) -> None:
    async def idle() -> bool:
        town.now += 100 * IDLE
        return (await town.tell(town.of["n"].close(IDLE, 1, now=town.now))).closed

    if side == "d":
        await town.bury("n", b"m")
    elif side == "t":
        await town.transfer("n", A, b"m")
        assert not await idle()
        (transfer,) = (await town.waiting("n")).messages
        batch = await town.freeze(A, transfer, name="n")
        assert batch is not None
        changes = {transfer.name: transfer.changes}
        assert await town.tell(town.settling(batch, "refused", await town.birth("n"), changes=changes, name="n"))
    else:
        await town.send("n", b"m")
    assert await idle()
    batch = await town.freeze(B, *await town.peek("n", side), name="n", purpose=b"redrive")
    assert batch is not None
    assert not await idle()
    assert await town.tell(town.settling(batch, "taken", await town.birth("n"), name="n"))
    assert await idle()


async def test_a_mover_that_publishes_in_the_slot_of_the_topic_does_not_use_the_topic(town: Town) -> None:
    async def last_uses() -> list[bytes | None]:
        return [await town.field(name, "state", "used") for name in ("t", "s")]

    await town.transfer("a", B, b"m")
    messages, before = (await town.waiting("a")).messages, await last_uses()
    town.now += IDLE
    moved = Operation(town.of["t"], town.sending(T, *messages))
    await town.transact(withdraw(town.of["a"], await town.birth("a"), messages), moved)
    assert await town.bodies("s") == [b"m"]
    assert await last_uses() == before


async def test_many_partitions_are_asked_for_their_last_use_in_one_call(bench: Bench) -> None:
    await begun(bench)
    bench.later(1234)
    asked = [(ENTITY, None)]
    assert await bench.tell(quiet(NAMESPACE, SALT, asked, bench.now)) == (1234,)
    assert await bench.tell(quiet(NAMESPACE, SALT, asked)) == (None,)
    with pytest.raises(ValueError, match="number of partitions"):
        quiet(NAMESPACE, SALT, [])
