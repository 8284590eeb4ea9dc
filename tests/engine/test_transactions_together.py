"""Several transactions in one call: each of them happens or is refused on its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sbredis.engine import (
    Lock,
    Outgoing,
    Partition,
    PartRefusedError,
    SettingsStaleError,
    Transacted,
    TransactedSend,
    TransactedTogether,
    transact_together,
)
from sbredis.engine._scripts import load, operations
from sbredis.exceptions import MessageLockLostError, ServiceBusQuotaExceededError
from sbredis.transport import open_transport
from tests.engine.transactions import SETTINGS, World

pytestmark = pytest.mark.anyio

ONE = "token-of-one"


@pytest.fixture
async def world(url: str) -> AsyncIterator[World]:
    transport = await open_transport(url, scripts=[load(name) for name in operations()])
    async with transport:
        yield await World(transport).create()


def kinds(done: TransactedTogether) -> list[type]:
    """Return the class of the result or the refusal of each transaction."""
    return [type(each.reason if isinstance(each, PartRefusedError) else each) for each in done.outcomes]


async def _reconfigured(world: World, quota: int = SETTINGS.quota) -> Partition:
    """Give the queue b newer settings, and return it with these settings."""
    newer = Partition("world", "abc", "b", "the-b", 2, replace(SETTINGS, quota=quota))
    await world.tell(newer.configure(now=world.now))
    return newer


async def test_each_transaction_of_a_call_happens_or_is_refused_on_its_own(world: World) -> None:
    await world.send("a", b"1", b"2", b"3")
    one, two, three = await world.lock("a", ONE, 3)
    done = await world.tell(
        transact_together(
            world.call_id(),
            [
                [world.settling("complete", "a", one), world.sending("b", Outgoing(b"first"))],
                [world.settling("complete", "a", two), world.settling("complete", "a", one)],
                [world.settling("abandon", "a", two), world.sending("b", Outgoing(b"third"))],
            ],
        )
    )
    assert kinds(done) == [Transacted, MessageLockLostError, Transacted]
    assert "changed nothing" in str(done.outcomes[1])
    assert await world.bodies("b") == [b"first", b"third"]
    assert (await world.tell(world.of["a"].complete(world.call_id(), [three]))).lost == ()
    assert await world.bodies("a") == [b"2"]


async def test_a_transaction_has_the_room_that_those_before_it_in_the_call_have_left(world: World) -> None:
    """A completed message makes room for the next transaction, and a sent message takes it."""
    await world.send("b", b"12345")
    world.of["b"] = await _reconfigured(world, quota=5)
    locks = await world.lock("b", ONE)
    sending = world.sending("b", Outgoing(b"12"))
    stored = [[sending], [world.settling("complete", "b", *locks)], *[[sending]] * 3]
    done = await world.tell(transact_together(world.call_id(), stored))
    refused = ServiceBusQuotaExceededError
    assert kinds(done) == [refused, Transacted, Transacted, refused, refused]
    assert await world.bodies("b") == [b"12"]


async def test_a_repeated_call_of_several_transactions_has_the_same_results(world: World) -> None:
    locks = await _locked(world)
    call_id = world.call_id()
    request = transact_together(
        call_id,
        [
            [world.settling("complete", "a", *locks), world.sending("b", Outgoing(b"one", message_id=b"1"))],
            [world.settling("complete", "a", *locks)],
            [world.sending("b", Outgoing(b"two", message_id=b"1"))],
        ],
    )
    first = await world.tell(request)
    before = await world.data()
    again = await world.tell(request)
    assert again.outcomes[::2] == first.outcomes[::2]
    assert kinds(again)[1] is MessageLockLostError
    assert isinstance(first.outcomes[2], Transacted)
    assert first.outcomes[2].results == (TransactedSend(2, (0,), ()),)
    assert await world.data() == before


async def _locked(world: World) -> list[Lock]:
    await world.send("a", b"input")
    return await world.lock("a", ONE)


async def test_wrong_knowledge_of_an_entity_refuses_only_the_transactions_that_use_it(world: World) -> None:
    newer = await _reconfigured(world)
    done = await world.tell(
        transact_together(
            world.call_id(),
            [
                [world.sending("a", Outgoing(b"1")), world.sending("b", Outgoing(b"2"))],
                [world.sending("a", Outgoing(b"3"))],
            ],
        )
    )
    assert kinds(done) == [SettingsStaleError, Transacted]
    world.of["b"] = newer
    assert (await world.bodies("a"), await world.bodies("b")) == ([b"3"], [])


@pytest.mark.parametrize("count", [0, 101])
async def test_a_call_has_one_to_a_hundred_transactions(world: World, count: int) -> None:
    with pytest.raises(ValueError, match="a call has 1 to 100 transactions"):
        transact_together(world.call_id(), [[world.sending("a", Outgoing(b"x"))]] * count)
