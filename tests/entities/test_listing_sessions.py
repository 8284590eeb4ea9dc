"""Listing the sessions of an entity, page by page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.entities import _unlocked_sessions as session_lists
from sbredis.exceptions import ServiceBusError
from sbredis.model import ServiceBusMessage
from tests.aio.queues import HandClock, both, in_memory, queue_at
from tests.aio.session_queues import session_of, session_queue_at


@pytest.mark.slow
@pytest.mark.conformance
@both
async def test_sessions_are_listed_page_by_page(url: str, partitioned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list contains exactly the sessions with active messages or a state."""
    monkeypatch.setattr(session_lists, "_PAGE", 30)
    async with session_queue_at(url, partitioned=partitioned) as queue:
        names = [f"{number:04} näme" for number in range(160)]
        async with queue.client.get_queue_sender("q") as sender:
            await asyncio.gather(*(sender.send_messages(ServiceBusMessage("x", session_id=name)) for name in names))
        for name, settle in (("deferred", True), ("with a state", False)):
            async with queue.session(name) as receiver:
                if settle:
                    await queue.send_to(name, "x")
                    await receiver.defer_message(await anext(receiver))
                else:
                    await session_of(receiver).set_state("")
        await queue.send_to("scheduled", "x", scheduled_enqueue_time_utc=datetime.now(UTC) + timedelta(hours=1))
        async with queue.session("0007 näme") as receiver:
            await anext(receiver)  # messages that a receiver holds count as well
            found = [name async for name in queue.client.list_queue_sessions("q")]
        assert sorted(found) == sorted([*names, "with a state"])
        pages = [[name async for name in page] async for page in queue.client.list_queue_sessions("q").by_page()]
        assert len(pages) >= 3
        assert sorted(name for page in pages for name in page) == sorted(found)


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_sessions_can_be_listed_by_the_time_of_their_last_state_change(
    url: str, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_lists, "_PAGE", 30)
    clock = HandClock()
    async with session_queue_at(url, partitioned=partitioned, clock=clock) as queue:

        async def keep(name: str) -> None:
            async with queue.session(name) as receiver:
                await session_of(receiver).set_state("x")

        await queue.send_to("only messages", "x")
        await keep("early")
        clock.move(10)
        since = datetime.fromtimestamp(clock.utc(), UTC)
        await keep("at that time")
        clock.move(10)
        names = [f"late {number}" for number in range(70)]
        await asyncio.gather(*map(keep, names))
        await keep("removed")
        async with queue.session("removed") as receiver:
            await session_of(receiver).set_state(None)

        async def listed(after: datetime) -> list[str]:
            return [name async for name in queue.client.list_queue_sessions("q", state_updated_after=after)]

        assert sorted(await listed(since)) == sorted(names)
        assert sorted(await listed(since - timedelta(seconds=1))) == sorted([*names, "at that time"])
        assert await listed(since + timedelta(seconds=11)) == []
        naive: list[Any] = [datetime(2026, 1, 1), "yesterday"]  # noqa: DTZ001 -- the missing zone is tested
        for wrong in naive:
            with pytest.raises((TypeError, ValueError)):
                queue.client.list_queue_sessions("q", state_updated_after=wrong)


@pytest.mark.slow
@pytest.mark.everywhere("the partitions lie on several nodes")
@both
@pytest.mark.parametrize("by_time", [False, True])
async def test_sessions_can_be_listed_with_skip_and_top(
    url: str, partitioned: bool, by_time: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No call requests more sessions than a page has, even if the list skips many."""
    monkeypatch.setattr(session_lists, "_PAGE", 7)
    since = datetime(2026, 1, 1, tzinfo=UTC) if by_time else None
    async with session_queue_at(url, partitioned=partitioned) as queue:
        client = queue.client

        async def keep(name: str) -> None:
            async with queue.session(name) as receiver:
                await session_of(receiver).set_state("x")

        await asyncio.gather(*(keep(f"s{number:02}") for number in range(30)))
        every = [name async for name in client.list_queue_sessions("q", state_updated_after=since)]
        assert len(every) == len(set(every)) == 30
        for skip, top in ((0, 1), (0, 7), (0, 8), (3, None), (6, 2), (7, 7), (13, 15), (29, 5), (30, 1), (99, None)):
            listing = client.list_queue_sessions("q", state_updated_after=since, skip=skip, top=top)
            found = [name async for name in listing]
            assert found == every[skip : None if top is None else skip + top]
            pages = client.list_queue_sessions("q", state_updated_after=since, skip=skip, top=top).by_page()
            (first, token) = (await pages.next_page(), pages.continuation_token)
            if token is not None:  # a list that continues from the token ends at the same session
                rest = client.list_queue_sessions("q", state_updated_after=since).by_page(token)
                assert [*first, *[name async for page in rest async for name in page]] == found
        wrong: Any
        for wrong in (-1, 1.5, "1", None):
            with pytest.raises((TypeError, ValueError), match="skip"):
                client.list_queue_sessions("q", skip=wrong)
        for wrong in (0, -1, 1.5, "1"):
            with pytest.raises((TypeError, ValueError), match="top"):
                client.list_queue_sessions("q", top=wrong)


@in_memory
async def test_listing_the_sessions_of_a_plain_queue_is_refused(url: str) -> None:
    async with queue_at(url) as queue:
        with pytest.raises(ServiceBusError, match="no sessions"):
            [name async for name in queue.client.list_queue_sessions("q")]
