"""Fundamentals, part six: a call that is repeated after a lost answer gets the first answer, and is not done again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from typing import Any

import pytest

from sbredis.engine import (
    NEVER,
    NO_CALL_ID,
    Batch,
    CallId,
    Content,
    Destination,
    GiftPlace,
    Lock,
    MalformedCallError,
    Operation,
    Origin,
    Outgoing,
    Partition,
    Received,
    Redrive,
    Request,
    SentGrant,
    SessionLock,
    SettingsStaleError,
    advance,
    encode,
    new_token,
    push_channel,
    transact,
)
from tests.engine.bench import ENTITY, NAMESPACE, SALT, SETTINGS, START, Bench, set_to
from tests.engine.contracts import OF_A_PARTITION
from tests.engine.granting import granting
from tests.engine.reserving import Reader
from tests.engine.taking import first_token

Arrange = Callable[[Bench], Awaitable[Request[Any]]]


async def send(bench: Bench) -> Request[Any]:
    await bench.send(b"first", message_id=b"1")
    messages = [Outgoing(b"again", message_id=b"1"), Outgoing(b"m", 1000, 3, b"2"), Outgoing(b"n", due=START + 1000)]
    return bench.partition.send(bench.call_id(), messages)


async def become(bench: Bench, *, sessions: bool = False, topic: bool = False) -> Partition:
    """Replace the partition on the bench by one of another entity: one with sessions, or a topic."""
    before = bench.partition
    await bench.tell(before.destroy())
    settled = replace(before.settings, sessions=sessions, topic=topic)
    entity = before.keys[0].decode().split(":")[3]
    bench.partition = Partition(NAMESPACE, SALT, entity, before.incarnation, before.version, settled)
    await bench.tell(bench.partition.configure(create=True))
    return bench.partition


async def session(bench: Bench, messages: int = 3) -> SessionLock:
    """Lock a session with this many messages."""
    await become(bench, sessions=True)
    token = new_token()
    await bench.send(*[in_session()] * messages)
    await bench.tell(bench.partition.accept_session(bench.call_id(), token, "s"))
    return SessionLock("s", token)


def in_session(name: str = "s") -> bytes:
    return encode(Content(b"m", session_id=name))


async def accept_session_by_name(bench: Bench) -> Request[Any]:
    await become(bench, sessions=True)
    return bench.partition.accept_session(bench.call_id(), new_token(), "s")


async def accept_session_in_vain(bench: Bench) -> Request[Any]:
    await session(bench)
    return bench.partition.accept_session(bench.call_id(), new_token(), "s")


async def renew_session_(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    bench.later(1000)
    return bench.partition.renew_session(bench.call_id(), locked)


async def release_session_(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    await bench.tell(bench.receiving(locked.token, 2, session="s"))
    return bench.partition.release_session(bench.call_id(), locked)


async def set_state_(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    return bench.partition.set_state(bench.call_id(), locked, b"state")


async def set_state_to_nothing(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    await bench.tell(bench.partition.set_state(bench.call_id(), locked, b"state"))
    return bench.partition.set_state(bench.call_id(), locked, None)


async def get_state_(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    await bench.tell(bench.partition.set_state(bench.call_id(), locked, b"state"))
    return bench.partition.get_state(locked, bench.at())


async def list_sessions_(bench: Bench) -> Request[Any]:
    await session(bench)
    await bench.send(*map(in_session, "abc"))
    return bench.partition.list_sessions(2, call_id=bench.at())


async def bury_session_(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    await bench.tell(bench.receiving(locked.token, 1, session="s"))
    return bench.partition.bury_session(bench.call_id(), locked, b"why", share=2)


async def receive_deferred_in_session(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    held = (await bench.tell(bench.receiving(locked.token, 2, session="s"))).messages
    await bench.tell(bench.partition.defer(bench.call_id(), [Lock(locked.token, one.name) for one in held]))
    await bench.tell(bench.receiving(locked.token, 1, session="s"))
    return bench.partition.receive_deferred(bench.call_id(), locked.token, [one.name for one in held], session="s")


async def receive_deferred_in_session_in_vain(bench: Bench) -> Request[Any]:
    locked = await session(bench)
    return bench.partition.receive_deferred(bench.call_id(), locked.token, ["1"], session="s")


async def grant_(bench: Bench) -> Request[Any]:
    """Return a grant that a later one has overtaken, of a receiver that was given a message."""
    call_id, channel = bench.at(), push_channel(NAMESPACE, SALT, ENTITY, "c")
    first = SentGrant("r", channel, "", granting(1))
    [reply] = (await bench.tell(bench.partition.grant([first], call_id))).credits
    overtaken, later = (first._replace(grant=granting(number, number)._replace(run=reply.run)) for number in (2, 3))
    await bench.send(b"one")
    await bench.tell(bench.partition.grant([later], call_id))
    seen = overtaken.grant._replace(seen=GiftPlace(1, 1, 18), callers=1, limit=1)
    return bench.partition.grant([overtaken._replace(grant=seen)], call_id)


async def publish_(bench: Bench) -> Request[Any]:
    """Return a call that publishes three messages: one for no subscription, one scheduled, and one that is due."""
    topic = await become(bench, topic=True)
    first = await bench.tell(topic.publish(bench.call_id(), [Outgoing(b"waits", due=START + 1)], [()], []))
    assert first.scheduled == (1,)
    messages = [Outgoing(b"for nobody"), Outgoing(b"later", due=START + 1000), Outgoing(b"", origin="1")]
    messages.append(Outgoing(b"", origin="1"))
    return topic.publish(bench.call_id(), messages, [()] * 4, [], fence=5)


async def ripe_(bench: Bench) -> Request[Any]:
    topic = await become(bench, topic=True)
    await bench.tell(topic.publish(bench.call_id(), [Outgoing(b"waits", due=START + 1)] * 2, [()] * 2, []))
    bench.later(1000)
    return topic.ripe(5, call_id=bench.at())


async def settlements(bench: Bench) -> Request[Any]:
    await bench.send(b"one")
    await bench.complete(await bench.one())
    return bench.partition.read_settlements(call_id=bench.at())


async def watermarks_(bench: Bench) -> Request[Any]:
    await bench.tell(transact(bench.call_id(), [advance(bench.partition, b"mark", None, "1")]))
    return bench.partition.watermarks(call_id=bench.at())


async def cancel(bench: Bench) -> Request[Any]:
    names = await bench.send(b"one", b"two", due=START + 1000)
    return bench.partition.cancel(bench.call_id(), names)


async def cancel_in_vain(bench: Bench) -> Request[Any]:
    names = await bench.send(b"one", due=START + 1000)
    return bench.partition.cancel(bench.call_id(), [*names, "7", "d8"])


async def receive_deferred(bench: Bench) -> Request[Any]:
    names = await bench.send(b"one", b"two", b"three")
    await bench.defer(*await bench.receive(), changes=b"later")
    return bench.partition.receive_deferred(bench.call_id(), new_token(), names)


async def receive_deferred_by_number(bench: Bench) -> Request[Any]:
    names = await bench.send(b"one", b"two", time_to_live=50_000)
    return bench.partition.receive_deferred(bench.call_id(), new_token(), names, wide=True)


async def receive_deferred_in_part(bench: Bench) -> Request[Any]:
    """Return a call with room for one of two deferred messages."""
    names = await bench.send(b"a" * 85, b"b" * 85)
    await bench.defer(*await bench.receive())
    return bench.partition.receive_deferred(bench.call_id(), new_token(), names, room=100)


async def receive_deferred_that_has_expired(bench: Bench) -> Request[Any]:
    await bench.send(b"short", time_to_live=1000)
    await bench.send(b"long")
    held = await bench.receive()
    await bench.defer(*held)
    bench.later(1000)
    return bench.partition.receive_deferred(bench.call_id(), new_token(), [message.name for message in held])


async def purge_of_a_session(bench: Bench) -> Request[Any]:
    await session(bench, 3)
    return bench.partition.purge(bench.call_id(), NEVER, session="s")


async def receive_deferred_in_vain(bench: Bench) -> Request[Any]:
    names = await bench.send(b"one", b"two", b"three")
    return bench.partition.receive_deferred(bench.call_id(), new_token(), names)


async def locks(bench: Bench) -> list[Lock]:
    """Return the locks of two locked messages, with changed properties, and of a message whose lock is lost."""
    await bench.send(b"one", b"two", b"three")
    held = await bench.receive()
    await bench.complete(held[1])
    return [message.lock(b"changed") for message in held]


async def complete(bench: Bench) -> Request[Any]:
    held = await locks(bench)
    return bench.partition.complete(bench.call_id(), held)


async def abandon(bench: Bench) -> Request[Any]:
    one, two, three = await locks(bench)
    return bench.partition.abandon(bench.call_id(), [one, two, three._replace(delay=1000)])


async def defer(bench: Bench) -> Request[Any]:
    held = await locks(bench)
    return bench.partition.defer(bench.call_id(), held)


async def dead_letter(bench: Bench) -> Request[Any]:
    await bench.send(b"dead already")
    await bench.dead_letter(await bench.one())
    dead = await bench.one(side="d")
    held = await locks(bench)
    return bench.partition.dead_letter(bench.call_id(), [dead.lock(), *held])


async def renew(bench: Bench) -> Request[Any]:
    one, two, three = await locks(bench)
    bench.later(1000)
    return bench.partition.renew(bench.call_id(), [one, two, three])


async def renew_in_part(bench: Bench) -> Request[Any]:
    one, two, _ = await locks(bench)
    bench.later(1000)
    return bench.partition.renew(bench.call_id(), [one, two])


async def renew_leases(bench: Bench) -> Request[Any]:
    one, two, _ = await locks(bench)
    bench.later(1000)
    return bench.partition.renew(bench.call_id(), [two], [one.token, new_token()])


async def purge(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two", b"three")
    return bench.partition.purge(bench.call_id(), NEVER, share=2)


async def redrive(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.dead_letter(one, two, three)
    await bench.one(side="d")
    return bench.partition.redrive(bench.call_id(), [Redrive("d1"), Redrive("d3", 1000, b"changes"), Redrive("d2")])


async def peek(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two", b"three")
    return bench.partition.peek(0, 2, call_id=bench.at())


async def close(bench: Bench) -> Request[Any]:
    bench.later(100_000)
    return bench.partition.close(1000, bench.partition.version, now=bench.now)


async def touch(bench: Bench) -> Request[Any]:
    await bench.tell(bench.partition.touch(bench.at()))
    return bench.partition.touch(bench.at())


async def count(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two", b"three")
    return bench.partition.count(bench.at())


async def inspect(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two")
    return bench.partition.inspect(bench.at())


async def due(bench: Bench) -> Request[Any]:
    await bench.send(b"one", due=START + 1000)
    await bench.send(b"two", due=START + 2000)
    bench.later(1000)
    return bench.partition.due(bench.call_id())


async def configure(bench: Bench) -> Request[Any]:
    return bench.partition.configure(create=True)


async def transact_(bench: Bench) -> Request[Any]:
    await bench.send(b"one")
    message = await bench.one()
    of = bench.partition
    return transact(
        bench.call_id(),
        [
            Operation(of, of.complete(NO_CALL_ID, [message.lock()])),
            Operation(of, of.send(NO_CALL_ID, [Outgoing(b"two"), Outgoing(b"three")])),
        ],
    )


TO, FROM = Destination("x", 3), Origin("q", "birth")


async def let_forward(bench: Bench) -> None:
    bench.partition.settings = replace(bench.partition.settings, forwards=True)
    bench.partition.version += 1
    await bench.tell(bench.partition.configure(now=bench.now))


async def outgoing_(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two")
    await let_forward(bench)
    return bench.partition.outgoing(wanted=1, now=bench.now)


async def birth(bench: Bench) -> str:
    return (await bench.tell(bench.partition.outgoing(now=bench.now))).birth


async def freeze_(bench: Bench) -> Request[Any]:
    await bench.send(b"one", b"two", b"three")
    one, two, _ = await bench.peek()
    return bench.partition.freeze(await birth(bench), TO, "holder", [one, two], now=bench.now)


async def settle_batch_(bench: Bench) -> Request[Any]:
    batch = await bench.tell(await freeze_(bench))
    assert batch is not None
    first = batch.names[:1]
    return bench.partition.settle_batch(await birth(bench), TO, batch.number, "again", names=first, now=bench.now)


async def sweep_(bench: Bench) -> Request[Any]:
    """Settle a batch, and freeze the next one. A repetition returns the batch that the first call has frozen."""
    batch = await bench.tell(await freeze_(bench))
    await let_forward(bench)
    return bench.partition.sweep(TO, "holder", batch, await birth(bench), now=bench.now)


async def take_(bench: Bench) -> Request[Any]:
    of = bench.partition
    sending = of.send(NO_CALL_ID, [Outgoing(b"one"), Outgoing(b"two")])
    return of.take(FROM, Batch(TO, "holder", 5, ("1", "2")), "", sending, now=bench.now)


async def forget_source_(bench: Bench) -> Request[Any]:
    await bench.tell(await take_(bench))
    return bench.partition.forget_source([FROM], now=bench.now)


async def destroy(bench: Bench) -> Request[Any]:
    await bench.send(b"one")
    return bench.partition.destroy()


async def reserved(bench: Bench, rows: int = 2) -> Reader:
    """Reserve the partition, and plan a range."""
    await bench.send(b"one", b"two", b"three")
    await bench.change(reserved=True)
    reader = Reader(bench)
    await reader.begin()
    await reader.plan(rows)
    return reader


async def plan_(bench: Bench) -> Request[Any]:
    reader = await reserved(bench)
    committed = (await reader.plan()).committed
    await bench.tell(bench.partition.plan(1, committed, 1, call_id=bench.at()))
    return bench.partition.plan(1, committed, 1, call_id=bench.at())


async def read_pin_(bench: Bench) -> Request[Any]:
    await reserved(bench)
    return bench.partition.read_pin(call_id=bench.at())


async def read_range_(bench: Bench) -> Request[Any]:
    planned = await (await reserved(bench)).plan()
    return bench.partition.read_range(planned.birth, 0, 2, call_id=bench.at())


async def unpin_(bench: Bench) -> Request[Any]:
    await reserved(bench)
    return bench.partition.unpin(1, call_id=bench.at())


ARRANGED: list[Arrange] = [
    *(abandon, cancel, cancel_in_vain, complete, configure, count, dead_letter, defer, destroy, due, inspect, peek),
    *(grant_, publish_),
    *(purge, receive_deferred, receive_deferred_in_vain, redrive),
    *(receive_deferred_in_part, receive_deferred_that_has_expired, purge_of_a_session),
    receive_deferred_by_number,
    *(renew, renew_in_part, renew_leases, ripe_, send, settlements, watermarks_),
    *(accept_session_by_name, accept_session_in_vain),
    *(bury_session_, get_state_, list_sessions_, receive_deferred_in_session),
    *(receive_deferred_in_session_in_vain, release_session_, renew_session_, set_state_),
    set_state_to_nothing,
    transact_,
    *(forget_source_, freeze_, outgoing_, settle_batch_, sweep_, take_),
    *(close, touch),
    *(plan_, read_pin_, read_range_, unpin_),
]


def each(but: Collection[Arrange] = ()) -> pytest.MarkDecorator:
    """Run a test for each arrangement, except those in ``but``."""
    return pytest.mark.parametrize(
        "arrange", [arrange for arrange in ARRANGED if arrange not in but], ids=lambda arrange: str(arrange.__name__)
    )


def test_these_tests_repeat_every_operation() -> None:
    names = {arrange.__name__ for arrange in ARRANGED}
    assert all(any(name.startswith(one) for name in names) for one in OF_A_PARTITION)


async def send_another(bench: Bench, call_id: CallId) -> None:
    """Send or publish a message, as the partition on the bench requires now."""
    of = bench.partition
    if of.settings.topic:
        await bench.tell(of.publish(call_id, [Outgoing(b"another")], [()], []))
    else:
        await bench.tell(of.send(call_id, [Outgoing(in_session() if of.settings.sessions else b"another")]))


@pytest.mark.conformance
@set_to(duplicate_window=60_000)
@each(but=(forget_source_, settle_batch_))
async def test_a_repeated_call_gets_the_first_answer_and_changes_nothing(bench: Bench, arrange: Arrange) -> None:
    """A call may be repeated any number of times. The next call in its lane is done as usual."""
    request = await arrange(bench)
    assert request.script.name in arrange.__name__
    first = await bench.tell(request)
    after = await bench.whole()
    for _ in range(2):
        assert await bench.tell(request) == first
        assert await bench.whole() == after
    if arrange is not destroy:
        await send_another(bench, bench.call_id())


@each(
    but=(
        *(close, configure, count, destroy, due, grant_, peek),
        *(forget_source_, outgoing_, settle_batch_, sweep_, plan_, read_pin_, unpin_),
    )
)
async def test_calls_of_other_lanes_do_not_change_a_stored_answer(bench: Bench, arrange: Arrange) -> None:
    """Calls of other lanes do not change the answer, except the remaining time of a lock, and the clock."""
    request = await arrange(bench)
    first = await bench.tell(request)
    bench.later(5000)
    other = bench.call_id("other")
    await send_another(bench, other)
    after = await bench.whole()
    second = await bench.tell(request)
    if arrange is renew_session_:
        assert second == first - 5000
    elif getattr(first, "lock", 0) and not getattr(first, "missing", ()):
        clock = {"clock": second.clock} if hasattr(first, "clock") else {}
        assert second == first._replace(lock=first.lock - 5000, **clock)
    else:
        assert second == first
    assert await bench.whole() == after


async def test_a_repeated_call_computes_the_next_due_time_again(bench: Bench) -> None:
    """The caller counts the time from the new answer."""
    request = await due(bench)

    async def again() -> int:
        before, after = request.arguments[:4], request.arguments[5:]
        told: int = (await bench.tell(request._replace(arguments=(*before, bench.now, *after)))).due
        return told

    await bench.tell(request)
    call_id = bench.call_id("other")
    await bench.tell(bench.partition.send(call_id, [Outgoing(b"m", due=bench.now + 900)]))
    assert await again() == 900
    bench.later(400)
    assert await again() == 500
    bench.later(600)
    assert await again() == 1


async def test_a_repeated_receive_returns_the_messages_still_locked_under_its_token(bench: Bench) -> None:
    """The answer does not include a message that was settled meanwhile; one that was renewed alone is still locked."""
    await bench.send(b"one", b"two", b"three", b"four")
    token = first_token()
    request = bench.receiving(token, 10)
    one, two, three, four = (await bench.tell(request)).messages
    call_id = bench.call_id("other")
    await bench.tell(bench.partition.complete(call_id, [Lock(token, one.name)]))
    await bench.tell(bench.partition.renew(bench.call_id("other"), [Lock(token, three.name)]))
    assert (await bench.tell(request)).messages == (two, three, four)
    bench.later(SETTINGS.lock_duration)
    await bench.tell(bench.partition.due(bench.call_id("other")))
    assert (await bench.tell(request)).messages == ()


async def test_a_repeated_receive_returns_no_message_whose_lock_has_just_ended(bench: Bench) -> None:
    """The repetition ends the lock itself, and does not give the message out again."""
    await bench.send(b"one")
    request = bench.receiving(first_token(), 10)
    assert len((await bench.tell(request)).messages) == 1
    bench.later(SETTINGS.lock_duration)
    before, after = request.arguments[:4], request.arguments[5:]
    again = request._replace(arguments=(*before, bench.now, *after))
    assert (await bench.tell(again)).messages == ()
    assert await bench.states() == {"1": "a"}


async def test_a_repeated_receive_and_delete_returns_no_messages(bench: Bench) -> None:
    """A repeated receive-and-delete returns no message and deletes no other one: the caller accepted this risk."""
    await bench.send(b"one", b"two", b"three")
    deleting = bench.receiving(first_token(), 1, mode="delete")
    first: Received = await bench.tell(deleting)
    assert len(first.messages) == 1
    assert (await bench.tell(deleting)).messages == ()
    await bench.defer(await bench.one())
    deleting = bench.partition.receive_deferred(bench.call_id(), new_token(), ["2"], mode="delete")
    assert len((await bench.tell(deleting)).messages) == 1
    again = await bench.tell(deleting)
    assert (again.messages, again.missing) == ((), ())
    assert await bench.states() == {"3": "a"}


async def test_a_call_older_than_the_last_call_of_its_lane_is_refused(bench: Bench) -> None:
    """The caller already got the answer of an older call, or has given the call up."""
    old = bench.partition.send(bench.call_id(), [Outgoing(b"old")])
    await bench.tell(old)
    await bench.send(b"new")
    before = await bench.whole()
    with pytest.raises(MalformedCallError, match="older than the last call of its lane, number 2"):
        await bench.tell(old)
    assert await bench.whole() == before


async def test_reusing_the_number_of_a_call_for_another_operation_is_refused(bench: Bench) -> None:
    """Otherwise the caller would read the stored answer of another operation."""
    call_id = bench.call_id()
    await bench.tell(bench.partition.send(call_id, [Outgoing(b"m")]))
    before = await bench.whole()
    others: list[Request[Any]] = [
        bench.partition.cancel(call_id, ["1"]),
        bench.partition.receive_deferred(call_id, new_token(), ["1"]),
    ]
    for request in others:
        with pytest.raises(MalformedCallError, match="belongs to another call"):
            await bench.tell(request)
    assert await bench.whole() == before


async def test_a_repeated_call_is_answered_even_if_the_settings_have_changed(bench: Bench) -> None:
    """Only a new call must know the new settings. A repeated call was done under the earlier settings."""
    partition = bench.partition
    request = partition.send(bench.call_id(), [Outgoing(b"m")])
    first = await bench.tell(request)
    await bench.change(status="Disabled")
    assert await bench.tell(request) == first
    with pytest.raises(SettingsStaleError):
        await bench.tell(partition.send(bench.call_id(), [Outgoing(b"n")]))


async def test_calls_without_a_lane_are_done_each_time(bench: Bench) -> None:
    """The script cannot tell whether such a call is a repetition."""
    request = bench.partition.send(bench.at(), [Outgoing(b"m")])
    assert [(await bench.tell(request)).first for _ in range(2)] == [1, 2]
    assert not any(key.endswith(":ops") for key in await bench.whole())


async def test_equal_call_numbers_in_two_lanes_are_different_calls(bench: Bench) -> None:
    """The same number in two lanes means two calls."""
    first = bench.partition.send(bench.call_id("a"), [Outgoing(b"m")])
    second = bench.partition.send(bench.call_id("b"), [Outgoing(b"m")])
    assert ((await bench.tell(first)).first, (await bench.tell(second)).first) == (1, 2)
    assert ((await bench.tell(first)).first, (await bench.tell(second)).first) == (1, 2)


async def test_a_lane_unused_for_a_quarter_of_an_hour_is_forgotten(bench: Bench) -> None:
    """A new lane removes idle lanes. A lane with a new call, or a repeated call, in that time stays."""

    async def call(lane: str) -> Request[Any]:
        request = bench.partition.due(bench.call_id(lane))
        await bench.tell(request)
        return request

    async def lanes() -> set[str]:
        _, held = (await bench.whole())[bench.partition.keys[7].decode()]
        return {lane.decode() for lane in held}

    await call("idle")
    bench.later(1)
    await call("used")
    bench.later(900_000)
    assert await lanes() == {"idle", "used"}
    await call("new")
    assert await lanes() == {"used", "new"}
    bench.later(1)
    await call("newer")
    assert await lanes() == {"new", "newer"}


async def test_each_call_forgets_only_a_few_of_many_idle_lanes(bench: Bench) -> None:
    """Each new lane removes at most ten idle lanes, so no call takes long."""
    for number in range(25):
        await bench.tell(bench.partition.due(bench.call_id(f"lane{number}")))
    bench.later(900_001)
    left = 25
    key = bench.partition.keys[7].decode()
    for number in range(10):
        await bench.tell(bench.partition.due(bench.call_id(f"new{number}")))
        now = len([lane for lane in (await bench.whole())[key][1] if lane.startswith(b"lane")])
        assert left - 10 <= now <= left
        left = now
    assert left < 5
