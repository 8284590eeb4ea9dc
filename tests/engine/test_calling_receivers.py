"""A partition of an entity that has many calls receivers, because they are not at all of them, and can be searched."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.engine import (
    NEXT_SESSION,
    MalformedCallError,
    Outgoing,
    find_ready,
    read_call_for_receivers,
    ready_channel,
)
from sbredis.exceptions import DataLayoutError
from tests.engine.bench import ENTITY, NAMESPACE, SALT, SETTINGS, Bench, set_to
from tests.engine.granting import Grantors, names
from tests.engine.holding import of_session
from tests.transport.ears import Ear, all_heard

pytestmark = pytest.mark.everywhere("a channel belongs to a slot")
CHANNEL = ready_channel(NAMESPACE, SALT, ENTITY)


class Called:
    """A listener on the channel on which the partition calls."""

    def __init__(self, bench: Bench) -> None:
        self.ear = Ear()
        self._bench = bench

    async def now(self) -> list[frozenset[str]]:
        """Return what the partition has called since the last time."""
        return [read_call_for_receivers(said) for said in await all_heard(self._bench.transport, CHANNEL, self.ear)]


@pytest.fixture
async def called(bench: Bench) -> AsyncIterator[Called]:
    made = Called(bench)
    subscription = await bench.transport.subscribe(CHANNEL, made.ear)
    yield made
    subscription.close()


MESSAGES = frozenset({""})


async def ready(bench: Bench, source: str = "") -> bool:
    return await bench.tell(find_ready(NAMESPACE, SALT, ENTITY, source, bench.now))


# -- calls -------------------------------------------------------------------------------------------------------------


@set_to(wide=True)
async def test_a_partition_without_receivers_calls_once(bench: Bench, called: Called) -> None:
    await bench.send(b"one")
    assert await called.now() == [MESSAGES]
    await bench.send(b"two")
    assert await called.now() == []


@set_to(wide=True)
async def test_what_becomes_ready_later_is_told_after_a_second(bench: Bench, called: Called) -> None:
    """The receivers that have heard the call may be gone."""
    await bench.send(b"one")
    assert await called.now() == [MESSAGES]
    bench.later(999)
    await bench.send(b"two")
    assert await called.now() == []
    bench.later(1)
    await bench.send(b"three")
    assert await called.now() == [MESSAGES]


@set_to(wide=True)
async def test_a_partition_whose_messages_are_gone_calls_again(
    bench: Bench, called: Called, receiver: Grantors
) -> None:
    a = await receiver("a")
    await bench.send(b"one")
    assert await called.now() == [MESSAGES]
    assert names(await a.grant(now=True)) == ["1"]
    await bench.send(b"two")
    assert await called.now() == [MESSAGES]


@set_to(wide=True)
async def test_a_partition_with_an_open_grant_does_not_call(bench: Bench, called: Called, receiver: Grantors) -> None:
    a = await receiver("a")
    await a.grant(0, announced=True)
    await bench.send(b"one")
    assert await a.pushed() == [""]
    assert await called.now() == []
    await a.grant(0)
    assert await called.now() == [MESSAGES]  # it has declined
    await a.grant(0, announced=True)
    await bench.send(b"two")
    assert await called.now() == []


@set_to(wide=True)
async def test_a_receiver_of_another_side_is_none(bench: Bench, called: Called, receiver: Grantors) -> None:
    d = await receiver("d")
    await d.grant(source="d")
    await bench.send(b"one")
    assert await called.now() == [MESSAGES]
    (held,) = await bench.receive(1)
    await bench.dead_letter(held)
    assert await d.pushed() == ["d1"]
    assert await called.now() == []


@set_to(wide=True)
async def test_dead_letters_call(bench: Bench, called: Called) -> None:
    await bench.send(b"one")
    (held,) = await bench.receive(1)
    assert await called.now() == [MESSAGES]
    await bench.dead_letter(held)
    assert await called.now() == [frozenset({"d"})]


@set_to(wide=True)
async def test_due_work_calls(bench: Bench, called: Called) -> None:
    await bench.send(b"m", due=bench.now + 1000)
    assert await called.now() == []
    bench.later(1000)
    await bench.due()
    assert await called.now() == [MESSAGES]


@set_to(wide=True, sessions=True)
async def test_free_sessions_call(bench: Bench, called: Called) -> None:
    await bench.send(of_session("s"))
    assert await called.now() == [frozenset({NEXT_SESSION})]


@pytest.mark.parametrize("settings", [SETTINGS], ids=["few"])
async def test_a_partition_of_an_entity_with_few_does_not_call(bench: Bench, called: Called) -> None:
    await bench.send(b"one")
    assert await called.now() == []


@set_to(wide=True, forwards=True)
async def test_messages_that_are_forwarded_call_no_receiver(bench: Bench, called: Called) -> None:
    await bench.send(b"one")
    assert await called.now() == []


# -- searches ----------------------------------------------------------------------------------------------------------


async def test_a_search_finds_what_is_ready(bench: Bench) -> None:
    assert not await ready(bench)
    await bench.send(b"one")
    assert await ready(bench)
    assert not await ready(bench, "d")
    (held,) = await bench.receive(1)
    assert not await ready(bench)
    await bench.dead_letter(held)
    assert await ready(bench, "d")


async def test_a_search_finds_what_is_due(bench: Bench) -> None:
    """A message that waits or is locked may become ready. The search does no due work."""
    await bench.send_all(Outgoing(b"m", due=bench.now + 1000), Outgoing(b"n"))
    await bench.receive(1)
    assert not await ready(bench)
    bench.later(1000)
    before = await bench.whole()
    assert await ready(bench)
    assert await bench.whole() == before
    await bench.due()
    await bench.receive(1, mode="delete")
    assert not await ready(bench)
    bench.later(SETTINGS.lock_duration)
    assert await ready(bench)


@set_to(sessions=True)
async def test_a_search_finds_free_sessions(bench: Bench) -> None:
    assert not await ready(bench, NEXT_SESSION)
    await bench.send(of_session("s"))
    assert await ready(bench, NEXT_SESSION)


async def test_a_partition_that_is_not_here_may_have_something(bench: Bench) -> None:
    """A grant learns that it is gone."""
    await bench.tell(bench.partition.destroy())
    assert await ready(bench)


@pytest.mark.parametrize("source", ["x", "=s", "dt"])
async def test_a_search_for_anything_else_is_refused(bench: Bench, source: str) -> None:
    with pytest.raises(MalformedCallError):
        await ready(bench, source)


@pytest.mark.parametrize("payload", [b"x", b"\xff", b"m x"])
def test_a_malformed_call_cannot_be_read(payload: bytes) -> None:
    with pytest.raises(DataLayoutError):
        read_call_for_receivers(payload)
