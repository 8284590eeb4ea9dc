"""Examples for bugs that a machine finds only after thousands of steps, so that its short runs miss them."""

from __future__ import annotations

from sbredis.engine import NEVER, new_token
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.holding import holder, put


async def begin_again(bench: Bench) -> None:
    """Let the calls of the bench carry the run id of their server process from now on."""
    bench.run_id = "r1"
    await bench.due()


async def test_a_call_deletes_all_of_its_deferred_messages_or_none(bench: Bench) -> None:
    """If a later message were missing, the deleted messages could not be restored."""
    await bench.send(b"a" * 85, b"b" * 85)  # 100 bytes each, with the record's header
    held = await bench.receive()
    await bench.defer(*held)
    names = [message.name for message in held]
    for room, count, left in ((199, 0, 2), (200, 2, 0)):
        request = bench.partition.receive_deferred(bench.call_id(), new_token(), names, mode="delete", room=room)
        received = await bench.tell(request)
        assert (len(received.messages), received.missing, received.left) == (count, (), left)
    assert (await bench.count()).bytes == 0


async def test_message_numbers_jump_after_a_change_of_the_server_process(bench: Bench) -> None:
    """A number that a failover may have lost is never used again, on either side. The numbers jump only once."""
    await begin_again(bench)
    (one,) = await bench.send(b"one")
    await bench.dead_letter(await bench.one())
    bench.run_id = "r2"
    (two,) = await bench.send(b"two")
    (three,) = await bench.send(b"three")
    assert (int(two) - int(one), int(three) - int(two)) == (2**24 + 1, 1)
    await bench.dead_letter(await bench.one())
    first, second = await bench.receive(side="d")
    assert int(second.name[1:]) - int(first.name[1:]) == 2**24 + 1
    assert (first.payload, second.payload) == (b"one", b"two")


async def test_a_new_server_whose_clock_is_ahead_does_not_end_the_locks(bench: Bench) -> None:
    """A clock that is ahead by less than a lock duration does no harm."""
    await begin_again(bench)
    await bench.send(b"m")
    message = await bench.one()
    bench.run_id = "r2"
    bench.later(15_000)
    assert (await bench.complete(message)).lost == ()


@set_to(sessions=True)
async def test_a_session_purge_deletes_only_its_active_and_deferred_messages(bench: Bench) -> None:
    """Held and scheduled messages stay. All messages of other sessions stay too, even if the names are similar."""
    await put(bench, "s", b"deferred", b"held", b"active", b"brief", time_to_live=10**6)
    await put(bench, "s", b"scheduled", due=START + 10**6)
    others = [*(await put(bench, "ss", b"1")), *(await put(bench, "", b"2")), *(await put(bench, "t", b"3", b"4"))]
    mine, theirs = await holder(bench, "s"), await holder(bench, "t")
    await mine.defer(*await mine.receive(1))
    await mine.receive(1)
    await theirs.defer(*await theirs.receive(1))
    purged = await bench.tell(bench.partition.purge(bench.call_id(), NEVER, session="s"))
    assert (purged.count, purged.onwards) == (3, None)
    assert await bench.states() == {"2": "l", "5": "s"} | dict.fromkeys(others, "a") | {others[2]: "f"}


async def test_a_dead_letter_that_cannot_be_dead_lettered_keeps_its_own_lease(bench: Bench) -> None:
    await bench.send(b"one", b"two")
    await bench.dead_letter(*await bench.receive())
    one, two = await bench.receive(side="d")
    bench.later(SETTINGS.lock_duration - 1)
    assert (await bench.renew(one)).apart == (one.name,)
    assert (await bench.dead_letter(one)).unfit == (one.name,)
    bench.later(1)
    assert (await bench.complete(one, two)).lost == (two.name,)
