"""Moves of messages between partitions: each message is at one place, whatever is repeated or lost on the way."""

from __future__ import annotations

import pytest

from sbredis.engine import (
    Batch,
    Changes,
    Content,
    Delivery,
    Destination,
    Lock,
    MessagesMovedError,
    MovesRead,
    Operation,
    Origin,
    Outgoing,
    Recipient,
    SessionLock,
    calling,
    encode,
    encode_changes,
    read_record,
    recipient_of,
    transact,
    withdraw,
)
from sbredis.engine._keys import KINDS
from sbredis.engine._moving import Verdict
from sbredis.exceptions import ServiceBusQuotaExceededError
from tests.engine.bench import everything
from tests.engine.moves import NAMESPACE, A, B, T, Town, body_of
from tests.engine.taking import first_token

WHY = encode_changes(Changes(reason="because", description="It was refused."))


# -- between slots -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("destination", [A, T])
async def test_messages_go_to_a_queue_and_to_the_subscriptions_of_a_topic(town: Town, destination: Destination) -> None:
    await town.send("q", b"one", b"two")
    await town.move(destination, *(await town.waiting()).messages)
    assert await town.received("a" if destination == A else "s") == [b"one", b"two"]
    assert await town.bodies("q") == []


async def test_nothing_is_left_of_a_move_but_the_verdict(town: Town) -> None:
    """The source has as many bytes and entries as before; the destination keeps one field for each source."""
    before = await town.everything("q")
    await town.send("q", b"m", time_to_live=5000)
    await town.send("q", b"n", time_to_live=1000)
    await town.move(A, *(await town.waiting()).messages)
    await town.waiting()
    after = await town.everything("q")
    for kind in ("order", "entries", "due", "refs", "m0"):
        assert after.get(f"sb:{NAMESPACE}:{{abc}}:q:{kind}") == before.get(f"sb:{NAMESPACE}:{{abc}}:q:{kind}"), kind
    assert await town.field("q", "store", "bytes") == b"0"
    kept = (await town.everything("a"))[f"sb:{NAMESPACE}:{{abd}}:a:lasting"][1]
    assert len(kept) == 1


async def test_frozen_messages_cannot_be_received_or_purged_but_are_peeked_as_active(town: Town) -> None:
    (name,) = await town.bury("q", b"dead")
    await town.send("q", b"one", b"two")
    one = (await town.waiting()).messages[0]
    await town.freeze(A, one)
    dead = (await town.peek("q", "d"))[0]
    await town.freeze(B, dead)
    assert dead.name == name
    assert [(body_of(each), each.state) for each in await town.peek("q")] == [(b"one", "a"), (b"two", "a")]
    assert [(body_of(each), each.state) for each in await town.peek("q", "d")] == [(b"dead", "a")]
    counts = await town.tell(town.of["q"].count(town.call_id()._replace(lane="", number=0)))
    assert (counts.active, counts.frozen, counts.dead_active, counts.dead_frozen) == (1, 1, 0, 1)
    purged = await town.tell(town.of["q"].purge(town.call_id(), 9_999_999_999_999))
    assert purged.count == 1
    assert await town.received("q") == []
    assert await town.received("q", "d") == []


# -- what is repeated, or late -----------------------------------------------------------------------------------------


async def test_at_most_64_batches_are_outstanding(town: Town) -> None:
    await town.send("q", *(b"m" for _ in range(65)))
    *some, last = (await town.waiting()).messages
    for number, message in enumerate(some):
        assert await town.freeze(Destination("a", number), message) is not None
    assert await town.freeze(Destination("a", 64), last) is None
    assert (await town.waiting()).messages == (last,)


async def test_a_batch_that_no_call_can_carry_is_refused_unless_it_was_judged_before(town: Town) -> None:
    await town.send("q", b"one", b"two")
    one, two = (await town.waiting()).messages
    birth = await town.birth()
    for message, before in ((one, None), (two, "taken")):
        batch = await town.freeze(A, message)
        assert batch is not None
        if before is not None:
            await town.tell(town.taking(batch, birth, message))
        there = await town.everything("a")
        asking = town.of["a"].take(Origin("q", birth), batch, "", None, now=town.now)
        taken = await town.tell(asking)
        assert (taken.verdict, taken.detail) == (before or "TOOLARGE", "")
        assert await town.tell(town.taking(batch, birth, message)) == taken
        assert await town.tell(asking) == taken
        if before is not None:
            assert await town.everything("a") == there
        verdict: Verdict = "taken" if before else "back"
        assert await town.tell(town.settling(batch, verdict, birth))
    assert await town.bodies("a") == [b"two"]
    assert await town.bodies("q") == [b"one"]


# -- what is refused for good ------------------------------------------------------------------------------------------


async def test_a_reason_may_make_a_message_the_largest_of_its_partition(town: Town) -> None:
    """Calls that read messages estimate their size by the largest one."""
    await town.send("q", b"one")
    (one,) = (await town.waiting()).messages
    batch = await town.freeze(A, one)
    assert batch is not None
    changes = {one.name: encode_changes(Changes(reason="because", description="x" * 2000))}
    await town.tell(town.settling(batch, "refused", await town.birth(), changes=changes))
    (dead,) = await town.peek("q", "d")
    marks = await town.field("q", "state", "marks")
    assert marks is not None
    assert int(marks.split()[6]) == len(dead.record) + len(dead.changes)


async def test_a_dead_letter_that_is_refused_stays_and_is_not_forwarded_again(town: Town) -> None:
    await town.bury("q", b"one", b"two")
    one, two = (await town.waiting()).messages
    batch = await town.freeze(A, one)
    assert batch is not None
    await town.tell(town.settling(batch, "refused", await town.birth(), changes={one.name: WHY}))
    assert (await town.waiting()).messages == (two,)
    assert await town.peek("q", "d") == (one, two)
    await town.move(A, two)
    assert await town.peek("q", "d") == (one,)
    assert (await town.waiting()).messages == ()
    batch = await town.freeze(A, one)  # as a redrive does
    assert batch is not None
    await town.tell(town.settling(batch, "refused", await town.birth(), changes={one.name: WHY}))
    token = first_token()
    (held,) = await town.receive("q", token, 5, side="d")
    assert (held.name, held.changes) == (one.name, one.changes)
    await town.tell(town.of["q"].abandon(town.call_id(), [Lock(token, one.name)]))
    assert (await town.waiting()).messages == (one,)


# -- rolled back, made again -------------------------------------------------------------------------------------------


async def roll_back(town: Town, name: str, before: dict[str, tuple[str, object]], run_id: str = "other") -> None:
    """Give a partition the data that it had before, as a failover does. The server is another one afterwards."""
    for key in town.of[name].keys:
        await town.transport.command("UNLINK", key, key=key)
        kind, data = before.get(key.decode(), ("", None))
        if kind == "hash":
            flat = [part for pair in dict(data).items() for part in pair]  # type: ignore[call-overload]
            await town.transport.command("HSET", key, *flat, key=key)
        elif kind == "zset":
            flat = [part for member, score in dict(data).items() for part in (score, member)]  # type: ignore[call-overload]
            await town.transport.command("ZADD", key, *flat, key=key)
    await town.put(name, run_id=run_id)


async def taken_and_lost(town: Town, waiting: MovesRead, *messages: Delivery) -> Batch:
    """Freeze messages, let the destination take them, and let the source forget the batch."""
    before = await town.everything("q")
    batch = await town.freeze(A, *messages)
    assert batch is not None
    await town.tell(town.taking(batch, waiting.birth, *messages))
    await roll_back(town, "q", before)
    return batch


# -- within a slot -----------------------------------------------------------------------------------------------------


async def test_within_a_slot_one_transaction_moves_messages(town: Town) -> None:
    await town.bury("q", b"dead")
    await town.send("q", b"one", b"two")
    one, two, dead = (await town.waiting()).messages
    operations = [
        withdraw(town.of["q"], await town.birth(), [one, two, dead]),
        Operation(town.of["n"], town.sending(Destination("n", 0), one, two, dead)),
    ]
    await town.transact(*operations)
    assert await town.bodies("n") == [b"one", b"two", b"dead"]
    assert (await town.waiting()).messages == ()
    assert await town.field("q", "store", "bytes") == b"0"
    with pytest.raises(MessagesMovedError, match=f"{one.name} {two.name} {dead.name}"):
        await town.transact(*operations)
    assert len(await town.bodies("n")) == 3


async def test_a_refused_destination_leaves_the_messages_where_they_are(town: Town) -> None:
    await town.send("q", b"one")
    messages = (await town.waiting()).messages
    key = town.of["n"].keys[8]
    await town.transport.command("HSET", key, "quota", 4, key=key)
    before = await town.everything()
    with pytest.raises(ServiceBusQuotaExceededError):
        await town.transact(
            withdraw(town.of["q"], await town.birth(), messages),
            Operation(town.of["n"], town.sending(Destination("n", 0), *messages)),
        )
    assert await town.everything() == before


# -- reading in parts --------------------------------------------------------------------------------------------------


async def test_waiting_messages_are_read_in_parts(town: Town) -> None:
    await town.send("q", *(b"%d" % number for number in range(5)))
    await town.bury("q", b"d")
    seen: list[bytes] = []
    start = 0
    while True:
        part = await town.waiting(start=start, wanted=2)
        seen += map(body_of, part.messages)
        start = part.onward
        if not start:
            break
    assert sorted(seen) == [b"0", b"1", b"2", b"3", b"4", b"d"] or len(seen) == 6


async def test_nothing_is_read_while_due_work_is_left(town: Town) -> None:
    for _ in range(3):
        await town.send("q", *[b"m"] * 400, time_to_live=1000)
    await town.send("q", b"long")
    town.now += 1000
    first = await town.waiting()
    assert (first.more, first.messages) == (True, ())
    while (waiting := await town.waiting()).more:
        pass
    assert [body_of(each) for each in waiting.messages] == [b"long"]


# -- transfers ---------------------------------------------------------------------------------------------------------


async def test_a_transfer_waits_and_moves(town: Town) -> None:
    """It waits in any entity, also in one that forwards nothing. A peek can ask for it; it cannot be received."""
    (name,) = await town.transfer("n", A, b"one")
    waiting = await town.waiting("n")
    (message,) = waiting.messages
    assert (message.name, message.state, body_of(message)) == (name, "x", b"one")
    assert recipient_of(message) == Recipient("a", "the-a", 1, "a")
    assert [(each.name, each.state) for each in await town.peek("n")] == [(name, "x")]
    assert await town.received("n") == []
    await town.move(A, message, name="n")
    assert await town.bodies("a") == [b"one"]
    assert await town.peek("n") == ()
    assert await town.field("n", "store", "bytes") == b"0"


async def test_a_transfer_calls_for_a_mover(town: Town) -> None:
    await town.transfer("n", A, b"one")
    await town.put("n", calling="")
    await town.transfer("n", A, b"two")
    assert await town.tell(calling(NAMESPACE, "abc", ["n"])) == (True,)


async def test_a_refused_transfer_becomes_a_transfer_dead_letter(town: Town) -> None:
    await town.transfer("n", A, b"one")
    messages = (await town.waiting("n")).messages
    batch = await town.freeze(A, *messages, name="n")
    assert batch is not None
    changes = {messages[0].name: WHY}
    assert await town.tell(town.settling(batch, "refused", await town.birth("n"), changes=changes, name="n"))
    assert await town.peek("n") == await town.peek("n", "d") == ()
    (dead,) = await town.peek("n", "t")
    assert (body_of(dead), dead.reason, dead.changes) == (b"one", "A", WHY)
    assert read_record(dead.record).enqueued == town.now
    assert await town.received("n", "t") == [b"one"]
    assert await town.field("n", "store", "bytes") == b"%d" % (len(dead.record) + len(WHY))


@pytest.mark.parametrize("target", ["server"])
@pytest.mark.parametrize("count", [6, 80])
async def test_messages_of_a_lost_batch_are_recognised_one_by_one(town: Town, count: int) -> None:
    """The batch that was lost, and the next one, consist of every second message and of every third."""
    await town.send("q", *(b"%d" % number for number in range(count)))
    waiting = await town.waiting()
    lost, later = waiting.messages[::2], waiting.messages[::3]
    await taken_and_lost(town, waiting, *lost)
    again = await town.freeze(A, *later)
    assert again is not None
    taken = await town.tell(town.taking(again, waiting.birth, *later))
    assert (taken.verdict, taken.names) == ("again", tuple(each.name for each in waiting.messages[::6]))


# -- sources with sessions ---------------------------------------------------------------------------------------------


async def in_sessions(town: Town) -> list[bytes]:
    """Return the messages of sessions, as the index of sessions has them, and the sessions that are free."""
    of = town.of["e"]
    data = await everything(town.transport, of.keys)
    kinds = {kind: data.get(key.decode(), ("", {}))[1] for kind, key in zip(KINDS, of.keys, strict=True)}
    return sorted([*kinds["sessions"], *kinds["turns"]])


async def test_frozen_messages_are_in_no_session_until_they_come_back(town: Town) -> None:
    bodies = [Outgoing(encode(Content(body, session_id=session))) for body, session in ((b"1", "x"), (b"2", "y"))]
    await town.tell(town.of["e"].send(town.call_id(), bodies))
    before = await in_sessions(town)
    assert len(before) == 4
    waiting = (await town.waiting("e")).messages
    assert [each.name for each in waiting] == ["1", "2"]
    birth = await town.birth("e")
    batch = await town.freeze(A, *waiting, name="e")
    assert batch is not None
    assert await in_sessions(town) == []
    assert await town.tell(town.settling(batch, "back", birth, name="e"))
    assert await in_sessions(town) == before
    await town.move(A, *(await town.waiting("e")).messages, name="e")
    assert await in_sessions(town) == []
    assert await town.bodies("a") == [b"1", b"2"]
    assert await town.field("e", "store", "bytes") == b"0"


async def test_withdrawn_messages_leave_their_sessions(town: Town) -> None:
    await town.tell(town.of["e"].send(town.call_id(), [Outgoing(encode(Content(b"1", session_id="x")))]))
    (waiting,) = (await town.waiting("e")).messages
    work = withdraw(town.of["e"], await town.birth("e"), [waiting])
    sending = Operation(
        town.of["n"], town.of["n"].send(town.call_id(), [Outgoing(read_record(waiting.record).payload)])
    )
    await town.tell(transact(town.call_id(), [work, sending]))
    assert await in_sessions(town) == []
    assert await town.bodies("n") == [b"1"]


async def test_a_deferred_message_leaves_its_session_and_comes_back_deferred(town: Town) -> None:
    of, token = town.of["e"], first_token()
    await town.put("e", forwards="0")
    await town.tell(of.send(town.call_id(), [Outgoing(encode(Content(b"1", session_id="x")))]))
    await town.tell(of.accept_session(town.call_id(), token, "x"))
    (held,) = await town.receive("e", token, 1, session="x")
    await town.tell(of.defer(town.call_id(), [Lock(token, held.name)]))
    await town.tell(of.release_session(town.call_id(), SessionLock("x", token)))
    before = await in_sessions(town)
    (deferred,) = await town.peek("e")
    assert deferred.state == "f"
    birth = await town.birth("e")
    batch = await town.freeze(A, deferred, name="e", purpose=b"any text")
    assert batch is not None
    assert await in_sessions(town) == []
    assert await town.tell(town.settling(batch, "back", birth, name="e"))
    assert await in_sessions(town) == before
    assert await town.peek("e") == (deferred,)
