"""The behaviour of a queue, from the beginning: each test shows one promise to its users.

The first parts are sending, receiving, settling and deferring. Dead letters, time and administration follow.
test_further_fundamentals.py shows sessions, topics, transactions and moves. Waiting is in test_waiting.py, looking for
messages without receiving them in test_looks.py, and repeated calls are in test_repetition.py.

The details are not here: the state machine (proof/machine.py) makes any calls in any order, and compares each answer
and all stored data with the model.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import Lock, Outgoing, new_token
from sbredis.exceptions import MessagingEntityDisabledError
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.taking import first_token

pytestmark = pytest.mark.conformance

WINDOW = 60_000
LOCK = SETTINGS.lock_duration

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


async def test_a_receiver_gets_at_most_the_messages_that_it_wants(bench: Bench) -> None:
    """A receiver gets no more messages than it wants, however many there are."""
    await bench.send(b"one", b"two", b"three")
    assert [message.payload for message in await bench.receive(2)] == [b"one", b"two"]
    assert [message.payload for message in await bench.receive(2)] == [b"three"]


async def test_a_receiver_gets_the_messages_that_fit_its_room_but_at_least_one(bench: Bench) -> None:
    """A message that is larger than the room is received alone."""
    await bench.send(b"x" * 100, b"y" * 100, b"z")
    received = await bench.tell(bench.receiving(first_token(), 10, room=50))
    assert [message.name for message in received.messages] == ["1"]
    received = await bench.tell(bench.receiving(first_token(), 10, room=130))
    assert [message.name for message in received.messages] == ["2"]


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


async def test_a_received_message_has_its_level_and_enqueued_time(bench: Bench) -> None:
    """A receiver gets the level and the enqueued time with the message."""
    await bench.send(b"m", level=5)
    bench.later(1234)
    record = (await bench.one()).record
    assert (record.level, record.enqueued, record.payload) == (5, START, b"m")


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


async def test_a_lock_belongs_to_the_token_that_took_it(bench: Bench) -> None:
    """A made-up token, or the token of another message, settles nothing."""
    await bench.send(b"one", b"two")
    one, two = await bench.one(), await bench.one()
    for stranger in (Lock(two.token, one.name), Lock(new_token(), one.name)):
        settled = await bench.tell(bench.partition.complete(bench.call_id(), [stranger]))
        assert settled.lost == (one.name,)
    assert (await bench.complete(one, two)).lost == ()


async def test_a_message_can_be_settled_only_once(bench: Bench) -> None:
    """A second settlement of a message reports a lost lock, in the same call or in a later one."""
    await bench.send(b"one", b"two")
    one, two = await bench.receive()
    assert (await bench.complete(one, one, two)).lost == (one.name,)
    assert (await bench.complete(two)).lost == (two.name,)


async def test_a_call_settles_the_locked_messages_and_returns_the_names_of_the_others(bench: Bench) -> None:
    """A lost lock of one message in a batch does not affect the others."""
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.complete(two)
    assert (await bench.complete(one, two, three)).lost == (two.name,)
    assert (await bench.count()).locked == 0


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


async def test_a_message_renewed_alone_keeps_its_token_and_has_a_lease_of_its_own(bench: Bench) -> None:
    """The other messages of its lease keep their lock time."""
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    bench.later(SETTINGS.lock_duration - 1)
    assert (await bench.renew(two)).apart == (two.name,)
    bench.later(1)
    assert [message.payload for message in await bench.receive()] == [b"one", b"three"]
    assert (await bench.complete(one, two, three)).lost == (one.name, three.name)


async def test_a_message_renewed_alone_stays_locked_until_the_later_of_its_leases_ends(bench: Bench) -> None:
    """Its holder renews the lease of all messages, and another process renews this message: neither ends the other."""
    await bench.send(b"one", b"two")
    one, two = await bench.receive()
    assert (await bench.renew(two)).apart == (two.name,)
    bench.later(SETTINGS.lock_duration - 1)
    assert (await bench.renew(leases=[one.token])).ended == ()
    bench.later(SETTINGS.lock_duration - 1)
    assert await bench.receive() == []
    assert (await bench.renew(leases=[two.token + two.name])).ended == (two.token + two.name,)
    assert (await bench.renew(two)).apart == (two.name,)
    bench.later(1)
    assert [message.payload for message in await bench.receive()] == [b"one"]
    assert (await bench.renew(leases=[two.token + two.name])).ended == ()
    assert (await bench.complete(one, two)).lost == (one.name,)


async def test_renewing_all_messages_of_a_lease_extends_it_and_the_leases_of_single_messages(bench: Bench) -> None:
    """So the key of a lease that was given to a message stays valid."""
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.complete(two)
    assert (await bench.renew(three)).apart == (three.name,)
    for _ in range(2):
        bench.later(SETTINGS.lock_duration - 1)
        assert (await bench.renew(one, three)).apart == ()
    assert (await bench.renew(leases=[one.token, three.token + three.name])).ended == ()
    assert (await bench.complete(one, three)).lost == ()
    assert not any(key.endswith((":leases", ":locks")) for key in await bench.whole())


async def test_a_whole_lease_can_be_renewed_by_its_token(bench: Bench) -> None:
    """All messages that the lease still holds stay locked under the same token. A lease that has ended is named."""
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.complete(two)
    bench.later(SETTINGS.lock_duration - 1)
    stranger = new_token()
    renewed = await bench.renew(leases=[one.token, stranger])
    assert renewed == (False, SETTINGS.lock_duration, (), (), (stranger,))
    bench.later(SETTINGS.lock_duration - 1)
    assert await bench.receive() == []
    assert (await bench.complete(three)).lost == ()
    bench.later(1)
    assert (await bench.renew(leases=[one.token])).ended == (one.token,)
    assert [message.payload for message in await bench.receive()] == [b"one"]


async def test_a_dead_letter_that_cannot_be_dead_lettered_keeps_its_own_lease(bench: Bench) -> None:
    await bench.send(b"one", b"two")
    await bench.dead_letter(*await bench.receive())
    one, two = await bench.receive(side="d")
    bench.later(SETTINGS.lock_duration - 1)
    assert (await bench.renew(one)).apart == (one.name,)
    assert (await bench.dead_letter(one)).unfit == (one.name,)
    bench.later(1)
    assert (await bench.complete(one, two)).lost == (two.name,)


async def test_a_lease_can_be_renewed_in_part_and_then_as_a_whole_by_one_call(bench: Bench) -> None:
    await bench.send(b"one", b"two")
    one, two = await bench.receive()
    bench.later(SETTINGS.lock_duration - 1)
    renewed = await bench.renew(two, leases=[one.token])
    assert (renewed.apart, renewed.ended) == ((two.name,), ())
    bench.later(SETTINGS.lock_duration - 1)
    assert (await bench.complete(one, two)).lost == ()


async def test_a_changed_lock_duration_applies_from_the_next_lock_or_renewal(bench: Bench) -> None:
    """A message that is already locked stays locked for the time that was promised."""
    await bench.send(b"one", b"two")
    old = await bench.one()
    await bench.change(lock_duration=1000)
    new = await bench.one()
    bench.later(1000)
    assert (await bench.one()).name == new.name
    assert (await bench.renew(old)).lock == 1000
    bench.later(1000)
    assert (await bench.complete(old)).lost == (old.name,)


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


async def test_an_abandoned_message_keeps_its_level(bench: Bench) -> None:
    """The message returns among the messages of the same level."""
    await bench.send(b"urgent", level=1)
    await bench.send(b"first", b"second", level=4)
    urgent, first = await bench.receive(2)
    await bench.abandon(first, urgent)
    assert await bench.payloads() == [b"urgent", b"first", b"second"]


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


async def test_the_delivery_after_an_interruption_reports_it(bench: Bench) -> None:
    """The mark ends with that delivery, unless it is released unread. The interruption is not counted as a failure."""
    await bench.send(b"m")
    for end in ("lapse", "defer"):
        message = await bench.one()
        assert not message.delivery.interrupted
        await bench.abandon(message, interrupted=True)
        message = await bench.one()
        assert message.delivery.interrupted
        assert (await bench.renew(message)).lost == ()
        await bench.abandon(message, counted=False)
        message = await bench.one()
        assert message.delivery.interrupted
        if end == "lapse":
            bench.later(SETTINGS.lock_duration)
        else:
            await bench.defer(message)
    (message,), _ = await bench.receive_deferred(message.name)
    assert (message.delivery.interrupted, message.deliveries) == (False, 3)
    await bench.abandon(message, interrupted=True)
    (message,), _ = await bench.receive_deferred(message.name)
    assert message.delivery.interrupted


async def test_the_delivery_of_a_dead_letter_after_an_interruption_reports_it(bench: Bench) -> None:
    await bench.send(b"m")
    message = await bench.one()
    await bench.abandon(message, interrupted=True)
    await bench.dead_letter(await bench.one())
    message = await bench.one(side="d")
    assert not message.delivery.interrupted
    await bench.abandon(message, interrupted=True)
    message = await bench.one(side="d")
    assert message.delivery.interrupted
    await bench.abandon(message)
    await bench.redrive(message.name)
    assert not (await bench.one()).delivery.interrupted


async def test_giving_a_message_back_unread_does_not_increase_its_delivery_count(bench: Bench) -> None:
    """A message that is given back unread, even many times, is as if it had never been received."""
    await bench.send(b"m")
    before = await bench.whole()
    for _ in range(SETTINGS.max_delivery_count + 1):
        message = await bench.one()
        assert message.deliveries == 1
        await bench.abandon(message, counted=False)
    after = await bench.whole()
    kinds = (":order", ":entries", ":leases", ":locks", ":due", ":m0")
    for kind in kinds:
        key = next(key.decode() for key in bench.partition.keys if key.decode().endswith(kind))
        assert after.get(key) == before.get(key)


async def test_changed_properties_are_kept_until_they_are_changed_again(bench: Bench) -> None:
    """The next delivery has the changed properties. They stay if that delivery changes none."""
    await bench.send(b"m")
    await bench.abandon(await bench.one(), changes=b"\x00first;1")
    message = await bench.one()
    assert message.changes == b"\x00first;1"
    await bench.change(max_delivery_count=4)
    await bench.abandon(message)
    message = await bench.one()
    assert message.changes == b"\x00first;1"
    assert message.deliveries == 3
    await bench.defer(message, changes=b"second")
    ((message,), _) = await bench.receive_deferred(message.name)
    assert (message.changes, message.payload) == (b"second", b"m")


async def test_giving_a_message_back_unread_may_change_its_properties(bench: Bench) -> None:
    """The changed properties are the only sign that the message was received."""
    await bench.send(b"m")
    await bench.abandon(await bench.one(), changes=b"seen", counted=False)
    message = await bench.one()
    assert (message.changes, message.deliveries) == (b"seen", 1)


async def test_changed_properties_count_as_stored_bytes_until_the_message_is_gone(bench: Bench) -> None:
    """The bytes of the last changes count among the bytes of the queue; those of earlier changes do not."""
    await bench.send(b"m")
    bare = (await bench.count()).bytes
    await bench.abandon(await bench.one(), changes=b"x" * 100)
    assert (await bench.count()).bytes == bare + 100
    await bench.abandon(await bench.one(), changes=b"x" * 10)
    assert (await bench.count()).bytes == bare + 10
    await bench.complete(await bench.one())
    assert (await bench.count()).bytes == 0


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


async def test_a_call_receives_all_of_its_deferred_messages_or_none(bench: Bench) -> None:
    """If one of the messages is not deferred here, the answer names that message, and the call gives out none."""
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.defer(one, three)
    await bench.abandon(two)
    assert await bench.receive_deferred("1", "2", "3", "9", "d1") == ([], ("2", "9", "d1"))
    held, missing = await bench.receive_deferred("3", "1")
    assert ([message.payload for message in held], missing) == ([b"three", b"one"], ())
    assert await bench.receive_deferred("1", "3") == ([], ("1", "3"))


async def test_a_deferred_message_whose_delivery_failed_is_deferred_again(bench: Bench) -> None:
    """After an abandon, an unread return or a lapse, deliveries are counted as usual, and no delay applies."""
    await bench.change(max_delivery_count=4)
    await bench.send(b"m")
    await bench.defer(await bench.one())
    ((message,), _) = await bench.receive_deferred("1")
    await bench.abandon(message, delay=5000)
    assert await bench.states() == {"1": "f"}
    ((message,), _) = await bench.receive_deferred("1")
    assert message.deliveries == 3
    await bench.abandon(message, counted=False)
    ((message,), _) = await bench.receive_deferred("1")
    assert message.deliveries == 3
    bench.later(SETTINGS.lock_duration)
    assert await bench.receive() == []
    assert await bench.states() == {"1": "f"}
    ((message,), _) = await bench.receive_deferred("1")
    assert message.deliveries == 4


async def test_deferred_messages_are_locked_like_other_messages(bench: Bench) -> None:
    """The locks of deferred messages can be renewed and ended, one by one or all together."""
    names = await bench.send(b"one", b"two", b"three")
    await bench.defer(*await bench.receive())
    held, _ = await bench.receive_deferred(*names)
    bench.later(SETTINGS.lock_duration - 1)
    assert (await bench.renew(*held)).apart == ()
    bench.later(SETTINGS.lock_duration - 1)
    one, two, three = held
    assert (await bench.complete(two)).lost == ()
    assert (await bench.renew(one, three)).apart == ()
    assert (await bench.complete(one, three)).lost == ()
    assert not any(key.endswith((":leases", ":locks")) for key in await bench.whole())


async def test_a_deferred_message_can_be_received_and_deleted(bench: Bench) -> None:
    """The call names the messages by number, and deletes them."""
    await bench.send(b"one", b"two")
    await bench.defer(*await bench.receive())
    held, _ = await bench.receive_deferred("1", "2", mode="delete")
    assert [message.payload for message in held] == [b"one", b"two"]
    counts = await bench.count()
    assert (counts.deferred, counts.locked, counts.bytes) == (0, 0, 0)


# -- statuses ----------------------------------------------------------------------------------------------------------


async def test_a_queue_that_is_disabled_for_sending_can_still_be_received_from(bench: Bench) -> None:
    """With SendDisabled, receivers can still empty the queue."""
    await bench.send(b"m")
    await bench.change(status="SendDisabled")
    with pytest.raises(MessagingEntityDisabledError, match="SendDisabled"):
        await bench.send(b"n")
    assert (await bench.complete(await bench.one())).lost == ()


async def test_a_queue_that_is_disabled_for_receiving_can_still_be_sent_to(bench: Bench) -> None:
    """ReceiveDisabled also applies to deferred messages and dead letters."""
    await bench.send(b"m")
    await bench.defer(await bench.one())
    await bench.change(status="ReceiveDisabled")
    await bench.send(b"n")
    with pytest.raises(MessagingEntityDisabledError, match="ReceiveDisabled"):
        await bench.receive()
    with pytest.raises(MessagingEntityDisabledError, match="ReceiveDisabled"):
        await bench.receive(side="d")
    with pytest.raises(MessagingEntityDisabledError, match="ReceiveDisabled"):
        await bench.receive_deferred("1")
    await bench.change(status="Active")
    assert await bench.payloads() == [b"n"]


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


@either_way
@pytest.mark.parametrize("longer", [False, True], ids=["alone", "behind longer ones"])
async def test_a_locked_message_expires_no_sooner_than_its_lock_ends(bench: Bench, longer: bool) -> None:
    """The holder can still complete the message. If the holder gives it back, even with a delay, it expires."""
    if longer:
        await bench.send(b"longer", time_to_live=100_000)
        await bench.complete(await bench.one())
    await bench.send(b"done", b"abandoned", b"delayed", b"unread", b"lapsed", time_to_live=1000)
    done, abandoned, delayed, unread, _ = await bench.receive()
    bench.later(1000)
    assert (await bench.count()).locked == 5
    assert (await bench.complete(done)).lost == ()
    await bench.abandon(abandoned)
    await bench.abandon(delayed, delay=1)
    await bench.abandon(unread, counted=False)
    counts = await bench.count()
    assert (counts.active, counts.delayed, counts.locked) == (0, 0, 1)
    bench.later(LOCK)
    assert await bench.receive() == []
    kept = [b"abandoned", b"delayed", b"unread", b"lapsed"] if bench.partition.settings.dead_letter_expired else []
    assert await expired(bench) == kept


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


async def test_a_call_cancels_all_of_its_scheduled_messages_or_none(bench: Bench) -> None:
    """If a message is not scheduled, or no longer scheduled, the answer names it and the call cancels none."""
    await bench.send(b"one", b"two", due=START + 1000)
    await bench.send(b"active")
    assert await bench.cancel("1", "3", "9", "d1") == ("3", "9", "d1")
    assert await bench.states() == {"1": "s", "2": "s", "3": "a"}
    assert await bench.cancel("1") == ()
    assert await bench.cancel("1") == ("1",)
    bench.later(1000)
    assert await bench.cancel("2") == ("2",)
    assert await bench.payloads() == [b"active", b"two"]


# -- administration ----------------------------------------------------------------------------------------------------


async def test_a_peek_shows_the_same_values_as_a_receive(bench: Bench) -> None:
    """A peek shows the delivery failures, the dead-letter reason, and the changed properties."""
    await bench.send(b"one", b"two")
    one, two = await bench.receive()
    await bench.abandon(one, changes=b"seen")
    await bench.dead_letter(two, changes=b"why")
    (shown,) = await bench.peek()
    assert (shown.failures, shown.reason, shown.changes) == (1, "-", b"seen")
    (shown,) = await bench.peek(side="d")
    assert (shown.failures, shown.reason, shown.changes) == (0, "A", b"why")


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


@set_to(duplicate_window=WINDOW)
async def test_the_window_begins_with_the_first_message_of_an_id(bench: Bench) -> None:
    """Duplicates do not extend the window, and completing the first message does not shorten it."""
    await bench.send(b"first", message_id=b"id")
    await bench.complete(await bench.one())
    for passed in (WINDOW // 2, WINDOW // 2 - 1):
        bench.later(passed)
        assert (await bench.send_all(Outgoing(b"again", message_id=b"id"))).dropped == 1
    bench.later(1)
    assert (await bench.send_all(Outgoing(b"anew", message_id=b"id"))).dropped == 0
    assert await bench.payloads() == [b"anew"]
