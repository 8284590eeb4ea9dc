"""Tests of consuming: the messages of a reserved entity in batches, each of them exactly once."""

from __future__ import annotations

import asyncio
import gc
import json
import re
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from sbredis import ServiceBusClient
from sbredis.bulk import Awaited
from sbredis.exceptions import EntityReservedError, MessagesLostError, ReservationLostError, SparkSetupError
from sbredis.spark import _consume as consume
from sbredis.spark import _loop as loop
from sbredis.spark._consume import ConsumeReader
from sbredis.spark._options import parse_options
from sbredis.spark._query import Query
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import Row, bodies, query, rows_of, send
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
ALL = ReadAllAvailable()


class Run:
    """A query, from its start to its death: Spark's calls in Spark's order, over a checkpoint in memory."""

    def __init__(self, url: str, checkpoint: list[dict[str, Any]], **options: str) -> None:
        given = {"queue": "orders", "mode": "consume", "consumer": "capture", "minPollIntervalMs": "0", **options}
        self.reader = ConsumeReader(query(url, stream=True, **given))
        self.checkpoint = checkpoint
        """The stored offsets: the start of the stream, and the end of each batch."""
        self.limit: ReadLimit = self.reader.getDefaultReadLimit()

    def plan(self) -> bool:
        """Plan and store the next batch. Return whether there is one."""
        if not self.checkpoint:
            assert self.reader.initialOffset() == self.reader.initialOffset()
            self.checkpoint.append(stored(self.reader.initialOffset()))
        end = stored(self.reader.latestOffset(self.checkpoint[-1], self.limit))
        if not self.checkpoint[-1]["partitions"] and empty(end):
            self.checkpoint[:] = [end]  # Spark runs an empty batch, and stores its end
            return False
        if end == self.checkpoint[-1]:
            return False
        self.checkpoint.append(end)
        return True

    def read(self) -> list[Row]:
        """Read the last stored batch."""
        start, end = self.checkpoint[-2:]
        return rows_of(self.reader, self.reader.partitions(start, end))

    def batches(self) -> list[list[Row]]:
        found: list[list[Row]] = []
        while self.plan():
            found.append(self.read())
        return found


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(json.dumps(offset))
    return made


def empty(end: dict[str, Any]) -> bool:
    reached = {number: place["number"] for number, place in end["partitions"].items()}
    return reached == dict(end["began"])


def numbers(batches: list[list[Row]]) -> list[int]:
    return sorted(int(body) for rows in batches for body in bodies(rows))


def waiting(url: str, queue: str = "orders") -> int:
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        return administration.get_queue_runtime_properties(queue).active_message_count


def test_a_queue_is_drained_in_limited_batches_and_is_empty_at_the_end(url: str) -> None:
    send(url, "orders", map(str, range(100)))
    run = Run(url, [], maxMessagesPerTrigger="30")
    batches = run.batches()
    assert numbers(batches) == list(range(100))
    assert all(len(rows) <= 30 for rows in batches)
    assert waiting(url) == 0


def test_a_batch_that_is_read_again_has_the_same_rows(url: str) -> None:
    send(url, "orders", map(str, range(50)))
    checkpoint: list[dict[str, Any]] = []
    run = Run(url, checkpoint)
    assert run.plan()
    first = run.read()
    send(url, "orders", map(str, range(50, 60)))
    again = Run(url, checkpoint)
    assert again.read() == first == run.read()
    assert numbers(again.batches()) == list(range(50, 60))
    assert waiting(url) == 0


def test_a_run_that_dies_between_planning_and_storing_loses_nothing(url: str) -> None:
    send(url, "orders", map(str, range(40)))
    checkpoint: list[dict[str, Any]] = []
    dead = Run(url, checkpoint, maxMessagesPerTrigger="10")
    assert dead.plan()
    taken = [dead.read()]
    dead.reader.latestOffset(checkpoint[-1], dead.limit)  # Spark dies before it stores this
    later = Run(url, checkpoint, maxMessagesPerTrigger="10")
    assert numbers(taken + later.batches()) == list(range(40))


def test_an_earlier_run_is_fenced_off(url: str) -> None:
    send(url, "orders", map(str, range(10)))
    checkpoint: list[dict[str, Any]] = []
    earlier = Run(url, checkpoint)
    assert earlier.plan()
    later = Run(url, list(checkpoint))
    assert not later.plan()
    with pytest.raises(ReservationLostError):
        earlier.plan()


def test_other_receivers_and_other_consumers_are_refused_while_a_query_has_the_entity(url: str) -> None:
    send(url, "orders", ["1"])
    assert Run(url, []).plan()
    with pytest.raises(EntityReservedError, match="capture"):
        Run(url, [], consumer="another").plan()
    with (
        ServiceBusClient(url) as client,
        client.get_queue_receiver("orders", max_wait_time=1) as receiver,
        pytest.raises(EntityReservedError, match="capture"),
    ):
        receiver.receive_messages()


def test_a_stale_reservation_is_told_with_the_command_that_releases_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTHER_URL", url)
    send(url, "orders", ["1"])
    assert Run(url, []).plan()
    given = {"mode": "consume", "consumer": "another", "urlEnv": "OTHER_URL", "queue": "orders"}
    for stale_after, stale in (("1 h", False), ("0.000001", True)):
        options = parse_options({**given, "reservationStaleAfter": stale_after}, stream=True, write=False)
        reader = ConsumeReader(Query(given, options))
        with pytest.raises(EntityReservedError, match="capture") as raised:
            reader.latestOffset(reader.initialOffset(), ALL)
        release = "end it: python -m sbredis.spark release orders --url-env OTHER_URL"
        assert raised.value.message.endswith(release) is stale


def test_an_older_checkpoint_is_a_loss(url: str) -> None:
    send(url, "orders", map(str, range(30)))
    checkpoint: list[dict[str, Any]] = []
    batches = Run(url, checkpoint, maxMessagesPerTrigger="10").batches()
    assert len(batches) == 3
    with pytest.raises(MessagesLostError):
        Run(url, checkpoint[:2]).plan()
    send(url, "orders", ["99"])
    assert numbers(Run(url, checkpoint[:2], failOnDataLoss="false").batches()) == [99]


def test_an_entity_that_was_made_again_is_a_loss(url: str) -> None:
    send(url, "orders", map(str, range(5)))
    checkpoint: list[dict[str, Any]] = []
    Run(url, checkpoint).batches()
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.release_reservation("orders")
        administration.delete_queue("orders")
    send(url, "orders", ["7"])
    with pytest.raises(MessagesLostError, match="was deleted and created again since the checkpoint was written"):
        Run(url, checkpoint).plan()
    assert numbers(Run(url, checkpoint, failOnDataLoss="false").batches()) == [7]


def test_a_planned_batch_that_was_released_is_a_loss_until_the_loss_is_accepted(url: str) -> None:
    """Then the batch has the messages that are still there: nothing of it is removed unread."""
    send(url, "orders", map(str, range(20)), partitioned=False)
    checkpoint: list[dict[str, Any]] = []
    first = Run(url, checkpoint, maxMessagesPerTrigger="10")
    assert first.plan()
    taken = [first.read()]
    assert first.plan()  # and Spark dies before it reads this batch
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        assert administration.release_reservation("orders")
    with ServiceBusClient(url) as client, client.get_queue_receiver("orders") as receiver:
        received = receiver.receive_messages(3)
        for message in received:
            receiver.complete_message(message)
    with pytest.raises(MessagesLostError, match="the reservation was released since"):
        Run(url, checkpoint).read()
    later = Run(url, checkpoint, failOnDataLoss="false")
    taken.append(later.read())
    send(url, "orders", ["20"], partitioned=False)
    assert numbers(taken + later.batches()) == sorted({*range(21)} - {int(str(message)) for message in received})
    assert waiting(url) == 0


def test_a_planned_batch_of_an_entity_that_was_made_again_is_empty_if_the_loss_is_accepted(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(url, "orders", map(str, range(5)))
    checkpoint: list[dict[str, Any]] = []
    assert Run(url, checkpoint).plan()
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.release_reservation("orders")
        administration.delete_queue("orders")
    send(url, "orders", ["7"], partitioned=False)
    with pytest.raises(MessagesLostError, match="was deleted and created again"):
        Run(url, checkpoint).read()
    later = Run(url, checkpoint, failOnDataLoss="false")
    assert later.read() == []
    assert "accepts this loss: 'orders' was deleted and created again while the query read it" in caplog.text
    assert numbers(later.batches()) == [7]


def test_an_accepted_loss_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.create_queue("orders")
    checkpoint: list[dict[str, Any]] = []
    first = Run(url, checkpoint, maxMessagesPerTrigger="10")
    assert not first.plan()
    send(url, "orders", map(str, range(20)), partitioned=False)
    assert first.plan()
    assert first.plan()
    with pytest.raises(MessagesLostError) as raised:
        Run(url, checkpoint[:1]).plan()
    assert "accepts this loss" not in caplog.text
    assert Run(url, checkpoint[:1], failOnDataLoss="false").plan()
    accepted = next(text for text in caplog.messages if raised.value.message in text)
    assert re.match(r"'orders', partition \d+: failOnDataLoss=false accepts this loss: ", accepted)


@pytest.mark.parametrize("accepts", ["true", "false"])
def test_an_entity_that_is_released_and_made_again_during_a_query_is_reserved_again(
    url: str, accepts: str, caplog: pytest.LogCaptureFixture
) -> None:
    send(url, "orders", map(str, range(5)))
    run = Run(url, [], failOnDataLoss=accepts)
    assert run.plan()
    assert numbers([run.read()]) == list(range(5))
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        administration.release_reservation("orders")
        administration.delete_queue("orders")
    send(url, "orders", ["7", "8"], partitioned=False)
    if accepts == "true":
        with pytest.raises(MessagesLostError, match="'orders' was deleted and created again"):
            run.plan()
        return
    assert numbers(run.batches()) == [7, 8]
    assert waiting(url) == 0
    assert "accepts this loss: 'orders' was deleted and created again" in caplog.text


def test_messages_behind_a_locked_one_are_no_batch_and_the_stream_pauses(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock can come back while an entity is reserved, if a failover loses its completion."""
    send(url, "orders", map(str, range(5)), partitioned=False)
    monkeypatch.setattr(Awaited, "over", True)
    run = Run(url, [], minPollIntervalMs="1")
    run.reader._pacer.clock = float
    with ServiceBusClient(url) as client, client.get_queue_receiver("orders") as receiver:
        (first,) = receiver.receive_messages(1)
        for pause in (0.001, 0.002, 0.004):
            assert not run.plan()
            assert run.reader._pacer.left() == pause
        receiver.complete_message(first)
    assert numbers(run.batches()) == [1, 2, 3, 4]


def test_a_query_shows_signs_of_life_between_its_plans_until_it_ends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch or a trigger may take longer than a reservation without a call counts as alive."""
    monkeypatch.setattr(consume, "SHOWING_LIFE", 0.01)
    others = signs_of_life()
    send(url, "orders", ["1"])
    run = Run(url, [])
    assert run.plan()
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:

        def seen() -> datetime:
            (status,) = administration.list_reservations()
            assert status.last_seen is not None
            return status.last_seen

        for _ in range(2):
            before = seen()
            wait_until(lambda: seen() > before)  # noqa: B023 -- called at once
    assert len(signs_of_life() - others) == 1
    run.reader.stop()
    wait_until(lambda: signs_of_life() <= others)
    assert Run(url, run.checkpoint).reader.partitions(*run.checkpoint)
    gc.collect()
    wait_until(lambda: signs_of_life() <= others, what="the second reader is gone, and its signs of life with it")


def signs_of_life() -> set[asyncio.Task[Any]]:
    tasks = asyncio.all_tasks(loop._loop().loop)
    return {task for task in tasks if getattr(task.get_coro(), "__name__", "") == "_show_life"}


def test_a_checkpoint_of_another_entity_is_refused(url: str) -> None:
    send(url, "orders", ["1"])
    send(url, "invoices", ["2"])
    checkpoint: list[dict[str, Any]] = []
    assert Run(url, checkpoint).plan()
    with pytest.raises(SparkSetupError, match="The checkpoint belongs to 'orders', but the query reads 'invoices'"):
        Run(url, checkpoint, queue="invoices").plan()
    with ServiceBusAdministrationClient.from_connection_string(url) as administration:
        assert [each.path for each in administration.list_reservations()] == ["orders"]


def test_a_draining_query_ends_with_the_messages_that_were_there(url: str) -> None:
    send(url, "orders", map(str, range(20)))
    run = Run(url, [], maxMessagesPerTrigger="8")
    run.reader.prepareForTriggerAvailableNow()
    assert run.plan()
    taken = [run.read()]
    send(url, "orders", map(str, range(20, 40)))
    assert numbers(taken + run.batches()) == list(range(20))
    assert waiting(url) == 20


def test_a_query_waits_for_a_minimum_of_messages_unless_the_oldest_is_old(url: str) -> None:
    send(url, "orders", map(str, range(5)))
    checkpoint: list[dict[str, Any]] = []
    patient = Run(url, checkpoint, minMessagesPerTrigger="10")
    assert not patient.plan()
    assert waiting(url) == 5
    assert numbers(Run(url, checkpoint, minMessagesPerTrigger="10", maxTriggerDelay="0").batches()) == list(range(5))


def test_the_progress_says_how_much_is_left(url: str) -> None:
    send(url, "orders", map(str, range(30)))
    run = Run(url, [], maxMessagesPerTrigger="10")
    assert run.plan()
    progress = run.reader.reportLatestOffset()
    assert progress is not None
    assert progress["messagesLeft"] == 20
    assert progress["oldestEnqueuedTime"] > 0
