"""Fundamentals, part two: how messages get into the dead-letter queue, and that it works like other queues."""

from __future__ import annotations

import pytest

from sbredis.engine import Lock, new_token
from tests.engine.bench import SETTINGS, Bench

pytestmark = pytest.mark.anyio


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


async def test_a_lapsed_lock_counts_as_a_failed_delivery(bench: Bench) -> None:
    """A lapsed lock counts as a failed delivery even though no client reports a failure."""
    await bench.send(b"m")
    for _ in range(SETTINGS.max_delivery_count):
        await bench.one()
        bench.later(SETTINGS.lock_duration)
    assert await bench.receive() == []
    assert (await bench.one(side="d")).reason == "M"


async def test_the_delivery_limit_takes_precedence_over_delay_and_deferral(bench: Bench) -> None:
    """At the delivery limit a message is dead-lettered instead of being delayed or deferred again."""
    await bench.change(max_delivery_count=2)
    await bench.send(b"one", b"two")
    await bench.abandon(*await bench.receive())
    await bench.change(max_delivery_count=3)
    one, two = await bench.receive()
    await bench.defer(two)
    ((two,), _) = await bench.receive_deferred(two.name)
    await bench.change(max_delivery_count=2)
    await bench.abandon(one, delay=5000)
    await bench.abandon(two)
    assert [(message.payload, message.reason) for message in await bench.receive(side="d")] == [
        (b"one", "M"),
        (b"two", "M"),
    ]


async def test_deferring_at_the_delivery_limit_makes_a_dead_letter(bench: Bench) -> None:
    """Deferring counts as a failed delivery. The dead letter has the new properties; the call reports success."""
    await bench.change(max_delivery_count=2)
    await bench.send(b"one", b"two")
    await bench.abandon(await bench.one())
    one, two = await bench.receive()
    assert (await bench.defer(one, two, changes=b"later")).lost == ()
    assert await bench.states() == {"2": "f"}
    dead = await bench.one(side="d")
    assert (dead.payload, dead.reason, dead.changes, dead.delivery.failures) == (b"one", "M", b"later", 2)
    ((two,), _) = await bench.receive_deferred("2")
    assert two.deliveries == 2


async def test_a_dead_letter_keeps_its_delivery_count_however_its_lock_ends(bench: Bench) -> None:
    """After an abandon, a deferral, a lapse or an unread return, a dead letter is received with the same count."""
    await bench.send(b"m")
    await bench.abandon(await bench.one())
    await bench.dead_letter(await bench.one())
    await bench.abandon(await bench.one(side="d"))
    await bench.abandon(await bench.one(side="d"), delay=1000)
    bench.later(1000)
    await bench.one(side="d")
    bench.later(SETTINGS.lock_duration)
    await bench.defer(await bench.one(side="d"))
    ((dead,), _) = await bench.receive_deferred("d1")
    assert dead.deliveries == 2
    bench.later(SETTINGS.lock_duration)
    await bench.due()
    ((dead,), _) = await bench.receive_deferred("d1")
    assert dead.deliveries == 2


async def test_a_message_can_be_made_a_dead_letter_with_changed_properties(bench: Bench) -> None:
    """The changed properties can include the dead-letter reason and description."""
    await bench.send(b"one", b"two")
    one, two = await bench.receive()
    assert await bench.dead_letter(one, changes=b"because") == await bench.dead_letter(two)
    held = await bench.receive(side="d")
    assert [(message.payload, message.reason, message.changes) for message in held] == [
        (b"one", "A", b"because"),
        (b"two", "A", b""),
    ]


async def test_a_dead_letter_keeps_its_changed_properties_and_delivery_count(bench: Bench) -> None:
    """A dead letter is the same message in another queue."""
    await bench.send(b"m")
    await bench.abandon(await bench.one(), changes=b"seen")
    await bench.dead_letter(await bench.one())
    dead = await bench.one(side="d")
    assert (dead.changes, dead.deliveries, dead.record.enqueued) == (b"seen", 2, dead.record.enqueued)


async def test_dead_letters_have_their_own_numbers_in_the_order_of_dead_lettering(bench: Bench) -> None:
    """The earlier numbers and levels of dead letters make no difference."""
    await bench.send(b"one", b"two", level=1)
    await bench.send(b"three", level=0)
    three, one, two = await bench.receive()
    for message in (two, three, one):
        await bench.dead_letter(message)
    held = await bench.receive(side="d")
    assert [(message.name, message.payload) for message in held] == [("d1", b"two"), ("d2", b"three"), ("d3", b"one")]


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


async def test_an_abandoned_dead_letter_returns_to_its_place_immediately_or_after_a_delay(bench: Bench) -> None:
    """Abandoning a dead letter works like abandoning a message of the queue."""
    await bench.send(b"one", b"two", b"three")
    await bench.dead_letter(*await bench.receive())
    one, two = await bench.receive(2, side="d")
    await bench.abandon(two)
    await bench.abandon(one, delay=5000)
    assert await bench.states(side="d") == {"d1": "w", "d2": "a", "d3": "a"}
    assert await bench.payloads(side="d") == [b"two", b"three"]
    bench.later(5000)
    assert await bench.payloads(side="d") == [b"one"]


async def test_a_dead_letter_can_be_deferred(bench: Bench) -> None:
    """A deferred dead letter is received by its number, and returns to the deferred dead letters."""
    await bench.send(b"m")
    await bench.dead_letter(await bench.one())
    await bench.defer(await bench.one(side="d"), changes=b"later")
    assert await bench.receive(side="d") == []
    ((message,), missing) = await bench.receive_deferred("d1")
    assert (message.payload, message.changes, message.reason, missing) == (b"m", b"later", "A", ())
    bench.later(SETTINGS.lock_duration)
    await bench.due()
    assert await bench.states(side="d") == {"d1": "f"}
    ((message,), _) = await bench.receive_deferred("d1")
    assert message.deliveries == 1


async def test_nothing_is_dead_lettered_from_the_dead_letter_queue(bench: Bench) -> None:
    """A call that dead-letters a dead letter reports this, and the lock stays. No delivery limit applies."""
    await bench.send(b"m")
    await bench.dead_letter(await bench.one())
    for _ in range(3 * SETTINGS.max_delivery_count):
        dead = await bench.one(side="d")
        assert (dead.name, dead.deliveries) == ("d1", 1)
        settled = await bench.dead_letter(dead, changes=b"never")
        assert (settled.lost, settled.unfit) == ((), ("d1",))
        assert (await bench.abandon(dead)).lost == ()
    assert (await bench.one(side="d")).changes == b""


async def test_no_dead_letter_expires(bench: Bench) -> None:
    """A dead letter does not expire while it is ready, locked or delayed, however short its time to live was."""
    await bench.send(b"one", b"two", b"three", time_to_live=100)
    await bench.dead_letter(*await bench.receive())
    await bench.abandon((await bench.receive(2, side="d"))[1], delay=50)
    bench.later(10_000_000)
    await bench.due()
    assert await bench.payloads(side="d") == [b"one", b"two", b"three"]


async def test_a_call_settles_messages_of_both_sides(bench: Bench) -> None:
    """Each settlement names the token that its message was received with."""
    await bench.send(b"one", b"two")
    await bench.dead_letter(await bench.one())
    dead, alive = await bench.one(side="d"), await bench.one()
    settled = await bench.dead_letter(alive, dead)
    assert (settled.lost, settled.unfit) == ((), ("d1",))
    (second,) = await bench.receive(side="d")
    assert (await bench.complete(dead, second)).lost == ()
    assert (await bench.count()).bytes == 0


async def test_equal_numbers_on_the_two_sides_are_different_messages(bench: Bench) -> None:
    """Message 1 and dead letter 1 are different: the token of one does not settle the other."""
    await bench.send(b"one", b"two")
    await bench.dead_letter(await bench.one())
    two, dead = await bench.one(), await bench.one(side="d")
    wrong = [Lock(two.token, "d1"), Lock(dead.token, "2"), Lock(dead.token, "1"), Lock(new_token(), "d2")]
    settled = await bench.tell(bench.partition.complete(bench.call_id(), wrong))
    assert settled.lost == ("d1", "2", "1", "d2")
    assert (await bench.complete(two, dead)).lost == ()


@pytest.mark.slow
async def test_dead_letters_are_found_even_if_they_fill_more_than_one_hash_of_bodies(bench: Bench) -> None:
    """A dead letter has a new number, but its body is stored under the old one. Here the two differ by thousands."""
    await bench.send(*(b"x" for _ in range(1000)))
    await bench.complete(*await bench.receive(1000))
    for _ in range(4):
        await bench.send(*(b"y" for _ in range(1000)))
        await bench.complete(*await bench.receive(1000))
    names = await bench.send(*(b"%d" % number for number in range(200)))
    assert int(names[-1]) > 4096
    await bench.dead_letter(*await bench.receive(200))
    held = await bench.receive(200, side="d")
    assert [message.payload for message in held] == [b"%d" % number for number in range(200)]
    assert (await bench.complete(*held)).lost == ()
    assert (await bench.count()).bytes == 0
