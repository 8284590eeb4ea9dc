"""The fundamentals beyond queues: sessions, topics, transactions, and moves to other slots.

The details are the subject of the state machines in proof/.
"""

from __future__ import annotations

import pytest

from sbredis.engine import Copy, Lock, Outgoing, TransactedSend, read_record
from sbredis.exceptions import SessionLockLostError
from tests.engine.bench import SETTINGS, Bench, set_to
from tests.engine.holding import accept, accept_next, holder, listed, of_session, peeked, put, traces
from tests.engine.moves import A, Town, body_of
from tests.engine.taking import first_token
from tests.engine.topics import START, Topic
from tests.engine.transactions import World

pytestmark = pytest.mark.conformance

LOCK = SETTINGS.lock_duration
ONE = "one-one-AAB"


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
async def test_abandoning_a_message_with_a_delay_blocks_its_session(bench: Bench) -> None:
    """The message keeps its place. Neither this holder nor the next one gets a later message first."""
    await put(bench, "s", b"1", b"2", b"3")
    mine = await holder(bench)
    one, _ = await mine.receive(2)
    await mine.abandon(one, delay=5000)
    assert await mine.bodies() == []
    assert (await bench.due()).due == 5000
    await mine.release()
    assert await accept_next(bench) is None
    bench.later(4999)
    assert await accept_next(bench) is None
    await put(bench, "s", b"4")
    assert await accept_next(bench) is None
    bench.later(1)
    assert await (await holder(bench)).bodies() == [b"1", b"2", b"3", b"4"]


@set_to(sessions=True)
async def test_the_lock_on_a_session_also_locks_its_received_messages(bench: Bench) -> None:
    """The messages are held until the session lock ends. Renewing the lock or one of the messages renews all."""
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    one, two = await mine.receive()
    bench.later(LOCK - 1)
    assert await mine.renew() == LOCK
    bench.later(LOCK - 1)
    renewed = await bench.tell(bench.partition.renew(bench.call_id(), mine.locks(one)))
    assert (renewed.lost, renewed.apart) == ((), ())
    bench.later(LOCK - 1)
    assert (await bench.renew(leases=[mine.lock.token])).ended == ()
    bench.later(LOCK - 1)
    assert await mine.complete(one) == ()
    bench.later(1)
    assert await mine.complete(two) == ("2",)
    assert (await bench.renew(leases=[mine.lock.token])).ended == (mine.lock.token,)
    for failing in (mine.renew, mine.release, mine.receive, mine.get_state, lambda: mine.set_state(b"x")):
        with pytest.raises(SessionLockLostError):
            await failing()


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
