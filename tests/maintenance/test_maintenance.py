"""Publishing scheduled messages of topics: by one client at a time, with the current rules, and never twice."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.client import ROUTE, Role, RoleKeeper
from sbredis.client._claiming import Standing
from sbredis.client._routing import Judge
from sbredis.engine import Outgoing, perform
from sbredis.exceptions import MessageNotFoundError, MessagingEntityNotFoundError, Outcome, ServiceBusConnectionError
from sbredis.maintenance import TopicPublisher
from sbredis.maintenance import _publishing as aside
from sbredis.maintenance import _publishing as publishing
from sbredis.maintenance._publishing import Unpublishable
from sbredis.maintenance._routing import RoutingDuty
from sbredis.maintenance._visiting import Visitor
from sbredis.management import RuleProperties, SqlRuleAction, SqlRuleFilter
from sbredis.model import ServiceBusMessage, outgoing
from sbredis.servers import LocalServer
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, Calls, HandClock, Queue, bodies, both, in_memory
from tests.aio.scissors import Scissors
from tests.aio.topics import Subject, soon, topic_at
from tests.waiting import eventually

pytestmark = pytest.mark.everywhere("what is scheduled on a topic waits on several nodes")

on_one_server = pytest.mark.parametrize(("target", "partitioned"), [("server", True)], indirect=["target"])
"""For tests of the client's log that wait for seconds."""


def loop_time() -> float:
    return asyncio.get_running_loop().time()


@asynccontextmanager
async def maintained(subject: Subject) -> AsyncIterator[ServiceBusClient]:
    """Open another client that offers to maintain the namespace."""
    async with subject.other_client(maintenance=True) as client:
        yield client


def routing_of(client: ServiceBusClient) -> RoutingDuty:
    offer = client._offer.maintenance
    assert offer is not None
    duty = offer.duties[ROUTE]
    assert isinstance(duty, RoutingDuty)
    return duty


def keeper_of(client: ServiceBusClient) -> RoleKeeper:
    offer = client._offer.maintenance
    assert offer is not None
    return offer.keeper(ROUTE)


def holds(*clients: ServiceBusClient) -> list[bool]:
    return [keeper_of(client).standing.held for client in clients]


async def kill_client(client: ServiceBusClient) -> None:
    """Close a client as if its process were killed, so that it makes no more calls."""
    connection = client._connection

    async def silence(*_: Any, **__: Any) -> Any:
        raise ServiceBusConnectionError("The process is dead.", outcome=Outcome.NEVER_SENT)

    divert(connection.transport, silence)
    connection.transport.command = silence  # type: ignore[method-assign]
    await client.close()


# -- publishing --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
@pytest.mark.parametrize("way", ["schedule", "property", "stream", "batch"])
async def test_a_scheduled_message_is_published_when_it_is_due(url: str, partitioned: bool, way: str) -> None:
    """This also holds for a topic created after the client took the role, without waiting for the next listing."""
    async with topic_at(url, partitioned=partitioned, maintenance=True) as subject, subject.other_client() as other:
        await eventually(lambda: holds(subject.client) == [True])
        await subject.admin.create_topic("new", enable_partitioning=partitioned)
        for name in ("one", "two"):
            await subject.admin.create_subscription("new", name)
        begun = loop_time()
        async with other.get_topic_sender("new") as sender:
            when = soon()
            messages = [ServiceBusMessage(text, session_id="s", scheduled_enqueue_time_utc=when) for text in "123"]
            if way == "schedule":
                numbers = await sender.schedule_messages(messages, when)
                assert len(set(numbers)) == 3
            elif way == "property":
                await sender.send_messages(messages)
            elif way == "stream":
                await sender.send_stream(messages)
            else:
                batch = await sender.create_message_batch()
                for message in messages:
                    batch.add_message(message)
                await sender.send_messages(batch)
        for name in ("one", "two"):
            async with other.get_subscription_receiver("new", name) as receiver:
                received = [await anext(receiver) for _ in range(3)]
                assert sorted(bodies(received)) == ["1", "2", "3"]
                assert all(each.enqueued_time_utc >= when for each in received)
                assert all(each.scheduled_enqueue_time_utc is not None for each in received)
        assert loop_time() - begun < 20


@pytest.mark.slow
@both
async def test_a_scheduled_message_is_judged_by_the_rules_that_exist_at_its_due_time(
    url: str, partitioned: bool
) -> None:
    rules = {"one": [RuleProperties("r", filter=SqlRuleFilter("n = 1"))], "gone": None}
    async with topic_at(url, rules, partitioned=partitioned) as subject, subject.sender() as sender:
        given: dict[Any, Any] = {"n": 1}
        await sender.schedule_messages(ServiceBusMessage("x", application_properties=given), soon(2))
        await subject.admin.update_rule(
            "t", "one", {"name": "r", "filter": SqlRuleFilter("n > 0"), "action": SqlRuleAction("SET mark = n + 1")}
        )
        await subject.admin.delete_subscription("t", "gone")
        await subject.create({"later": None})
        async with maintained(subject):
            await subject.wait_for_count("later", 1)
            await subject.wait_for_count("one", 1)
        (message,) = await subject.take_all("one")
        assert message.application_properties == {"n": 1, "mark": 2, "RuleName": "r"}
        assert await subject.take_bodies("later") == ["x"]
        assert await subject.scheduled() == 0


@pytest.mark.slow
@both
async def test_a_scheduled_message_is_cancelled_by_its_sequence_number(url: str, partitioned: bool) -> None:
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject, subject.sender() as sender:
        numbers = [
            (await sender.schedule_messages([ServiceBusMessage(text)], soon(3600)))[0] for text in ("1", "2", "3")
        ]
        assert len(set(numbers)) == 3
        await sender.cancel_scheduled_messages(numbers[:2])
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers[0])
        assert await subject.scheduled() == 1
        numbers += await sender.schedule_messages([ServiceBusMessage("4")], soon(0.2))
        async with maintained(subject):
            await subject.wait_for_count("one", 1)
        with pytest.raises(MessageNotFoundError):
            await sender.cancel_scheduled_messages(numbers[3])
        assert await subject.take_bodies("one") == ["4"]
        assert await subject.scheduled() == 1


# -- messages that cannot be published ---------------------------------------------------------------------------------


class Trouble:
    """Rules that raise errors on messages with the property ``odd`` while the trouble lasts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lasts = True
        self.met = 0
        judge = Judge.judge

        def broken(judging: Judge, facts: Any) -> Any:
            if self.lasts and facts.names.get("odd"):
                self.met += 1
                raise ZeroDivisionError("oh")
            return judge(judging, facts)

        monkeypatch.setattr(Judge, "judge", broken)


async def schedule_at(subject: Subject, *texts: str, odd: bool = False, at: int = 0, size: int = 0) -> list[int]:
    """Schedule messages in one partition for the near future."""
    topic = await subject.queue_of()
    numbers: list[int] = []
    for text in texts:
        message = ServiceBusMessage(text.rjust(size), application_properties={"odd": True} if odd else None)
        made = outgoing(message, detects_duplicates=False)._replace(due=in_a_moment())
        numbers += await put(topic, made, at=at)
    return numbers


def in_a_moment() -> int:
    return round(soon(0.3).timestamp() * 1000)


async def put(topic: Queue, made: Outgoing, *, at: int = 0) -> list[int]:
    sent = await perform(topic.transport, topic.partitions[at].publish(topic.call_id, [made], [()], []))
    return [topic.entity.base(topic.entity.numbers[at]) + sent.first]


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [
        record.getMessage()
        for record in caplog.records
        if record.name == "sbredis.maintenance" and record.levelno >= logging.ERROR
    ]


def visits_of(client: ServiceBusClient) -> Visitor:
    return routing_of(client).visitor


async def publisher_at(client: ServiceBusClient, subject: Subject) -> TopicPublisher:
    """Return what publishes in the first partition of the topic; new unless it has set messages aside."""
    entity = await client._connection.entity("t", loop_time() + 60)
    return routing_of(client)._work.publishing.publisher(entity, (await subject.queue_of()).entity.numbers[0])


def is_at_rest(client: ServiceBusClient, seconds: float) -> bool:
    """Return whether a client makes no visit by itself for this number of seconds."""
    first = visits_of(client).agenda._due.earliest()
    return not visits_of(client)._jobs and (first is None or first[0] > routing_of(client)._work.clock() + seconds)


@pytest.mark.slow
@both
async def test_a_message_on_which_the_rules_fail_stays_scheduled_and_blocks_no_other(
    url: str, partitioned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Other messages of the same call and later messages are published. The error is logged once."""
    timings = replace(PATIENT, publishing_again=(1.0, 1.0))
    trouble = Trouble(monkeypatch)
    async with topic_at(url, {"one": None, "two": None}, partitioned=partitioned, timings=timings) as subject:
        (number,) = await schedule_at(subject, "odd", odd=True)
        await schedule_at(subject, *"abcd")
        async with maintained(subject) as holder:
            for name in ("one", "two"):
                await subject.wait_for_count(name, 4)
            await schedule_at(subject, *"efg")
            await subject.wait_for_count("two", 7)
            publisher = await publisher_at(holder, subject)
            await eventually(lambda: is_at_rest(holder, 0.5))  # the client does not loop without a pause
            met = trouble.met
            await eventually(lambda: trouble.met > met)
            assert await subject.scheduled() == 1
            (complaint,) = complaints(caplog)
            assert complaint.startswith(
                f"{publisher.partition_client}: the scheduled message {number} cannot be published"
            )
            assert complaint.endswith("ZeroDivisionError: oh")
            trouble.lasts = False
            await subject.wait_for_count("one", 8)
        assert await subject.scheduled() == 0
        assert sorted(set(await subject.take_bodies("two"))) == [*"abcdefg", "odd"]
        assert "failed because of a defect" not in caplog.text


@pytest.mark.slow
@in_memory
async def test_a_message_that_could_not_be_published_is_retried_when_the_rules_change(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trouble = Trouble(monkeypatch)
    async with topic_at(url, {"one": None}, timings=replace(PATIENT, publishing_again=(3600.0, 3600.0))) as subject:
        await schedule_at(subject, "odd", odd=True)
        async with maintained(subject):
            await eventually(lambda: trouble.met)
            trouble.lasts = False
            await subject.create({"two": None})
            await subject.wait_for_count("one", 1)
            await subject.wait_for_count("two", 1)


@pytest.mark.slow
@both
async def test_messages_after_many_unpublishable_ones_are_published(
    url: str, partitioned: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """There are more unpublishable messages than a call requests, and they have more bytes than a call returns."""
    monkeypatch.setattr(publishing, "_MOST_READ", 3)
    Trouble(monkeypatch)
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject:
        await schedule_at(subject, *(f"odd {number}" for number in range(7)), odd=True, size=900_000)
        await schedule_at(subject, *"abcdefgh")
        await schedule_at(subject, "large", size=1_000_000)
        async with maintained(subject):
            await subject.wait_for_count("one", 9)
            assert await subject.scheduled() == 7
        assert len(complaints(caplog)) == 7


@pytest.mark.slow
@both
async def test_an_unreadable_message_stays_scheduled_and_can_be_cancelled(
    url: str, partitioned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    timings = replace(PATIENT, publishing_again=(0.5, 0.5))
    async with (
        topic_at(url, {"one": None}, partitioned=partitioned, timings=timings) as subject,
        subject.sender() as sender,
    ):
        (number,) = await put(await subject.queue_of(), Outgoing(b"\x7fwhat is this", due=in_a_moment()))
        await schedule_at(subject, *"ab")
        async with maintained(subject) as holder:
            await subject.wait_for_count("one", 2)
            assert await subject.scheduled() == 1
            publisher = await publisher_at(holder, subject)
            await eventually(lambda: complaints(caplog))
            (complaint,) = complaints(caplog)
            assert f"{publisher.partition_client}: the scheduled message {number} cannot be published" in complaint
            assert "DataLayoutError" in complaint
            await sender.cancel_scheduled_messages(number)
            await schedule_at(subject, "c")
            await subject.wait_for_count("one", 3)
            await eventually(lambda: not publisher.troubled)
        assert await subject.take_bodies("one") == list("abc")
        assert len(complaints(caplog)) == 1


@pytest.mark.slow
@in_memory
async def test_too_many_unpublishable_messages_do_not_cause_a_busy_loop(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages that were read together with the unpublishable ones are still published.

    The test waits for a real pause, which is the same on every server.
    """
    monkeypatch.setattr(aside, "_MOST", 2)
    trouble = Trouble(monkeypatch)
    async with topic_at(url, {"one": None}) as subject:
        await schedule_at(subject, *(f"odd {number}" for number in range(5)), odd=True)
        await schedule_at(subject, *"abc")
        async with maintained(subject) as holder:
            await subject.wait_for_count("one", 3)
            publisher = await publisher_at(holder, subject)
            await eventually(lambda: is_at_rest(holder, 5))
            assert await subject.scheduled() == 5
            assert sum("cannot be published;" in text for text in complaints(caplog)) == 2
            assert sum("too many earlier messages" in text for text in complaints(caplog)) == 1
            trouble.lasts = False
            publisher._unpublishable = Unpublishable(PATIENT.publishing_again)
            await subject.wait_for_count("one", 8)


@pytest.mark.slow
@in_memory
async def test_judging_a_large_message_does_not_block_the_event_loop(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this test the judging of the message ends only after the event loop has sent and received another message."""
    begun, goes_on = threading.Event(), threading.Event()
    judge, waited = Judge.judge, list[bool]()

    def slow(judging: Judge, facts: Any) -> Any:
        if "large" in facts.names:
            begun.set()
            waited.append(goes_on.wait(60))
        return judge(judging, facts)

    monkeypatch.setattr(Judge, "judge", slow)
    names = [f"s{number}" for number in range(50)]
    async with topic_at(url, dict.fromkeys(names)) as subject, subject.sender() as sender:
        topic = await subject.queue_of()
        message = ServiceBusMessage("x" * 100_000, application_properties={"large": True})
        await put(topic, outgoing(message, detects_duplicates=False)._replace(due=in_a_moment()))
        async with maintained(subject):
            await eventually(begun.is_set)
            await sender.send_messages(ServiceBusMessage("small"))
            assert await subject.take_bodies("s0") == ["small"]
            assert await subject.scheduled() == 1
            goes_on.set()
            await subject.wait_for_count("s0", 1)
            await subject.wait_for_count("s49", 2)
            assert waited == [True]
        assert await subject.scheduled() == 0


# -- holding the role --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_another_client_takes_over_after_the_holder_is_killed(url: str, partitioned: bool) -> None:
    timings = replace(PATIENT, claiming=0.6)
    async with (
        topic_at(url, {"one": None}, partitioned=partitioned, timings=timings) as subject,
        subject.sender() as sender,
    ):
        first = subject.other_client(maintenance=True)
        await first._connection.open(loop_time() + 60)
        await eventually(lambda: holds(first) == [True])
        async with maintained(subject) as second:
            await eventually(lambda: keeper_of(second).standing.seconds > 0)
            await sender.schedule_messages(ServiceBusMessage("1"), soon(0.5))
            await kill_client(first)
            await eventually(lambda: holds(second) == [True])
            await subject.wait_for_count("one", 1)
            # The killed client is still registered at the partitions, which would wake it before the second client.
            await wait_until_at_rest(second)
            begun = loop_time()
            await sender.schedule_messages(ServiceBusMessage("2"), soon(0.3))
            await subject.wait_for_count("one", 2)
            assert loop_time() - begun < 20
        assert await subject.take_bodies("one") == ["1", "2"]


async def wait_until_at_rest(client: ServiceBusClient) -> None:
    """Wait until a client knows what will be due, and will visit nothing by itself for a while."""
    await eventually(lambda: visits_of(client).at_rest and is_at_rest(client, 20))


@pytest.mark.slow
@both
async def test_two_clients_that_both_believe_they_hold_the_role_publish_once(
    url: str, partitioned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One client was stopped until the other had taken over. The partitions refuse calls with the old fence of the
    first client.
    """

    async def claim(self: Role, seconds: float = 10.0, **options: Any) -> Standing:
        standing = await real(self, seconds, **options)
        return standing if standing.held else Standing(dict.fromkeys(range(3), fences.setdefault(id(self), 1)), seconds)

    real, fences = Role.claim, dict[int, int]()
    monkeypatch.setattr(Role, "claim", claim)
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject, subject.sender() as sender:
        async with maintained(subject) as first, maintained(subject) as second:
            await eventually(lambda: holds(first, second) == [True, True])
            for round_ in range(5):
                when = soon(0.1)
                texts = [str(number) for number in range(round_ * 40, round_ * 40 + 40)]
                await asyncio.gather(
                    *(sender.send_messages(ServiceBusMessage(text, scheduled_enqueue_time_utc=when)) for text in texts)
                )
                await subject.wait_for_count("one", round_ * 40 + 40)
        assert Counter(await subject.take_bodies("one")) == Counter(str(number) for number in range(200))


@on_one_server
async def test_scheduling_without_a_maintenance_client_warns_once(
    url: str, partitioned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def warnings() -> int:
        return sum("maintenance=True" in record.getMessage() for record in caplog.records)

    clock = HandClock()
    due = datetime.fromtimestamp(clock.utc() + 5, UTC)
    async with topic_at(url, {"one": None}, partitioned=partitioned, clock=clock) as subject:
        with caplog.at_level(logging.WARNING, "sbredis.client"):
            for options in ({}, {"client_identifier": "another"}):
                async with subject.sender(**options) as sender:
                    await sender.schedule_messages(ServiceBusMessage("x"), due)
                    await sender.send_messages(ServiceBusMessage("y", scheduled_enqueue_time_utc=due))
            await eventually(lambda: warnings() == 1)
        assert await subject.scheduled() == 4
        assert await subject.take_bodies("one") == []
        async with maintained(subject):
            clock.move(6)
            await subject.wait_for_count("one", 4)
        assert warnings() == 1


@on_one_server
async def test_scheduling_with_a_maintenance_client_does_not_warn(
    url: str, partitioned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject, maintained(subject) as holder:
        await eventually(lambda: holds(holder) == [True])
        with caplog.at_level(logging.WARNING, "sbredis.client"), Calls(subject.client._connection.transport) as calls:
            async with subject.sender() as sender:
                await sender.schedule_messages(ServiceBusMessage("x"), soon(60))
            await eventually(lambda: calls.by_script["hold_role"] and not calls.under_way)
        assert not [record for record in caplog.records if "maintenance=True" in record.getMessage()]


# -- deleted topics and lost connections -------------------------------------------------------------------------------


@pytest.mark.slow
@both
async def test_a_deleted_topic_is_no_longer_watched_but_its_successor_is(url: str, partitioned: bool) -> None:
    async with topic_at(url, {"one": None}, partitioned=partitioned) as subject, maintained(subject) as holder:
        entity = await subject.client._connection.entity("t", loop_time() + 60)
        await eventually(lambda: visits_of(holder).agenda.knows(entity.record.id))
        async with subject.sender() as sender:
            await sender.schedule_messages(ServiceBusMessage("lost"), soon(0.5))
        await subject.admin.delete_topic("t")
        await eventually(lambda: not visits_of(holder).agenda.knows(entity.record.id))
        for again in (partitioned, not partitioned):
            await subject.admin.create_topic("t", enable_partitioning=again)
            await subject.create({"one": None})
            async with subject.other_client() as client, client.get_topic_sender("t") as sender:
                await sender.schedule_messages(ServiceBusMessage("new"), soon(0.2))
            await subject.wait_for_count("one", 1)
            if again is partitioned:
                await subject.admin.delete_topic("t")
    with pytest.raises((ValueError, MessagingEntityNotFoundError)):
        await subject.scheduled()


@both
async def test_a_message_is_published_once_although_publish_calls_get_no_answer(
    server: LocalServer, partitioned: bool
) -> None:
    clock = HandClock()
    due = datetime.fromtimestamp(clock.utc() + 5, UTC)
    async with (
        topic_at(server.url, {"one": None}, partitioned=partitioned, clock=clock) as subject,
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns", maintenance=True, _clock=clock) as holder,
        subject.sender() as sender,
    ):
        await eventually(lambda: holds(holder) == [True])
        network.cut("publish", 2)
        await asyncio.gather(
            *(
                sender.send_messages(ServiceBusMessage(str(number), scheduled_enqueue_time_utc=due))
                for number in range(50)
            )
        )
        clock.move(6)
        await subject.wait_for_count("one", 50)
        await eventually(lambda: network.cuts == 2)
        assert Counter(await subject.take_bodies("one")) == Counter(map(str, range(50)))
