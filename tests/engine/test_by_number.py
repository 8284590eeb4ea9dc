"""Receiving messages by number that no receiver holds: active, delayed and deferred ones, of either side."""

from __future__ import annotations

import pytest

from sbredis.engine import Delivery, Mode, new_token
from tests.engine.bench import SETTINGS, Bench, Held, set_to
from tests.engine.holding import body, holder, put

pytestmark = pytest.mark.anyio


async def by_number(bench: Bench, *names: str, mode: Mode = "lock") -> tuple[list[Held], tuple[str, ...]]:
    token = new_token()
    request = bench.partition.receive_deferred(bench.call_id(), token, names, mode=mode, wide=True)
    received = await bench.tell(request)
    return [Held(token, one) for one in received.messages], received.missing


def payloads(messages: list[Held]) -> list[bytes]:
    return [message.payload for message in messages]


async def test_any_message_that_no_receiver_holds_can_be_received_by_number(bench: Bench) -> None:
    names = await bench.send(b"active", b"urgent", b"delayed", b"deferred", b"dead")
    held = {message.payload: message for message in await bench.receive()}
    await bench.abandon(held[b"active"], held[b"urgent"], counted=False)
    await bench.abandon(held[b"delayed"], delay=5_000)
    await bench.defer(held[b"deferred"])
    await bench.dead_letter(held[b"dead"])
    messages, missing = await by_number(bench, *names[:4], "d1")
    assert missing == ()
    assert payloads(messages) == [b"active", b"urgent", b"delayed", b"deferred", b"dead"]
    assert await bench.receive() == []
    assert (await bench.complete(*messages)).lost == ()
    counts = await bench.count()
    assert (counts.bytes, counts.due) == (0, 0)


async def test_a_message_received_by_number_returns_to_its_place(bench: Bench) -> None:
    names = await bench.send(b"one", b"two", b"three", level=2, time_to_live=50_000)
    (two,), _ = await by_number(bench, names[1])
    assert two.deliveries == 1
    await bench.abandon(two)
    assert payloads(await bench.receive()) == [b"one", b"two", b"three"]
    bench.later(SETTINGS.lock_duration)
    bench.later(50_000)
    assert await bench.peek() == ()


async def test_one_message_that_is_locked_scheduled_or_missing_keeps_back_all(bench: Bench) -> None:
    one, two = await bench.send(b"one", b"two")
    (scheduled,) = await bench.send(b"later", due=bench.now + 1_000)
    await bench.one()
    for other in (one, scheduled, "77", "d1"):
        for mode in ("lock", "delete"):
            assert await by_number(bench, two, other, mode=mode) == ([], (other,))
    assert (await bench.states())[two] == "a"


async def test_a_message_can_be_deleted_by_number(bench: Bench) -> None:
    names = await bench.send(b"one", b"two", b"three", time_to_live=1_000)
    messages, _ = await by_number(bench, names[1], mode="delete")
    assert payloads(messages) == [b"two"]
    assert await bench.payloads() == [b"one", b"three"]


async def test_an_expired_message_is_not_received_by_number(bench: Bench) -> None:
    names = await bench.send(b"one", time_to_live=1_000)
    bench.later(1_000)
    assert await by_number(bench, *names) == ([], tuple(names))


async def test_messages_that_do_not_fit_are_left_as_they_are(bench: Bench) -> None:
    names = await bench.send(b"x" * 100, b"y" * 100, b"z" * 100)
    request = bench.partition.receive_deferred(bench.call_id(), new_token(), names, room=250, wide=True)
    received = await bench.tell(request)
    assert ([one.name for one in received.messages], received.left) == (names[:2], 1)
    assert (await bench.states())[names[2]] == "a"


@set_to(sessions=True)
async def test_the_holder_of_a_session_receives_its_messages_by_number(bench: Bench) -> None:
    one, two = await put(bench, "s", b"one", b"two")
    (other,) = await put(bench, "t", b"other")
    mine = await holder(bench, "s")

    async def ask(*names: str) -> tuple[list[Delivery], tuple[str, ...]]:
        request = bench.partition.receive_deferred(bench.call_id(), mine.lock.token, names, session="s", wide=True)
        received = await bench.tell(request)
        return list(received.messages), received.missing

    assert await ask(two, other) == ([], (other,))
    (message,), _ = await ask(two)
    assert body(message) == b"two"
    assert [body(message) for message in await mine.receive()] == [b"one"]
    await mine.release()
    again = await holder(bench, "s")
    assert [body(message) for message in await again.receive()] == [b"one", b"two"]
    assert one != two
