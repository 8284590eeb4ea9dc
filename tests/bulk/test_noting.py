"""A batch in another number of tasks than before is refused, also where the marks of its rows cannot tell."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.bulk import BulkWriter, WriteSummary, forget_writer, note_tasks, stored_rows
from sbredis.bulk import _marks as noting
from sbredis.engine import Outbound
from sbredis.exceptions import BatchConflictError, Outcome, ServiceBusQuotaExceededError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("out", enable_partitioning=True)
        yield client


async def write(client: ServiceBusClient, task: int, rows: range, *, whole: bool = True) -> WriteSummary:
    """Run a task of a batch of numbered rows."""
    async with BulkWriter(client, "out", writer="w", batch=0, task=task, kind="batch", whole=whole) as writer:
        for at in range(0, len(rows), 100):
            await writer.write(Outbound([b"%d" % number for number in rows[at : at + 100]]))
        return await writer.finish()


async def waiting(client: ServiceBusClient) -> int:
    async with client.get_queue_receiver("out") as receiver:
        return len(await receiver.peek_messages(1000))


async def test_a_task_that_goes_on_behind_the_rows_of_an_earlier_run_is_refused(client: ServiceBusClient) -> None:
    """In fewer tasks, a task has the rows of the same task before, and then those of the next one."""
    for task in range(2):
        await write(client, task, range(150 * task, 150 * (task + 1)))
    with pytest.raises(BatchConflictError, match=r"task 0 of batch 0 of the writer 'w' .* the task has 150 rows in an"):
        await write(client, 0, range(300))
    assert await waiting(client) == 300
    again = [await write(client, task, range(150 * task, 150 * (task + 1))) for task in range(2)]
    assert [(each.stored, each.known) for each in again] == [(0, 150), (0, 150)]


async def test_two_runs_of_a_task_with_other_rows_do_not_both_end(client: ServiceBusClient) -> None:
    """The second one has begun before the first one has noted the end of the task."""
    async with BulkWriter(client, "out", writer="w", batch=0, task=0, kind="batch", whole=True) as writer:
        await writer.write(Outbound([b"%d" % number for number in range(150)]))
        await write(client, 0, range(100))
        with pytest.raises(BatchConflictError, match="the task has 100 rows in an earlier run, and more in this one"):
            await writer.finish()


async def test_a_run_that_ends_before_another_one_with_more_rows_is_refused(client: ServiceBusClient) -> None:
    async with BulkWriter(client, "out", writer="w", batch=0, task=0, kind="batch") as writer:
        await writer.write(Outbound([b"%d" % number for number in range(30)]))
        await write(client, 0, range(150), whole=False)
        with pytest.raises(BatchConflictError, match=r"an earlier run has stored \d+ rows there"):
            await writer.finish()
    assert await waiting(client) == 150


async def test_a_task_that_is_new_is_refused(client: ServiceBusClient) -> None:
    for task in range(2):
        await write(client, task, range(50 * task, 50 * (task + 1)))
    await note_tasks(client, "out", "w", 2)
    await note_tasks(client, "out", "w", 3)  # the first number counts
    with pytest.raises(BatchConflictError, match="an earlier run had 2 tasks, and this one has more"):
        await write(client, 2, range(100, 150))
    assert await waiting(client) == 100
    assert (await write(client, 1, range(50, 100))).known == 50


async def test_a_run_that_was_stopped_is_finished_by_the_next_one(client: ServiceBusClient) -> None:
    """Only a task that has ended has all its rows."""
    async with BulkWriter(client, "out", writer="w", batch=0, task=0, kind="batch", whole=True) as writer:
        await writer.write(Outbound([b"%d" % number for number in range(100)]))
    await note_tasks(client, "out", "w", 1)
    await write(client, 0, range(150))
    assert await waiting(client) == 150


async def test_a_run_that_has_stored_nothing_may_be_repeated_in_other_tasks(client: ServiceBusClient) -> None:
    await note_tasks(client, "out", "w", 1)
    await write(client, 1, range(10))
    assert await waiting(client) == 10


async def test_notes_are_no_rows_and_are_forgotten_with_the_writer(client: ServiceBusClient) -> None:
    await write(client, 0, range(150))
    await note_tasks(client, "out", "w", 1)
    assert await stored_rows(client, "out", "w") == 150
    await forget_writer(client, "out", "w")
    await write(client, 1, range(300))
    assert await waiting(client) == 450


async def test_without_notes_a_later_run_may_have_more_rows(client: ServiceBusClient) -> None:
    await write(client, 0, range(150), whole=False)
    assert await write(client, 0, range(300), whole=False) == WriteSummary(150, 150, 0, ())


async def test_rows_are_stored_also_if_there_is_no_room_for_a_note(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    advance = noting._advance

    async def full(*given: object) -> str | None:
        if given[3] == ("?", None):
            return await advance(*given)  # type: ignore[arg-type]
        raise ServiceBusQuotaExceededError("The partition is full.", outcome=Outcome.REFUSED)

    monkeypatch.setattr(noting, "_advance", full)
    assert (await write(client, 0, range(150))).stored == 150
    assert "bulk:w:0.end is not noted, because the partition has no room" in caplog.text
