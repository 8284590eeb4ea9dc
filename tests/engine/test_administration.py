"""Fundamentals, part seven: administering a queue: peek, count, purge, limit, destroy."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.engine import NEVER, CallId, Outgoing, Partition, Request, read_record
from sbredis.exceptions import MessageSizeExceededError, MessagingEntityNotFoundError, ServiceBusQuotaExceededError
from tests.engine.bench import ENTITY, NAMESPACE, SALT, SETTINGS, START, Bench, set_to
from tests.engine.proof.picture import SENTINEL, SENTINEL_SCORE

pytestmark = pytest.mark.anyio


@pytest.fixture
async def assorted(bench: Bench) -> Bench:
    """Return a queue with messages in every state, on both sides; their numbers are 1 to 5 and d1 to d4."""
    await bench.send(*(b"%d" % number for number in range(1, 9)))
    one, two, three, four, five, six, seven, eight = await bench.receive()
    await bench.dead_letter(five, six, seven, eight)
    await bench.abandon(one, counted=False)
    await bench.abandon(two, delay=20_000)
    await bench.defer(three)
    await bench.send(b"9", due=START + 50_000)
    first, second, third, _ = await bench.receive(4, side="d")
    await bench.abandon(first)
    await bench.abandon(second, delay=20_000)
    await bench.defer(third)
    assert four.name == "4"
    return bench


# -- peeking and counting ----------------------------------------------------------------------------------------------


async def test_a_peek_shows_messages_of_all_states_by_number_and_changes_none(assorted: Bench) -> None:
    """A peek shows messages as they will be after all due work, and writes nothing."""
    assorted.later(1_000_000)
    before = await assorted.whole()
    shown = await assorted.peek()
    assert [(message.name, message.state) for message in shown] == [
        ("1", "a"),
        ("2", "a"),
        ("3", "f"),
        ("4", "a"),
        ("10", "a"),
    ]
    assert [read_record(message.record).payload for message in shown] == [b"1", b"2", b"3", b"4", b"9"]
    assert read_record(shown[-1].record).enqueued == START + 50_000
    assert await assorted.states(side="d") == {"d1": "a", "d2": "a", "d3": "f", "d4": "a"}
    assert await assorted.whole() == before


async def test_a_peek_can_be_limited_to_some_states(assorted: Bench) -> None:
    """A peek takes any combination of states."""
    for states, names in (("a", ["1"]), ("lw", ["2", "4"]), ("sf", ["3", "9"]), ("alwfs", ["1", "2", "3", "4", "9"])):
        assert [message.name for message in await assorted.peek(states=states)] == names
    assert [message.name for message in await assorted.peek(states="fs", side="d")] == ["d3"]


async def test_a_peek_starts_at_a_number_and_returns_at_most_the_wanted_messages(bench: Bench) -> None:
    """A peek that starts after the last number of a page returns the next page; levels make no difference."""
    await bench.send_all(*(Outgoing(b"m", level=7 - number) for number in range(8)))
    seen: list[str] = []
    while page := await bench.peek(int(seen[-1]) + 1 if seen else 0, 3):
        assert len(page) <= 3
        seen += [message.name for message in page]
    assert seen == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert await bench.peek(9) == ()


async def test_a_page_fits_the_room_but_has_at_least_one_message(bench: Bench) -> None:
    """A page of a peek has the same limit of bytes as a receive."""
    await bench.send(*(b"x" * 100 for _ in range(40)))
    for room, number in ((1, 1), (230, 2), (20 * 115, 20), (1 << 30, 40)):
        call_id = CallId("", 0, bench.now)
        assert len((await bench.tell(bench.partition.peek(0, 100, room=room, call_id=call_id))).messages) == number


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


async def test_count_reports_the_messages_in_each_state(assorted: Bench) -> None:
    """The answer has a count for each side and state, the stored bytes, the last number, and the next due time."""
    counts = await assorted.count()
    assert (counts.active, counts.locked, counts.delayed, counts.deferred, counts.scheduled) == (1, 1, 1, 1, 1)
    assert (counts.dead_active, counts.dead_locked, counts.dead_delayed, counts.dead_deferred) == (1, 1, 1, 1)
    assert (counts.held, counts.frozen, counts.dead_kept, counts.dead_frozen) == (0, 0, 0, 0)
    records = [message.record for side in ("", "d") for message in await assorted.peek(side="d" if side else "")]
    assert counts.bytes == sum(map(len, records))
    assert (counts.last, counts.due) == (9, START + 20_000 - assorted.now)


async def test_count_does_no_due_work(assorted: Bench) -> None:
    """A count already shows the numbers after all due work."""
    assorted.later(1_000_000)
    before = await assorted.whole()
    counts = await assorted.count()
    assert await assorted.whole() == before
    await assorted.due()
    assert (await assorted.count())._replace(used=counts.used) == counts
    assert (counts.active, counts.deferred, counts.dead_active, counts.dead_deferred) == (4, 1, 3, 1)


# -- purging -----------------------------------------------------------------------------------------------------------


async def test_a_purge_keeps_locked_and_scheduled_messages(assorted: Bench) -> None:
    """A purge of one side changes nothing on the other side."""
    purged = await assorted.purge()
    assert (purged.more, purged.count, purged.onwards) == (False, 3, None)
    assert await assorted.states() == {"4": "l", "9": "s"}
    assert len(await assorted.states(side="d")) == 4
    assert (await assorted.purge(side="d")).count == 3
    assert await assorted.states(side="d") == {"d4": "l"}


async def test_a_purge_frees_the_bytes_of_its_messages(assorted: Bench) -> None:
    """A purge frees the bytes of bodies and changed properties, and removes the pending events of its messages."""
    await assorted.abandon(await assorted.one(), changes=b"seen")
    await assorted.send(b"brief", time_to_live=20_000)
    await assorted.purge()
    await assorted.purge(side="d")
    assorted.later(1_000_000)
    assert await assorted.cancel("9") == ("9",)  # message 9 is active by now
    await assorted.purge()
    await assorted.purge(side="d")
    counts = await assorted.count()
    assert (counts.bytes, counts.due, sum(counts[4:-1])) == (0, 0, 0)
    left = {key.rpartition(":")[2]: held for key, (_, held) in (await assorted.whole()).items()}
    assert left.keys() == {"state", "store", "ops", "order", "entries"}
    assert (left["order"], left["entries"]) == ({SENTINEL: SENTINEL_SCORE}, {SENTINEL: b""})


async def test_a_purge_removes_the_expiry_events_of_its_messages(bench: Bench) -> None:
    """The test includes a message that expires before an earlier one, and a message that was returned."""
    await bench.send(b"long", time_to_live=100_000)
    await bench.send(b"short", time_to_live=50_000)
    await bench.abandon(*await bench.receive(1))
    due = next(held for key, (_, held) in (await bench.whole()).items() if key.endswith(":due"))
    assert len(due) == 2
    assert (await bench.purge()).count == 2
    assert not any(key.endswith(":due") for key in await bench.whole())
    bench.later(100_000)
    assert (await bench.due()).more is False


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


async def test_each_step_of_a_purge_continues_where_the_previous_step_ended(bench: Bench) -> None:
    """A step looks at a limited number of messages and returns where the next step begins, if there is one."""
    await bench.send(*(b"m" for _ in range(5)), level=2)
    await bench.send(*(b"m" for _ in range(5)))
    held = await bench.receive(6)
    await bench.defer(*held[:3])
    await bench.abandon(*held[3:], delay=1000)
    counted: list[int] = []
    onwards: int | None = 0
    while onwards is not None:
        purged = await bench.purge(share=3, start=onwards)
        counted.append(purged.count)
        onwards = purged.onwards
    assert (sum(counted), max(counted)) == (10, 3)
    assert (await bench.count()).bytes == 0


async def test_a_purge_continues_after_the_messages_that_it_keeps(bench: Bench) -> None:
    """No step of a purge looks at the messages of an earlier step, so the purge ends."""
    bench.later(1000)
    await bench.send(*(b"young" for _ in range(150)))
    bench.later(-1000)
    await bench.send(*(b"old" for _ in range(150)))
    seen, onwards, steps = 0, 0, 0
    while True:
        purged = await bench.purge(START + 1000, share=100, start=onwards)
        seen, steps = seen + purged.count, steps + 1
        if purged.onwards is None:
            break
        onwards = purged.onwards
    assert (seen, steps) == (150, 4)
    bench.later(1000)
    assert set(await bench.payloads()) == {b"young"}


# -- bounds ------------------------------------------------------------------------------------------------------------


async def test_a_full_queue_refuses_messages_until_there_is_room(bench: Bench) -> None:
    """Locked messages count towards the quota, and completed messages do not."""
    await bench.change(quota=1000)
    await bench.send(b"x" * 600)
    message = await bench.one()
    with pytest.raises(ServiceBusQuotaExceededError, match=r"of 1000 bytes"):
        await bench.send(b"y" * 600)
    await bench.complete(message)
    await bench.send(b"y" * 600)


async def test_the_quota_counts_the_dead_letter_queue(bench: Bench) -> None:
    """A queue becomes full if its dead letters are never removed."""
    await bench.change(quota=1000)
    await bench.send(b"x" * 600)
    await bench.dead_letter(await bench.one())
    with pytest.raises(ServiceBusQuotaExceededError, match="dead-letter queue included"):
        await bench.send(b"y" * 600)
    await bench.purge(side="d")
    await bench.send(b"y" * 600)


async def test_a_call_that_would_exceed_the_quota_sends_nothing(bench: Bench) -> None:
    """A call that is refused for the quota sends none of its messages."""
    await bench.change(quota=1000)
    with pytest.raises(ServiceBusQuotaExceededError):
        await bench.send(*(b"x" * 100 for _ in range(11)))
    assert (await bench.count()).last == 0


async def test_a_message_may_be_as_large_as_the_limit_of_its_entity(bench: Bench) -> None:
    """The size limit is exact to the byte."""
    await bench.change(largest_message=100)
    await bench.send(b"x" * 100)
    with pytest.raises(MessageSizeExceededError):
        await bench.send(b"x" * 101)


# -- duplicates --------------------------------------------------------------------------------------------------------

WINDOW = 60_000
knowing_duplicates = set_to(duplicate_window=WINDOW)


@knowing_duplicates
async def test_a_message_sent_again_within_the_window_is_dropped(bench: Bench) -> None:
    """The sender gets no error, and the duplicate uses up a message number."""
    first = await bench.send_all(Outgoing(b"first", message_id=b"id"))
    again = await bench.send_all(Outgoing(b"again", message_id=b"id"), Outgoing(b"other", message_id=b"id2"))
    assert (first.first, first.dropped, again.first, again.dropped) == (1, 0, 2, 1)
    held = await bench.receive()
    assert [(message.name, message.payload) for message in held] == [("1", b"first"), ("3", b"other")]


@knowing_duplicates
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


@knowing_duplicates
async def test_duplicates_within_one_call_are_dropped_as_well(bench: Bench) -> None:
    """Scheduled duplicates are dropped too; messages without an id are never duplicates."""
    sent = await bench.send_all(
        *(Outgoing(b"%d" % number, message_id=b"id") for number in range(3)),
        Outgoing(b"scheduled", message_id=b"id", due=START + 1000),
        *(Outgoing(b"none") for _ in range(3)),
        Outgoing(b"other", message_id=b"ID"),
    )
    assert sent.dropped == 3
    assert await bench.payloads() == [b"0", b"none", b"none", b"none", b"other"]
    bench.later(1000)
    assert await bench.payloads() == []


@knowing_duplicates
async def test_ids_older_than_the_window_are_forgotten(bench: Bench) -> None:
    """Each send forgets at least as many old ids as it adds, so the number of remembered ids is bounded."""
    for number in range(5):
        await bench.send_all(*(Outgoing(b"m", message_id=b"%d-%d" % (number, place)) for place in range(50)))
    bench.later(WINDOW)
    # This id is still stored but older than the window, so the message is no duplicate.
    assert (await bench.send_all(Outgoing(b"m", message_id=b"4-49"))).dropped == 0
    key = bench.partition.keys[6].decode()
    for number in range(5, 9):
        await bench.send_all(*(Outgoing(b"m", message_id=b"%d-%d" % (number, place)) for place in range(50)))
    _, held = (await bench.whole())[key]
    assert {member.partition(b"-")[0] for member in held} == {b"4", b"5", b"6", b"7", b"8"}
    assert [member for member in held if member.startswith(b"4")] == [b"4-49"]


@set_to(duplicate_window=WINDOW, most_ids=3)
async def test_new_ids_beyond_the_limit_are_refused_until_others_have_left_the_window(bench: Bench) -> None:
    """Repeated ids and messages without an id go on being accepted."""
    await bench.send_all(Outgoing(b"m", message_id=b"a"), Outgoing(b"m", message_id=b"b"))
    bench.later(1)
    before = await bench.whole()
    with pytest.raises(ServiceBusQuotaExceededError, match="remembers 2 of 3 message ids"):
        await bench.send_all(*(Outgoing(b"m", message_id=each) for each in (b"a", b"c", b"d")))
    assert await bench.whole() == before
    assert (await bench.send_all(*(Outgoing(b"m", message_id=each) for each in (b"a", b"c", b"c")))).dropped == 2
    with pytest.raises(ServiceBusQuotaExceededError, match="remembers 3 of 3 message ids"):
        await bench.send_all(Outgoing(b"m", message_id=b"d"))
    assert (await bench.send_all(Outgoing(b"m", message_id=b"c"), Outgoing(b"no id"))).dropped == 1
    bench.later(WINDOW - 1)
    assert (await bench.send_all(Outgoing(b"m", message_id=b"d"), Outgoing(b"m", message_id=b"a"))).dropped == 0


async def test_without_duplicate_detection_equal_ids_are_accepted(bench: Bench) -> None:
    """Without duplicate detection, message ids are not stored."""
    for _ in range(2):
        assert (await bench.send_all(Outgoing(b"m", message_id=b"id"))).dropped == 0
    assert await bench.payloads() == [b"m", b"m"]
    assert not any(key.endswith(":dedup") for key in await bench.whole())


# -- destroying and changing -------------------------------------------------------------------------------------------


async def test_a_destroyed_partition_leaves_no_keys(assorted: Bench) -> None:
    """No key is left, whatever the partition contained; later callers are told that the partition is gone."""
    message = await assorted.one()
    for key in assorted.partition.keys:
        if key.decode() not in await assorted.whole():
            await assorted.transport.command("HSET", key, "something", "left", key=key)
    assert len(await assorted.whole()) == len(assorted.partition.keys)
    assert not await assorted.tell(assorted.partition.destroy())
    assert await assorted.whole() == {}
    for call in (
        lambda: assorted.send(b"m"),
        assorted.receive,
        lambda: assorted.complete(message),
        assorted.count,
        assorted.peek,
        assorted.due,
        assorted.purge,
    ):
        with pytest.raises(MessagingEntityNotFoundError):
            await call()
    assert await assorted.whole() == {}


async def test_a_partition_without_a_sentinel_works_the_same(bench: Bench) -> None:
    """Such a partition is slower. Changing its settings does not add a sentinel, and it is destroyed like any other."""
    order, entries = bench.partition.keys[1:3]
    await bench.transport.command("ZREM", order, SENTINEL, key=order)
    await bench.transport.command("HDEL", entries, SENTINEL, key=entries)
    await bench.send(b"one", b"two", b"three")
    one, two, three = await bench.receive()
    await bench.complete(one)
    await bench.change(lock_duration=1)
    await bench.dead_letter(two)
    await bench.abandon(three)
    assert await bench.states() == {"3": "a"}
    assert await bench.states(side="d") == {"d1": "a"}
    assert not await bench.tell(bench.partition.destroy())
    assert await bench.whole() == {}


async def test_a_partition_made_again_under_the_same_keys_is_a_new_incarnation(bench: Bench) -> None:
    """A caller of the old incarnation can neither use nor destroy the new incarnation."""
    old, lane = bench.partition, bench.call_id("late")
    await bench.send(b"m")
    await bench.tell(old.destroy())
    bench.partition = Partition(NAMESPACE, SALT, ENTITY, "second", 1, SETTINGS)
    await bench.tell(bench.partition.configure(create=True))
    assert (await bench.count()).last == 0
    before = await bench.whole()
    late: list[Request[Any]] = [old.send(lane, [Outgoing(b"late")]), old.destroy(), old.configure(create=True)]
    for request in late:
        with pytest.raises(MessagingEntityNotFoundError):
            await bench.tell(request)
    assert await bench.whole() == before


async def test_settings_can_be_changed_while_messages_are_there(assorted: Bench) -> None:
    """A change of settings does not change the stored messages."""
    before = await assorted.whole()
    await assorted.change(
        lock_duration=1,
        max_delivery_count=9,
        time_to_live=NEVER - 1,
        dead_letter_expired=True,
        quota=1,
        largest_message=2,
        most_ids=3,
    )
    after = await assorted.whole()
    changed = {
        (key.rpartition(":")[2], field)
        for key, (_, held) in after.items()
        for field in held
        if held[field] != before[key][1].get(field)
    }
    assert changed == {
        ("state", b"settings"),
        *(("store", field) for field in (b"quota", b"largest", b"most_ids")),
    }
    assert set(after) == set(before)
