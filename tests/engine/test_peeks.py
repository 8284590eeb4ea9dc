"""A peek merges the lists of several states, which it reads in parts, and the messages that due work moves."""

from __future__ import annotations

import pytest

from sbredis.engine import Delivery, Outgoing
from tests.engine.bench import SETTINGS, START, Bench, set_to
from tests.engine.holding import of_session
from tests.engine.moves import A, B, Town, body_of

HOUR = 3_600_000


async def pages(bench: Bench, wanted: int, *, states: str = "alwfs", session: str | None = None) -> dict[str, str]:
    """Peek at all messages, a page at a time; return their states by name, in the order of the pages.

    All pages but the last ones must be full.
    """
    found: dict[str, str] = {}
    start, sizes = 0, list[int]()
    while True:
        request = bench.partition.peek(start, wanted, states=states, session=session, call_id=bench.at())
        messages = (await bench.tell(request)).messages
        sizes.append(len(messages))
        if not messages:
            assert set(sizes[:-2]) <= {wanted}
            return found
        assert all(int(message.name) >= start for message in messages)
        assert not found.keys() & {message.name for message in messages}
        found |= {message.name: message.state for message in messages}
        start = int(messages[-1].name) + 1


async def mixed(bench: Bench) -> dict[str, str]:
    """Store 720 messages, in turn of each state, whose active ones have three levels. Return their states by name."""
    names = await bench.send(*[b"%d" % number for number in range(360)])
    held = await bench.receive(1000)
    await bench.defer(*held[::3])
    await bench.abandon(*held[1::3], delay=HOUR)
    states = dict(zip(names, "fwl" * 120, strict=True))
    more = [Outgoing(b"m", level=number % 3, due=None if number % 4 else START + HOUR) for number in range(360)]
    sent = await bench.send_all(*more)
    return states | {str(sent.first + place): "a" if one.due is None else "s" for place, one in enumerate(more)}


@pytest.mark.parametrize("wanted", [7, 150, 1000])
async def test_a_peek_shows_many_messages_of_all_states_in_the_order_of_their_numbers(
    bench: Bench, wanted: int
) -> None:
    expected = await mixed(bench)
    assert list((await pages(bench, wanted)).items()) == list(expected.items())
    for states in ("a", "l", "lw", "as"):
        shown = [(name, state) for name, state in expected.items() if state in states]
        assert list((await pages(bench, wanted, states=states)).items()) == shown


async def test_a_peek_shows_many_messages_of_one_state(bench: Bench) -> None:
    names = await bench.send(*[b"m"] * 450)
    assert list(await pages(bench, 150)) == list(await pages(bench, 40)) == names
    assert list(await pages(bench, 1000)) == names


@pytest.mark.parametrize("wanted", [90, 1000])
async def test_a_peek_shows_what_due_work_will_move_at_its_new_places(bench: Bench, wanted: int) -> None:
    """More messages of a list are due than one part of it has: they are locked or scheduled, and have new numbers."""
    await mixed(bench)
    await bench.receive_deferred("4", "1")
    bench.later(SETTINGS.lock_duration)
    shown = await bench.peek(0, wanted), await bench.peek(200, wanted), await bench.peek(0, wanted, states="l")
    while (await bench.due()).more:
        pass
    assert shown == (
        await bench.peek(0, wanted),
        await bench.peek(200, wanted),
        await bench.peek(0, wanted, states="l"),
    )
    bench.later(HOUR)
    shown = await bench.peek(0, wanted), await bench.peek(200, wanted), await bench.peek(0, wanted, states="s")
    while (await bench.due()).more:
        pass
    assert shown == (
        await bench.peek(0, wanted),
        await bench.peek(200, wanted),
        await bench.peek(0, wanted, states="s"),
    )


@set_to(sessions=True)
@pytest.mark.parametrize("wanted", [7, 1000])
async def test_a_peek_shows_many_messages_of_a_session(bench: Bench, wanted: int) -> None:
    due = START + HOUR
    sent = await bench.send_all(
        *(
            Outgoing(of_session("ab"[number % 2]), level=number % 3, due=None if number % 3 else due)
            for number in range(600)
        )
    )
    expected = {str(sent.first + number): "a" if number % 3 else "s" for number in range(0, 600, 2)}
    assert list((await pages(bench, wanted, session="a")).items()) == list(expected.items())


async def test_frozen_transfers_do_not_hide_frozen_messages_from_a_peek(town: Town) -> None:
    """Both are in one list. A peek at the active messages looks for them behind the transfers, and vice versa."""

    async def peek(states: str, wanted: int) -> list[tuple[bytes, str]]:
        request = town.of["q"].peek(0, wanted, states=states, call_id=town.at())
        return [(body_of(each), each.state) for each in (await town.tell(request)).messages]

    await town.transfer("q", B, b"one", b"two")
    await town.send("q", b"three", b"four")
    await town.transfer("q", B, b"five")

    def of(*bodies: bytes) -> list[Delivery]:
        return [each for each in waiting if body_of(each) in bodies]

    waiting = (await town.waiting()).messages
    assert await town.freeze(B, *of(b"one", b"two", b"five")) is not None
    assert await town.freeze(A, *of(b"three", b"four")) is not None
    assert await peek("a", 1) == [(b"three", "a")]
    assert await peek("a", 2) == await peek("a", 9) == [(b"three", "a"), (b"four", "a")]
    assert await peek("x", 2) == [(b"one", "x"), (b"two", "x")]
    assert await peek("x", 3) == await peek("x", 9) == [(b"one", "x"), (b"two", "x"), (b"five", "x")]
    assert [state for _, state in await peek("ax", 9)] == ["x", "x", "a", "a", "x"]


async def test_a_message_received_by_number_is_marked_in_results_and_peeks(bench: Bench) -> None:
    """The message is marked as deferred while it is locked. A peek at the locked messages shows the mark too."""
    await bench.send(b"one", b"two")
    await bench.defer(*await bench.receive())
    (received,), _ = await bench.receive_deferred("1")
    await bench.send(b"three")
    assert (received.delivery.state, (await bench.one()).delivery.state) == ("g", "l")
    assert await bench.states() == {"1": "g", "2": "f", "3": "l"}
    assert [(one.name, one.state) for one in await bench.peek(states="l")] == [("1", "g"), ("3", "l")]
