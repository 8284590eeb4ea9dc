"""A process that may begin a number of messages begins no more, and gives the others back uncounted."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from sbredis.workers.running._limit import MessageLimit
from tests.waiting import eventually
from tests.workers.looking import worker_of
from tests.workers.parts import Parts, Runtime


def test_the_last_message_is_told_once() -> None:
    told: list[str] = []
    limit = MessageLimit(5, lambda: told.append("reached"))
    assert [limit.at_most(9), limit.take(3), limit.take(0), limit.at_most(9), limit.take(9)] == [5, 3, 0, 2, 2]
    assert told == ["reached"]
    assert [limit.at_most(9), limit.take(9), limit.left] == [0, 0, 0]
    assert told == ["reached"]


def test_without_a_number_all_messages_begin() -> None:
    limit = MessageLimit()
    assert [limit.take(10**6), limit.at_most(7)] == [10**6, 7]


@pytest.mark.parametrize("requires_session", [False, True], ids=["plain", "sessions"])
@pytest.mark.parametrize(
    "options", [{}, {"max_concurrent_calls": 1}, {"prefetch": 20}, {"batch": 4}, {"batch": 20}], ids=str
)
async def test_no_more_messages_begin_than_the_process_may_handle(
    sbredis_bus: Bus, options: dict[str, Any], *, requires_session: bool
) -> None:
    if requires_session and "prefetch" in options:
        pytest.skip("nothing is fetched ahead of sessions")
    await sbredis_bus.create_queue("orders", requires_session=requires_session)
    worker, begun = await worker_of(sbredis_bus, "letters", requires_session=requires_session), list[str]()

    async def place(text: str) -> None:
        begun.append(text)

    async def place_all(texts: list[str]) -> None:
        begun.extend(texts)

    for queue in ("orders", "letters"):
        worker.queue(queue, **options)(place_all if "batch" in options else place)
        messages = [
            ServiceBusMessage(
                f"{queue} {number}", content_type="text/plain", session_id="s" if requires_session else None
            )
            for number in range(20)
        ]
        await sbredis_bus.client.get_queue_sender(queue).send_messages(messages)
    reached = asyncio.Event()
    async with Runtime(worker._setup(), Parts(limit=MessageLimit(6, reached.set))).running(worker):
        await reached.wait()
        await eventually(lambda: len(begun) == 6)
    assert len(begun) == 6
    left = [message for queue in ("orders", "letters") for message in await sbredis_bus.active(queue)]
    assert sorted([*begun, *(bytes(message.body).decode() for message in left)]) == sorted(
        f"{queue} {number}" for queue in ("orders", "letters") for number in range(20)
    )
    assert {message.delivery_count for message in left} == {0}
