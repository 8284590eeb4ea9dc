"""Many receivers wait: one call wakes a few of them, and each of these wakes others by its own call."""

from __future__ import annotations

import pytest

from sbredis.engine import CallId, Content, Outgoing, encode, new_token
from sbredis.engine._bands import BAND_WIDTH
from sbredis.engine._keys import KINDS, waiting_channel
from tests.engine.bench import NAMESPACE, SALT, Bench, set_to

pytestmark = pytest.mark.anyio

MOST = 16
"""The number of receivers that one call wakes."""


async def woken(bench: Bench) -> list[bytes]:
    """Return the channels of the receivers that were woken and have made no call since."""
    key = bench.partition.keys[KINDS.index("waiters")]
    found = await bench.transport.command("ZRANGE", key, 8 * BAND_WIDTH, "+inf", "BYSCORE", key=key)
    return [member.rpartition(b" ")[0] for member in found]


async def waiters(bench: Bench, count: int) -> list[bytes]:
    channels = [waiting_channel(NAMESPACE, SALT, "q", f"client{number}") for number in range(count)]
    for channel in channels:
        _, received = await bench.receive_more(1, waiter=channel)
        assert received.waits
    return channels


@pytest.mark.parametrize(
    ("receivers", "messages"),
    [(40, 40), (40, 25), (100, 100), pytest.param(1000, 1000, marks=pytest.mark.long("it has a thousand receivers"))],
)
async def test_all_receivers_with_a_message_are_woken_without_a_timer(
    bench: Bench, receivers: int, messages: int
) -> None:
    """The clock stands still, so no wait ends and no wake is given up."""
    await waiters(bench, receivers)
    await bench.send_all(*[Outgoing(b"%d" % number) for number in range(messages)])
    called = await woken(bench)
    assert len(called) == MOST
    got: list[bytes] = []
    empty = 0
    while called:
        before = set(called)
        channel = called[0]
        held, _ = await bench.receive_more(1, waiter=channel)
        got += [message.payload for message in held]
        empty += not held
        called = await woken(bench)
        assert len(set(called) - before) <= MOST
    assert sorted(got, key=int) == [b"%d" % number for number in range(messages)]
    assert empty <= messages // 10  # few receivers are woken for nothing


async def test_a_message_that_waits_wakes_the_next_receiver_if_the_woken_ones_are_gone(bench: Bench) -> None:
    await waiters(bench, 3 * MOST)
    await bench.send_all(*[Outgoing(b"m")] * 2 * MOST)
    first = await woken(bench)
    bench.later(1010)
    await bench.due()
    assert len(await woken(bench)) == MOST
    assert not set(first) & set(await woken(bench))


@set_to(sessions=True)
async def test_free_sessions_wake_receivers_in_the_same_way(bench: Bench) -> None:
    channels = [waiting_channel(NAMESPACE, SALT, "q", f"client{number}") for number in range(3 * MOST)]

    async def accept(number: int, channel: bytes) -> str:
        call_id = CallId(f"lane{number}", 1, bench.now)
        accepted = await bench.tell(bench.partition.accept_session(call_id, new_token(), None, waiter=channel))
        return accepted.session if accepted.outcome == "taken" else ""

    for number, channel in enumerate(channels):
        assert not await accept(number, channel)
    await bench.send_all(*[Outgoing(encode(Content(session_id=f"s{number}"))) for number in range(3 * MOST)])
    sessions: set[str] = set()
    called = await woken(bench)
    assert len(called) == MOST
    turn = len(channels)
    while called:
        turn += 1
        sessions.add(await accept(turn, called[0]))
        called = await woken(bench)
    assert sessions == {f"s{number}" for number in range(3 * MOST)}
