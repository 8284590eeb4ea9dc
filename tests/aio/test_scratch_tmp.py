from __future__ import annotations
import asyncio, time
import pytest
from tests.aio.standing import *
pytestmark = pytest.mark.anyio

@both
async def test_one(url, partitioned):
    async with queue_at(url, partitioned=partitioned) as q:
        await q.send("a","b","c")
        r = q.receiver()
        t=time.monotonic()
        print(bodies(await r.receive_messages(2, 1)), time.monotonic()-t)
        print(await q.counts())
        ms = await r.receive_messages(5, 1)
        print(bodies(ms), time.monotonic()-t)
        await r.complete_message(ms[0])
        print(await q.counts())
        assert await r.receive_messages(5, .1) == []
        task = asyncio.create_task(r.receive_messages(5, 5))
        await asyncio.sleep(.1)
        t=time.monotonic()
        await q.send("x")
        print(bodies(await task), time.monotonic()-t)
