"""What nobody has got goes back to its partition, also if the server refuses the client for a time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from sbredis.client import PartitionClient
from sbredis.exceptions import (
    MessageLockLostError,
    Outcome,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusError,
)
from sbredis.servers import LocalServer
from tests.aio.queues import Queue, bodies, in_memory, queue_at, receive_exactly
from tests.aio.session_queues import session_queue_at
from tests.waiting import eventually

LOCK = 300_000


@dataclass
class Refusable:
    """A user of a server who may lose the right to all keys for a time."""

    server: LocalServer

    @property
    def url(self) -> str:
        return self.server.url.replace("://", "://refusable:pw@")

    def refuse(self) -> None:
        self._set("resetkeys")

    def permit(self) -> None:
        self._set("~*")

    def _set(self, *rules: str) -> None:
        assert self.server.ask("ACL", "SETUSER", "refusable", *rules) == "OK"


@pytest.fixture
def user(server: LocalServer) -> Iterator[Refusable]:
    assert server.ask("ACL", "SETUSER", "refusable", "on", ">pw", "~*", "&*", "+@all") == "OK"
    yield Refusable(server)
    server.ask("ACL", "DELUSER", "refusable")


def partition_of(queue: Queue) -> PartitionClient:
    return queue.entity.partition_client(queue.entity.numbers[0])


class Releases:
    """Releases of a lock, each with the next of these outcomes."""

    def __init__(self, *outcomes: ServiceBusError | None) -> None:
        self.outcomes = list(outcomes)

    def __call__(self, until: float) -> asyncio.Future[None]:
        del until
        made: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        error = self.outcomes.pop(0)
        if error is None:
            made.set_result(None)
        else:
            made.set_exception(error)
        return made


def refusal() -> ServiceBusError:
    return ServiceBusAuthenticationError("no", outcome=Outcome.NEVER_SENT)


@in_memory
async def test_a_release_is_made_again_until_the_partition_answers(url: str) -> None:
    async with queue_at(url) as queue:
        giving_back = partition_of(queue).giving_back
        lost = MessageLockLostError("lost", outcome=Outcome.REFUSED)
        all_made = [Releases(refusal(), refusal(), None), Releases(refusal(), lost, None), Releases(None)]
        given = [giving_back.give(made) for made in all_made]
        assert await giving_back.ended(asyncio.get_running_loop().time() + 60)
        assert [each.exception() for each in given] == [None, lost, None]
        assert [len(made.outcomes) for made in all_made] == [0, 1, 0]


@in_memory
async def test_a_client_that_is_closed_makes_no_release_again(url: str) -> None:
    error = refusal()
    async with queue_at(url) as queue:
        made = Releases(error, None)
        given = partition_of(queue).giving_back.give(made)
        await eventually(lambda: len(made.outcomes) == 1)
        assert not await partition_of(queue).giving_back.ended(0)
    assert given.exception() is error
    assert len(made.outcomes) == 1


async def test_messages_go_back_after_a_refusal_of_the_user(user: Refusable) -> None:
    """Their locks would hold for minutes, and their deliveries would count."""
    async with queue_at(user.url, lock_duration=LOCK) as queue:
        await queue.fill(3)
        receiver = queue.receiver(prefetch_count=3)
        async with receiver:
            assert receiver._inbox is not None
            buffer = receiver._inbox.buffer
            await eventually(lambda: len(buffer) == 3)
            user.refuse()
            receiver.prefetch_count = 0
            await eventually(lambda: partition_of(queue).giving_back._failed)
            user.permit()
            await eventually(lambda: queue.counts_are(3, 0))
            messages = await receive_exactly(queue.receiver(), 3)
        assert bodies(messages) == ["0", "1", "2"]
        assert {message.delivery_count for message in messages} == {1}


async def test_a_receiver_withdraws_its_credit_after_a_refusal_of_the_user(user: Refusable) -> None:
    """Another receiver of the client hears the channel, so the partition would go on to push to the closed one."""
    async with queue_at(user.url, lock_duration=LOCK) as queue:
        closed, other = queue.receiver(), queue.receiver()
        task = await queue.waits(closed, 5)
        waiting = await queue.waits(other)
        assert closed._inbox is not None
        (driver,) = closed._inbox.drivers
        user.refuse()
        closing = asyncio.create_task(closed.close())
        await eventually(lambda: isinstance(driver.failure, ServiceBusAuthorizationError))
        user.permit()
        await closing
        await asyncio.gather(task, return_exceptions=True)
        await eventually(lambda: driver.has_left)
        await queue.send("a", "b")
        assert len(await waiting) == 1
        assert await queue.counts_are(1, 1)


async def test_a_session_goes_back_after_a_refusal_of_the_user(user: Refusable) -> None:
    async with session_queue_at(user.url, lock_duration=LOCK) as queue:
        await queue.send_to("s", "a")
        async with queue.session("s") as receiver:
            assert await receiver.session.get_state() is None
            user.refuse()
        user.permit()
        await eventually(queue.is_unused)
        async with queue.session("s") as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            assert message.delivery_count == 1
