"""Deferred messages: their visible state, their expiry, and the number of them that one call gives out."""

from __future__ import annotations

import pytest

from sbredis.engine import CallId, Mode, Received, Request, new_token
from tests.engine.bench import SETTINGS, Bench, Held, set_to

pytestmark = pytest.mark.anyio


async def deferred(bench: Bench, *payloads: bytes, time_to_live: int | None = None) -> list[str]:
    """Send and defer messages; return their names."""
    await bench.send(*payloads, time_to_live=time_to_live)
    held = await bench.receive(len(payloads))
    await bench.defer(*held)
    return [message.name for message in held]


modes = pytest.mark.parametrize("mode", ["lock", "delete"])
TOKEN = "deferred-one"


def ask(
    bench: Bench, *names: str, room: int, mode: Mode = "lock", token: str = "", call_id: CallId | None = None
) -> Request[Received]:
    """Return the call for deferred messages; ``room`` limits the bytes of the messages."""
    return bench.partition.receive_deferred(
        call_id or bench.call_id(), token or new_token(), names, mode=mode, room=room
    )


def payloads(received: Received) -> list[bytes]:
    return [one.record[15:] for one in received.messages]


# -- visible state -----------------------------------------------------------------------------------------------------


async def test_a_message_received_by_number_is_marked_in_results_and_peeks(bench: Bench) -> None:
    """The message is marked as deferred while it is locked. A peek at the locked messages shows the mark too."""
    names = await deferred(bench, b"one", b"two")
    received = await bench.tell(ask(bench, names[0], room=100))
    assert [one.state for one in received.messages] == ["g"]
    await bench.send(b"three")
    assert (await bench.one()).delivery.state == "l"
    assert await bench.states() == {"1": "g", "2": "f", "3": "l"}
    locked = await bench.tell(bench.partition.peek(0, 10, states="l", call_id=CallId("", 0, bench.now)))
    assert [(one.name, one.state) for one in locked.messages] == [("1", "g"), ("3", "l")]


async def test_a_dead_lettered_deferred_message_is_shown_like_any_other_dead_letter(bench: Bench) -> None:
    """Such a dead letter does not return to the deferred messages, but to the dead-letter queue."""
    (name,) = await deferred(bench, b"m")
    ((message,), _) = await bench.receive_deferred(name)
    await bench.dead_letter(message)
    dead = await bench.one(side="d")
    assert await bench.states(side="d") == {"d1": "l"}
    await bench.abandon(dead)
    assert await bench.states(side="d") == {"d1": "a"}
    assert (await bench.one(side="d")).name == "d1"


# -- expiry ------------------------------------------------------------------------------------------------------------


@set_to(dead_letter_expired=True)
async def test_a_deferred_message_expires_when_a_call_asks_for_it(bench: Bench) -> None:
    """The call reports the message as missing and dead-letters it. Before the call it stays deferred."""
    names = await deferred(bench, b"m", time_to_live=1000)
    bench.later(999)
    ((message,), _) = await bench.receive_deferred(*names)
    bench.later(1)
    await bench.abandon(message)
    bench.later(1_000_000)
    await bench.due()
    assert await bench.states() == {"1": "f"}
    assert await bench.receive_deferred(*names) == ([], ("1",))
    dead = await bench.one(side="d")
    assert (dead.payload, dead.reason) == (b"m", "T")
    assert await bench.receive_deferred(*names) == ([], ("1",))
    assert (await bench.complete(dead)).lost == ()
    assert (await bench.count()).bytes == 0


@modes
async def test_an_expired_deferred_message_is_deleted_without_dead_lettering(bench: Bench, mode: Mode) -> None:
    names = await deferred(bench, b"m", time_to_live=1000)
    bench.later(1000)
    received = await bench.tell(ask(bench, *names, room=100, mode=mode))
    assert (received.messages, received.missing) == ((), ("1",))
    assert await bench.states() == {}
    assert (await bench.count()).bytes == 0


async def test_a_call_deletes_its_expired_message_and_leaves_the_others_deferred(bench: Bench) -> None:
    """A call gives out all of its messages or none. The message expires even though the call gives out none."""
    (short,) = await deferred(bench, b"short", time_to_live=1000)
    (long,) = await deferred(bench, b"long")
    bench.later(1000)
    assert await bench.receive_deferred(long, short, "77") == ([], (short, "77"))
    assert await bench.states() == {long: "f"}
    assert len((await bench.receive_deferred(long))[0]) == 1


@set_to(dead_letter_expired=True)
async def test_a_repeated_call_reports_the_same_expired_message_as_missing(bench: Bench) -> None:
    names = await deferred(bench, b"m", time_to_live=1000)
    bench.later(1000)
    request = ask(bench, *names, room=100)
    first = await bench.tell(request)
    before = await bench.count()
    again = await bench.tell(request)
    assert (again.messages, again.missing) == (first.messages, first.missing) == ((), ("1",))
    assert (before.dead_active, await bench.count()) == (1, before)


async def test_a_dead_letter_that_is_deferred_does_not_expire(bench: Bench) -> None:
    await bench.send(b"m", time_to_live=1000)
    await bench.dead_letter(await bench.one())
    await bench.defer(await bench.one(side="d"))
    bench.later(1_000_000)
    assert len((await bench.receive_deferred("d1"))[0]) == 1


# -- limits ----------------------------------------------------------------------------------------------------------


async def test_a_call_gives_out_the_deferred_messages_that_fit_its_room(bench: Bench) -> None:
    """A call gives out its first messages. The others stay deferred, and the answer says how many they are."""
    names = await deferred(bench, b"a" * 85, b"b" * 85, b"c" * 85)  # 100 bytes each, with the record's header
    received = await bench.tell(ask(bench, names[2], names[0], names[1], room=299))
    assert (payloads(received), received.left, received.missing) == ([b"c" * 85, b"a" * 85], 1, ())
    assert (await bench.count()).deferred == 1
    received = await bench.tell(ask(bench, names[1], room=299, token=TOKEN))
    assert (payloads(received), received.left) == ([b"b" * 85], 0)
    assert (await bench.complete(*[Held(TOKEN, one) for one in received.messages])).lost == ()


async def test_a_call_does_not_look_at_the_expiry_of_a_message_that_does_not_fit(bench: Bench) -> None:
    names = await deferred(bench, b"one") + await deferred(bench, b"late", time_to_live=1000)
    bench.later(1000)
    received = await bench.tell(ask(bench, *names, room=20))
    assert (payloads(received), received.left) == ([b"one"], 1)
    received = await bench.tell(ask(bench, names[1], room=20))
    assert received.missing == (names[1],)


async def test_at_least_one_deferred_message_is_given_out(bench: Bench) -> None:
    names = await deferred(bench, b"a" * 85, b"b" * 85)
    received = await bench.tell(ask(bench, *names, room=1))
    assert (payloads(received), received.left) == ([b"a" * 85], 1)
    received = await bench.tell(ask(bench, names[1], room=1, mode="delete"))
    assert (payloads(received), received.left) == ([b"b" * 85], 0)


async def test_missing_messages_are_reported_before_any_is_given_out(bench: Bench) -> None:
    names = await deferred(bench, b"a" * 85, b"b" * 85)
    received = await bench.tell(ask(bench, *names, "77", room=1))
    assert (received.messages, received.missing, received.left) == ((), ("77",), 0)
    assert (await bench.count()).deferred == 2


async def test_a_call_deletes_all_of_its_deferred_messages_or_none(bench: Bench) -> None:
    """If a later message were missing, the deleted messages could not be restored."""
    names = await deferred(bench, b"a" * 85, b"b" * 85)
    received = await bench.tell(ask(bench, *names, room=199, mode="delete"))
    assert (received.messages, received.missing, received.left) == ((), (), 2)
    assert await bench.states() == dict.fromkeys(names, "f")
    received = await bench.tell(ask(bench, *names, room=200, mode="delete"))
    assert (len(received.messages), received.left) == (2, 0)
    assert (await bench.count()).bytes == 0


@modes
async def test_a_repeated_call_returns_the_same_messages_and_the_same_remaining_count(bench: Bench, mode: Mode) -> None:
    """A repeated call reads no more than the first one did. Deleted messages cannot be given out again."""
    names = await deferred(bench, b"a" * 85, b"b" * 85, b"c" * 85)
    room = 200 if mode == "lock" else 300
    request = ask(bench, *names, room=room, mode=mode)
    first = await bench.tell(request)
    again = await bench.tell(request)
    assert (len(first.messages), first.left) == ((2, 1) if mode == "lock" else (3, 0))
    assert again.left == first.left
    assert payloads(again) == (payloads(first) if mode == "lock" else [])
    assert (await bench.count()).deferred == first.left


async def test_a_repeated_call_after_a_lapse_gives_out_only_locked_messages(bench: Bench) -> None:
    """A message whose lock has lapsed is deferred again: a repeated call neither returns it nor counts it as left."""
    names = await deferred(bench, b"a" * 85, b"b" * 85)
    first = await bench.tell(ask(bench, *names, room=100, token=TOKEN, call_id=bench.call_id("other")))
    bench.later(SETTINGS.lock_duration)
    again = await bench.tell(ask(bench, *names, room=100, token=TOKEN, call_id=CallId("other", 1, bench.now)))
    assert (len(first.messages), again.messages, again.left) == (1, (), 1)
