"""Moving dead letters back to the main side."""

from __future__ import annotations

import pytest

from sbredis.engine import MAXIMUM_CHANGES_BYTES, NO_CALL_ID, Lock, Partition, PartitionSettings, Redrive, new_token
from sbredis.engine._settings import Status
from sbredis.exceptions import MessagingEntityDisabledError
from tests.engine.bench import SETTINGS, Bench, set_to
from tests.engine.holding import body, holder, put
from tests.engine.receivers import Receivers
from tests.engine.topics import Topic
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


async def dead(bench: Bench, *payloads: bytes, changes: bytes = b"", time_to_live: int | None = None) -> list[str]:
    """Send messages and make them dead letters; return their names."""
    await bench.send(*payloads, time_to_live=time_to_live)
    before = await bench.peek(side="d")
    await bench.dead_letter(*await bench.receive(len(payloads)), changes=changes)
    return [message.name for message in (await bench.peek(side="d"))[len(before) :]]


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


async def test_a_redriven_message_has_the_time_to_live_of_the_entity_unless_it_has_one_of_its_own(bench: Bench) -> None:
    names = await dead(bench, b"one", b"two", time_to_live=100)
    await bench.change(time_to_live=5_000)
    await bench.redrive(names[0])
    await bench.redrive(names[1], time_to_live=1_000)
    bench.later(1_000)
    assert [message.record[-3:] for message in await bench.peek()] == [b"one"]
    bench.later(4_000)
    assert await bench.peek() == ()


async def test_changed_properties_replace_all_earlier_changes(bench: Bench) -> None:
    names = await dead(bench, b"one", b"two", changes=b"the reason")
    await bench.redrive(names[0], changes=b"new")
    await bench.redrive(names[1])
    assert [message.changes for message in await bench.peek()] == [b"new", b""]
    assert (await bench.count()).bytes == len(b"new") + sum(len(one.record) for one in await bench.peek())


async def test_a_redrive_takes_delayed_and_deferred_dead_letters_but_no_locked_one(bench: Bench) -> None:
    names = await dead(bench, b"one", b"two", b"three", b"four")
    one, two, three = await bench.receive(3, side="d")
    await bench.abandon(one, delay=50_000)
    await bench.defer(two)
    redriven = await bench.redrive(*names, "d77")
    assert redriven.missing == (three.name, "d77")
    assert redriven.moved([*names, "d77"]) == (names[0], names[1], names[3])
    assert [message.record[-3:] for message in await bench.peek()] == [b"one", b"two", b"our"]
    assert (await bench.complete(three)).lost == ()
    bench.later(50_000)
    assert (await bench.count()).dead_active == 0


async def test_each_dead_letter_is_redriven_once(bench: Bench) -> None:
    """A message that dies again has a higher number, so a run that stops at the last number of its start ends."""
    (name,) = await dead(bench, b"one")
    assert (await bench.redrive()).last == 1
    assert (await bench.redrive(name)).moved([name]) == (name,)
    assert (await bench.redrive(name)).missing == (name,)
    await bench.dead_letter(await bench.one())
    assert (await bench.redrive(name)).missing == (name,)
    assert [message.name for message in await bench.peek(side="d")] == ["d2"]


@pytest.mark.slow
async def test_a_lock_that_has_ended_does_not_hold_up_a_redrive(bench: Bench) -> None:
    names = await dead(bench, *(b"%d" % number for number in range(700)))
    for _ in range(70):
        await bench.receive(10, side="d")
    assert (await bench.redrive(names[-1])).missing == (names[-1],)
    bench.later(SETTINGS.lock_duration)
    assert (await bench.redrive(names[-1])).missing == ()


async def test_a_call_moves_the_messages_that_fit(bench: Bench) -> None:
    names = await dead(bench, *(b"%d" % number + b"x" * 900_000 for number in range(4)))
    redriven = await bench.redrive(*names)
    assert redriven.left == 2
    assert redriven.moved(names) == tuple(names[:2])
    assert (await bench.redrive(*names)).missing == tuple(names[:2])
    assert [message.record[15:16] for message in await bench.peek()] == [b"0", b"1", b"2", b"3"]


@set_to(sessions=True)
async def test_a_redriven_message_is_the_last_of_its_session(bench: Bench) -> None:
    await put(bench, "s", b"one", b"two")
    receiver = await holder(bench, "s")
    first, _ = await receiver.receive()
    await receiver.dead_letter(first)
    await receiver.release()
    await put(bench, "s", b"three")
    await bench.redrive("d1")
    again = await holder(bench, "s")
    assert [body(message) for message in await again.receive()] == [b"two", b"three", b"one"]


@pytest.mark.parametrize("status", ["SendDisabled", "ReceiveDisabled", "Disabled"])
async def test_an_entity_that_is_not_active_refuses_a_redrive(bench: Bench, status: Status) -> None:
    (name,) = await dead(bench, b"one")
    await bench.change(status=status)
    before = await bench.whole()
    with pytest.raises(MessagingEntityDisabledError):
        await bench.redrive(name)
    assert await bench.whole() == before


async def test_a_full_entity_takes_its_dead_letters_back(bench: Bench) -> None:
    (name,) = await dead(bench, b"x" * 500)
    await bench.change(quota=100, time_to_live=10_000)
    assert (await bench.redrive(name)).moved([name]) == (name,)


async def test_a_receiver_that_waits_is_woken_for_a_redriven_message(bench: Bench, listening: Receivers) -> None:
    (name,) = await dead(bench, b"one")
    receiver = await listening("a")
    assert await receiver.receive() == []
    await bench.redrive(name)
    await eventually(lambda: receiver.ear.heard)
    assert await receiver.receive() == [b"one"]


def test_a_request_takes_dead_letters_only_and_each_once() -> None:
    of = Partition("n", "abc", "e", "i", 1, PartitionSettings())
    with pytest.raises(ValueError, match="dead letter"):
        of.redrive(NO_CALL_ID, [Redrive("1")])
    with pytest.raises(ValueError, match="twice"):
        of.redrive(NO_CALL_ID, [Redrive("d1"), Redrive("d1")])
    with pytest.raises(ValueError, match="changes of d1"):
        of.redrive(NO_CALL_ID, [Redrive("d1", changes=b"x" * (MAXIMUM_CHANGES_BYTES + 1))])


async def test_a_redriven_copy_returns_to_its_own_subscription_only(topic: Topic) -> None:
    """The other subscriptions keep the copies and the record that they have."""
    await topic.publish((b"one", (0, 1)), (b"two", (0,)))
    before = await topic.bytes()
    received = await topic.receive(topic.one, token := new_token())
    await topic.tell(topic.one.dead_letter(topic.call_id(), [Lock(token, one.name) for one in received.messages]))
    redriven = await topic.tell(topic.one.redrive(topic.call_id(), [Redrive("d1"), Redrive("d2")]))
    assert (redriven.first, redriven.missing) == (3, ())
    assert await topic.refs() == {}
    assert await topic.bytes() > before
    assert [one.name for one in (await topic.receive(topic.one)).messages] == ["3", "4"]
    assert await topic.payloads(topic.two) == [b"one"]
    assert await topic.stored() == 3


async def test_a_copy_without_a_session_stays_in_the_dead_letter_queue_of_its_subscription(topic: Topic) -> None:
    await topic.publish((b"one", (3,)))
    redriven = await topic.tell(topic.sessions.redrive(topic.call_id(), [Redrive("d1")]))
    assert (redriven.unfit, redriven.moved(["d1"])) == (("d1",), ())
    assert [one.reason for one in await topic.dead(topic.sessions)] == ["S"]


async def test_a_redriven_copy_lives_as_long_as_its_subscription_allows(topic: Topic) -> None:
    await topic.publish((b"one", (2,)))
    received = await topic.receive(topic.brief, token := new_token())
    await topic.tell(topic.brief.dead_letter(topic.call_id(), [Lock(token, one.name) for one in received.messages]))
    topic.now += 5_000
    await topic.tell(topic.brief.redrive(topic.call_id(), [Redrive("d1")]))
    topic.now += 999
    assert (await topic.tell(topic.brief.count(topic.at()))).active == 1
    topic.now += 1
    assert (await topic.tell(topic.brief.count(topic.at()))).active == 0
