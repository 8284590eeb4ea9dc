"""A partition announces its next due time, so that a client that maintains the namespace visits it then."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.engine import MOST_ASKED, Copy, Outgoing, due_channel, new_token, perform, read_announcement, upcoming
from sbredis.exceptions import DataLayoutError
from tests.engine.bench import ENTITY, NAMESPACE, SALT, SETTINGS, START, Bench, set_to
from tests.engine.holding import of_session
from tests.engine.topics import Topic
from tests.transport.ears import Ear, all_heard

pytestmark = pytest.mark.everywhere("a channel belongs to a slot")
LOCK = SETTINGS.lock_duration
CHANNEL = due_channel(NAMESPACE, SALT)


class Announced:
    """A listener on the channel of the slot."""

    def __init__(self, bench: Bench) -> None:
        self.ear = Ear()
        self._bench = bench

    async def now(self) -> list[int]:
        """Return the due times announced since the last call, counted from the beginning of the test."""
        heard = [read_announcement(said) for said in await all_heard(self._bench.transport, CHANNEL, self.ear)]
        assert all(each.entity == ENTITY for each in heard)
        assert all(each.said <= self._bench.now for each in heard)
        return [each.due - START for each in heard]


@pytest.fixture
async def announced(bench: Bench) -> AsyncIterator[Announced]:
    made = Announced(bench)
    subscription = await bench.transport.subscribe(CHANNEL, made.ear)
    yield made
    subscription.close()


async def test_a_partition_without_future_due_work_announces_nothing(bench: Bench, announced: Announced) -> None:
    await bench.send(b"a", b"b")
    await bench.receive(mode="delete")
    assert await announced.now() == []


async def test_the_end_of_a_lock_is_announced_once_in_each_lock_duration(bench: Bench, announced: Announced) -> None:
    for _ in range(5):
        await bench.send(b"m")
        await bench.complete(await bench.one())
        bench.later(1000)
    assert await announced.now() == [LOCK]
    bench.later(LOCK)
    await bench.send(b"m")
    await bench.one()
    assert await announced.now() == [bench.now - START + LOCK]


async def test_an_earlier_due_time_is_announced_again(bench: Bench, announced: Announced) -> None:
    await bench.send(b"m", due=START + 5000)
    assert await announced.now() == [5000]
    await bench.send(b"m", due=START + 9000)
    assert await announced.now() == []
    await bench.send(b"m", time_to_live=3000)
    assert await announced.now() == [3000]
    (held,) = await bench.receive(1)
    assert await announced.now() == []
    await bench.abandon(held, delay=1000)
    assert await announced.now() == [1000]


async def test_doing_due_work_announces_the_next_due_time(bench: Bench, announced: Announced) -> None:
    for seconds in (1, 2, 3):
        await bench.send(b"m", due=START + seconds * 1000)
    assert await announced.now() == [1000]
    for following in ([2000], [3000], []):
        bench.later(1000)
        await bench.due()
        assert await announced.now() == following


async def test_nothing_is_announced_while_announced_work_is_overdue(bench: Bench, announced: Announced) -> None:
    """The client that heard the earlier announcement will visit the partition anyway."""
    await bench.send_all(*(Outgoing(b"m", due=START + 1000) for _ in range(300)))
    assert await announced.now() == [1000]
    bench.later(1000)
    await bench.send(b"m")
    await bench.send(b"m", time_to_live=500)
    assert await announced.now() == []
    await bench.due()
    assert await announced.now() == [1500]


async def test_a_refused_or_repeated_call_announces_nothing(bench: Bench, announced: Announced) -> None:
    call_id = bench.call_id()
    request = bench.partition.send(call_id, [Outgoing(b"m", due=START + 1000)])
    await bench.tell(request)
    assert await announced.now() == [1000]
    await bench.tell(request)
    assert await announced.now() == []


@set_to(sessions=True)
async def test_the_end_of_a_lock_on_a_session_is_announced(bench: Bench, announced: Announced) -> None:
    await bench.send(of_session("s"))
    assert await announced.now() == []
    await bench.tell(bench.partition.accept_session(bench.call_id(), new_token(), "s"))
    assert await announced.now() == [LOCK]


async def test_publishing_announces_due_times_for_the_topic_and_for_its_subscriptions(topic: Topic) -> None:
    channel, ear = topic.topic.channel, Ear()
    assert channel == due_channel("ns", "abc")
    await topic.transport.subscribe(channel, ear)
    await topic.hand_out([Outgoing(b"m", due=START + 100)], [None])
    await topic.hand_out([Outgoing(b"m", 4000), Outgoing(b"n")], [[Copy(0)], [Copy(1), Copy(2)]])
    heard = [read_announcement(said) for said in await all_heard(topic.transport, channel, ear)]
    assert heard == [("t", START, START + 100), ("s1", START, START + 4000), ("s3", START, START + 1000)]
    for now, expected in ((START + 50, (950, 50, None, 3950, None)), (START + 1500, (0, 0, None, 2500, None))):
        assert await topic.tell(upcoming("ns", "abc", ["s3", "t", "s2", "s1", "nobody"], now)) == expected


async def test_a_message_that_waits_to_be_published_is_not_forgotten(topic: Topic) -> None:
    """A client that begins to maintain the namespace finds it, whatever other calls have done meanwhile."""
    channel, ear = topic.topic.channel, Ear()
    await topic.transport.subscribe(channel, ear)

    async def asked(now: int) -> int | None:
        (answer,) = await topic.tell(upcoming("ns", "abc", ["t"], now))
        return answer

    sent = await topic.hand_out([Outgoing(b"m", due=START + 100), Outgoing(b"n", due=START + 100)], [None, None])
    topic.now = START + 200
    await topic.hand_out([Outgoing(b"m")], [[]])  # this call does the work that is due
    assert await asked(topic.now) == 0
    await topic.hand_out([Outgoing(b"l", due=START + 500)], [None])
    assert await asked(topic.now) == 0
    published = [Outgoing(b"", origin=str(sent.first)), Outgoing(b"", origin=str(sent.first + 1))]
    await topic.hand_out(published, [[], []])
    assert await asked(topic.now) == 300
    heard = [read_announcement(said) for said in await all_heard(topic.transport, channel, ear)]
    assert [each.due - START for each in heard if each.entity == "t"] == [100, 500]
    await topic.tell(topic.topic.cancel(topic.call_id(), [str(sent.first + 3)]))
    topic.now = START + 600
    await topic.hand_out([Outgoing(b"m")], [[]])
    assert await asked(topic.now) is None


async def test_one_call_asks_several_partitions_for_their_due_times_and_changes_nothing(bench: Bench) -> None:
    async def asked(now: int | None, entities: list[str]) -> tuple[int | None, ...]:
        before = await bench.whole()
        answer = await perform(bench.transport, upcoming(NAMESPACE, SALT, entities, now))
        assert await bench.whole() == before
        return answer

    assert await asked(START, [ENTITY]) == (None,)
    await bench.send(b"m", due=START + 5000)
    assert await asked(START + 1000, [ENTITY]) == (4000,)
    assert await asked(START + 9000, [ENTITY]) == (0,)
    assert await asked(None, [ENTITY]) == (None,)  # a caller without a test clock cannot visit the partition either
    bench.later(5000)
    await bench.one()
    assert await asked(bench.now, [ENTITY]) == (LOCK,)


def test_one_call_asks_a_bounded_number_of_partitions() -> None:
    with pytest.raises(ValueError, match="number of partitions"):
        upcoming(NAMESPACE, SALT, [])
    with pytest.raises(ValueError, match="number of partitions"):
        upcoming(NAMESPACE, SALT, ["e"] * (MOST_ASKED + 1))


async def test_the_new_end_of_a_renewed_lock_is_announced_after_the_old_end(bench: Bench, announced: Announced) -> None:
    await bench.send(b"m")
    held = await bench.one()
    assert await announced.now() == [LOCK]
    bench.later(LOCK - 1)
    await bench.renew(held)
    assert await announced.now() == []
    bench.later(1)
    await bench.due()
    assert await announced.now() == [2 * LOCK - 1]


def test_a_malformed_announcement_is_refused() -> None:
    assert read_announcement(b"sb:n:{s}:e7:state 5 9") == ("e7", 5, 9)
    for wrong in (b"", b"x", b"sb:n:{s}:e7:state 5", b"sb:n:{s}:e7:state 5 x", b"nothing 5 9", b"a b c d"):
        with pytest.raises(DataLayoutError):
            read_announcement(wrong)


async def test_work_that_is_due_immediately_is_announced_again_after_a_visit(
    bench: Bench, announced: Announced
) -> None:
    """The client that came for the last announcement does not know of the new work."""
    for _ in range(2):
        await bench.send(b"m", time_to_live=0)
        assert await announced.now() == [0]
        await bench.due()
        assert await announced.now() == []
