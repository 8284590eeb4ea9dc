"""A message whose record is missing or damaged: the message is set aside, and the others go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import (
    NEVER,
    Copy,
    Delivery,
    Outgoing,
    Received,
    Rows,
    columns_of,
    decode,
    new_token,
    payload_offset,
    perform,
    read_record,
)
from sbredis.exceptions import ServiceBusQuotaExceededError
from tests.engine.bench import SETTINGS, Bench, Held, set_to
from tests.engine.granting import grantors
from tests.engine.holding import body, holder, listed, put
from tests.engine.losing import each_damage, lose
from tests.engine.moves import A, Town
from tests.engine.reserving import Reader
from tests.engine.taking import first_token
from tests.engine.topics import Topic

LOCK = SETTINGS.lock_duration
sessions = set_to(sessions=True)
NO_STATES = {"more", "due", "bytes", "last", "used"}


@pytest.fixture
def damage() -> str:
    """How a record is lost. One script reads all records; tests with each damage show what it takes for whole."""
    return "missing"


async def damage_of(bench: Bench, damage: str, *names: str) -> None:
    await lose(bench.transport, bench.partition, damage, names)


def shown(messages: tuple[Delivery, ...] | list[Delivery] | list[Held]) -> list[tuple[str, str]]:
    """Return the names and the reasons of messages, after a look at their content: that of a lost message is empty."""
    for one in messages:
        delivery = one.delivery if isinstance(one, Held) else one
        if delivery.reason == "R":
            record = read_record(delivery.record)
            assert (record.enqueued, record.expires) == (None, NEVER)
            assert decode(delivery.record, payload_offset(delivery.record)).body == b""
    return [(one.name, one.reason) for one in messages]


async def counted(bench: Bench) -> dict[str, int]:
    """Return the numbers of messages by state, without those that are 0."""
    counts = (await bench.count())._asdict()
    return {name: number for name, number in counts.items() if number and name not in NO_STATES}


async def nothing_is_left(bench: Bench) -> None:
    """Receive the dead letters, and check that the partition is empty and can be full again."""
    while dead := await bench.receive(100, side="d"):
        await bench.complete(*dead)
    assert await counted(bench) == {}
    whole = {key.decode().rpartition(":")[2] for key in bench.partition.keys} & {
        key.rpartition(":")[2] for key in await bench.whole()
    }
    kept = {"state", "store", "order", "entries", "ops", "words", "kept"}
    assert whole <= kept, "something of a lost message is left"


# -- receiving ---------------------------------------------------------------------------------------------------------


@each_damage
@pytest.mark.parametrize("mode", ["lock", "delete"])
@pytest.mark.parametrize("place", [0, 1, 2], ids=["first", "middle", "last"])
async def test_a_receive_sets_a_lost_message_aside_and_gives_out_the_others(
    bench: Bench, damage: str, place: int, mode: str
) -> None:
    names = await bench.send(b"1", b"2", b"3", time_to_live=100_000)
    await damage_of(bench, damage, names[place])
    found = await bench.receive(mode="delete" if mode == "delete" else "lock")
    assert [message.payload for message in found] == [one for at, one in enumerate((b"1", b"2", b"3")) if at != place]
    assert shown(await bench.peek(side="d")) == [("d1", "R")]
    if mode == "lock":
        await bench.complete(*found)
    await nothing_is_left(bench)


async def test_messages_of_each_level_are_set_aside(bench: Bench, damage: str) -> None:
    low, lost, high = [(await bench.send(text, level=level))[0] for text, level in ((b"l", 0), (b"x", 3), (b"h", 7))]
    await damage_of(bench, damage, lost)
    assert [message.name for message in await bench.receive(1)] == [low]
    assert [message.name for message in await bench.receive(1)] == [high]
    assert shown(await bench.peek(side="d")) == [("d1", "R")]


async def test_one_call_sets_aside_at_most_a_hundred_messages_and_asks_for_another_call(
    bench: Bench, damage: str
) -> None:
    names = await bench.send(*[b"x"] * 250, b"good")
    await damage_of(bench, damage, *names[:-1])
    for left in (150, 50):
        found, received = await bench.receive_more()
        assert (found, received.more) == ([], True)
        assert (await counted(bench))["active"] == left + 1
    assert [message.payload for message in await bench.receive()] == [b"good"]
    assert (await counted(bench))["dead_active"] == 250


async def test_a_lost_message_alone_leaves_nothing_to_receive(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1")
    await damage_of(bench, damage, *names)
    found, received = await bench.receive_more()
    assert (found, received.more) == ([], False)


@pytest.mark.parametrize("ready", [1, 2])
async def test_a_lost_message_that_cannot_be_pushed_is_set_aside_once(bench: Bench, damage: str, ready: int) -> None:
    """The first receiver does not listen any more, and the next one is looked at too."""
    make = await grantors(bench)
    await bench.send(b"lost", *[b"other"] * (ready - 1))
    held = await bench.receive(ready)
    await damage_of(bench, damage, "1")
    gone, there = await make("a", listens=False), await make("b")
    await gone.grant()
    await there.grant()
    await bench.abandon(*held, counted=False)
    assert await there.pushed() == ["2"][: ready - 1]
    assert await bench.states(side="d") == {"d1": "a"}


async def test_a_repeated_grant_leaves_out_a_message_that_was_lost_since_then(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2")
    request = bench.receiving(first_token(), 10)
    assert len((await bench.tell(request)).messages) == 2
    await damage_of(bench, damage, names[0])
    again = (await bench.tell(request)).messages
    assert shown(again) == [(names[1], "-")]
    bench.later(LOCK)
    assert [message.name for message in await bench.receive()] == [names[1]]
    assert shown(await bench.peek(side="d")) == [("d1", "R")]


@set_to(audited=True)
async def test_a_lost_message_of_an_audited_entity_is_noted_as_a_dead_letter(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2")
    await damage_of(bench, damage, names[0])
    await bench.receive()
    await bench.complete(*await bench.receive(side="d"))
    notes = [text for key, (kind, held) in (await bench.whole()).items() if kind == "stream" for text in held.values()]
    assert any(b" d1 g2=" in note for note in notes), notes


# -- settling ----------------------------------------------------------------------------------------------------------


async def test_a_locked_message_can_be_completed_without_its_record(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2")
    held = await bench.receive()
    await damage_of(bench, damage, *names)
    assert (await bench.renew(*held)).lost == ()
    assert (await bench.complete(*held)).lost == ()
    assert (await bench.count()).bytes == 0
    await nothing_is_left(bench)


async def test_a_locked_message_can_be_dead_lettered_without_its_record(bench: Bench, damage: str) -> None:
    await bench.send(b"1")
    held = await bench.one()
    await damage_of(bench, damage, held.name)
    assert (await bench.dead_letter(held)).lost == ()
    assert shown(await bench.receive(side="d")) == [("d1", "R")]
    bench.later(LOCK)
    await nothing_is_left(bench)


@pytest.mark.parametrize("how", ["abandoned", "lapsed", "delayed"])
async def test_a_locked_message_is_set_aside_when_its_lock_has_ended(bench: Bench, damage: str, how: str) -> None:
    lost, _ = await bench.send(b"1", b"2")
    held = await bench.one()
    await damage_of(bench, damage, lost)
    if how == "abandoned":
        await bench.abandon(held)
    elif how == "delayed":
        await bench.abandon(held, delay=5)
    bench.later(LOCK)
    assert [message.payload for message in await bench.receive()] == [b"2"]
    ((dead),) = await bench.receive(side="d")
    assert (dead.reason, dead.deliveries) == ("R", 2)


@pytest.mark.parametrize("mode", ["lock", "delete"])
async def test_a_deferred_message_is_set_aside_when_it_is_asked_for(bench: Bench, damage: str, mode: str) -> None:
    names = await bench.send(b"1", b"2", time_to_live=100_000)
    await bench.defer(*await bench.receive())
    await damage_of(bench, damage, names[0])
    held, missing = await bench.receive_deferred(*names, mode="delete" if mode == "delete" else "lock")
    assert (held, missing) == ([], (names[0],))
    ((other,), missing) = await bench.receive_deferred(names[1])
    assert (other.payload, missing) == (b"2", ())
    assert shown(await bench.peek(side="d")) == [("d1", "R")]


async def test_a_message_that_is_asked_for_by_number_is_set_aside(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2", b"3")
    await bench.abandon(await bench.one(), delay=50)
    await damage_of(bench, damage, *names[:2])
    for name in names[:2]:
        request = bench.partition.receive_deferred(bench.call_id(), new_token(), [name], wide=True)
        assert (await bench.tell(request)).missing == (name,)
    bench.later(50)
    assert [message.payload for message in await bench.receive()] == [b"3"]
    assert shown(await bench.peek(side="d")) == [("d1", "R"), ("d2", "R")]
    await bench.due()


# -- reading and administration ----------------------------------------------------------------------------------------


@each_damage
async def test_a_peek_shows_a_lost_message_without_content_and_changes_nothing(bench: Bench, damage: str) -> None:
    """The message is shown in each state."""
    await bench.send(b"1", b"2")
    deferred, locked = await bench.receive()
    await bench.defer(deferred)
    ready, whole = await bench.send(b"3", b"4")
    (scheduled,) = await bench.send(b"5", due=bench.now + 500)
    await damage_of(bench, damage, deferred.name, locked.name, ready, scheduled)
    before = await bench.whole()
    messages = await bench.peek()
    assert [(one.name, one.state, one.reason) for one in messages] == [
        (deferred.name, "f", "R"),
        (locked.name, "l", "R"),
        (ready, "a", "R"),
        (whole, "a", "-"),
        (scheduled, "s", "R"),
    ]
    assert len(shown(messages)) == 5
    assert sum((await counted(bench)).values()) == 5
    assert (await bench.tell(bench.partition.inspect(bench.at()))).oldest is None
    assert await bench.whole() == before


async def test_a_purge_deletes_lost_messages_in_every_state(bench: Bench, damage: str) -> None:
    await bench.send(b"1", b"2", b"3", time_to_live=100_000)
    deferred, delayed, dead = await bench.receive()
    await bench.defer(deferred)
    await bench.abandon(delayed, delay=5000)
    await bench.dead_letter(dead)
    ready, _ = await bench.send(b"4", b"5")
    await damage_of(bench, damage, deferred.name, delayed.name, dead.name, ready)
    assert (await bench.purge(share=1)).count == 1
    assert (await bench.purge()).count == 3
    assert (await bench.purge(side="d")).count == 1
    await nothing_is_left(bench)


async def test_a_lost_scheduled_message_can_be_cancelled(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2", due=bench.now + 500)
    await damage_of(bench, damage, names[0])
    assert await bench.cancel(*names) == ()
    await nothing_is_left(bench)


async def test_a_lost_scheduled_message_becomes_a_dead_letter_when_it_is_due(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2", b"3", due=bench.now + 500)
    await damage_of(bench, damage, names[0], names[2])
    bench.later(500)
    before = await bench.whole()
    assert await counted(bench) == {"active": 1, "dead_active": 2}
    assert shown(await bench.peek(side="d")) == [("d1", "R"), ("d2", "R")]
    assert await bench.whole() == before
    (message,) = await bench.receive()
    assert message.payload == b"2"
    assert shown(await bench.peek(side="d")) == [("d1", "R"), ("d2", "R")]
    await bench.complete(message)
    await nothing_is_left(bench)


@pytest.mark.parametrize(
    "settings", [replace(SETTINGS, dead_letter_expired=kept) for kept in (False, True)], ids=["gone", "kept"]
)
async def test_messages_behind_a_lost_message_expire(bench: Bench, damage: str) -> None:
    """No receiver is needed. The lost message becomes a dead letter even if the entity deletes expired messages."""
    kept = bench.partition.settings.dead_letter_expired
    names = await bench.send(b"1", b"2", b"3", time_to_live=1000)
    late = await bench.send(b"4", time_to_live=500)
    await damage_of(bench, damage, names[0])
    bench.later(1000)
    expected = [("d1", "R"), *([("d2", "T"), ("d3", "T"), ("d4", "T")] if kept else [])]
    assert shown(await bench.peek(side="d")) == expected
    await bench.due()
    assert await counted(bench) == {"dead_active": len(expected)}
    assert shown(await bench.peek(side="d")) == expected
    assert late
    await nothing_is_left(bench)


async def test_a_lost_message_whose_expiry_is_known_expires(bench: Bench, damage: str) -> None:
    await bench.send(b"1", time_to_live=5000)
    names = await bench.send(b"2", b"3", time_to_live=1000)
    await damage_of(bench, damage, names[0])
    bench.later(1000)
    assert [message.payload for message in await bench.receive()] == [b"1"]
    assert await counted(bench) == {"locked": 1}


@pytest.mark.parametrize("delayed", [False, True])
async def test_a_message_that_is_set_aside_awaits_neither_its_expiry_nor_the_end_of_its_delay(
    bench: Bench, damage: str, delayed: bool
) -> None:
    await bench.send(b"1", time_to_live=50_000)
    (name,) = await bench.send(b"2", time_to_live=10_000)
    if delayed:
        first, second = await bench.receive()
        await bench.abandon(second, delay=5000)
        await bench.complete(first)
    awaited = next(key.decode() for key in bench.partition.keys if key.endswith(b":due"))
    assert awaited in await bench.whole()
    await damage_of(bench, damage, name)
    request = bench.partition.receive_deferred(bench.call_id(), new_token(), [name], wide=True)
    assert (await bench.tell(request)).missing == (name,)
    assert awaited not in await bench.whole()


@set_to(quota=400)
async def test_a_full_queue_that_stores_nothing_takes_messages_again(bench: Bench, damage: str) -> None:
    """The sizes of lost messages may be unknown, and their bytes are then counted although they are not there."""
    names = await bench.send(*[b"x" * 100] * 3)
    await damage_of(bench, damage, *names[:2])
    (message,) = await bench.receive()
    await bench.complete(*await bench.receive(side="d"))
    with pytest.raises(ServiceBusQuotaExceededError):
        await bench.send(b"y" * 300)
    await bench.complete(message)
    assert await bench.send(b"y" * 300)
    assert (await bench.count()).bytes == 315
    with pytest.raises(ServiceBusQuotaExceededError):
        await bench.send(b"y" * 300)


# -- dead letters ------------------------------------------------------------------------------------------------------


async def test_a_dead_letter_is_received_and_settled_without_its_record(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2", b"3", b"4")
    await bench.dead_letter(*await bench.receive())
    await damage_of(bench, damage, *names[:3])
    assert shown(await bench.peek(side="d")) == [("d1", "R"), ("d2", "R"), ("d3", "R"), ("d4", "A")]
    held = await bench.receive(side="d")
    assert shown(held) == [("d1", "R"), ("d2", "R"), ("d3", "R"), ("d4", "A")]
    await bench.complete(held[0])
    await bench.abandon(held[1])
    await bench.defer(held[2])
    found, missing = await bench.receive_deferred("d3")
    assert (shown(found), missing) == ([("d3", "R")], ())
    assert [message.name for message in await bench.receive(side="d", mode="delete")] == ["d2"]
    await bench.complete(*found, held[3])
    assert (await bench.count()).bytes == 0
    await nothing_is_left(bench)


async def test_a_redrive_leaves_a_lost_dead_letter_where_it_is(bench: Bench, damage: str) -> None:
    names = await bench.send(b"1", b"2")
    await bench.dead_letter(*await bench.receive())
    await damage_of(bench, damage, names[0])
    redriven = await bench.redrive("d1", "d2")
    assert (redriven.missing, redriven.unfit, redriven.left) == (("d1",), (), 0)
    assert await bench.payloads() == [b"2"]
    assert shown(await bench.peek(side="d")) == [("d1", "R")]


async def test_rows_tell_that_a_record_is_lost(bench: Bench, damage: str) -> None:
    names = await bench.send(b"\x01\x001", b"\x01\x002")
    await damage_of(bench, damage, names[0])
    messages = await bench.peek()
    columns = columns_of([Rows([one.name.encode() for one in messages], [one.record for one in messages])])
    assert columns.reasons == "R-"
    assert (columns.enqueued.values[1], columns.enqueued.valid) == (bench.now, b"\x02")
    assert columns.bodies is not None
    assert columns.bodies.data == b"2"


# -- sessions ----------------------------------------------------------------------------------------------------------


@sessions
@pytest.mark.parametrize("mode", ["lock", "delete"])
async def test_a_lost_message_does_not_stop_its_session(bench: Bench, damage: str, mode: str) -> None:
    names = await put(bench, "s", b"1", b"2", b"3")
    await put(bench, "t", b"4")
    await damage_of(bench, damage, names[0], names[2])
    mine = await holder(bench, "s")
    found = await mine.receive(mode="delete" if mode == "delete" else "lock")
    assert [body(message) for message in found] == [b"2"]
    assert shown(await bench.peek(side="d")) == [("d1", "R"), ("d2", "R")]
    if mode == "lock":
        await mine.complete(*found)
    await mine.release()
    assert (await listed(bench)).names == ("t",)


@sessions
@pytest.mark.parametrize("how", ["completed", "abandoned", "deferred", "released", "lapsed"])
async def test_a_held_message_can_be_settled_without_its_record(bench: Bench, damage: str, how: str) -> None:
    lost, _ = await put(bench, "s", b"1", b"2")
    mine = await holder(bench, "s")
    found = await mine.receive(1)
    await damage_of(bench, damage, lost)
    if how == "completed":
        assert await mine.complete(*found) == ()
    elif how == "abandoned":
        await mine.abandon(*found)
    elif how == "deferred":
        await mine.defer(*found)
        assert (await mine.receive_deferred(lost)).missing == (lost,)
    elif how == "released":
        await mine.release()
    else:
        bench.later(LOCK)
    mine = mine if how in {"completed", "abandoned", "deferred"} else await holder(bench, "s")
    assert await mine.bodies() == [b"2"]
    assert shown(await bench.peek(side="d")) == ([] if how == "completed" else [("d1", "R")])


@sessions
async def test_a_session_with_lost_messages_is_buried_as_a_whole(bench: Bench, damage: str) -> None:
    names = await put(bench, "s", b"1", b"2", b"3", b"4")
    mine = await holder(bench, "s")
    held, deferred = await mine.receive(2)
    await mine.defer(deferred)
    await damage_of(bench, damage, held.name, deferred.name, names[2])
    request = bench.partition.bury_session(bench.call_id(), mine.lock, share=100)
    assert (await bench.tell(request)).count == 4
    assert [reason for _, reason in shown(await bench.peek(side="d"))] == ["R", "R", "A", "R"]
    await mine.release()
    assert (await listed(bench)).names == ()
    await nothing_is_left(bench)


@sessions
async def test_a_session_with_lost_messages_is_purged(bench: Bench, damage: str) -> None:
    names = await put(bench, "s", b"1", b"2", b"3")
    await damage_of(bench, damage, names[0])
    request = bench.partition.purge(bench.call_id(), NEVER, session="s")
    assert (await bench.tell(request)).count == 3
    assert (await listed(bench)).names == ()
    await nothing_is_left(bench)


@sessions
@pytest.mark.parametrize("how", ["purged", "expired", "cancelled", "due"])
async def test_a_session_forgets_a_message_that_left_without_its_session(bench: Bench, damage: str, how: str) -> None:
    """Only the record says of which session a message is. The session finds out when it is received from."""
    due = bench.now + 500 if how in {"cancelled", "due"} else None
    names = await put(bench, "s", b"1", b"2", time_to_live=1000, due=due)
    await damage_of(bench, damage, names[0])
    if how == "purged":
        assert (await bench.purge()).count == 2
    elif how == "expired":
        bench.later(1000)
        await bench.due()
    elif how == "cancelled":
        assert await bench.cancel(*names) == ()
    else:
        bench.later(500)
    await put(bench, "s", b"3")
    mine = await holder(bench, "s")
    assert await mine.bodies() == ([b"2", b"3"] if how == "due" else [b"3"])
    assert shown(await bench.peek(side="d")) == ([("d1", "R")] if how in {"expired", "due"} else [])
    assert len(await bench.peek()) == (2 if how == "due" else 1)


# -- topics, moves and reserved ranges ---------------------------------------------------------------------------------


async def test_each_subscription_sets_its_copy_aside(topic: Topic, damage: str) -> None:
    first = await topic.publish((b"1", (0, 1)), (b"2", (0, 1)))
    await lose(topic.transport, topic.topic, damage, [str(first)])
    for subscription in (topic.one, topic.two):
        token = first_token()
        received: Received = await topic.receive(subscription, token)
        assert [read_record(one.record).payload for one in received.messages] == [b"2"]
        await topic.complete(subscription, token, received.messages[0].name)
        assert shown(await topic.dead(subscription)) == [("d1", "R")]
    assert await topic.refs() == {}
    assert await topic.stored() == 0


async def test_a_lost_message_that_is_scheduled_on_a_topic_is_removed_when_it_is_due(topic: Topic, damage: str) -> None:
    due = topic.now + 500
    messages = [Outgoing(payload, due=due) for payload in (b"1", b"2")]
    first = (await topic.hand_out(messages, [None, None])).first
    await lose(topic.transport, topic.topic, damage, [str(first)])
    topic.now += 500
    waiting = [one.message for one in await topic.tell(topic.topic.ripe(10, call_id=topic.at()))]
    assert shown(waiting) == [(str(first), "R"), (str(first + 1), "-")]
    sent = await topic.hand_out([Outgoing(b"", origin=one.name) for one in waiting], [[Copy(0)], [Copy(0)]])
    assert sent.dropped == 1
    assert await topic.payloads(topic.one) == [b"2"]
    assert await topic.tell(topic.topic.ripe(10, call_id=topic.at())) == ()
    assert await topic.stored() == 1


async def test_a_move_can_give_up_a_lost_message(town: Town, damage: str) -> None:
    """The mover sees that the record is lost. Until then, the message can be frozen and returned."""
    names = await town.send("q", b"1", b"2")
    source = town.of["q"]
    await lose(town.transport, source, damage, [names[0]])
    waiting = await perform(town.transport, source.outgoing(now=town.now))
    assert shown(list(waiting.messages)) == [(names[0], "R"), (names[1], "-")]
    for verdict in ("back", "refused"):
        batch = await perform(
            town.transport, source.freeze(waiting.birth, A, "the-a", list(waiting.messages), now=town.now)
        )
        assert batch is not None
        changes = {names[0]: b"why"} if verdict == "refused" else {}
        request = source.settle_batch(waiting.birth, A, batch.number, verdict, changes=changes, now=town.now)
        assert await perform(town.transport, request)
    assert shown(await town.peek("q")) == [(names[1], "-")]
    ((dead),) = await town.peek("q", "d")
    assert (dead.reason, dead.changes) == ("R", b"why")


@set_to(reserved=True)
async def test_a_reserved_range_goes_past_a_lost_message(bench: Bench, damage: str) -> None:
    """The range has the message without content, so that the numbers of the range stay what they were."""
    names = await bench.send(b"1", b"2", b"3", time_to_live=1000)
    await damage_of(bench, damage, names[1])
    reader = Reader(bench)
    await reader.begin()
    planned = await reader.plan()
    assert shown(await reader.read(planned)) == [(names[0], "-"), (names[1], "R"), (names[2], "-")]
    await reader.release()
    planned = await reader.plan()
    reader.committed = planned.committed
    await reader.settle()
    assert await counted(bench) == {}
