"""Fundamentals, part eight: a lapse counts what its holder had begun, and a message whose holders end is a suspect."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import PartitionSettings, SentGrant, lease_token, new_token
from tests.engine.bench import SETTINGS, Bench, Held, set_to
from tests.engine.granting import NOTHING, granting, grantors, names

RUN = "0123abcd" * 5
"""The run id that all calls carry: the server process in memory has none."""


class Keeper:
    """A receiver that asks for messages with grants that end with the reply."""

    def __init__(self, bench: Bench, prefix: str = "AAAAAAAA", hands: int = 1) -> None:
        self.bench, self.prefix, self.hands = bench, prefix, hands
        self.number, self.seen, self.begun = 0, NOTHING, 0
        bench.run_id = RUN

    async def take(self, most: int = 10) -> list[Held]:
        """Return the messages that come in the reply."""
        self.number += 1
        until = self.seen.messages + most
        grant = granting(self.number, until, run=RUN[:8], prefix=self.prefix)._replace(
            callers=self.seen.messages, seen=self.seen, begun=self.begun, hands=self.hands, now=True
        )
        sent = SentGrant(f"holder-{self.prefix}", b"", "", grant)
        granted = await self.bench.tell(self.bench.partition.grant([sent], self.bench.at()))
        reply = granted.credits[0]
        self.seen = max([self.seen, *(gift.place for gift in reply.gifts)])
        return [
            Held(lease_token(gift.prefix, gift.place.serial), message)
            for gift in reply.gifts
            for message in gift.messages
        ]


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


@pytest.mark.parametrize("settings", [replace(SETTINGS, max_delivery_count=2)], ids=["-"])
async def test_with_two_deliveries_the_first_counted_lapse_makes_a_suspect(bench: Bench) -> None:
    await bench.send(b"x")
    await bench.receive()
    await lapse(bench)
    assert await suspects(bench) == ["1"]


@pytest.mark.parametrize(
    ("settings", "letter"),
    [
        pytest.param(replace(SETTINGS, max_delivery_count=most), letter, id=str(most))
        for most, letter in ((1, "1"), (2, "2"), (3, "3"), (10, ":"), (14, ">"), (16, ">"))
    ],
)
async def test_a_dead_letter_says_how_often_its_holder_ended(
    bench: Bench, settings: PartitionSettings, letter: str
) -> None:
    await bench.send(b"x")
    for _ in range(settings.max_delivery_count):
        assert not await bench.peek(side="d")
        await bench.receive()
        await lapse(bench)
    (dead,) = await bench.peek(side="d")
    assert (dead.reason, dead.failures) == (letter, settings.max_delivery_count)


@pytest.mark.parametrize("most", [2, 5])
async def test_a_dead_letter_does_not_count_what_was_before_its_last_settlement(bench: Bench, most: int) -> None:
    await bench.change(max_delivery_count=most)
    await bench.send(b"x")
    for abandoned in [*[False] * (most - 2), True, False]:
        (message,) = await bench.receive()
        await (bench.abandon(message) if abandoned else lapse(bench))
    (dead,) = await bench.peek(side="d")
    assert (dead.reason, dead.failures) == ("1", most)


async def suspected(bench: Bench, count: int = 1, *, level: int = 0) -> list[str]:
    """Send messages, and make each of them a suspect."""
    names = await bench.send(*[b"suspect"] * count, level=level)
    for _ in range(2):
        assert len(await bench.receive(count)) == count
        await lapse(bench)
    assert await suspects(bench) == names
    return names


async def test_a_push_that_nobody_hears_leaves_its_messages_to_the_next_receiver(bench: Bench) -> None:
    """Had it been heard, only suspects would be left, and neither receiver takes suspects."""
    await suspected(bench, 3)
    receiver = await grantors(bench)
    gone, there = await receiver("a", listens=False), await receiver("b")
    for one in (gone, there):
        assert names(await one.grant(5, suspects=False)) == []
    (name,) = await bench.send(b"x")
    assert await there.pushed() == [name]


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
