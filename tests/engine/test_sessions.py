"""Sessions: one receiver at a time, messages in order, and a state; an empty session leaves no keys."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import NEXT_SESSION, PartitionSettings
from tests.engine.bench import SETTINGS, START, Bench
from tests.engine.granting import grantors
from tests.engine.holding import accept, accept_next, body, holder, listed, of_session, put

LOCK = SETTINGS.lock_duration


@pytest.fixture
def settings() -> PartitionSettings:
    """Return the settings of an entity with sessions."""
    return replace(SETTINGS, sessions=True)


# -- accepting -------------------------------------------------------------------------------------------------------


async def test_similar_session_names_are_told_apart(bench: Bench) -> None:
    """A name may be empty, contain special characters, or be the beginning of another name."""
    names = ["", " ", "=", "a", "ab", "a b", "é\n", "~a", "!a", "wa", "=a", "x" * 128]
    for name in names:
        await put(bench, name, b"1", name.encode())
    for name in names:
        mine = await holder(bench, name)
        assert await mine.bodies() == [b"1", name.encode()]
        await mine.set_state(name.encode())
    assert await accept_next(bench) is None
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


# -- listing ---------------------------------------------------------------------------------------------------------


async def test_a_list_call_reads_a_bounded_number_of_sessions(bench: Bench) -> None:
    """A page may have fewer sessions than wanted, and says where the next page begins."""
    for number in range(10):
        await put(bench, f"s{number}", b"1", due=START + 10**6)
    await put(bench, "t", b"1")
    page = await listed(bench, 2)
    assert (page.names, page.onwards) == ((), "s7")
    page = await listed(bench, 2, page.onwards)
    assert (page.names, page.onwards) == (("t",), None)


# -- credit ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["release", "lapse", "delay"])
async def test_a_session_that_becomes_free_again_is_given_to_a_receiver_with_credit(bench: Bench, how: str) -> None:
    """The session was given back, its lock has ended, or its delay is over."""
    await put(bench, "s", b"1", b"2")
    mine = await holder(bench)
    receiver = await (await grantors(bench))("a")
    if how == "delay":
        await mine.abandon(*await mine.receive(1), delay=5000)
        await mine.release()
    assert not (await receiver.grant(source=NEXT_SESSION)).gifts
    if how == "release":
        await mine.release()
    else:
        bench.later(LOCK if how == "lapse" else 5000)
        await bench.due()
    [(_, push)] = await receiver.heard()
    assert push.gift is not None
    assert push.gift.session is not None
    assert push.gift.session.name == "s"


@pytest.mark.parametrize("how", ["send", "schedule", "delay", "abandon", "room"])
async def test_every_way_in_which_a_message_becomes_ready_gives_it_to_the_holder(bench: Bench, how: str) -> None:
    mine, receiver = await holder(bench, "s"), await (await grantors(bench))("a")
    await bench.send(*[of_session("s")] * (1000 if how == "room" else 1))
    held = await mine.receive(1000)
    if how == "schedule":
        await put(bench, "s", b"2", due=START + 1000)
    elif how == "delay":
        await mine.abandon(*held, delay=1000)
    elif how == "room":
        await put(bench, "s", b"2")
    sent = receiver.sent(source="=s", prefix="ofholder", number=1_000_000_000)
    assert not (await receiver.call(sent._replace(receiver=mine.lock.token))).gifts
    assert await receiver.heard() == []
    if how == "send":
        await put(bench, "s", b"2")
    elif how == "abandon":
        await mine.abandon(*held)
    elif how == "room":
        await bench.send(of_session("s"))
        assert await receiver.heard() == []  # the holder may not have the message yet
        await mine.complete(held[0])
    else:
        bench.later(1000)
        await bench.due()
    [(key, push)] = await receiver.heard()
    assert key == f"{mine.lock.token} =s"
    assert push.gift is not None
    assert len(push.gift.messages) == 1


# -- epochs ----------------------------------------------------------------------------------------------------------
