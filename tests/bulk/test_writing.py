"""Writing in bulk: each row of a task is stored once, as the message that a sender would have made of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.bulk import BulkWriter, Refusal, WriteSummary, forget_writer, stored_rows
from sbredis.bulk._chunks import Chunk
from sbredis.bulk._rows import RowBlock
from sbredis.bulk._storing import PartitionWriter
from sbredis.engine import Outbound, PropertyColumns, Transacted
from sbredis.exceptions import (
    BatchConflictError,
    BatchInterruptedError,
    MessagingEntityNotFoundError,
    Outcome,
    RowRefusedError,
    ServiceBusConnectionError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import CorrelationRuleFilter, ServiceBusMessage, ServiceBusReceivedMessage
from tests.plugins.parts import first
from tests.waiting import eventually


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("out", enable_partitioning=True)
        yield client


def bodies(*numbers: int) -> Outbound:
    return Outbound([b"%d" % number for number in numbers])


def writer_of(client: ServiceBusClient, path: str = "out", **given: Any) -> BulkWriter:
    return BulkWriter(client, path, **{"writer": "w", "batch": 1, "task": 0, **given})


async def write(client: ServiceBusClient, rows: Sequence[Outbound], path: str = "out", **given: Any) -> WriteSummary:
    """Run a whole task."""
    async with writer_of(client, path, **given) as writer:
        for some in rows:
            await writer.write(some)
        return await writer.finish()


async def messages(client: ServiceBusClient, path: str = "out") -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    async with client.get_queue_receiver(path) as receiver:
        while True:
            after = found[-1].sequence_number if found else 0
            some = await receiver.peek_messages(1000, sequence_number=(after or 0) + 1 if found else 0)
            if not some:
                return found
            found += some


async def contents(client: ServiceBusClient, path: str = "out") -> list[int]:
    """Return the bodies, which are numbers, in order."""
    return sorted(int(bytes(message.body)) for message in await messages(client, path))


@pytest.mark.conformance
async def test_a_task_that_runs_again_stores_nothing_twice(client: ServiceBusClient) -> None:
    rows = [bodies(*range(at, at + 50)) for at in range(0, 200, 50)]
    assert await write(client, rows) == WriteSummary(200, 0, 0, ())
    assert await write(client, [bodies(*range(200))]) == WriteSummary(0, 200, 0, ())
    assert await contents(client) == list(range(200))


async def test_a_writer_that_is_closed_takes_no_rows(client: ServiceBusClient) -> None:
    """Nothing would store them."""
    async with writer_of(client) as writer:
        await writer.write(bodies(1))
        await writer.finish()
    with pytest.raises(ValueError, match="is closed"):
        await writer.write(bodies(2))
    with pytest.raises(ValueError, match="is closed"):
        await writer.write_messages([ServiceBusMessage("3")])
    assert await contents(client) == [1]
    await client.close()
    with pytest.raises(ValueError, match="The client is closed"):
        writer_of(client)


@pytest.mark.slow
async def test_full_chunks_are_stored_before_the_end(client: ServiceBusClient) -> None:
    await client.ensure_queue("one")
    async with writer_of(client, "one") as writer:
        await writer.write(bodies(*range(2500)))

        async def stored() -> bool:
            return await contents(client, "one") == list(range(2000))

        await eventually(stored)
    assert await write(client, [bodies(*range(2600))], "one") == WriteSummary(600, 2000, 0, ())
    assert [int(bytes(message.body)) for message in await messages(client, "one")] == list(range(2600))


@pytest.mark.slow
@pytest.mark.everywhere("two writers compete in each partition")
async def test_two_runs_at_the_same_time_store_each_row_once(client: ServiceBusClient) -> None:
    rows = [bodies(*range(at, at + 100)) for at in range(0, 600, 100)]
    runs = await asyncio.gather(*(write(client, rows) for _ in range(3)))
    assert sum(run.stored for run in runs) == 600
    assert [run.stored + run.known for run in runs] == [600] * 3
    assert await contents(client) == list(range(600))


def lose_answers(monkeypatch: pytest.MonkeyPatch, count: int, *, ran: bool) -> list[int]:
    """Lose the answers of the first calls, which have stored their rows or not. Return the list of these rows."""
    call = PartitionWriter._call
    lost: list[int] = []

    async def cut(self: PartitionWriter, rows: RowBlock, chunk: Chunk, deadline: float) -> Transacted:
        if len(lost) < count:
            lost.append(chunk.rows)
            if ran:
                await call(self, rows, chunk, deadline)
            raise ServiceBusConnectionError("lost", outcome=Outcome.UNKNOWN)
        return await call(self, rows, chunk, deadline)

    monkeypatch.setattr(PartitionWriter, "_call", cut)
    return lost


@pytest.mark.slow
@pytest.mark.parametrize("ran", [False, True])
async def test_a_call_whose_outcome_is_unknown_is_looked_up(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch, *, ran: bool
) -> None:
    lost = lose_answers(monkeypatch, 3, ran=ran)
    done = await write(client, [bodies(*range(64))])
    assert done == WriteSummary(64 - sum(lost) * ran, sum(lost) * ran, 0, ())
    assert await contents(client) == list(range(64))


async def test_an_error_that_says_that_nothing_was_stored_ends_the_writer(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: object) -> Transacted:
        raise ServiceBusConnectionError("unreachable", outcome=Outcome.NEVER_SENT)

    monkeypatch.setattr(PartitionWriter, "_call", refuse)
    async with writer_of(client) as writer:
        await writer.write(bodies(*range(20)))
        for _ in range(2):
            with pytest.raises(ServiceBusConnectionError, match="unreachable"):
                await writer.finish()
        with pytest.raises(ServiceBusConnectionError, match="unreachable"):
            await writer.write(bodies(1))


async def test_a_queue_that_was_made_anew_interrupts_the_writer(client: ServiceBusClient, url: str) -> None:
    await client.ensure_queue("one")
    async with writer_of(client, "one") as writer:
        await writer.write(bodies(*range(1000)))

        async def stored() -> bool:
            return len(await contents(client, "one")) == 1000

        await eventually(stored)
        async with ServiceBusAdministrationClient(url) as administration:
            await administration.delete_queue("one")
            await administration.create_queue("one")
        await writer.write(bodies(*range(1000, 1010)))
        with pytest.raises(BatchInterruptedError, match="has 0 of the 1000 rows"):
            await writer.finish()
    assert (await write(client, [bodies(*range(1010))], "one")).stored == 1010


@pytest.mark.slow
async def test_tasks_and_batches_and_writers_are_told_apart(client: ServiceBusClient) -> None:
    runs: list[dict[str, Any]] = [{}, {"task": 1}, {"batch": 2}, {"writer": "v"}]
    for given in runs:
        assert (await write(client, [bodies(7)], **given)).stored == 1
    assert await contents(client) == [7] * 4


@pytest.mark.slow
async def test_other_rows_in_a_known_task_are_refused(client: ServiceBusClient) -> None:
    await write(client, [bodies(*range(100))])
    for rows in (bodies(*range(99)), bodies(*range(50), 7, *range(51, 100))):
        with pytest.raises(BatchConflictError, match="task 0 of batch 1 of the writer 'w' cannot be stored") as told:
            await write(client, [rows])
        assert (told.value.entity, told.value.outcome) == ("out", Outcome.REFUSED)
    with pytest.raises(BatchConflictError, match="a later batch, 1, was written"):
        await write(client, [bodies(*range(100))], batch=0)
    assert await contents(client) == list(range(100))


@pytest.mark.slow
async def test_another_number_of_tasks_is_refused(client: ServiceBusClient) -> None:
    """The tasks that the batch had before have other rows now."""

    async def run(tasks: int) -> list[WriteSummary | BaseException]:
        work = [write(client, [bodies(*range(task, 60, tasks))], task=task) for task in range(tasks)]
        return list(await asyncio.gather(*work, return_exceptions=True))

    await run(4)
    assert [type(each) for each in await run(3)] == [BatchConflictError] * 3
    assert await contents(client) == list(range(60))


async def test_rows_become_the_messages_of_a_sender(client: ServiceBusClient) -> None:
    rows = Outbound(
        [b"body", b"other"],
        [b"id", None],
        [b"s", None],
        [b"s", "é".encode()],
        [b"c", None],
        [b"text/plain", None],
        [b"subject", None],
        [b"to", None],
        [b"reply", None],
        [b"rs", None],
        PropertyColumns([0, 2, 2], [b"a", b"n"], ["ä".encode(), None]),
        [60_000, None],
        [None, 9_000_000_000_000],
    )
    await write(client, [rows])
    first, second = sorted(await messages(client), key=lambda message: bytes(message.body))
    assert (first.message_id, first.session_id, first.partition_key) == ("id", "s", "s")
    assert (first.correlation_id, first.content_type, first.subject) == ("c", "text/plain", "subject")
    assert (first.to, first.reply_to, first.reply_to_session_id) == ("to", "reply", "rs")
    assert (first.application_properties, first.time_to_live) == ({"a": "ä", "n": None}, timedelta(minutes=1))
    assert first.expires_at_utc is not None
    assert (second.message_id, second.partition_key, second.state.name) == (None, "é", "SCHEDULED")


@pytest.mark.slow
async def test_duplicate_detection_drops_rows_of_other_writers(client: ServiceBusClient) -> None:
    await client.ensure_queue("unique", requires_duplicate_detection=True, enable_partitioning=True)
    ids = [b"%d" % number for number in range(30)]
    assert await write(client, [Outbound(ids, ids)], "unique") == WriteSummary(30, 0, 0, ())
    assert await write(client, [Outbound(ids, ids)], "unique", writer="v") == WriteSummary(30, 0, 30, ())
    assert len(await messages(client, "unique")) == 30


async def die_in_the_middle(client: ServiceBusClient, rows: Outbound, stored: int, path: str, **given: Any) -> None:
    """Write rows until some are stored, and die before the end of the task."""
    async with writer_of(client, path, **given) as writer:
        await writer.write(rows)

        async def some_are_stored() -> bool:
            return len(await contents(client, path)) == stored

        await eventually(some_are_stored)


@pytest.mark.slow
async def test_rows_that_are_recognised_by_their_ids_may_come_in_another_order(client: ServiceBusClient) -> None:
    """Without marks, so that no run finds out that the rows of another run were others."""
    await client.ensure_queue("unique", requires_duplicate_detection=True)
    ids = [b"%d" % number for number in range(1500)]
    await die_in_the_middle(client, Outbound(ids, ids), 1000, "unique", by_id=True)
    turned = ids[::-1]
    assert await write(client, [Outbound(turned, turned)], "unique", by_id=True) == WriteSummary(1500, 0, 1000, ())
    assert await contents(client, "unique") == list(range(1500))
    assert await stored_rows(client, "unique", "w") == 0


@pytest.mark.slow
async def test_a_topic_recognises_rows_by_their_ids_too(client: ServiceBusClient, url: str) -> None:
    async with ServiceBusAdministrationClient(url) as administration:
        await administration.create_topic("news", requires_duplicate_detection=True)
        await administration.create_subscription("news", "all")
    for ids in ([b"1", b"2"], [b"3", b"2", b"1"]):
        await write(client, [Outbound(ids, ids)], "news", by_id=True)
    assert await numbers_of(client, "all") == [1, 2, 3]


async def test_rows_are_not_recognised_by_their_ids_without_duplicate_detection(client: ServiceBusClient) -> None:
    ids = [b"1", b"2"]
    with pytest.raises(ValueError, match="'out' does not detect duplicates"):
        await write(client, [Outbound(ids, ids)], by_id=True)
    assert await contents(client) == []


@pytest.mark.slow
@pytest.mark.parametrize("ran", [False, True])
async def test_rows_with_ids_are_sent_again_if_the_outcome_is_unknown(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch, *, ran: bool
) -> None:
    await client.ensure_queue("unique", requires_duplicate_detection=True)
    lost = lose_answers(monkeypatch, 2, ran=ran)
    ids = [b"%d" % number for number in range(64)]
    assert await write(client, [Outbound(ids, ids)], "unique", by_id=True) == WriteSummary(64, 0, 64 * ran, ())
    assert lost == [64, 64]
    assert await contents(client, "unique") == list(range(64))


async def test_rows_with_ids_are_given_up_when_the_time_is_over(
    client: ServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.ensure_queue("unique", requires_duplicate_detection=True)
    lose_answers(monkeypatch, 1_000_000, ran=False)
    async with writer_of(client, "unique", by_id=True) as writer:
        for each in writer._writers:
            each._timeout = 1e-9
        await writer.write(Outbound([b"1"], [b"1"]))
        with pytest.raises(ServiceBusConnectionError, match="lost"):
            await writer.finish()


# -- refused rows ------------------------------------------------------------------------------------------------------


async def test_a_refused_row_fails_its_call_and_nothing_of_it_is_stored(client: ServiceBusClient) -> None:
    async with writer_of(client) as writer:
        await writer.write(bodies(0, 1))
        with pytest.raises(RowRefusedError, match=r"row 3: .* no body.*No row of this call was stored") as told:
            await writer.write(Outbound([b"2", None, b"4"]))
        assert (told.value.rows, told.value.entity, told.value.outcome) == ((3,), "out", Outcome.NEVER_SENT)
    assert await contents(client) == []


async def test_refused_rows_are_collected(client: ServiceBusClient) -> None:
    await client.ensure_queue("ordered", requires_session=True, max_message_size_in_kilobytes=1)
    rows = Outbound([b"0", b"1", b"2" * 2000, None, b"4"], session_id=[b"s", None, b"s", b"s", b"s"])
    async with writer_of(client, "ordered", refused="collect") as writer:
        refused = await writer.write(rows)
        assert refused == [
            Refusal(1, "the row has no session_id, and the entity requires sessions"),
            Refusal(2, "the message has 2005 bytes, and the entity takes messages of up to 1024 bytes"),
            Refusal(3, "the row has no body"),
        ]
        assert [each.row for each in await writer.write(rows)] == [6, 7, 8]
        assert await writer.finish() == WriteSummary(
            4, 0, 0, (*refused, *(each._replace(row=each.row + 5) for each in refused))
        )
    async with writer_of(client, "ordered", refused="collect") as writer:
        assert len(await writer.write(Outbound([None, None], session_id=[b"s", b"s"]))) == 2


async def test_a_limit_that_was_raised_meanwhile_counts(client: ServiceBusClient, url: str) -> None:
    await client.ensure_queue("small", max_message_size_in_kilobytes=1)
    async with writer_of(client, "small") as writer:
        await writer.write(bodies(1))
        async with ServiceBusAdministrationClient(url) as administration:
            queue = await administration.get_queue("small")
            queue.max_message_size_in_kilobytes = 10
            await administration.update_queue(queue)
        await writer.write(Outbound([b"2" * 5000]))
        await writer.finish()
    assert len(await messages(client, "small")) == 2


# -- topics ------------------------------------------------------------------------------------------------------------


async def numbers_of(client: ServiceBusClient, subscription: str) -> list[int]:
    async with client.get_subscription_receiver("news", subscription) as receiver:
        return sorted(int(bytes(message.body)) for message in await receiver.peek_messages(1000))


@pytest.mark.slow
async def test_rows_are_published_by_the_rules_of_a_topic(client: ServiceBusClient, url: str) -> None:
    """The rules change in the middle: each row is judged by the rules before or by the rules after the change."""
    async with ServiceBusAdministrationClient(url) as administration:
        await administration.create_topic("news", enable_partitioning=True)
        await administration.create_subscription("news", "all")
        await administration.create_subscription("news", "red")
        await administration.delete_rule("news", "red", "$Default")
        await administration.create_rule("news", "red", "red", filter=CorrelationRuleFilter(label="red"))
        rows = Outbound([b"%d" % number for number in range(100)], subject=[b"red", b"blue"] * 50)
        async with writer_of(client, "news") as writer:
            await writer.write(rows.rows(range(40)))
            await administration.create_rule("news", "red", "blue", filter=CorrelationRuleFilter(label="blue"))
            await writer.write(rows.rows(range(40, 100)))
            assert (await writer.finish()).stored == 100
        assert await write(client, [rows], "news") == WriteSummary(0, 100, 0, ())
        assert await numbers_of(client, "all") == list(range(100))
        assert await numbers_of(client, "red") == list(range(100))
        await administration.delete_subscription("news", "red")
        assert (await write(client, [rows], "news", batch=2)).stored == 100
        assert await numbers_of(client, "all") == sorted([*range(100)] * 2)


@pytest.mark.slow
async def test_a_call_does_not_make_too_many_copies(client: ServiceBusClient, url: str) -> None:
    async with ServiceBusAdministrationClient(url) as administration:
        await administration.create_topic("news")
        for number in range(30):
            await administration.create_subscription("news", str(number))
    assert (await write(client, [bodies(*range(900))], "news")).stored == 900
    assert await numbers_of(client, "29") == list(range(900))


# -- forgetting --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_the_stored_rows_of_a_writer_are_counted(client: ServiceBusClient) -> None:
    assert await stored_rows(client, "out", "w") == 0
    for task, count in enumerate((32, 5)):
        await write(client, [bodies(*range(count))], task=task)
    await write(client, [bodies(1, 2)], writer="w.x")
    assert await stored_rows(client, "out", "w") == 37
    assert await stored_rows(client, "out", "w.x") == 2
    assert await stored_rows(client, "out", "v") == 0


@pytest.mark.slow
async def test_a_forgotten_writer_stores_its_rows_again(client: ServiceBusClient) -> None:
    rows = [bodies(*range(32))]
    await write(client, rows)
    await write(client, rows, task=1)
    await write(client, rows, writer="w.x")
    assert await forget_writer(client, "out", "w") == 32
    assert await forget_writer(client, "out", "w") == 0
    assert (await write(client, rows)).stored == 32
    assert (await write(client, rows, writer="w.x")).known == 32


async def fill(client: ServiceBusClient, name: str, value: str, count: int = 10_000) -> None:
    """Let the partition of a queue keep so many watermarks."""
    async with client.get_queue_sender("one") as sender:
        for at in range(0, count, 100):
            async with client.transaction() as tx:
                for number in range(at, at + 100):
                    tx.advance(sender, f"{name}:{number}", value, expected=None)


MARKS = [("b", 170, True), ("s", 2400, False), ("b", 160, False), ("a", 2, True), ("a", 0, False)]


@pytest.mark.parametrize("target", ["server"], indirect=True)  # ten thousand marks take longest in memory
@pytest.mark.parametrize(
    ("kind", "hours", "room"), first(2, [pytest.param(*each) for each in MARKS], "each sets ten thousand marks")
)
async def test_old_marks_of_writers_that_have_ended_make_room(
    client: ServiceBusClient, kind: str, hours: int, *, room: bool
) -> None:
    await client.ensure_queue("one")
    before = round(time.time() * 1000) - hours * 3_600_000
    await fill(client, "bulk:old", f"1 {kind} 0 1 1 {'f' * 32} {before}")
    if not room:
        with pytest.raises(ServiceBusQuotaExceededError, match=r"were not stored\. Forget the writers that") as full:
            await write(client, [bodies(1)], "one")
        assert full.value.entity == "one"
        assert await contents(client, "one") == []
        assert await forget_writer(client, "one", "old") == 10_000
    assert (await write(client, [bodies(1)], "one")).stored == 1
    assert await forget_writer(client, "one", "old") == 0


# -- wrong calls -------------------------------------------------------------------------------------------------------


async def test_a_missing_entity_is_an_error(client: ServiceBusClient) -> None:
    with pytest.raises(MessagingEntityNotFoundError):
        await write(client, [bodies(1)], "nowhere")
    with pytest.raises(ValueError, match="refused must be 'fail' or 'collect'"):
        writer_of(client, refused="drop")
    with pytest.raises(ValueError, match="writer"):
        await forget_writer(client, "out", "a:b")
