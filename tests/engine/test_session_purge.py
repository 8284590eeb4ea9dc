"""Deleting the messages of one session, whether or not it is locked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbredis.engine import NEVER, Outgoing, PartitionSettings, Purged
from sbredis.exceptions import ServiceBusError
from tests.engine.bench import SETTINGS, START, Bench
from tests.engine.holding import accept, holder, of_session, put, traces

pytestmark = pytest.mark.anyio


@pytest.fixture
def settings() -> PartitionSettings:
    """Return the settings of an entity with sessions."""
    return replace(SETTINGS, sessions=True)


async def purge(bench: Bench, session: str | None, before: int = NEVER, *, share: int = 1000, start: int = 0) -> Purged:
    request = bench.partition.purge(bench.call_id(), before, share=share, start=start, session=session)
    return await bench.tell(request)


async def test_a_session_purge_deletes_only_its_active_and_deferred_messages(bench: Bench) -> None:
    """Held and scheduled messages stay. All messages of other sessions stay too, even if the names are similar."""
    await put(bench, "s", b"deferred", b"held", b"active", b"brief", time_to_live=10**6)
    await put(bench, "s", b"scheduled", due=START + 10**6)
    others = [*(await put(bench, "ss", b"1")), *(await put(bench, "", b"2")), *(await put(bench, "t", b"3", b"4"))]
    mine, theirs = await holder(bench, "s"), await holder(bench, "t")
    await mine.defer(*await mine.receive(1))
    await mine.receive(1)
    await theirs.defer(*await theirs.receive(1))
    purged = await purge(bench, "s")
    assert (purged.count, purged.onwards) == (3, None)
    assert await bench.states() == {"2": "l", "5": "s"} | dict.fromkeys(others, "a") | {others[2]: "f"}
    assert (await purge(bench, "s")).count == 0
    assert (await purge(bench, "never sent to")).count == 0


async def test_a_purged_session_leaves_no_traces_and_is_no_longer_free(bench: Bench) -> None:
    before = await traces(bench)
    await put(bench, "s", b"1", b"2", time_to_live=10**6)
    await put(bench, "s", b"3", time_to_live=10**5)  # the expiry of this message is indexed
    assert (await purge(bench, "s")).count == 3
    assert await traces(bench) == before
    assert (await accept(bench)).outcome == "none"
    assert (await bench.count()).bytes == 0


async def test_a_session_purge_deletes_messages_enqueued_before_a_time(bench: Bench) -> None:
    await put(bench, "s", b"old")
    bench.later(1000)
    await put(bench, "s", b"young")
    assert (await purge(bench, "s", START)).count == 0
    assert (await purge(bench, "s", START + 1000)).count == 1
    assert await (await holder(bench, "s")).bodies() == [b"young"]


async def test_each_step_of_a_session_purge_continues_where_the_previous_step_ended(bench: Bench) -> None:
    """The purge reads the active messages, then the deferred ones, and continues after the messages that it keeps."""
    await put(bench, "s", *(b"m" for _ in range(80)))
    await put(bench, "t", *(b"m" for _ in range(10)))
    mine = await holder(bench, "s")
    await mine.defer(*await mine.receive(40))
    bench.later(1000)
    await put(bench, "s", b"young")
    counted: list[int] = []
    onwards: int | None = 0
    while onwards is not None:
        purged = await purge(bench, "s", START + 1000, share=9, start=onwards)
        counted.append(purged.count)
        onwards = purged.onwards
    assert (sum(counted), max(counted), len(counted)) == (80, 9, 10)
    counts = await bench.count()
    assert (counts.active, counts.deferred) == (11, 0)


async def test_a_repeated_session_purge_gets_the_first_answer_and_deletes_nothing_more(bench: Bench) -> None:
    await put(bench, "s", b"1", b"2", b"3")
    request = bench.partition.purge(bench.call_id(), NEVER, share=2, session="s")
    assert await bench.tell(request) == replace(await bench.tell(request), more=False)
    assert (await bench.count()).active == 1


@pytest.mark.parametrize("settings", [SETTINGS], ids=["no-sessions"])
async def test_a_session_purge_is_refused_for_an_entity_without_sessions(bench: Bench) -> None:
    await bench.send_all(Outgoing(of_session("s")))
    before = await bench.whole()
    with pytest.raises(ServiceBusError, match="session"):
        await purge(bench, "s")
    assert await bench.whole() == before
