"""Fundamentals, part eight: a lapse counts what its holder had begun, and a message whose holders end is a suspect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import CallId, CreditReply, Delivery, SentGrant, lease_token, new_token
from tests.engine.bench import SETTINGS, Bench, Held, set_to
from tests.engine.granting import NOTHING, granting

pytestmark = pytest.mark.anyio

RUN = "0123abcd" * 5
"""The run id that all calls carry: the server process in memory has none."""


class Keeper:
    """A receiver that asks for messages with grants that end with the reply."""

    def __init__(self, bench: Bench, prefix: str = "AAAAAAAA", hands: int = 1) -> None:
        self.bench, self.prefix, self.hands = bench, prefix, hands
        self.number, self.seen, self.begun = 0, NOTHING, 0
        self.reply: CreditReply[Delivery] | None = None
        bench.run_id = RUN

    async def take(self, most: int = 10, *, suspects: bool = True) -> list[Held]:
        """Return the messages that come in the reply."""
        self.number += 1
        until = self.seen.messages + most
        grant = granting(self.number, until, run=RUN[:8], prefix=self.prefix)._replace(
            callers=self.seen.messages, seen=self.seen, begun=self.begun, hands=self.hands, now=True, suspects=suspects
        )
        sent = SentGrant(f"holder-{self.prefix}", b"", "", grant)
        granted = await self.bench.tell(self.bench.partition.grant([sent], CallId("", 0, self.bench.now)))
        reply = self.reply = granted.credits[0]
        self.seen = max([self.seen, *(gift.place for gift in reply.gifts)])
        return [
            Held(lease_token(gift.prefix, gift.place.serial), message)
            for gift in reply.gifts
            for message in gift.messages
        ]

    @property
    def suspects_wait(self) -> bool:
        return self.reply is not None and self.reply.suspects


async def lapse(bench: Bench) -> None:
    """Let all locks end that have not been renewed."""
    bench.later(SETTINGS.lock_duration)
    while (await bench.due()).more:
        pass


async def failures(bench: Bench) -> list[int]:
    return [message.failures for message in await bench.peek()]


async def suspects(bench: Bench) -> list[str]:
    return [message.name for message in await bench.peek() if message.suspect]


# -- what counts -------------------------------------------------------------------------------------------------------


async def test_a_lapse_counts_as_many_deliveries_as_the_holder_has_hands(bench: Bench) -> None:
    holder = Keeper(bench, hands=2)
    await bench.send(*[b"x"] * 5)
    assert len(await holder.take()) == 5
    await lapse(bench)
    assert await failures(bench) == [1, 1, 0, 0, 0]


async def test_a_peek_shows_what_a_lapse_will_count_and_changes_nothing(bench: Bench) -> None:
    holder = Keeper(bench)
    await bench.send(*[b"x"] * 3)
    await holder.take()
    bench.later(SETTINGS.lock_duration)
    before = await bench.whole()
    assert [message.failures for message in await bench.peek()] == [1, 0, 0]
    assert await bench.whole() == before
    await bench.due()
    assert await failures(bench) == [1, 0, 0]


@set_to(max_delivery_count=1)
async def test_messages_that_were_only_fetched_ahead_do_not_die(bench: Bench) -> None:
    holder = Keeper(bench, hands=16)
    await bench.send(*[b"x"] * 1000)
    assert len(await holder.take(1000)) == 1000
    await lapse(bench)
    assert len(await bench.peek(side="d")) == 16
    assert len(await holder.take(1000)) == 984


# -- suspects ----------------------------------------------------------------------------------------------------------


@set_to(max_delivery_count=10)
async def test_the_second_counted_lapse_makes_a_message_a_suspect(bench: Bench) -> None:
    holder = Keeper(bench)
    await bench.send(b"x")
    for lapses in (1, 2):
        (message,) = await holder.take()
        assert not message.delivery.suspect
        await lapse(bench)
        assert len(await suspects(bench)) == (lapses == 2)
    (message,) = await holder.take()
    assert (message.delivery.suspect, message.deliveries) == (True, 3)


@pytest.mark.parametrize("settings", [replace(SETTINGS, max_delivery_count=2)], ids=["-"])
async def test_with_two_deliveries_the_first_counted_lapse_makes_a_suspect(bench: Bench) -> None:
    await bench.send(b"x")
    await bench.receive()
    await lapse(bench)
    assert await suspects(bench) == ["1"]


async def suspected(bench: Bench, count: int = 1, *, level: int = 0) -> list[str]:
    """Send messages, and make each of them a suspect."""
    names = await bench.send(*[b"suspect"] * count, level=level)
    for _ in range(2):
        assert len(await bench.receive(count)) == count
        await lapse(bench)
    assert await suspects(bench) == names
    return names


async def test_a_suspect_is_given_alone(bench: Bench) -> None:
    holder = Keeper(bench)
    await suspected(bench, 2)
    await bench.send(*[b"x"] * 3)
    taken = [await holder.take() for _ in range(3)]
    assert [[message.payload for message in part] for part in taken] == [[b"suspect"], [b"suspect"], [b"x"] * 3]


async def test_a_receiver_that_takes_no_suspects_gets_the_others_and_is_told(bench: Bench) -> None:
    holder = Keeper(bench)
    await suspected(bench, 40)
    await bench.send(*[b"x"] * 3)
    assert [message.payload for message in await holder.take(2, suspects=False)] == [b"x"] * 2
    assert holder.suspects_wait
    assert [message.payload for message in await holder.take(suspects=False)] == [b"x"]
    assert holder.suspects_wait
    assert await holder.take(suspects=False) == []
    assert holder.suspects_wait
    assert holder.reply is not None
    assert not holder.reply.there
    assert [message.payload for message in await holder.take()] == [b"suspect"]
    assert not holder.suspects_wait


@pytest.mark.parametrize("how", ["abandoned", "deferred"])
async def test_a_settlement_clears_the_mark(bench: Bench, how: str) -> None:
    (name,) = await suspected(bench)
    message = await bench.one()
    await bench.change(max_delivery_count=9)
    await (bench.abandon(message) if how == "abandoned" else bench.defer(message))
    assert await suspects(bench) == []
    assert [each.name for each in await bench.peek()] == [name]


async def together(bench: Bench, names: list[str]) -> list[Held]:
    """Receive messages by their numbers, under one lease."""
    token = new_token()
    request = bench.partition.receive_deferred(bench.call_id(), token, names, wide=True)
    return [Held(token, message) for message in (await bench.tell(request)).messages]


async def test_a_dead_letter_may_be_a_suspect_too(bench: Bench) -> None:
    """Its count never changes, but a worker of dead letters must not die together with the others."""
    await bench.send(b"x")
    await bench.dead_letter(await bench.one())
    for _ in range(2):
        (dead,) = await bench.receive(side="d")
        await lapse(bench)
    assert [message.suspect for message in await bench.peek(side="d")] == [True]
    (dead,) = await bench.receive(side="d")
    assert (dead.delivery.suspect, dead.deliveries) == (True, 1)
    assert (await bench.complete(dead)).lost == ()
