"""Keeping a role: a client acts only while it certainly has the role, whatever happens to its calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.client import ROUTE, RoleKeeper, is_held
from sbredis.engine import role_keys
from sbredis.exceptions import Outcome, ServiceBusConnectionError
from tests.aio.diverting import divert
from tests.aio.queues import in_memory, queue_at

pytestmark = in_memory


class Keeping:
    """A keeper of a role, whose calls the test can disturb."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self.connection = connection
        self.keeper = RoleKeeper(connection, ROUTE, seconds=seconds)
        self.asked: list[float] = []
        self.fails = self.hangs = self.answer_is_lost = False
        self.answers_after = 0.0
        self._through = connection.transport.call
        divert(connection.transport, self._call)

    async def _call(self, script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name != "hold_role":
            return await self._through(script, *arguments, **options)
        loop = asyncio.get_running_loop()
        self.asked.append(loop.time())
        if self.fails:
            raise ServiceBusConnectionError("There is no way.", outcome=Outcome.NEVER_SENT)
        if self.hangs:
            await asyncio.Event().wait()
        answer = await self._through(script, *arguments, **options)
        if self.answer_is_lost:
            raise ServiceBusConnectionError("The answer is lost.", outcome=Outcome.UNKNOWN)
        await asyncio.sleep(self.asked[-1] + self.answers_after - loop.time())
        return answer

    async def held_by_anyone(self) -> bool:
        namespace = self.connection.namespace.name
        return await is_held(self.connection.transport, namespace, ROUTE)


@asynccontextmanager
async def keeping(url: str, seconds: float) -> AsyncIterator[Keeping]:
    async with queue_at(url) as queue:
        hand = Keeping(queue.client._connection, seconds)
        try:
            yield hand
        finally:
            divert(hand.connection.transport, hand._through)
            await hand.keeper.leave()


async def test_a_claim_counts_from_the_call_and_not_from_its_answer(url: str) -> None:
    async with keeping(url, 30.0) as hand:
        hand.answers_after = 0.1
        await hand.keeper.take()
        assert hand.keeper.held
        assert hand.keeper.claim.until <= hand.asked[0] + 30.0


@pytest.mark.parametrize(("trouble", "reason"), [("hangs", "no answer came"), ("fails", "There is no way.")])
async def test_a_role_ends_with_its_claim_if_no_renewal_is_answered(
    url: str, trouble: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sbredis.maintenance")
    async with keeping(url, 0.4) as hand:
        await hand.keeper.take()
        setattr(hand, trouble, True)
        await asyncio.wait_for(hand.keeper.keep(), 60)
        assert not hand.keeper.held
        assert not hand.keeper.standing.held
    assert f"the claim to the role 'route' was not renewed: {reason}" in caplog.text


async def test_a_client_in_doubt_asks_at_once_and_loses_a_role_that_another_one_has(url: str) -> None:
    async with keeping(url, 3600.0) as hand:
        await hand.keeper.take()
        keeper = asyncio.create_task(hand.keeper.keep())
        connection = hand.connection
        (key,) = role_keys(connection.namespace.name)
        ends = hand.keeper.standing.fence + 3_000_000
        await connection.transport.command("HSET", key, ROUTE, f"0;another {ends} 1;;another {ends}", key=key)
        hand.keeper.doubt()
        await asyncio.wait_for(keeper, 60)
        assert not hand.keeper.held


async def test_a_claim_whose_answer_was_lost_is_given_up_at_the_end(url: str) -> None:
    async with keeping(url, 30.0) as hand:
        hand.answer_is_lost = True
        with pytest.raises(ServiceBusConnectionError):
            await hand.keeper.try_once()
        hand.answer_is_lost = False
        assert await hand.held_by_anyone()
        await hand.keeper.leave()
        assert not await hand.held_by_anyone()
