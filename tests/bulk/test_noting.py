"""A batch in another number of tasks than before is refused, also where the marks of its rows cannot tell."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.bulk import (
    BulkWriter,
    WriterKey,
    WriteSummary,
    correct_tasks,
    forget_writer,
    note_ends,
    noted_tasks,
    stored_rows,
)
from sbredis.engine import Outbound
from sbredis.exceptions import BatchConflictError, Outcome

KEY = WriterKey("w", 0, 0, "batch")


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("out", enable_partitioning=True)
        yield client


async def write(client: ServiceBusClient, task: int, rows: range, *, tasks: int | None = 2) -> WriteSummary:
    """Run a task of a batch of numbered rows."""
    async with BulkWriter(client, "out", writer="w", batch=0, task=task, kind="batch", tasks=tasks) as writer:
        for at in range(0, len(rows), 100):
            await writer.write(Outbound([b"%d" % number for number in rows[at : at + 100]]))
        return await writer.finish()


async def write_version(client: ServiceBusClient, version: int, tasks: int = 1, task: int = 0) -> WriteSummary:
    """Run a task of a version, which has two rows."""
    key = WriterKey("v", version, task, "stream")
    async with BulkWriter(
        client, "out", writer=key.writer, batch=key.batch, task=key.task, kind=key.kind, tasks=tasks
    ) as writer:
        await writer.write(Outbound([b"%d of %d" % (row, version) for row in range(2)]))
        return await writer.finish()


async def waiting(client: ServiceBusClient) -> int:
    async with client.get_queue_receiver("out") as receiver:
        return len(await receiver.peek_messages(1000))


async def test_a_task_that_goes_on_behind_the_rows_of_an_earlier_run_is_refused(client: ServiceBusClient) -> None:
    """In fewer tasks, a task has the rows of the same task before, and then those of the next one."""
    for task in range(2):
        await write(client, task, range(150 * task, 150 * (task + 1)))
    for _ in range(2):
        await note_ends(client, "out", KEY, {0: 150, 1: 150})
    with pytest.raises(BatchConflictError, match=r"task 0 of batch 0 of the writer 'w' .* the task has 150 rows in an"):
        await write(client, 0, range(300))
    assert await waiting(client) == 300
    again = [await write(client, task, range(150 * task, 150 * (task + 1))) for task in range(2)]
    assert [(each.stored, each.known) for each in again] == [(0, 150), (0, 150)]


async def test_a_task_whose_rows_seemed_to_end_early_is_repeated(client: ServiceBusClient) -> None:
    """Spark ends the rows of a task like this if it fails to make the next one."""
    await write(client, 0, range(100))
    assert await write(client, 0, range(150)) == WriteSummary(50, 100, 0, ())


async def test_the_rows_of_the_next_version_replace_those_of_the_last(client: ServiceBusClient) -> None:
    for version, rows in enumerate((2, 1, 2)):
        key = WriterKey("v", version, 0, "stream")
        await note_ends(client, "out", key, {0: rows})
        await correct_tasks(client, "out", key, 2, 1)
        if rows == 2:
            assert (await write_version(client, version)).stored == 2
        else:
            with pytest.raises(BatchConflictError, match="the task has 1 rows in an earlier run"):
                await write_version(client, version)


async def test_a_run_that_ends_before_another_one_with_more_rows_is_refused(client: ServiceBusClient) -> None:
    async with BulkWriter(client, "out", writer="w", batch=0, task=0, kind="batch") as writer:
        await writer.write(Outbound([b"%d" % number for number in range(30)]))
        await write(client, 0, range(150), tasks=None)
        with pytest.raises(BatchConflictError, match=r"an earlier run has stored \d+ rows there"):
            await writer.finish()
    assert await waiting(client) == 150


async def test_a_run_in_another_number_of_tasks_is_refused_before_a_row_is_stored(client: ServiceBusClient) -> None:
    """Only one task of the first run was begun, and it was stopped before it had stored a row."""
    async with BulkWriter(client, "out", writer="w", batch=0, task=0, kind="batch", tasks=2):
        pass
    for task, tasks in ((0, 1), (0, 3), (1, 3), (2, 3)):
        with pytest.raises(BatchConflictError, match=f"an earlier run had 2 tasks, and this one has {tasks}") as error:
            await write(client, task, range(100), tasks=tasks)
        assert error.value.outcome is Outcome.REFUSED
    with pytest.raises(BatchConflictError, match="this run has more tasks than 2, the number that it was given"):
        await write(client, 2, range(100))
    assert await waiting(client) == 0
    assert await noted_tasks(client, "out", "w") == 2
    assert (await write(client, 1, range(50, 100))).stored == 50


async def test_a_task_beyond_the_number_of_tasks_notes_nothing(client: ServiceBusClient) -> None:
    with pytest.raises(BatchConflictError, match="more tasks than 2"):
        await write(client, 2, range(100))
    assert await noted_tasks(client, "out", "w") is None
    assert await waiting(client) == 0


async def test_a_wrong_number_of_tasks_is_corrected(client: ServiceBusClient) -> None:
    await write(client, 0, range(50))
    await correct_tasks(client, "out", WriterKey("w", 1, 0, "batch"), 2, 3)  # another batch
    await correct_tasks(client, "out", WriterKey("w", 0, 0, "batch"), 4, 3)  # another run, which has said 4
    assert await noted_tasks(client, "out", "w") == 2
    await correct_tasks(client, "out", WriterKey("w", 0, 0, "batch"), 2, 3)
    with pytest.raises(BatchConflictError, match="an earlier run had 3 tasks, and this one has 2"):
        await write(client, 1, range(50, 100))
    assert (await write(client, 1, range(50, 100), tasks=3)).stored == 50


async def test_a_run_that_was_stopped_is_finished_by_the_next_one(client: ServiceBusClient) -> None:
    """Only a task that has ended has all its rows."""
    async with BulkWriter(client, "out", writer="w", batch=0, task=0, kind="batch", tasks=2) as writer:
        await writer.write(Outbound([b"%d" % number for number in range(100)]))
    await write(client, 0, range(150))
    assert await waiting(client) == 150


async def test_notes_are_no_rows_and_are_forgotten_with_the_writer(client: ServiceBusClient) -> None:
    await write(client, 0, range(150))
    assert await stored_rows(client, "out", "w") == 150
    await forget_writer(client, "out", "w")
    await write(client, 1, range(300), tasks=3)
    assert await waiting(client) == 450


async def marks(client: ServiceBusClient) -> int:
    """Return the number of marks and notes of all partitions, and forget them."""
    return await forget_writer(client, "out", "v")


async def test_a_writer_of_many_versions_has_as_many_marks_as_one_of_a_single_version(client: ServiceBusClient) -> None:
    await write_version(client, 0)
    one = await marks(client)
    for version in range(40):
        done = [await write_version(client, version) for _ in range(2)]
        assert [(each.stored, each.known) for each in done] == [(2, 0), (0, 2)]
    assert await marks(client) == one


async def test_an_earlier_version_is_refused_as_already_written(client: ServiceBusClient) -> None:
    await write_version(client, 7, tasks=2)
    for task in range(2):
        with pytest.raises(BatchConflictError, match="it is already written, because batch 7 of this writer has begun"):
            await write_version(client, 6, tasks=2, task=task)
    assert await waiting(client) == 2


async def test_each_version_may_have_its_own_number_of_tasks(client: ServiceBusClient) -> None:
    await write_version(client, 0, tasks=2)
    await write_version(client, 1, tasks=3)
    with pytest.raises(BatchConflictError, match="an earlier run had 3 tasks, and this one has 2"):
        await write_version(client, 1, tasks=2, task=1)
    await write_version(client, 1, tasks=3, task=2)
    await write_version(client, 2, tasks=1)
    assert await waiting(client) == 8


async def test_two_tasks_begin_a_version_at_the_same_time(client: ServiceBusClient) -> None:
    for version in range(3):
        await asyncio.gather(*(write_version(client, version, tasks=3, task=task) for task in range(3)))
    assert await waiting(client) == 18


async def test_without_notes_a_later_run_may_have_more_rows(client: ServiceBusClient) -> None:
    await write(client, 0, range(150), tasks=None)
    assert await write(client, 0, range(300), tasks=None) == WriteSummary(150, 150, 0, ())


@pytest.mark.parametrize("target", ["server"], indirect=True)  # ten thousand marks take longest in memory
async def test_rows_are_stored_also_if_there_is_no_room_for_a_note(
    client: ServiceBusClient, caplog: pytest.LogCaptureFixture
) -> None:
    """There is room for the number of tasks and for the mark of the task, but not for its end."""
    await client.ensure_queue("one")
    async with client.get_queue_sender("one") as sender:
        for at in range(0, 9_998, 98):
            async with client.transaction() as tx:
                for number in range(at, min(at + 98, 9_998)):
                    tx.advance(sender, f"bulk:other:{number}", f"1 s 0 1 1 {'f' * 32} 0", expected=None)
    for known in (0, 150):
        async with BulkWriter(client, "one", writer="w", batch=0, task=0, kind="batch", tasks=2) as writer:
            await writer.write(Outbound([b"%d" % number for number in range(150)]))
            assert (await writer.finish()).known == known
        await note_ends(client, "one", KEY, {0: 150})
    assert "bulk:w:0.end is not noted, because the partition has no room" in caplog.text
