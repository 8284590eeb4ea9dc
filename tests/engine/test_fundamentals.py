"""What an entity promises to its users, from the first message on: each test shows one promise.

The first parts are about a queue: sending, receiving, settling, deferring, dead letters, time and administration.
Sessions, topics, transactions and moves follow. Repeated calls are in test_repetition.py.

The details are not here: the state machines in proof/ make any calls in any order. They compare each answer and all
stored data with the model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import Copy, Lock, Outgoing, TransactedSend, read_record
from sbredis.exceptions import MessagingEntityDisabledError
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.holding import accept, holder, listed, of_session, peeked, traces
from tests.engine.moves import A, Town, body_of
from tests.engine.taking import first_token
from tests.engine.topics import Topic
from tests.engine.transactions import World

pytestmark = pytest.mark.conformance

WINDOW = 60_000
LOCK = SETTINGS.lock_duration
ONE = "one-one-AAB"

either_way = pytest.mark.parametrize(
    "settings", [SETTINGS, replace(SETTINGS, dead_letter_expired=True)], ids=["gone", "kept"]
)


async def expired(bench: Bench) -> list[bytes]:
    """Check that no message is active; return the dead letters, all of which must have expired."""
    assert (await bench.count()).active == 0
    held = await bench.receive(side="d")
    assert {message.reason for message in held} <= {"T"}
    return [message.payload for message in held]


# -- sending and receiving ---------------------------------------------------------------------------------------------


async def test_a_message_is_sent_received_and_completed(bench: Bench) -> None:
    """A sent message is given to a receiver, and is gone when the receiver has completed it."""
    (name,) = await bench.send(b"hello")
    message = await bench.one()
    assert (message.name, message.payload, message.deliveries) == (name, b"hello", 1)
    assert (await bench.complete(message)).lost == ()
    bench.later(1_000_000)
    assert await bench.receive() == []
    assert (await bench.count()).bytes == 0


async def test_messages_come_in_the_order_in_which_they_were_sent(bench: Bench) -> None:
    """Each message gets a higher number, and the message with the lowest number is received first."""
    names = await bench.send(b"one", b"two") + await bench.send(b"three")
    assert [int(name) for name in names] == [1, 2, 3]
    assert await bench.payloads() == [b"one", b"two", b"three"]


async def test_a_received_payload_has_exactly_the_bytes_that_were_sent(bench: Bench) -> None:
    """A body may be any bytes, even none."""
    payloads = [bytes(range(256)), b"", b"a\r\nb;c\x00", "ü".encode() * 5000]
    await bench.send(*payloads)
    assert await bench.payloads() == payloads


async def test_competing_receivers_never_share_a_message(bench: Bench) -> None:
    """While one receiver has a message locked, no other receiver gets it."""
    await bench.send(b"one", b"two", b"three")
    mine, yours = await bench.one(), await bench.one()
    assert (mine.payload, yours.payload) == (b"one", b"two")
    assert await bench.payloads() == [b"three"]
    assert await bench.payloads() == []
    assert (await bench.complete(mine, yours)).lost == ()


async def test_receive_and_delete_removes_a_message_immediately(bench: Bench) -> None:
    """A message that was received and deleted cannot be settled and is not delivered again."""
    await bench.send(b"one", b"two")
    (message,) = await bench.receive(1, mode="delete")
    assert message.payload == b"one"
    assert (await bench.complete(message)).lost == (message.name,)
    bench.later(SETTINGS.lock_duration)
    assert await bench.payloads() == [b"two"]
    assert (await bench.count()).active == 0


async def test_messages_of_a_more_urgent_level_come_first(bench: Bench) -> None:
    """Within a level, messages come in the order in which they were sent."""
    await bench.send_all(*(Outgoing(b"%d" % level, level=level) for level in (7, 3, 0, 3, 0)))
    assert await bench.payloads() == [b"0", b"0", b"3", b"3", b"7"]


async def test_one_call_sends_a_thousand_messages_and_one_call_receives_them(bench: Bench) -> None:
    """A call takes at most a thousand messages. Their bodies are stored in two hashes."""
    for _ in range(5):
        await bench.send(*(b"%d" % number for number in range(1000)))
    for _ in range(5):
        held = await bench.receive(1000)
        assert [message.payload for message in held] == [b"%d" % number for number in range(1000)]
        assert (await bench.complete(*held)).lost == ()
    counts = await bench.count()
    assert (counts.active, counts.locked, counts.bytes, counts.last) == (0, 0, 0, 5000)


# -- locks -------------------------------------------------------------------------------------------------------------


async def test_a_message_that_is_not_settled_in_time_is_delivered_again(bench: Bench) -> None:
    """No receiver gets the message until its lock ends, exact to the millisecond. Then the next receiver gets it."""
    await bench.send(b"m")
    first = await bench.one()
    bench.later(SETTINGS.lock_duration - 1)
    assert await bench.receive() == []
    bench.later(1)
    again = await bench.one()
    assert (again.payload, first.deliveries, again.deliveries) == (b"m", 1, 2)


async def test_a_settlement_after_the_lock_has_ended_reports_a_lost_lock(bench: Bench) -> None:
    """An ended lock is lost even if no other receiver has the message yet."""
    await bench.send(b"m")
    late = await bench.one()
    bench.later(SETTINGS.lock_duration)
    assert (await bench.complete(late)).lost == (late.name,)
    assert (await bench.abandon(late)).lost == (late.name,)
    assert (await bench.defer(late)).lost == (late.name,)
    assert (await bench.dead_letter(late)).lost == (late.name,)
    assert (await bench.renew(late)).lost == (late.name,)
    assert (await bench.one()).deliveries == 2


async def test_a_renewed_lock_lasts_for_the_full_duration_again(bench: Bench) -> None:
    """A lock can be renewed any number of times; its holder keeps the token."""
    await bench.send(b"one", b"two")
    held = await bench.receive()
    for _ in range(3):
        bench.later(SETTINGS.lock_duration - 1)
        renewed = await bench.renew(*held)
        assert (renewed.lock, renewed.lost, renewed.apart) == (SETTINGS.lock_duration, (), ())
        assert await bench.receive() == []
    assert (await bench.complete(*held)).lost == ()


# -- returning messages ------------------------------------------------------------------------------------------------


async def test_an_abandoned_message_returns_to_its_own_place(bench: Bench) -> None:
    """The message comes before all messages that were sent after it."""
    await bench.send(b"one", b"two", b"three")
    one, two = await bench.receive(2)
    await bench.abandon(two)
    await bench.abandon(one)
    assert [(message.payload, message.deliveries) for message in await bench.receive()] == [
        (b"one", 2),
        (b"two", 2),
        (b"three", 1),
    ]


async def test_a_message_abandoned_with_a_delay_comes_back_after_the_delay(bench: Bench) -> None:
    """Later messages are received during the delay. Then the message has its old place again."""
    await bench.send(b"one", b"two")
    await bench.abandon(await bench.one(), delay=5000)
    assert await bench.states() == {"1": "w", "2": "a"}
    bench.later(4999)
    two = await bench.one()
    assert two.payload == b"two"
    await bench.abandon(two)
    bench.later(1)
    one = await bench.one()
    assert (one.payload, one.deliveries) == (b"one", 2)


# -- deferring ---------------------------------------------------------------------------------------------------------


async def test_a_deferred_message_is_received_by_its_number_only(bench: Bench) -> None:
    """An ordinary receive never returns a deferred message, however much time passes."""
    await bench.send(b"one", b"two")
    one = await bench.one()
    assert (await bench.defer(one)).lost == ()
    assert await bench.payloads() == [b"two"]
    bench.later(1_000_000)
    ((again,), missing) = await bench.receive_deferred(one.name)
    assert (again.payload, again.deliveries, missing) == (b"one", 2, ())
    assert (await bench.complete(again)).lost == ()
    assert await bench.receive_deferred(one.name) == ([], (one.name,))


# -- statuses ----------------------------------------------------------------------------------------------------------


async def test_received_messages_can_be_settled_in_every_status(bench: Bench) -> None:
    """Received messages can also be renewed, peeked at and counted."""
    await bench.send(b"one", b"two", b"three", b"four", b"five")
    one, two, three, four, five = await bench.receive()
    await bench.change(status="Disabled")
    with pytest.raises(MessagingEntityDisabledError):
        await bench.send(b"n")
    with pytest.raises(MessagingEntityDisabledError):
        await bench.receive()
    assert (await bench.complete(one)).lost == ()
    assert (await bench.abandon(two)).lost == ()
    assert (await bench.defer(three)).lost == ()
    assert (await bench.dead_letter(four)).lost == ()
    assert (await bench.renew(five)).lost == ()
    assert await bench.states() == {"2": "a", "3": "f", "5": "l"}
    assert (await bench.count()).dead_active == 1


# -- dead letters ------------------------------------------------------------------------------------------------------


async def test_a_message_with_too_many_failed_deliveries_becomes_a_dead_letter(bench: Bench) -> None:
    """The delivery that reaches the limit is the last one; the reason is stored."""
    await bench.send(b"m")
    for delivery in range(1, SETTINGS.max_delivery_count + 1):
        message = await bench.one()
        assert message.deliveries == delivery
        await bench.abandon(message)
    assert await bench.receive() == []
    dead = await bench.one(side="d")
    assert (dead.name, dead.reason, dead.payload) == ("d1", "M", b"m")
    assert dead.deliveries == SETTINGS.max_delivery_count + 1


async def test_dead_letters_are_received_and_completed_like_messages_of_a_queue(bench: Bench) -> None:
    """Dead letters are locked, lapse, and have competing receivers. They count as stored until they are gone."""
    await bench.send(b"one", b"two")
    await bench.dead_letter(*await bench.receive())
    one, two = await bench.one(side="d"), await bench.one(side="d")
    assert await bench.receive(side="d") == []
    bench.later(SETTINGS.lock_duration)
    assert (await bench.complete(one)).lost == ("d1",)
    again = await bench.one(side="d")
    assert (again.payload, again.deliveries) == (b"one", 1)
    assert (await bench.renew(again)).lost == ()
    assert (await bench.complete(again)).lost == ()
    (two,) = await bench.receive(side="d", mode="delete")
    assert two.payload == b"two"
    counts = await bench.count()
    assert (counts.dead_active, counts.dead_locked, counts.bytes) == (0, 0, 0)


async def test_redriven_messages_are_as_if_they_had_been_sent_now(bench: Bench) -> None:
    await bench.send(b"one", b"two", level=3, time_to_live=10_000)
    for _ in range(SETTINGS.max_delivery_count):
        await bench.abandon(*await bench.receive(), changes=b"changed")
    assert [message.reason for message in await bench.peek(side="d")] == ["M", "M"]
    bench.later(60_000)
    redriven = await bench.redrive("d2", "d1", time_to_live=10_000)
    assert (redriven.first, redriven.missing, redriven.unfit, redriven.left, redriven.last) == (3, (), (), 0, 2)
    assert await bench.peek(side="d") == ()
    two, one = await bench.receive()
    assert [(two.name, two.payload), (one.name, one.payload)] == [("3", b"two"), ("4", b"one")]
    assert (one.deliveries, one.reason, one.record.level) == (1, "-", 3)
    assert one.changes == b""
    await bench.abandon(one, two)
    bench.later(9_999)
    assert len(await bench.peek()) == 2
    bench.later(1)
    assert await bench.peek() == ()


# -- time --------------------------------------------------------------------------------------------------------------


@either_way
async def test_an_expired_message_is_never_received(bench: Bench) -> None:
    """Expiry is exact to the millisecond. The settings of the entity decide whether an expired message is dead-lettered
    or deleted.
    """
    await bench.send(b"m", time_to_live=1000)
    bench.later(999)
    await bench.abandon(await bench.one(), counted=False)
    bench.later(1)
    assert await bench.receive() == []
    kept = bench.partition.settings.dead_letter_expired
    assert await expired(bench) == ([b"m"] if kept else [])
    assert ((await bench.count()).bytes > 0) is kept


async def test_a_scheduled_message_becomes_active_at_its_due_time(bench: Bench) -> None:
    """The time is exact to the millisecond. The message gets a new number, higher than those of all messages sent
    meanwhile.
    """
    (name,) = await bench.send(b"later", due=START + 1000, level=2)
    await bench.send(b"now", level=2)
    bench.later(999)
    assert await bench.states() == {"1": "s", "2": "a"}
    bench.later(1)
    assert [(message.name, message.payload) for message in await bench.receive()] == [("2", b"now"), ("3", b"later")]
    assert name == "1"
    assert (await bench.count()).scheduled == 0


# -- administration ----------------------------------------------------------------------------------------------------


async def test_a_purge_deletes_messages_enqueued_before_a_time(bench: Bench) -> None:
    """The purge compares the enqueued time, not the time of sending or return. The enqueued time of a scheduled message
    is its due time.
    """
    await bench.send(b"first")
    await bench.send(b"scheduled", due=START + 1000)
    bench.later(2000)
    await bench.send(b"second")
    assert (await bench.purge(START)).count == 0
    assert (await bench.purge(START + 1000)).count == 1
    assert (await bench.purge(START + 2000)).count == 1
    assert await bench.payloads() == [b"second"]


@set_to(duplicate_window=WINDOW)
async def test_a_message_sent_again_within_the_window_is_dropped(bench: Bench) -> None:
    """The sender gets no error, and the duplicate uses up a message number."""
    first = await bench.send_all(Outgoing(b"first", message_id=b"id"))
    again = await bench.send_all(Outgoing(b"again", message_id=b"id"), Outgoing(b"other", message_id=b"id2"))
    assert (first.first, first.dropped, again.first, again.dropped) == (1, 0, 2, 1)
    held = await bench.receive()
    assert [(message.name, message.payload) for message in held] == [("1", b"first"), ("3", b"other")]


# -- sessions ----------------------------------------------------------------------------------------------------------


@set_to(sessions=True)
async def test_a_session_is_given_to_one_receiver_at_a_time(bench: Bench) -> None:
    """A receiver accepts a session by name, with or without messages, for one lock duration."""
    first = await accept(bench, "s")
    assert (first.outcome, first.session, first.lock) == ("taken", "s", LOCK)
    before = await traces(bench)
    second = await accept(bench, "s")
    assert (second.outcome, second.session, second.lock) == ("locked", "s", 0)
    assert await traces(bench) == before
    assert (await accept(bench, "t")).outcome == "taken"
    bench.later(LOCK)
    assert (await accept(bench, "s")).outcome == "taken"


@set_to(sessions=True)
async def test_a_session_gives_out_only_its_own_messages_and_in_order(bench: Bench) -> None:
    await bench.send(*(of_session(name, b"%d" % number) for number in range(6) for name in ("a", "b")))
    one, other = await holder(bench, "a"), await holder(bench, "b")
    assert await one.bodies(2) == [b"0", b"1"]
    assert await other.bodies(4) == [b"0", b"1", b"2", b"3"]
    assert await one.bodies() == [b"2", b"3", b"4", b"5"]
    assert await one.bodies() == []


@set_to(sessions=True)
async def test_a_session_state_stays_until_it_is_cleared(bench: Bench) -> None:
    mine = await holder(bench, "s")
    assert await mine.get_state() is None
    for state in (b"one", b"", b"\x00\xff" * 100):
        await mine.set_state(state)
        assert await mine.get_state() == state
    assert await peeked(bench, "s") == b"\x00\xff" * 100
    await mine.release()
    assert await peeked(bench, "s") == b"\x00\xff" * 100
    assert await peeked(bench, "unknown") is None
    assert (await listed(bench)).names == ("s",)
    bench.later(10 * LOCK)
    mine = await holder(bench, "s")
    assert await mine.get_state() == b"\x00\xff" * 100
    await mine.set_state(None)
    assert await mine.get_state() is None
    await mine.set_state(None)
    await mine.release()
    assert await traces(bench) == {}


# -- topics ------------------------------------------------------------------------------------------------------------


async def test_each_subscription_receives_its_matching_messages(topic: Topic) -> None:
    await topic.publish((b"both", (0, 1)), (b"first", (0,)), (b"second", (1,)))
    assert await topic.payloads(topic.one) == [b"both", b"first"]
    assert await topic.payloads(topic.two) == [b"both", b"second"]
    assert await topic.payloads(topic.brief) == []


async def test_a_record_of_several_subscriptions_is_stored_once_and_deleted_after_the_last(topic: Topic) -> None:
    await topic.publish((b"x" * 100, (0, 1, 2)))
    weight = await topic.bytes()
    assert await topic.stored() == 1
    assert 100 <= weight < 200
    for carrier in (topic.two, topic.brief):
        token = first_token()
        (message,) = (await topic.receive(carrier, token)).messages
        await topic.tell(carrier.complete(topic.call_id(), [Lock(token, message.name)]))
        assert await topic.stored() == 1
        assert await topic.bytes() == weight
    token = first_token()
    (message,) = (await topic.receive(topic.one, token)).messages
    await topic.tell(topic.one.complete(topic.call_id(), [Lock(token, message.name)]))
    assert await topic.stored() == 0
    assert await topic.bytes() == 0
    assert await topic.transport.command("EXISTS", topic.topic.keys[9], key=topic.topic.keys[9]) == 0


async def test_a_scheduled_message_waits_on_the_topic_and_uses_later_routes(topic: Topic) -> None:
    """The topic does not activate the message. A client finds the due message, judges it and publishes it by number."""
    later = [Outgoing(b"later", 5000, 2, due=START + 1000), Outgoing(b"latest", due=START + 2000)]
    sent = await topic.hand_out([Outgoing(b"now"), *later], [[Copy(0)], [], []])
    assert (sent.first, sent.scheduled) == (1, (2, 3))
    assert await shown_ripe(topic) == []
    topic.now += 999
    await topic.tell(topic.topic.due(topic.call_id()))
    assert await shown_ripe(topic) == []
    topic.now += 1
    assert (await topic.tell(topic.topic.due(topic.call_id()))).due == 1
    assert await shown_ripe(topic) == [("2", b"later")]
    assert [message.state for message in (await topic.tell(topic.topic.peek(0, 10, call_id=topic.at()))).messages] == [
        "s",
        "s",
    ]
    topic.now += 10
    sent = await topic.hand_out([Outgoing(b"", origin="2")], [[Copy(0), Copy(1, b"changed")]], fence=7)
    assert (sent.first, sent.dropped) == (4, 0)
    assert await shown_ripe(topic) == []
    given = await topic.taken(topic.one)
    assert [message.name for message in given] == ["1", "4"]
    record = read_record(given[1].record)
    assert (record.payload, record.level, record.enqueued, record.expires) == (b"later", 2, topic.now, topic.now + 5000)
    (other,) = await topic.taken(topic.two)
    assert (other.name, other.changes) == ("4", b"changed")
    counts = await topic.tell(topic.topic.count(topic.at()))
    assert (counts.scheduled, counts.due) == (1, 990)


async def shown_ripe(topic: Topic, wanted: int = 10, room: int = 1000) -> list[tuple[str, bytes]]:
    """Return the messages that are to be published by now."""
    shown = await topic.tell(topic.topic.ripe(wanted, room=room, call_id=topic.at()))
    return [(message.name, read_record(message.record).payload) for message, _ in shown]


# -- transactions ------------------------------------------------------------------------------------------------------


async def test_an_input_is_completed_and_its_outputs_are_sent_together(world: World) -> None:
    await world.send("a", b"input")
    locks = await world.lock("a", ONE)
    done = await world.transact(
        world.settling("complete", "a", *locks), world.sending("b", Outgoing(b"one"), Outgoing(b"two"))
    )
    assert done.results == (None, TransactedSend(1, (), ()))
    assert (await world.bodies("a"), await world.bodies("b")) == ([], [b"one", b"two"])


# -- moves -------------------------------------------------------------------------------------------------------------


async def test_a_batch_goes_to_its_destination_in_three_calls(town: Town) -> None:
    await town.send("q", b"one", b"two", b"three")
    waiting = await town.waiting()
    assert [body_of(each) for each in waiting.messages] == [b"one", b"two", b"three"]
    assert (waiting.now, waiting.batches, waiting.onward, waiting.more) == (START, (), 0, False)
    batch = await town.freeze(A, *waiting.messages)
    assert batch is not None
    assert (batch.destination, batch.names, batch.incarnation) == (A, ("1", "2", "3"), "the-a")
    taken = await town.tell(town.taking(batch, waiting.birth, *waiting.messages))
    assert (taken.verdict, taken.detail, taken.names, taken.strangers) == ("taken", "", (), ())
    assert await town.bodies("a") == [b"one", b"two", b"three"]
    assert await town.tell(town.settling(batch, "taken", await town.birth()))
    assert await town.bodies("q") == []
    assert (await town.waiting()).batches == ()
