"""A redrive whose client is killed several times: each message is back once, and none is lost."""

from __future__ import annotations

import asyncio
import os
from collections import Counter

import pytest

from sbredis.exceptions import RedriveInProgressError
from tests.aio.queues import queue_at
from tests.children import child
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

MESSAGES = int(os.environ.get("SBREDIS_REDRIVEN", "600"))
KILLS = int(os.environ.get("SBREDIS_REDRIVE_KILLS", "3"))
"""The long form has 10,000 messages and 20 kills."""

_CLIENT = """
import asyncio, sys
from sbredis.aio import ServiceBusClient
from sbredis.client import Timings
from sbredis.exceptions import RedriveInProgressError

TIMINGS = Timings(claiming_redrive=0.5, renewing_redrive=0.1)  # so that the next client need not wait for long

async def main(url, queue, cursor, rate):
    async with ServiceBusClient(url, namespace="ns", _timings=TIMINGS) as client:
        async with client.get_queue_receiver(queue, sub_queue="deadletter") as letters:
            while True:
                try:
                    return await letters.redrive_messages(cursor=cursor, rate=float(rate))
                except RedriveInProgressError:
                    await asyncio.sleep(0.1)  # the claim of the client that was killed has not ended yet

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.long("it kills many processes")
@pytest.mark.slow
@pytest.mark.parametrize("target", ["server"], indirect=True)
async def test_each_message_returns_once_however_often_the_client_is_killed(url: str) -> None:
    async with queue_at(url, partitioned=True) as queue:
        for at in range(len(queue.partitions)):
            await queue.fill(MESSAGES // len(queue.partitions), at=at, start=at * MESSAGES)
        receiver = queue.receiver()
        texts: list[str] = []
        while len(texts) < MESSAGES:
            messages = await receiver.receive_messages(1000, 60)
            await asyncio.gather(*(receiver.dead_letter_message(message) for message in messages))
            texts += map(str, messages)
        letters = queue.receiver(sub_queue="deadletter")
        cursor = (await letters.redrive_messages(dry_run=True)).cursor

        async def redriven() -> int:
            return (await queue.counts()).active

        for kill in range(KILLS):
            before, goal = await redriven(), MESSAGES * (kill + 1) // (KILLS + 2)
            given = url, queue.entity.name, cursor, f"{MESSAGES / KILLS}"
            async with child("-c", _CLIENT, *given, stderr=asyncio.subprocess.DEVNULL) as client:

                async def far_enough(client: asyncio.subprocess.Process = client, goal: int = goal) -> bool:
                    return client.returncode is not None or await redriven() > goal

                await eventually(far_enough)
                assert client.returncode is None, "the client has ended before it could be killed"
            assert await redriven() >= before

        async def finished() -> bool:
            try:
                await letters.redrive_messages(cursor=cursor)
            except RedriveInProgressError:
                return False
            return True

        await eventually(finished)
        counts = await queue.counts()
        assert (counts.active, counts.dead_active) == (MESSAGES, 0)
        back: list[str] = []
        while len(back) < MESSAGES:
            messages = await receiver.receive_messages(1000, 60)
            await receiver.complete_messages(messages)
            back += map(str, messages)
        assert Counter(back) == Counter(texts)
