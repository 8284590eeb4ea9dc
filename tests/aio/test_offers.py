"""Offers at a receiver: a message comes with the wake, and nothing is lost or given out twice, whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from sbredis.aio import AutoLockRenewer, ServiceBusReceiver
from sbredis.aio.calls._waking import LiveWatch
from sbredis.engine import Asked, Lock, new_token, perform, read_offer, waiting_channel
from sbredis.exceptions import MessageLockLostError
from sbredis.model import ServiceBusReceivedMessage, hold_of
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, Queue, bodies, queue_at
from tests.transport.ears import Ear
from tests.waiting import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.everywhere("a receiver listens to several nodes")]

Waiting = asyncio.Task[list[ServiceBusReceivedMessage]]


@dataclass
class Wakes:
    """The wakes of all receivers of a test. While they are held, they do not come."""

    held: bool = False
    seen: list[tuple[LiveWatch, bytes]] = field(default_factory=list)
    _through: Any = None

    def come(self) -> None:
        """Let the wakes come that were held."""
        self.held, seen = False, self.seen.copy()
        self.seen.clear()
        for live, payload in seen:
            self._through(live, payload)

    @property
    def offers(self) -> int:
        return sum(read_offer(payload) is not None for _, payload in self.seen)


@pytest.fixture
def wakes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Wakes]:
    made = Wakes(_through=LiveWatch._woken)

    def woken(live: LiveWatch, payload: bytes) -> None:
        made.seen.append((live, payload))
        if not made.held:
            made._through(live, payload)

    monkeypatch.setattr(LiveWatch, "_woken", woken)
    yield made
    made.held = False


async def waits(queue: Queue, receiver: ServiceBusReceiver, wanted: int = 1, before: int = 0) -> Waiting:
    """Start a receive call, and wait until the receiver is registered and asks for offers."""
    task = asyncio.create_task(receiver.receive_messages(wanted, 60))

    async def registered() -> bool:
        return await queue.waiters() == before + 1

    await eventually(registered)
    return task


async def not_locked(queue: Queue) -> bool:
    return await queue.locked() == 0


async def test_a_waiting_receiver_gets_a_message_with_its_wake(url: str, wakes: Wakes) -> None:
    """The receiver makes one call for the message, which takes the offer. The lock is then as long as any other."""
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        with Calls(queue.transport) as calls:
            await queue.send("a")
            (message,) = await task
            assert wakes.offers == 1
            await eventually(lambda: not calls.under_way)
            assert calls.by_script["receive"] == 1
        assert (str(message), message.delivery_count, message.fence) == ("a", 1, 1)
        assert message.locked_until_utc is not None
        assert hold_of(message).lease.until > queue.client._connection.clock.now() + 50  # type: ignore[union-attr]
        await receiver.complete_message(message)
        assert (await queue.counts())[4:12] == (0,) * 8


async def test_offers_follow_each_other(url: str, wakes: Wakes) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        for number in range(5):
            task = await waits(queue, receiver)
            await queue.send(str(number))
            (message,) = await task
            assert str(message) == str(number)
            await receiver.complete_message(message)
        assert wakes.offers == 5


async def test_an_offer_has_the_messages_that_a_caller_wants(url: str, wakes: Wakes) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver, wanted=3)
        await queue.fill(5)
        got = [*bodies(await task)]
        while len(got) < 5:
            got += bodies(await receiver.receive_messages(5, 60))
        assert got == [str(number) for number in range(5)]
        assert wakes.offers == 1


@pytest.mark.parametrize("why", ["sessions", "dead letters", "deletes", "only looks"])
async def test_some_receivers_ask_for_no_offers(url: str, why: str) -> None:
    async with queue_at(url, sessions=why == "sessions") as queue:
        options: dict[str, Any] = {
            "dead letters": {"sub_queue": "deadletter"},
            "deletes": {"receive_mode": "receiveanddelete"},
        }.get(why, {})
        receiver = queue.receiver(session_id="s", **options) if why == "sessions" else queue.receiver(**options)
        if why == "only looks":
            assert await receiver.receive_messages(1, 0) == []
        else:
            task = await waits(queue, receiver)
            task.cancel()
            await asyncio.wait((task,))
        contents = await queue.contents()
        asking = [name for key, (_, held) in contents.items() if key.endswith(":states") for name in held]
        assert not [name for name in asking if name.startswith(b"a")]


async def test_the_call_that_takes_an_offer_is_made_before_the_handler_goes_on(url: str, wakes: Wakes) -> None:
    """A handler may block the event loop."""
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        with Gate(queue.client, "receive") as gate:
            made: list[int] = []
            task.add_done_callback(lambda _: made.append(len(gate.arrived)))
            await queue.send("a")
            await task
            await eventually(lambda: made)
            assert made == [1]
        assert wakes.offers == 1


# -- what happens, and why nothing is lost or given out twice ----------------------------------------------------------


async def test_a_lost_wake_loses_nothing(url: str, wakes: Wakes) -> None:
    """The next call of the receiver declines the offer, and gets the message under its own token."""
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        wakes.held = True
        await queue.send("a")
        await eventually(lambda: wakes.offers)
        assert await queue.locked() == 1
        wakes.seen.clear()
        watchers = receiver._inbox._watchers  # type: ignore[union-attr]
        watchers[0]._live._missed()  # the connection that listens was made again
        (message,) = await task
        assert (str(message), message.delivery_count) == ("a", 1)
        await receiver.complete_message(message)


async def test_an_offer_that_is_read_too_late_is_not_used(url: str, wakes: Wakes) -> None:
    """The event loop was blocked. The message is then received as usual, and was not delivered before."""
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        wakes.held = True
        await queue.send("a")
        await eventually(lambda: wakes.offers)
        clock.passed += 0.6
        wakes.come()
        (message,) = await task
        assert (str(message), message.delivery_count, message.fence) == ("a", 1, 2)


async def test_the_offer_to_a_process_that_died_lapses_without_a_failed_delivery(url: str, wakes: Wakes) -> None:
    """Somebody still listens on its channel, as until the server notices that a connection is broken."""
    clock = HandClock()
    async with queue_at(url, clock=clock) as queue:
        partition = queue.partitions[0]
        channel = waiting_channel("ns", partition.keys[0].split(b"{")[1].split(b"}")[0].decode(), "dead")
        ear = Ear()
        listening = await queue.transport.subscribe(channel, ear)
        asked = Asked(new_token(), 1)
        await perform(queue.transport, partition.look(waiter=channel, call_id=queue.call_id, asked=asked))
        await queue.send("a")
        await eventually(lambda: ear.heard)
        listening.close()
        assert await queue.locked() == 1
        receiver = queue.receiver()
        assert await receiver.receive_messages(1, 0) == []
        clock.move(1.0)
        (message,) = await receiver.receive_messages(1, 60)
        assert (str(message), message.delivery_count) == ("a", 1)
        assert not wakes.seen


async def test_the_offer_to_a_cancelled_caller_is_released_uncounted(url: str, wakes: Wakes) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        wakes.held = True
        await queue.send("a")
        await eventually(lambda: wakes.offers)
        task.cancel()
        await asyncio.wait((task,))
        wakes.come()
        await eventually(lambda: not_locked(queue))
        (message,) = await receiver.receive_messages(1, 60)
        assert (str(message), message.delivery_count) == ("a", 1)


async def test_a_receiver_that_closes_declines_an_open_offer(url: str, wakes: Wakes) -> None:
    async with queue_at(url) as queue:
        receiver, other = queue.receiver(), queue.receiver()
        task = await waits(queue, receiver)
        wakes.held = True
        await queue.send("a")
        await eventually(lambda: wakes.offers)
        task.cancel()
        await asyncio.wait((task,))
        await receiver.close()
        assert await queue.locked() == 0
        assert bodies(await other.receive_messages(1, 60)) == ["a"]


async def test_an_offer_that_comes_while_a_receiver_closes_is_not_used(url: str, wakes: Wakes) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        task.cancel()
        await asyncio.wait((task,))
        wakes.held = True
        await queue.send("a")
        await eventually(lambda: wakes.offers)
        with Gate(queue.client, "receive") as gate:
            gate.shut = True
            closing = asyncio.create_task(receiver.close())
            await gate.reached()
            wakes.come()
            gate.open()
            await closing
        assert await queue.counts_are(1, 0)


@pytest.mark.parametrize("fate", ["is lost", "is not answered"])
async def test_a_lost_call_that_takes_an_offer_is_made_again(url: str, wakes: Wakes, fate: Any) -> None:
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        with Gate(queue.client, "receive") as gate:
            gate.fates.append(fate)
            await queue.send("a")
            (message,) = await task
            await gate.reached(2)
        assert wakes.offers == 1
        last = [call.arguments[-1] for call in gate.arrived[:2]]
        assert last[0] == last[1]
        assert last[0].startswith("+")
        await receiver.complete_message(message)


async def test_the_lock_ends_in_the_client_if_no_call_takes_the_offer_in_time(url: str, wakes: Wakes) -> None:
    """The call that takes the offer is not answered for a second."""
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        with Gate(queue.client, "receive") as gate:
            gate.shut = True
            await queue.send("a")
            (message,) = await task
            hold, now = hold_of(message), queue.client._connection.clock.now
            assert not hold.lock_expired(now())
            await eventually(lambda: hold.lock_expired(now()))
            with pytest.raises(MessageLockLostError):
                await receiver.complete_message(message)
        assert wakes.offers == 1


async def test_an_offer_that_a_failover_lost_is_reported(url: str) -> None:
    """The message is ready again, and the holder of the lost lock cannot settle it."""
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        with Gate(queue.client, "receive") as gate:
            gate.shut = True
            await queue.send("a")
            (message,) = await task
            lease = hold_of(message).lease
            assert lease is not None
            await queue.abandon([Lock(lease.token, hold_of(message).name)], counted=False)
        await eventually(lambda: hold_of(message).lock_expired(queue.client._connection.clock.now()))
        with pytest.raises(MessageLockLostError):
            await receiver.complete_message(message)
        (again,) = await receiver.receive_messages(1, 60)
        assert (str(again), again.delivery_count) == ("a", 1)


async def test_a_renewal_takes_an_offer(url: str, wakes: Wakes) -> None:
    """The call that takes the offer comes late, but the lock was renewed meanwhile."""
    async with queue_at(url) as queue:
        receiver = queue.receiver()
        task = await waits(queue, receiver)
        with Gate(queue.client, "receive") as gate:
            gate.shut = True
            await queue.send("a")
            (message,) = await task
            await receiver.renew_message_lock(message)
            lease = hold_of(message).lease
            assert lease is not None
            renewed = lease.until
            receiver._inbox._watchers[0]._too_late()  # type: ignore[union-attr]  # a second has passed
            assert lease.until == renewed
        await receiver.complete_message(message)
        assert wakes.offers == 1


async def test_automatic_renewal_of_an_offered_message_makes_no_call_at_once(url: str, wakes: Wakes) -> None:
    """The message has the whole lock from the beginning, so its renewal is not due yet."""
    async with queue_at(url) as queue, AutoLockRenewer() as renewer:
        receiver = queue.receiver(auto_lock_renewer=renewer)
        task = await waits(queue, receiver)
        with Calls(queue.transport) as calls:
            await queue.send("a")
            (message,) = await task
            await receiver.complete_message(message)
            assert calls.by_script["renew"] == 0
        assert wakes.offers == 1


async def test_a_partitioned_queue_offers_each_receiver_its_share(url: str, wakes: Wakes) -> None:
    """A receiver of three partitions that wants one message asks for no offers; if it wants six, it asks for two."""
    async with queue_at(url, partitioned=True) as queue:
        receiver = queue.receiver()

        async def asked(wanted: int) -> list[bytes]:
            task = asyncio.create_task(receiver.receive_messages(wanted, 60))
            await queue.wait_for_waiters()
            contents = await queue.contents()
            task.cancel()
            await asyncio.wait((task,))
            states = [held for key, (_, held) in contents.items() if key.endswith(":states")]
            return [text for held in states for name, text in held.items() if name.startswith(b"a")]

        assert await asked(1) == []
        await receiver.close()
        receiver = queue.receiver()
        assert [text.split()[1] for text in await asked(6)] == [b"2"] * 3
        assert not wakes.seen
