"""Sessions: one receiver at a time, messages in order, and a state; an empty session leaves no keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import (
    NEVER,
    CallId,
    Changes,
    Outgoing,
    PartitionSettings,
    SessionLock,
    decode_changes,
    encode_changes,
    new_token,
)
from sbredis.exceptions import (
    MessageSizeExceededError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    SessionLockLostError,
)
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.holding import (
    Holder,
    accept,
    body,
    holder,
    listed,
    listed_since,
    look_for,
    of_session,
    peeked,
    put,
    traces,
)
from tests.engine.receivers import Receivers

LOCK = SETTINGS.lock_duration
pytestmark = pytest.mark.anyio


@pytest.fixture
def settings() -> PartitionSettings:
    """Return the settings of an entity with sessions."""
    return replace(SETTINGS, sessions=True)


# -- accepting -------------------------------------------------------------------------------------------------------


async def test_a_session_is_given_to_one_receiver_at_a_time(bench: Bench) -> None:
    """A receiver accepts a session by name, with or without messages, for one lock duration."""
    first = await accept(bench, "s")
    assert (first.outcome, first.session, first.lock, first.due) == ("taken", "s", LOCK, 0)
    before = await traces(bench)
    second = await accept(bench, "s")
    assert (second.outcome, second.session, second.lock) == ("locked", "s", 0)
    assert await traces(bench) == before
    assert (await accept(bench, "t")).outcome == "taken"
    bench.later(LOCK)
    assert (await accept(bench, "s")).outcome == "taken"


async def test_an_accept_without_a_name_gets_the_session_that_is_free_for_longest(bench: Bench) -> None:
    """A session is free from the time when it has a message to receive. A session that is given back comes last."""
    for name in ("b", "a", "c"):
        await put(bench, name, b"1")
        bench.later(10)
    first = await holder(bench)
    assert first.lock.name == "b"
    await put(bench, "b", b"2")
    await first.release()
    bench.later(10)
    assert [(await holder(bench)).lock.name for _ in range(3)] == ["a", "c", "b"]
    nothing = await accept(bench)
    assert (nothing.outcome, nothing.session, nothing.lock) == ("none", "", 0)
    assert nothing.due == LOCK


async def test_sessions_that_became_free_at_the_same_time_are_accepted_by_name(bench: Bench) -> None:
    await bench.send(*(of_session(name) for name in ("c", "a", "", "b")))
    assert [(await holder(bench)).lock.name for _ in range(4)] == ["", "a", "b", "c"]


async def test_a_look_locks_nothing(bench: Bench) -> None:
    assert (await look_for(bench)).outcome == "none"
    await put(bench, "s", b"1")
    before = await traces(bench)
    found = await look_for(bench)
    assert (found.outcome, found.session, found.lock) == ("found", "s", 0)
    assert await traces(bench) == before


async def test_similar_session_names_are_told_apart(bench: Bench) -> None:
    """A name may be empty, contain special characters, or be the beginning of another name."""
    names = ["", " ", "=", "a", "ab", "a b", "é\n", "~a", "!a", "wa", "=a", "x" * 128]
    for name in names:
        await put(bench, name, b"1", name.encode())
    for name in names:
        mine = await holder(bench, name)
        assert await mine.bodies() == [b"1", name.encode()]
        await mine.set_state(name.encode())
    assert (await accept(bench)).outcome == "none"
    assert sorted((await listed(bench)).names) == sorted(names)


ANY_BYTES = [
    "a\0b",
    "\0",
    "a\0" + "b" * 97,
    "a\0" + "b" * 98,
    "a\0" + "b" * 99,
    "%s",
    "%",
    "a b",
    "a|b",
    "@a",
    "=a",
    "é" * 128,
]


@pytest.mark.parametrize("name", ANY_BYTES)
@pytest.mark.parametrize("target", ["memory", "server"])
async def test_a_session_name_may_contain_any_bytes(bench: Bench, name: str) -> None:
    """Each session has its own lock, whatever bytes are in its name. The end of a lock affects no other session."""
    await put(bench, name, b"1", b"2")
    other = await holder(bench, "a")
    mine = await holder(bench, name)
    assert mine.lock.name == name
    assert await mine.bodies(2) == [b"1", b"2"]
    await mine.set_state(b"kept")
    assert await mine.get_state() == b"kept"
    bench.later(LOCK - 1)
    await other.renew()
    bench.later(1)
    again = await holder(bench, name)
    assert [(body(each), each.failures) for each in await again.receive(2)] == [(b"1", 1), (b"2", 1)]
    assert (await accept(bench, "a")).outcome == "locked"
    assert await again.release() == 2
    assert (await holder(bench)).lock.name == name


async def test_a_repeated_accept_never_gets_another_session(bench: Bench) -> None:
    await put(bench, "a", b"1")
    bench.later(1)
    await put(bench, "b", b"1")
    token = new_token()
    request = bench.partition.accept_session(bench.call_id(), token, None)
    first = await bench.tell(request)
    assert (first.outcome, first.session) == ("taken", "a")
    assert await bench.tell(request) == first
    other = bench.call_id("other")
    await bench.tell(bench.partition.accept_session(other, new_token(), None))
    assert await bench.tell(request) == first
    bench.later(LOCK)
    arguments = (*request.arguments[:4], bench.now, *request.arguments[5:])
    again = await bench.tell(request._replace(arguments=arguments))
    assert (again.outcome, again.session, again.lock) == ("none", "a", 0)


# -- order -----------------------------------------------------------------------------------------------------------


async def test_a_session_gives_out_only_its_own_messages_and_in_order(bench: Bench) -> None:
    await bench.send(*(of_session(name, b"%d" % number) for number in range(6) for name in ("a", "b")))
    one, other = await holder(bench, "a"), await holder(bench, "b")
    assert await one.bodies(2) == [b"0", b"1"]
    assert await other.bodies(4) == [b"0", b"1", b"2", b"3"]
    assert await one.bodies() == [b"2", b"3", b"4", b"5"]
    assert await one.bodies() == []


@pytest.mark.parametrize("target", ["memory", "server"])
async def test_levels_do_not_change_the_order_of_a_session(bench: Bench) -> None:
    await bench.send_all(*(Outgoing(of_session("s", b"%d" % level), level=level) for level in (7, 3, 0)))
    assert await (await holder(bench)).bodies() == [b"7", b"3", b"0"]


async def test_an_abandoned_message_comes_before_later_messages(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2", b"3")
    mine = await holder(bench)
    one, two = await mine.receive(2)
    await mine.abandon(one)
    again = await mine.receive()
    assert [(body(message), message.failures) for message in again] == [(b"1", 1), (b"3", 0)]
    await mine.abandon(two)
    assert await mine.bodies() == [b"2"]


async def test_after_a_message_is_dead_lettered_the_session_gives_out_the_next_one(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    for _ in range(SETTINGS.max_delivery_count):
        (one,) = await mine.receive(1)
        assert body(one) == b"1"
        await mine.abandon(one)
    assert await mine.bodies() == [b"2"]
    (dead,) = await bench.receive(side="d")
    assert (dead.reason, body(dead.delivery)) == ("M", b"1")


async def test_abandoning_a_message_with_a_delay_blocks_its_session(bench: Bench) -> None:
    """The message keeps its place. Neither this holder nor the next one gets a later message first."""
    await put(bench, "s", b"1", b"2", b"3")
    mine = await holder(bench)
    one, _ = await mine.receive(2)
    await mine.abandon(one, delay=5000)
    assert (await mine.receive_more()).due == 5000
    await mine.release()
    assert (await accept(bench)).outcome == "none"
    bench.later(4999)
    assert (await accept(bench)).outcome == "none"
    await put(bench, "s", b"4")
    assert (await accept(bench)).outcome == "none"
    bench.later(1)
    assert await (await holder(bench)).bodies() == [b"1", b"2", b"3", b"4"]


async def test_a_blocked_session_can_be_accepted_by_name_but_gives_out_nothing(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    await mine.abandon(*await mine.receive(1), delay=5000)
    await mine.release()
    mine = await holder(bench, "s")
    assert await mine.bodies() == []
    await mine.release()
    assert (await accept(bench)).outcome == "none"
    mine = await holder(bench, "s")
    bench.later(5000)
    assert await mine.bodies() == [b"1", b"2"]


async def test_a_session_is_not_blocked_for_longer_than_its_message_lives(bench: Bench) -> None:
    """If two messages are delayed, the session is blocked for the longer delay."""
    await put(bench, "s", b"brief", time_to_live=1000)
    await put(bench, "s", b"2", b"3")
    mine = await holder(bench)
    one, two, three = await mine.receive()
    await mine.abandon(one, delay=NEVER)
    bench.later(999)
    assert await mine.bodies() == []
    bench.later(1)
    assert await mine.bodies() == []  # messages two and three are still held
    await mine.abandon(two, delay=500)
    await mine.abandon(three, delay=100)
    bench.later(499)
    assert await mine.bodies() == []
    bench.later(1)
    assert await mine.bodies() == [b"2", b"3"]


async def test_a_scheduled_message_enters_its_session_when_due(bench: Bench) -> None:
    await put(bench, "s", b"later", due=START + 1000)
    assert (await accept(bench)).outcome == "none"
    mine = await holder(bench, "s")
    await put(bench, "s", b"now")
    assert await mine.bodies() == [b"now"]
    bench.later(1000)
    (later,) = await mine.receive()
    assert (body(later), later.name) == (b"later", "3")
    await mine.complete(later, "2")
    await mine.release()
    assert await traces(bench) == {}


async def test_cancelling_the_only_message_of_a_session_leaves_no_traces(bench: Bench) -> None:
    (name,) = await put(bench, "s", b"later", due=START + 1000)
    assert await bench.cancel(name) == ()
    assert await traces(bench) == {}
    bench.later(1000)
    assert (await accept(bench)).outcome == "none"


async def test_an_expired_session_message_is_never_given_out(bench: Bench) -> None:
    """A session that has only an expired message is not free either."""
    await put(bench, "s", b"brief", time_to_live=1000)
    await put(bench, "s", b"2")
    await put(bench, "t", b"brief", time_to_live=1000)
    bench.later(1000)
    mine = await holder(bench)
    assert mine.lock.name == "s"
    assert (await accept(bench)).outcome == "none"
    assert await mine.bodies() == [b"2"]


@pytest.mark.parametrize("target", ["memory", "server"])
async def test_a_message_that_expires_on_activation_makes_no_session_free(bench: Bench) -> None:
    """A scheduled message is activated and expires in the same call."""
    await bench.send_all(Outgoing(of_session("s"), 0, due=START + 1000))
    bench.later(1000)
    await bench.due()
    assert await traces(bench) == {}
    assert (await accept(bench)).outcome == "none"


async def test_a_message_that_is_purged_on_activation_makes_no_session_free(bench: Bench) -> None:
    await put(bench, "s", b"1", due=START + 1000)
    bench.later(1000)
    assert (await bench.purge()).count == 1
    assert await traces(bench) == {}


# -- the lock --------------------------------------------------------------------------------------------------------


async def test_the_lock_on_a_session_also_locks_its_received_messages(bench: Bench) -> None:
    """The messages are held until the session lock ends. Renewing the lock or one of the messages renews all."""
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    one, two = await mine.receive()
    bench.later(LOCK - 1)
    assert await mine.renew() == LOCK
    bench.later(LOCK - 1)
    renewed = await bench.tell(bench.partition.renew(bench.call_id(), new_token(), mine.locks(one)))
    assert (renewed.lost, renewed.moved) == ((), ())
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


async def test_a_lapsed_session_lock_counts_a_failed_delivery_of_each_held_message(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2", b"3")
    await (await holder(bench)).receive(2)
    bench.later(LOCK)
    again = await (await holder(bench)).receive()
    assert [(body(message), message.failures) for message in again] == [(b"1", 1), (b"2", 1), (b"3", 0)]


async def test_giving_a_session_back_does_not_increase_delivery_counts(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2", b"3")
    mine = await holder(bench)
    await mine.receive(2)
    assert await mine.release() == 2
    assert [message.failures for message in await (await holder(bench)).receive()] == [0, 0, 0]
    with pytest.raises(SessionLockLostError):
        await mine.release()


async def test_the_lock_of_another_session_is_refused(bench: Bench) -> None:
    await put(bench, "s", b"1")
    await put(bench, "t", b"1")
    mine, other = await holder(bench, "s"), await holder(bench, "t")
    (one,) = await mine.receive()
    wrong = Holder(bench, SessionLock("s", other.lock.token))
    for failing in (wrong.renew, wrong.release, wrong.receive, wrong.get_state, lambda: wrong.set_state(b"x")):
        with pytest.raises(SessionLockLostError):
            await failing()
    assert await wrong.complete(one) == (one.name,)
    assert await mine.complete(one) == ()


async def test_a_received_session_message_is_counted_as_held_and_shown_as_locked(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2", b"3")
    mine = await holder(bench)
    await mine.receive(2)
    counts = await bench.count()
    assert (counts.active, counts.held, counts.locked) == (1, 2, 0)
    assert await bench.states() == {"1": "l", "2": "l", "3": "a"}


async def test_a_session_holder_holds_at_most_a_thousand_messages(bench: Bench) -> None:
    """When one of the messages is settled, the holder can receive another one."""
    await bench.send(*[of_session("s")] * 1000)
    await put(bench, "s", b"next", b"last")
    mine = await holder(bench)
    held = await mine.receive(1000)
    assert len(held) == 1000
    assert await mine.receive(1) == []
    look = await bench.tell(bench.partition.look(session=mine.lock, call_id=CallId("", 0, bench.now)))
    assert not look.found
    await mine.complete(held[0])
    assert await mine.bodies() == [b"next"]
    await mine.defer(held[1])
    with pytest.raises(ServiceBusError, match="it may hold 1000"):
        await mine.receive_deferred(held[1].name, held[2].name)
    assert len((await mine.receive_deferred(held[1].name)).messages) == 1
    assert await mine.receive(1) == []
    assert await mine.release() == 1000


async def test_the_messages_of_a_lapsed_session_lock_are_released_over_several_calls(bench: Bench) -> None:
    """No receiver can accept the session until all of its messages are released."""
    await bench.send(*[of_session("s")] * 250)
    await (await holder(bench)).receive(250)
    bench.later(LOCK)
    outcomes = [(await accept(bench, "s")).outcome for _ in range(3)]
    assert outcomes == ["lapsing", "lapsing", "taken"]
    counts = await bench.count()
    assert (counts.active, counts.held) == (250, 0)


@pytest.mark.slow
async def test_very_many_session_locks_without_messages_lapse_over_several_calls(bench: Bench) -> None:
    """Each call does only its share of the work, and reports that more is left."""
    for number in range(150):
        await accept(bench, f"s{number}")
    bench.later(LOCK)
    assert (await look_for(bench)).more
    assert not (await look_for(bench)).more
    assert await traces(bench) == {}


# -- deferring and dead-lettering ------------------------------------------------------------------------------------


async def test_a_deferred_session_message_is_received_by_number_under_the_lock(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2", b"3")
    mine = await holder(bench)
    one, _ = await mine.receive(2)
    await mine.defer(one)
    assert await mine.bodies() == [b"3"]
    with pytest.raises(ServiceBusError, match="non-sessionful"):
        await bench.receive_deferred(one.name)
    (again,) = (await mine.receive_deferred(one.name)).messages
    assert body(again) == b"1"
    await mine.abandon(again, delay=1000)  # it is deferred again, so no other message has to wait for it
    assert (await bench.states())[one.name] == "f"
    await put(bench, "s", b"4")
    assert await mine.bodies() == [b"4"]
    (deleted,) = (await mine.receive_deferred(one.name, mode="delete")).messages
    assert body(deleted) == b"1"
    assert (await mine.receive_deferred(one.name)).missing == (one.name,)


async def test_a_deferred_message_of_another_session_is_missing(bench: Bench) -> None:
    """A call gives out all of the messages that it names, or none."""
    await put(bench, "s", b"1")
    await put(bench, "t", b"1")
    mine, other = await holder(bench, "s"), await holder(bench, "t")
    (one,), (two,) = await mine.receive(), await other.receive()
    await mine.defer(one)
    await other.defer(two)
    assert (await mine.receive_deferred(one.name, two.name, "77", "d1")).missing == (two.name, "77", "d1")
    assert len((await mine.receive_deferred(one.name)).messages) == 1


async def test_a_session_that_has_only_deferred_messages_is_not_free(bench: Bench) -> None:
    await put(bench, "s", b"1")
    mine = await holder(bench)
    await mine.defer(*await mine.receive())
    await mine.release()
    assert (await accept(bench)).outcome == "none"
    assert (await listed(bench)).names == ()
    assert len((await (await holder(bench, "s")).receive_deferred("1")).messages) == 1


async def test_the_dead_letter_queue_has_no_sessions(bench: Bench) -> None:
    """A receiver of the dead-letter queue gets the dead letters of all sessions."""
    await put(bench, "s", b"1")
    await put(bench, "t", b"2")
    for _ in range(2):
        mine = await holder(bench)
        await mine.dead_letter(*await mine.receive())
        await mine.release()
    dead = await bench.receive(side="d")
    assert [body(one.delivery) for one in dead] == [b"1", b"2"]
    await bench.defer(dead[0])
    held, missing = await bench.receive_deferred("d1")
    assert (len(held), missing) == (1, ())
    await bench.complete(*held, dead[1])
    assert await traces(bench) == {}


async def test_burying_a_session_dead_letters_its_enqueued_messages(bench: Bench) -> None:
    """The session's held, active and deferred messages are buried; scheduled messages and other sessions stay."""
    await put(bench, "s", b"1", b"2", b"3", b"4", b"5")
    await put(bench, "s", b"brief", time_to_live=10_000)
    await put(bench, "s", b"scheduled", due=START + 1000)
    await put(bench, "t", b"other")
    mine = await holder(bench, "s")
    one, two, _ = await mine.receive(3)
    await mine.defer(one)
    changes = encode_changes(Changes(properties={"why": 1}))
    locks = mine.locks(two, changes=changes)
    await bench.tell(bench.partition.abandon(bench.call_id(), locks))
    why = encode_changes(Changes(reason="gone", description="all of it"))
    moved, more = 0, True
    while more:
        step = await bench.tell(bench.partition.bury_session(bench.call_id(), mine.lock, why, share=2))
        moved, more = moved + step.count, step.onwards is not None
    assert moved == 6
    assert await bench.states() == {"7": "s", "8": "a"}
    dead = await bench.receive(side="d")
    assert {body(one.delivery) for one in dead} == {b"1", b"2", b"3", b"4", b"5", b"brief"}
    for one_dead in dead:
        told = decode_changes(one_dead.changes)
        assert (told.reason, told.description, one_dead.reason) == ("gone", "all of it", "A")
        assert told.properties == ({"why": 1} if body(one_dead.delivery) == b"2" else None)
    await mine.release()
    assert (await holder(bench)).lock.name == "t"
    bench.later(1000)
    assert (await holder(bench)).lock.name == "s"


# -- state -----------------------------------------------------------------------------------------------------------


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


async def test_a_session_state_counts_as_stored_bytes(bench: Bench) -> None:
    mine = await holder(bench, "s")
    for state, weight in ((b"x" * 100, 100), (b"x" * 10, 10), (b"", 0), (b"x" * 7, 7), (None, 0), (b"x", 1)):
        await mine.set_state(state)
        assert (await bench.count()).bytes == weight
    await bench.tell(bench.partition.destroy())
    assert await bench.whole() == {}


@set_to(sessions=True, largest_message=100, quota=150)
async def test_a_session_state_has_the_size_limit_of_a_message(bench: Bench) -> None:
    mine = await holder(bench, "s")
    with pytest.raises(MessageSizeExceededError):
        await mine.set_state(b"x" * 101)
    await mine.set_state(b"x" * 100)
    other = await holder(bench, "t")
    with pytest.raises(ServiceBusQuotaExceededError):
        await other.set_state(b"x" * 51)
    await other.set_state(b"x" * 50)
    await mine.set_state(b"y" * 100)  # a state that does not grow needs no further room
    await other.set_state(b"")
    with pytest.raises(ServiceBusQuotaExceededError):
        await bench.send(of_session("s", b"x" * 80))
    await mine.set_state(None)
    await bench.send(of_session("s", b"x" * 80))


# -- listing ---------------------------------------------------------------------------------------------------------


async def test_sessions_with_messages_or_a_state_are_listed_by_name_in_pages(bench: Bench) -> None:
    names = sorted(
        [f"s{number:02}" for number in range(20)] + ["s1", "", "é"], key=lambda name: name.encode() + b"\xff"
    )
    for name in names:
        await put(bench, name, b"1", b"2")
    await (await holder(bench, "stated")).set_state(b"x")
    await holder(bench, "locked")
    await put(bench, "scheduled", b"1", due=START + 10**6)
    held = await holder(bench, "s07")
    await held.receive()
    deferred = await holder(bench, "deferred")
    await put(bench, "deferred", b"1")
    await deferred.defer(*await deferred.receive())
    names = sorted([*names, "stated"], key=lambda name: name.encode() + b"\xff")
    assert list((await listed(bench)).names) == names
    for wanted in (1, 4, 7):
        found: list[str] = []
        after, pages = None, 0
        while pages == 0 or after is not None:
            page = await listed(bench, wanted, after)
            found += page.names
            after, pages = page.onwards, pages + 1
            assert len(page.names) <= wanted
        assert found == names


async def test_a_list_call_reads_a_bounded_number_of_sessions(bench: Bench) -> None:
    """A page may have fewer sessions than wanted, and says where the next page begins."""
    for number in range(10):
        await put(bench, f"s{number}", b"1", due=START + 10**6)
    await put(bench, "t", b"1")
    page = await listed(bench, 2)
    assert (page.names, page.onwards) == ((), "s7")
    page = await listed(bench, 2, page.onwards)
    assert (page.names, page.onwards) == (("t",), None)


async def test_sessions_are_listed_by_the_time_of_their_state(bench: Bench) -> None:
    for name in ("b", "c", "a"):
        mine = await holder(bench, name)
        await mine.set_state(b"1")
        bench.later(10)
    one = await holder(bench, "e")
    await one.set_state(b"1")
    two = await holder(bench, "d")
    await two.set_state(b"1")
    await put(bench, "messages", b"1")
    at = [START, START + 10, START + 20, START + 30, START + 30]
    page = await listed_since(bench, 0)
    assert (page.names, list(page.times)) == (("b", "c", "a", "d", "e"), at)
    assert (await listed_since(bench, START + 11)).names == ("a", "d", "e")
    assert (await listed_since(bench, START + 10, 2)).names == ("c", "a")
    assert (await listed_since(bench, START + 30, 5, skip=1)).names == ("e",)
    assert (await listed_since(bench, START + 31)).names == ()
    bench.later(10)
    await (await holder_again(bench, "b")).set_state(b"2")
    assert (await listed_since(bench, 0)).names == ("c", "a", "d", "e", "b")


async def holder_again(bench: Bench, name: str) -> Holder:
    """Return the new holder of a session after its lock has ended."""
    bench.later(LOCK)
    return await holder(bench, name)


async def test_the_messages_of_one_session_can_be_peeked(bench: Bench) -> None:
    """The messages come in the order of their numbers, whatever their states are."""
    await put(bench, "s", b"scheduled", due=START + 10**6)
    await put(bench, "t", b"other")
    await put(bench, "s", b"deferred", b"held", b"active", b"last")
    mine = await holder(bench, "s")
    deferred, _ = await mine.receive(2)
    await mine.defer(deferred)

    async def peeked(start: int = 0, wanted: int = 10, states: str = "alwfs") -> list[tuple[str, str]]:
        request = bench.partition.peek(start, wanted, states=states, session="s", call_id=CallId("", 0, bench.now))
        return [(message.name, message.state) for message in (await bench.tell(request)).messages]

    assert await peeked() == [("1", "s"), ("3", "f"), ("4", "l"), ("5", "a"), ("6", "a")]
    assert await peeked(4, 2) == [("4", "l"), ("5", "a")]
    assert await peeked(states="af") == [("3", "f"), ("5", "a"), ("6", "a")]
    assert await peeked(7) == []
    assert len(await bench.peek()) == 6


# -- leftovers -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_thousands_of_finished_sessions_leave_no_traces(bench: Bench) -> None:
    """The messages are completed, received and deleted, or purged. The locks are given back or lapse."""
    for at in range(0, 3000, 1000):
        await bench.send(*(of_session(f"session-{number}") for number in range(at, at + 1000)))
    assert len((await listed(bench)).names) == 1000
    for _ in range(20):
        mine = await holder(bench)
        await mine.complete(*await mine.receive())
        await mine.release()
    for _ in range(20):
        mine = await holder(bench)
        await mine.receive(mode="delete")
        await mine.set_state(b"x")
        await mine.set_state(None)
    purged, step = 0, None
    while step is None or step.onwards is not None:
        step = await bench.purge(START + 1)
        purged += step.count
    assert purged == 2960
    bench.later(LOCK)
    await bench.due()
    assert await traces(bench) == {}
    assert (await listed(bench)).names == ()


async def test_an_ended_delay_leaves_no_traces(bench: Bench) -> None:
    await put(bench, "s", b"1")
    mine = await holder(bench)
    await mine.abandon(*await mine.receive(), delay=1000)
    await bench.purge()
    await mine.release()
    bench.later(1000)
    await bench.due()
    assert await traces(bench) == {}


# -- waking ----------------------------------------------------------------------------------------------------------


async def test_a_waiter_for_a_session_is_woken_when_a_session_is_free(bench: Bench, listening: Receivers) -> None:
    """For each session one waiter is woken, in the order of arrival."""
    first, second = await listening("first"), await listening("second")
    for receiver in (first, second):
        assert (await accept(bench, waiter=receiver.channel)).outcome == "none"
        bench.later(10)
    await put(bench, "s", b"1", b"2")
    await first.woken(1)
    await second.woken(0)
    assert (await accept(bench, waiter=first.channel)).outcome == "taken"
    await put(bench, "s", b"3")
    await second.woken(0)
    await put(bench, "t", b"1")
    await second.woken(1)


@pytest.mark.parametrize("how", ["release", "lapse", "delay"])
async def test_a_waiter_is_woken_when_a_session_becomes_free_again(
    bench: Bench, listening: Receivers, how: str
) -> None:
    """The session was given back, its lock has ended, or its delay is over."""
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    waiting = await listening("waiting")
    if how == "delay":
        await mine.abandon(*await mine.receive(1), delay=5000)
        await mine.release()
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    if how == "release":
        await mine.release()
    else:
        bench.later(LOCK if how == "lapse" else 5000)
        await bench.due()
    await waiting.woken(1)


async def test_a_waiter_for_a_session_stops_waiting_when_it_leaves_or_gets_one(
    bench: Bench, listening: Receivers
) -> None:
    waiting, other = await listening("waiting"), await listening("other")
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    assert (await look_for(bench, waiter=waiting.channel, waiting_for=0)).outcome == "none"
    assert (await look_for(bench, waiter=other.channel)).outcome == "none"
    await put(bench, "s", b"1")
    await waiting.woken(0)
    await other.woken(1)
    assert (await look_for(bench, waiter=other.channel)).outcome == "found"
    assert "waiters" not in await traces(bench)


async def test_a_holder_that_waits_in_its_session_is_woken_for_a_new_message(
    bench: Bench, listening: Receivers
) -> None:
    """Messages of other sessions do not wake the holder. No waiter for a session is woken for a locked session."""
    mine, channel = await holder(bench, "s"), await listening("mine")
    waiting = await listening("waiting")
    assert (await mine.receive_more(waiter=channel.channel)).messages == ()
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    await put(bench, "s", b"1")
    await channel.woken(1)
    await waiting.woken(0)
    await put(bench, "s", b"2")
    await channel.woken(0)  # the holder had been woken already
    assert [body(one) for one in (await mine.receive_more(waiter=channel.channel)).messages] == [b"1", b"2"]
    await put(bench, "t", b"1")
    await channel.woken(0)
    await waiting.woken(1)


@pytest.mark.parametrize("how", ["schedule", "delay", "abandon", "room"])
async def test_every_way_in_which_a_message_becomes_available_wakes_the_holder(
    bench: Bench, listening: Receivers, how: str
) -> None:
    mine, channel = await holder(bench, "s"), await listening("mine")
    await bench.send(*[of_session("s")] * (1000 if how == "room" else 1))
    held = await mine.receive(1000)
    if how == "schedule":
        await put(bench, "s", b"2", due=START + 1000)
    elif how == "delay":
        await mine.abandon(*held, delay=1000)
    elif how == "room":
        await put(bench, "s", b"2")
    assert (await mine.receive_more(waiter=channel.channel)).messages == ()
    await channel.woken(0)
    if how == "abandon":
        await mine.abandon(*held)
    elif how == "room":
        await bench.send(of_session("s"))
        await channel.woken(0)  # the holder could not receive the message
        await mine.complete(held[0])
    else:
        bench.later(1000)
        await bench.due()
    await channel.woken(1)
    assert len((await mine.receive_more(waiter=channel.channel)).messages) == {"room": 1}.get(how, 1)


async def test_newer_settings_wake_a_holder_in_its_session_and_those_who_wait_for_one(
    bench: Bench, listening: Receivers
) -> None:
    """The holder still waits in its session."""
    mine, channel, waiting = await holder(bench, "s"), await listening("mine"), await listening("waiting")
    assert (await mine.receive_more(waiter=channel.channel)).messages == ()
    assert (await accept(bench, waiter=waiting.channel)).outcome == "none"
    await bench.change(max_delivery_count=5)
    await channel.woken(1)
    await waiting.woken(1)
    await put(bench, "s", b"1")
    await channel.woken(1)
    await waiting.woken(0)


async def test_a_former_holder_no_longer_waits_in_its_session(bench: Bench, listening: Receivers) -> None:
    """The holder gave the session back, its lock lapsed, or it stopped waiting."""
    channel = await listening("mine")
    for how in ("release", "lapse", "word"):
        mine = await holder(bench, "s")
        await mine.receive_more(waiter=channel.channel)
        if how == "release":
            await mine.release()
        elif how == "lapse":
            bench.later(LOCK)
            await bench.due()
        else:
            call_id = CallId("", 0, bench.now)
            request = bench.partition.look(session=mine.lock, waiter=channel.channel, waiting_for=0, call_id=call_id)
            await bench.tell(request)
            await mine.release()
        assert await traces(bench) == {}, how
    await put(bench, "s", b"1")
    await channel.woken(0)


async def test_a_waiter_that_would_sleep_past_due_work_is_woken(bench: Bench, listening: Receivers) -> None:
    """It is enough to wake one waiter, because its next call does the due work for all."""
    channel = await listening("mine")
    mine = await holder(bench, "s")
    assert (await mine.receive_more(waiter=channel.channel)).due == LOCK
    await put(bench, "s", b"1", due=START + 500)
    await channel.woken(1)
    assert (await mine.receive_more(waiter=channel.channel)).due == 500
    waiting = await listening("waiting")
    assert (await accept(bench, waiter=waiting.channel)).due == 500
    await put(bench, "t", b"1", due=START + 100)
    await waiting.woken(1)


@pytest.mark.parametrize("how", ["woken", "released", "accepted"])
async def test_a_leaving_waiter_passes_on_the_next_due_time(bench: Bench, listening: Receivers, how: str) -> None:
    """A holder leaves when it gets a message or gives its session back. A waiter for a session leaves when it gets a
    session.
    """
    knowing, other = await listening("knowing"), await listening("other")
    mine = await holder(bench, "s")
    if how == "accepted":
        assert (await accept(bench, waiter=knowing.channel)).outcome == "none"
    else:
        await mine.receive_more(waiter=knowing.channel)
    bench.later(10)
    theirs = await holder(bench, "t")
    await theirs.receive_more(waiter=other.channel)
    await put(bench, "t", b"1", due=START + 500)
    await knowing.woken(1)
    await other.woken(0)
    if how == "accepted":
        await put(bench, "u", b"1")
        await other.woken(0)
        assert (await accept(bench, waiter=knowing.channel)).outcome == "taken"
    else:
        assert (await mine.receive_more(waiter=knowing.channel)).due == 490
        await other.woken(0)
        await (put(bench, "s", b"1") if how == "woken" else mine.release())
    await other.woken(1)
    assert (await theirs.receive_more(waiter=other.channel)).due == 490


async def test_a_look_in_a_session_reports_whether_it_has_messages(bench: Bench) -> None:
    mine = await holder(bench, "s")

    async def found() -> bool:
        return (await bench.tell(bench.partition.look(session=mine.lock, call_id=CallId("", 0, bench.now)))).found

    assert not await found()
    await put(bench, "s", b"1", b"2")
    assert await found()
    await mine.abandon(*await mine.receive(1), delay=1000)
    assert not await found()
    bench.later(1000)
    assert await found()
    await mine.receive()
    assert not await found()


# -- epochs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ahead", [0, LOCK // 2, LOCK, 100 * LOCK])
async def test_a_lock_survives_a_failover_and_is_longer_by_one_duration_at_most(bench: Bench, ahead: int) -> None:
    """The clock of the new server may be ahead of the old one by up to one lock duration without ending the lock."""
    await put(bench, "s", b"1")
    mine = await holder(bench)
    (one,) = await mine.receive()
    bench.later(1000)
    await at_one_process(bench)
    bench.run_id = "another"
    bench.later(ahead)
    if ahead <= LOCK:
        assert await mine.complete(one) == ()
        assert await mine.renew() == LOCK
    bench.later(LOCK + 1000)
    bench.later(LOCK)
    assert (await accept(bench, "s")).outcome == "taken"


async def at_one_process(bench: Bench) -> None:
    """Let the calls carry a run id from now on, even in memory, where there is no server process."""
    bench.run_id = "one"
    await bench.due()


async def test_message_numbers_jump_at_a_failover_and_keep_the_order(bench: Bench) -> None:
    await put(bench, "s", b"1")
    await at_one_process(bench)
    last = (await bench.count()).last
    bench.run_id = "another"
    assert await put(bench, "s", b"2") == [str(last + 2**24 + 1)]
    assert await (await holder(bench)).bodies() == [b"1", b"2"]


# -- deleting while receiving ----------------------------------------------------------------------------------------


async def test_a_repeated_receive_and_delete_in_a_session_returns_no_messages(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    request = bench.partition.receive(bench.call_id(), mine.lock.token, 5, session="s", mode="delete")
    assert [body(message) for message in (await bench.tell(request)).messages] == [b"1", b"2"]
    assert (await bench.tell(request)).messages == ()
    await mine.release()
    assert await traces(bench) == {}


async def test_a_repeated_receive_in_a_session_returns_its_messages_that_are_still_held(bench: Bench) -> None:
    """The answer has no messages that other calls under the same lock have given out."""
    await put(bench, "s", b"1", b"2", b"3", b"4", b"5")
    mine = await holder(bench)
    first = await mine.receive(1)
    call_id = bench.call_id("other")
    request = bench.partition.receive(call_id, mine.lock.token, 3, session="s")
    assert [body(message) for message in (await bench.tell(request)).messages] == [b"2", b"3", b"4"]
    await mine.receive(1)
    await mine.complete("3", *first)
    again = await bench.tell(request)
    assert ([body(message) for message in again.messages], again.lock) == ([b"2", b"4"], LOCK)
    await mine.release()
    assert (await bench.tell(request)).messages == ()
