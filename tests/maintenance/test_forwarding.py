"""Forwarding with real flows: a client with maintenance moves messages between entities of every kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Final

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import MOVE, Timings
from sbredis.client import _routing as routing
from sbredis.engine import perform
from sbredis.exceptions import Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.maintenance import DutyResources, Mover
from sbredis.maintenance._moving import MovingDuty, destinations_of
from sbredis.management import RuleProperties, SqlRuleAction, SqlRuleFilter
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.moving import Carrier
from sbredis.transport import Transport
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, HandClock
from tests.engine.opening import open_with_scripts
from tests.waiting import eventually

BRIEF_CLAIMS: Final = replace(PATIENT, claiming=0.3)
"""Another mover need not wait for long when a mover was killed."""


class Flow:
    """A client, an administration client, and their namespace."""

    def __init__(
        self, url: str, client: ServiceBusClient, admin: ServiceBusAdministrationClient, clock: HandClock | None
    ) -> None:
        self.url = url
        self.clock = clock
        self.client = client
        self.admin = admin

    @asynccontextmanager
    async def mover(self) -> AsyncIterator[ServiceBusClient]:
        """Open a client that moves messages, and wait until it does."""
        async with self.other_client(maintenance=True) as client:
            duty = moving_of(client)
            await eventually(lambda: duty.visitor.at_rest)
            yield client

    def other_client(self, **options: Any) -> ServiceBusClient:
        timings = self.client._connection.timings
        return ServiceBusClient(self.url, namespace="ns", _clock=self.clock, _timings=timings, **options)

    async def send(self, name: str, *messages: Any) -> None:
        async with self.client.get_queue_sender(name) as sender:
            for message in messages:
                await sender.send_messages(message if isinstance(message, ServiceBusMessage) else text(message))

    async def send_to_a_deleted_queue(self, *messages: ServiceBusMessage) -> None:
        """Let a transaction of the queue "home" send messages to the queue "to", which is deleted then."""
        await self.transfer(*messages)
        await self.admin.delete_queue("to")

    async def transfer(self, *messages: ServiceBusMessage) -> None:
        """Let a transaction of the queue "home" send messages to the queue "to"."""
        for name in ("home", "to"):
            await self.admin.create_queue(name)
        async with (
            self.client.get_queue_sender("home") as home,
            self.client.get_queue_sender("to") as to,
            self.client.transaction() as tx,
        ):
            tx.send_messages(home, text("home"))
            tx.send_messages(to, [*messages])

    async def nothing_waits(self, *names: str) -> None:
        """Wait until these queues have no message to move. One that has arrived may still be in its source too."""
        waiting = set(names)

        async def none() -> bool:
            for name in list(waiting):
                if not (await self.admin.get_queue_runtime_properties(name)).transfer_message_count:
                    waiting.discard(name)
            return not waiting

        await eventually(none)

    async def take(self, count: int, name: str, **options: Any) -> list[ServiceBusReceivedMessage]:
        """Receive and complete this number of messages."""
        found: list[ServiceBusReceivedMessage] = []
        path = name.split("/")
        made = (
            self.client.get_queue_receiver(name, **options)
            if len(path) == 1
            else self.client.get_subscription_receiver(path[0], path[1], **options)
        )
        async with made as receiver:
            while len(found) < count:
                page = await receiver.receive_messages(count - len(found), max_wait_time=60)
                assert page, f"{len(found)} of {count} messages came to {name}"
                for message in page:
                    await receiver.complete_message(message)
                found += page
        return found


def text(body: str, **options: Any) -> ServiceBusMessage:
    return ServiceBusMessage(body, **options)


def bodies(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return [str(message) for message in messages]


def soon() -> float:
    return asyncio.get_running_loop().time() + 60


async def shared_of(client: ServiceBusClient) -> DutyResources:
    """Return what the duties of a client share, for a client that maintains nothing."""
    connection = client._connection
    await connection.open(soon())
    return DutyResources.of(connection)


def moving_of(client: ServiceBusClient) -> MovingDuty:
    offer = client._offer.maintenance
    assert offer is not None
    duty = offer.duties[MOVE]
    assert isinstance(duty, MovingDuty)
    return duty


@asynccontextmanager
async def flow_at(
    url: str, partitions: int = 3, clock: HandClock | None = None, timings: Timings = PATIENT
) -> AsyncIterator[Flow]:
    before = asyncio.all_tasks()
    async with (
        ServiceBusClient(url, namespace="ns", slot_count=partitions, _clock=clock, _timings=timings) as client,
        ServiceBusAdministrationClient(url, namespace="ns", _clock=clock, _timings=timings) as admin,
    ):
        yield Flow(url, client, admin, clock)
    left = asyncio.all_tasks() - before
    assert not left, f"left behind: {left}"


@pytest.mark.everywhere("messages move between nodes")
async def test_a_queue_forwards_its_messages(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        async with flow.mover():
            await flow.send("from", "a", "b", "c")
            assert bodies(await flow.take(3, "to")) == ["a", "b", "c"]


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "partitioned": {"enable_partitioning": True},
    "sessions": {"requires_session": True},
    "partitioned sessions": {"requires_session": True, "enable_partitioning": True},
    "duplicates": {"requires_duplicate_detection": True},
    "partitioned duplicates": {"requires_duplicate_detection": True, "enable_partitioning": True},
}


@pytest.mark.slow
@pytest.mark.parametrize("source", KINDS)
async def test_messages_reach_entities_of_every_kind(url: str, source: str) -> None:
    """The order within a key is kept, and a message without a session goes to the dead-letter queue of its source."""
    no_session = [] if KINDS[source].get("requires_session") else [text("none", message_id="m")]
    async with flow_at(url) as flow:
        for kind, options in KINDS.items():
            to = f"to-{kind.replace(' ', '-')}"
            await flow.admin.create_queue(to, **options)
            await flow.admin.create_queue(f"from-{to}", forward_to=to, **KINDS[source])
        async with flow.mover():
            for kind in KINDS:
                to = f"to-{kind.replace(' ', '-')}"
                messages = [text(f"{key}{number}", session_id=key) for number in range(3) for key in "xy"]
                await flow.send(f"from-{to}", *messages, *no_session)
            for kind, options in KINDS.items():
                to = f"to-{kind.replace(' ', '-')}"
                sessions = options.get("requires_session", False)
                for key in "xy" if sessions else [""]:
                    chosen = {"session_id": key} if sessions else {}
                    found = await flow.take(3 if sessions else 6 + len(no_session), to, **chosen)
                    for each in [key] if sessions else "xy":
                        assert [str(one) for one in found if one.session_id == each] == [f"{each}{n}" for n in range(3)]
                    assert all(one.enqueued_sequence_number != 0 for one in found)
                if sessions and no_session:
                    (dead,) = await flow.take(1, f"from-{to}", sub_queue="deadletter")
                    assert (str(dead), dead.dead_letter_reason) == ("none", "Session ID is null.")


@pytest.mark.slow
@pytest.mark.parametrize("near", [True, False], ids=["one slot", "two slots"])
async def test_sessions_of_an_entity_that_forwards_end_with_their_messages(url: str, near: bool) -> None:
    """Its receivers are refused. What its destination does not take is a dead letter, or free again in its session."""
    async with flow_at(url, partitions=1 if near else 3) as flow:
        await flow.admin.create_queue("to", status="SendDisabled")
        await flow.admin.create_queue("from", requires_session=True, forward_to="to")
        for session in ("x", NEXT_AVAILABLE_SESSION):
            with pytest.raises(ServiceBusError, match="auto-forwarding enabled"):
                await flow.client.get_queue_receiver("from", session_id=session).receive_messages(max_wait_time=1)
        await flow.send("from", *[text(f"{key}{number}", session_id=key) for number in range(2) for key in "xy"])
        async with flow.mover():
            dead = await flow.take(4, "from", sub_queue="deadletter")
        assert [(str(each), each.dead_letter_reason) for each in dead] == [
            (body, "MessagingEntityDisabled") for body in ("x0", "y0", "x1", "y1")
        ]
        assert [each async for each in flow.client.list_queue_sessions("from")] == []
        await flow.admin.update_queue({"name": "from"}, forward_to=None)
        await flow.send("from", text("x2", session_id="x"))
        assert [each async for each in flow.client.list_queue_sessions("from")] == ["x"]
        assert bodies(await flow.take(1, "from", session_id="x")) == ["x2"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
async def test_a_key_chooses_the_partition_of_the_destination(url: str, kind: str) -> None:
    """A message that was forwarded is in the partition to which a sender would send it."""
    async with flow_at(url) as flow:
        for name in ("to", "sent"):
            await flow.admin.create_queue(name, **KINDS["partitioned duplicates"])
        await flow.admin.create_queue("from", forward_to="to", **KINDS[kind])
        keys: list[dict[str, Any]] = [{"partition_key": f"k{number}"} for number in range(6)]
        keys += [{"message_id": f"m{number}"} for number in range(6)]
        async with flow.mover():
            for number, key in enumerate(keys):
                await flow.send("from", text(str(number), **key))
                await flow.send("sent", text(str(number), **key))
            places: list[dict[str, int]] = []
            for name in ("to", "sent"):
                found = await flow.take(len(keys), name)
                places.append({str(one): (one.sequence_number or 0) >> 48 for one in found})
            assert places[0] == places[1]
            assert len(set(places[0].values())) == 3


@pytest.mark.parametrize("count", [2, 3])
async def test_messages_without_a_key_go_to_the_next_partition_around_the_slots(url: str, count: int) -> None:
    """So the messages of a partitioned queue are spread over the partitions of the next one."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to", partition_count=count, **KINDS["partitioned"])
        await flow.admin.create_queue("from", forward_to="to", **KINDS["partitioned"])
        numbers = (await flow.client._connection.namespace.get_entity("to")).partitions
        async with flow.mover():
            await flow.send("from", *(str(number) for number in range(12)))
            found = await flow.take(12, "to")
        places = [((one.enqueued_sequence_number or 0) >> 48, (one.sequence_number or 0) >> 48) for one in found]
        assert {before for before, _ in places} == {0, 1, 2}
        assert {after for _, after in places} == set(numbers)
        around = [*numbers, *(number + 3 for number in numbers)]
        assert all(after == min(number for number in around if number >= before) % 3 for before, after in places)


async def test_duplicates_are_dropped_at_the_destination(url: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to", **KINDS["duplicates"])
        await flow.admin.create_queue("from", forward_to="to")
        async with flow.mover():
            for body in ("first", "second"):
                await flow.send("from", text(body, message_id="same"))
            await flow.send("from", "last")
            assert bodies(await flow.take(2, "to")) == ["first", "last"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "partitioned"])
async def test_a_subscription_forwards_to_a_topic_whose_rules_decide(url: str, kind: str) -> None:
    """Properties that an action of the first topic has changed are judged by the rules of the second topic."""
    async with flow_at(url) as flow:
        for topic in ("first", "second"):
            await flow.admin.create_topic(topic, **KINDS[kind])
        await flow.admin.create_subscription("first", "s", forward_to="second")
        await flow.admin.create_rule(
            "first", "s", "r", filter=SqlRuleFilter("n > 0"), action=SqlRuleAction("SET n = n + 1")
        )
        await flow.admin.delete_rule("first", "s", "$Default")
        await flow.admin.create_subscription(
            "second", "two", rules=[RuleProperties("r", filter=SqlRuleFilter("n = 2"))]
        )
        await flow.admin.create_subscription("second", "all")
        async with flow.mover(), flow.client.get_topic_sender("first") as sender:
            for number in range(3):
                await sender.send_messages(text(str(number), application_properties={"n": number}))
            assert sorted(bodies(await flow.take(2, "second/all"))) == ["1", "2"]
            assert bodies(await flow.take(1, "second/two")) == ["1"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "partitioned", "sessions"])
async def test_dead_letters_are_forwarded_with_their_reason(url: str, kind: str) -> None:
    async with flow_at(url) as flow:
        await flow.admin.create_queue("graves")
        await flow.admin.create_queue("from", forward_dead_lettered_messages_to="graves", **KINDS[kind])
        async with flow.mover():
            await flow.send("from", text("first", session_id="s"), text("a", session_id="s"))
            options: dict[str, Any] = {"session_id": "s"} if kind == "sessions" else {}
            async with flow.client.get_queue_receiver("from", **options) as receiver:
                first, message = [(await receiver.receive_messages(max_wait_time=60))[0] for _ in range(2)]
                await receiver.complete_message(first)
                await receiver.dead_letter_message(message, reason="Broken", error_description="on purpose")
            (dead,) = await flow.take(1, "graves")
            assert (str(dead), dead.dead_letter_source) == ("a", "from")
            assert dead.dead_letter_source_sequence_number == message.sequence_number
            assert dead.enqueued_sequence_number == message.sequence_number
            assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Broken", "on purpose")
            assert dead.application_properties == {
                "DeadLetterReason": "Broken",
                "DeadLetterErrorDescription": "on purpose",
            }


@pytest.mark.slow
async def test_a_message_makes_four_hops_at_most(url: str) -> None:
    """A chain that was made longer after its creation stops the message in the fifth entity."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("q5")
        for number in range(4, -1, -1):
            await flow.admin.create_queue(f"q{number}", forward_to=None if number == 4 else f"q{number + 1}")
        async with flow.mover():
            await flow.send("q0", "a")
            (message,) = await flow.take(1, "q4")
            assert str(message) == "a"
            record = await flow.client._connection.record("q4", asyncio.get_running_loop().time() + 60)

            await flow.client._connection.namespace.update_entity(
                record, replace(record.settings, forwards=True), properties={**record.properties, "forward_to": "q5"}
            )
            await flow.send("q0", "b")
            (dead,) = await flow.take(1, "q4", sub_queue="deadletter")
            assert (str(dead), dead.dead_letter_reason) == ("b", "MaxTransferHopCountExceeded")


@pytest.mark.slow
@pytest.mark.parametrize("near", [True, False], ids=["one slot", "two slots"])
@pytest.mark.parametrize("trouble", ["full", "disabled", "gone", "too large"])
async def test_messages_that_the_destination_refuses_are_dead_lettered_at_the_source(
    url: str, trouble: str, near: bool
) -> None:
    async with flow_at(url, partitions=1 if near else 3) as flow:
        limits: dict[str, Any] = {"max_message_size_in_kilobytes": 1} if trouble == "too large" else {}
        await flow.admin.create_queue("to", max_size_in_megabytes=1, **limits)
        await flow.admin.create_queue("from", forward_to="to")
        if trouble == "full":
            await flow.send("to", text("x" * 1_000_000))
        elif trouble == "disabled":
            properties = await flow.admin.get_queue("to")
            properties.status = "SendDisabled"
            await flow.admin.update_queue(properties)
        elif trouble == "gone":
            await flow.client._connection.namespace.delete_entity("to")
        messages = [text(str(number) + "x" * (0 if trouble == "gone" else 100_000)) for number in range(4)]
        await flow.send("from", *messages)
        await flow.send("from", "small")
        async with flow.mover():
            dead = await flow.take(4, "from", sub_queue="deadletter")
            if trouble in ("gone", "disabled"):
                dead += await flow.take(1, "from", sub_queue="deadletter")
            else:
                assert bodies(await flow.take(1, "to"))[-1][-5:] in ("small", "xxxxx")
        assert {one.dead_letter_reason for one in dead} == {
            {
                "full": "QuotaExceeded",
                "disabled": "MessagingEntityDisabled",
                "gone": "MessagingEntityNotFound",
                "too large": "MessageSizeExceeded",
            }[trouble]
        }


@pytest.mark.parametrize("changed", ["from", "to"])
async def test_settings_that_change_between_a_reading_and_the_move_are_read_again(
    url: str, changed: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Source and destination are in one slot, so one call moves the message. Either of the two may refuse the call."""

    async def call(script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name == "transact" and not changes:
            properties = await flow.admin.get_queue(changed)
            properties.max_delivery_count = 77
            changes.append(properties)
            await flow.admin.update_queue(properties)
        return await through(script, *arguments, **options)

    changes: list[Any] = []
    caplog.set_level("INFO", "sbredis.maintenance")
    async with flow_at(url, partitions=1) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        async with flow.mover() as mover:
            transport: Any = mover._connection.transport
            through = transport.call
            divert(transport, call)
            await flow.send("from", "m")
            assert bodies(await flow.take(1, "to")) == ["m"]
        assert len(changes) == 1
        assert "the work there waits" not in caplog.text  # the visit did not fail


@pytest.mark.slow
@pytest.mark.parametrize("partitions", [1, 3], ids=["one slot", "several slots"])
async def test_a_destination_that_was_made_again_takes_messages_by_its_new_settings(url: str, partitions: int) -> None:
    """The mover gives no message up because of settings that it has read before the message came."""
    async with flow_at(url, partitions=partitions) as flow:
        await flow.admin.create_queue("to", requires_session=True)
        await flow.admin.create_queue("from", forward_to="to")
        async with flow.mover():
            await flow.send("from", "no session")
            (dead,) = await flow.take(1, "from", sub_queue="deadletter")
            assert dead.dead_letter_reason == "Session ID is null."
            for kind in ("plain", "partitioned"):
                await flow.admin.delete_queue("to")
                await flow.admin.create_queue("to", **KINDS[kind])
                await flow.send("from", kind)
                assert bodies(await flow.take(1, "to")) == [kind]
            await flow.admin.delete_queue("to")
            await flow.send("from", "none")
            (dead,) = await flow.take(1, "from", sub_queue="deadletter")
            assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
                "MessagingEntityNotFound",
                "'to' does not exist.",
            )


class Mortal:
    """The transport of a mover that dies at a call of the mover: before the call runs, or before its answer comes."""

    CALLS = frozenset({"sweep", "outgoing", "freeze", "take", "settle_batch", "transact"})

    def __init__(
        self, client: ServiceBusClient, fatal: int, calls: frozenset[str] = CALLS, *, runs: bool | None = None
    ) -> None:
        self.dead = False
        self._calls = calls
        self._left = fatal
        self._runs = fatal % 2 == 1 if runs is None else runs
        transport: Any = client._connection.transport
        self._through = transport.call
        divert(transport, self._call)

    async def _call(self, script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name in self._calls and not self.dead:
            self._left -= 1
            if self._left == 0:
                self.dead = True
                if self._runs:
                    await self._through(script, *arguments, **options)
        if self.dead:
            raise ServiceBusConnectionError("The process is dead.", outcome=Outcome.UNKNOWN)
        return await self._through(script, *arguments, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "call", "fatal"),
    [
        *(("plain", "sweep", 1), ("plain", "take", 1), ("plain", "sweep", 2)),
        *(("partitioned", "freeze", 1), ("partitioned", "take", 1), ("partitioned", "settle_batch", 1)),
    ],
)
@pytest.mark.parametrize("runs", [True, False], ids=["its answer is lost", "it does not run"])
async def test_a_move_that_was_broken_off_is_completed_days_later(
    url: str, kind: str, call: str, fatal: int, runs: bool
) -> None:
    """No window of time ends the protection from duplicates. The destination need not detect duplicates."""
    clock = HandClock()
    async with flow_at(url, clock=clock, timings=BRIEF_CLAIMS) as flow:
        await flow.admin.create_queue("to", **KINDS[kind])
        await flow.admin.create_queue("from", forward_to="to")
        first = [text(key, partition_key=key) for key in "abcdef"]  # some of these partitions are in other slots
        await flow.send("from", *first)
        async with flow.other_client() as client:
            mortal = Mortal(client, fatal, frozenset({call}), runs=runs)
            async with client.maintain():
                await eventually(lambda: mortal.dead)
        clock.move(5 * 86_400)
        await flow.send("from", text("last", partition_key="a"))
        async with flow.mover():
            found = bodies(await flow.take(7, "to"))
            assert sorted(found) == [*"abcdef", "last"]
            assert found.index("a") < found.index("last")
        async with flow.client.get_queue_receiver("to") as receiver:
            assert await receiver.receive_messages(max_wait_time=0) == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_a_batch_that_was_taken_is_never_given_up(url: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mover dies after the take. Then no call can carry the batch any more, but the recorded verdict counts."""
    async with flow_at(url, timings=BRIEF_CLAIMS) as flow:
        if kind == "queue":
            await flow.admin.create_queue("to")
        else:
            await flow.admin.create_topic("to")
            acting = RuleProperties("r", action=SqlRuleAction("SET n = 1"))
            await flow.admin.create_subscription("to", "s", rules=[acting])
        await flow.admin.create_queue("from", forward_to="to")
        await flow.send("from", "x" * 10_000)
        async with flow.other_client() as client:
            mortal = Mortal(client, 2, frozenset({"sweep"}), runs=False)
            async with client.maintain():
                await eventually(lambda: mortal.dead)
        if kind == "queue":
            properties = await flow.admin.get_queue("to")
            properties.max_message_size_in_kilobytes = 1
            await flow.admin.update_queue(properties)
        else:
            monkeypatch.setattr(routing, "_MOST_BYTES", 0)
        async with flow.mover():

            async def nothing_is_left() -> bool:
                return (await flow.admin.get_queue_runtime_properties("from")).total_message_count == 0

            await eventually(nothing_is_left)
            path = ["to"] if kind == "queue" else ["to", "s"]
            made = flow.client.get_queue_receiver if kind == "queue" else flow.client.get_subscription_receiver
            async with made(*path) as receiver:
                assert len(await receiver.peek_messages(10)) == 1


async def test_messages_wait_for_a_mover_with_one_warning(url: str, caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> int:
        return sum("no client moves messages" in record.getMessage() for record in caplog.records)

    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        with caplog.at_level(logging.WARNING, "sbredis.client"):
            await flow.send("from", "a", "b")
            await flow.send("from", "c")
            await eventually(lambda: warnings() == 1)
        async with flow.mover():
            assert bodies(await flow.take(3, "to")) == ["a", "b", "c"]
            async with ServiceBusClient(url, namespace="ns") as other, other.get_queue_sender("from") as sender:
                await sender.send_messages(text("d"))
                assert bodies(await flow.take(1, "to")) == ["d"]
        assert warnings() == 1


async def test_a_sender_to_many_queues_asks_once_whether_there_is_a_mover(url: str) -> None:
    """All clients would ask the one slot that has the roles."""
    async with flow_at(url) as flow, flow.mover(), flow.other_client() as client:
        await flow.admin.create_queue("to")
        transport: Any = client._connection.transport
        through, asked, answered = transport.call, list[str](), list[str]()

        async def call(script: Any, *arguments: Any, **options: Any) -> Any:
            if script.name == "hold_role":
                asked.append(script.name)
            reply = await through(script, *arguments, **options)
            if script.name == "hold_role":
                answered.append(script.name)
            return reply

        divert(transport, call)
        for number in range(4):
            await flow.admin.create_queue(f"from-{number}", forward_to="to")
            async with client.get_queue_sender(f"from-{number}") as sender:
                await sender.send_messages(text(f"{number}"))
            await eventually(lambda: bool(answered))
        assert sorted(bodies(await flow.take(4, "to"))) == [*"0123"]
        assert len(asked) == 1


@pytest.mark.parametrize("how", ["dead_letter", "abandon", "receive"])
async def test_dead_letters_wait_for_a_mover_with_one_warning(
    url: str, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The clients that make a dead letter warn, and so does a client that opens a receiver later."""

    def warnings() -> int:
        return sum("no client moves messages" in record.getMessage() for record in caplog.records)

    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_dead_lettered_messages_to="to", max_delivery_count=1)
        await flow.send("from", "a", "b")
        async with flow.client.get_queue_receiver("from") as receiver:
            with caplog.at_level(logging.CRITICAL if how == "receive" else logging.WARNING, "sbredis.client"):
                for message in [*await receiver.receive_messages(1, 60), *await receiver.receive_messages(1, 60)]:
                    if how == "abandon":
                        await receiver.abandon_message(message)
                    else:
                        await receiver.dead_letter_message(message)
                counts = await flow.admin.get_queue_runtime_properties("from")
                assert (counts.transfer_message_count, counts.dead_letter_message_count) == (2, 0)
                assert counts.total_message_count == 2
                await eventually(lambda: how != "dead_letter" or warnings() == 1)
        with caplog.at_level(logging.WARNING, "sbredis.client"):
            async with flow.other_client() as other, other.get_queue_receiver("from") as receiver:
                assert await receiver.receive_messages(max_wait_time=0) == []
                expected = 1 if how != "dead_letter" else 2
                await eventually(lambda: warnings() == expected)
        async with flow.mover():
            assert sorted(bodies(await flow.take(2, "to"))) == ["a", "b"]
            await flow.nothing_waits("from")


async def test_a_receiver_does_not_warn_if_nothing_waits(url: str, caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Any] = []
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_dead_lettered_messages_to="to")
        await flow.send("from", "a")
        transport: Any = flow.client._connection.transport
        through = transport.call

        async def call(script: Any, *arguments: Any, **options: Any) -> Any:
            reply = await through(script, *arguments, **options)
            if script.name == "count":
                answers.append(reply)
            return reply

        divert(transport, call)
        with caplog.at_level(logging.WARNING, "sbredis.client"):
            assert bodies(await flow.take(1, "from")) == ["a"]
            await eventually(lambda: bool(answers))
            for _ in range(5):
                await asyncio.sleep(0)  # the question goes on with the answer
        assert "no client moves messages" not in caplog.text


@pytest.mark.slow
async def test_a_transfer_to_a_deleted_queue_does_not_go_to_another_queue_of_its_name(url: str) -> None:
    """This holds even if the list of all entities, which maintenance reads now and then, has the deleted queue."""
    async with flow_at(url, partitions=16) as flow, flow.other_client() as other:
        await flow.transfer(text("lost"))
        records = [await flow.client._connection.record(name, soon()) for name in ("home", "to")]
        await flow.admin.delete_queue("to")
        await flow.admin.create_queue("to")
        shared = await shared_of(other)
        shared.census.by_id = {record.id: record for record in records}
        home = await shared.connection.entity("home", soon())
        (number,) = home.numbers
        waiting = await perform(shared.connection.transport, home.partition(number).outgoing())
        ((heap,), error) = await destinations_of(shared, home, number).sorted(waiting.messages, waiting.now)
        assert error is None
        assert heap.entity is None
        (move,) = heap.moves
        assert move.fault is not None
        assert move.fault.reason == "MessagingEntityNotFound"


@pytest.mark.slow
@pytest.mark.parametrize("near", [True, False], ids=["one slot", "two slots"])
async def test_messages_stay_if_their_destination_is_made_again_during_the_move(url: str, near: bool) -> None:
    """Another task of the client may have noticed it meanwhile. The next reading decides anew where they go."""
    async with flow_at(url, partitions=1 if near else 3) as flow, flow.other_client() as other:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        await flow.send("from", "m")
        shared = await shared_of(other)
        source = await shared.connection.entity("from", soon())
        (number,) = source.numbers
        waiting = await perform(shared.connection.transport, source.partition(number).outgoing())
        destinations = destinations_of(shared, source, number)
        ((heap,), _) = await destinations.sorted(waiting.messages, waiting.now)
        assert heap.entity is not None
        assert (heap.destination.number == number) == near
        await flow.admin.delete_queue("to")
        await flow.admin.create_queue("to")
        await heap.entity.refresh(soon())
        carrier = Carrier(source, number, waiting.birth, destinations)
        await carrier.carry(heap.destination, heap.entity, heap.moves)
        counts = [await flow.admin.get_queue_runtime_properties(name) for name in ("from", "to")]
        assert [each.total_message_count for each in counts] == [1, 0]


@pytest.mark.slow
async def test_a_batch_for_a_deleted_queue_goes_to_the_next_queue_of_its_name(url: str) -> None:
    """A mover has died after it has frozen the batch. The messages are forwarded by name, and the name has a queue."""
    async with flow_at(url, timings=BRIEF_CLAIMS) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        await flow.send("from", "a", "b")
        async with flow.other_client() as client:
            mortal = Mortal(client, 1, frozenset({"take"}), runs=False)
            async with client.maintain():
                await eventually(lambda: mortal.dead)
        await flow.admin.delete_queue("to")
        await flow.admin.create_queue("to")
        async with flow.mover():
            assert bodies(await flow.take(2, "to")) == ["a", "b"]


@pytest.mark.slow
async def test_a_move_within_a_slot_without_an_answer_keeps_the_order(url: str) -> None:
    """The call may not have run, so the mover reads the source again, and does not go on with later messages."""

    async def call(script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name == "transact" and not lost:
            lost.append(script.name)
            raise ServiceBusConnectionError("No answer.", outcome=Outcome.UNKNOWN)
        return await through(script, *arguments, **options)

    lost: list[str] = []
    async with flow_at(url, partitions=1) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        large = [letter * 600_000 for letter in "abc"]  # one call moves one of them
        await flow.send("from", *large)
        async with flow.other_client() as client:
            transport: Any = client._connection.transport
            through = transport.call
            divert(transport, call)
            async with client.maintain():
                assert bodies(await flow.take(3, "to")) == large
    assert lost


async def test_a_queue_that_never_empties_lets_others_go_first(url: str) -> None:
    """Whenever the mover reads the queue, it finds a message that was sent meanwhile."""

    async def call(script: Any, *arguments: Any, **options: Any) -> Any:
        if script.name == "outgoing" and filling:
            await flow.send("from", "m")
        return await through(script, *arguments, **options)

    filling = True
    async with flow_at(url, partitions=1) as flow, flow.other_client() as client:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from", forward_to="to")
        shared = await shared_of(client)
        source, mover = await shared.connection.entity("from", soon()), Mover(shared)
        transport: Any = client._connection.transport
        through = transport.call
        divert(transport, call)
        async with asyncio.timeout(60):
            assert not await mover.move_all(source, source.numbers[0])
        filling = False
        assert await mover.move_all(source, source.numbers[0])
        assert (await flow.admin.get_queue_runtime_properties("from")).total_message_count == 0


@pytest.mark.slow
async def test_an_unreachable_partition_delays_only_its_own_messages(url: str) -> None:
    """This holds even if more messages wait for that partition than one call reads."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to", enable_partitioning=True)
        await flow.admin.create_queue("from", forward_to="to")
        entity = await flow.client._connection.entity("to", asyncio.get_running_loop().time() + 60)
        keys = [f"k{number}" for number in range(20)]
        stuck = entity.pinned(keys[0])
        assert any(entity.pinned(key) is not stuck for key in keys)
        async with flow.client.get_queue_sender("from") as sender:
            await sender.send_messages([text("stuck", partition_key=keys[0]) for _ in range(900)])
            await sender.send_messages([text("stuck", partition_key=keys[0]) for _ in range(200)])
        await flow.send("from", *(text(key, partition_key=key) for key in keys))
        there = [key for key in keys if entity.pinned(key) is not stuck]
        async with flow.other_client(maintenance=True) as client:
            transport: Any = client._connection.transport
            through, let = transport.call, asyncio.Event()

            async def call(script: Any, called: Any, *arguments: Any, **options: Any) -> Any:
                if not let.is_set() and script.name in {"take", "transact"} and stuck.partition.keys[0] in called:
                    raise ServiceBusConnectionError("There is no way.", outcome=Outcome.NEVER_SENT)
                return await through(script, called, *arguments, **options)

            divert(transport, call)
            assert sorted(bodies(await flow.take(len(there), "to"))) == sorted(there)
            let.set()
            assert len(await flow.take(1100 + len(keys) - len(there), "to")) == 1120 - len(there)


@pytest.mark.slow
async def test_deleted_sources_leave_nothing_at_their_destination(url: str) -> None:
    """The destination remembers a verdict on each source in another slot, until the source is deleted."""
    names = [f"short-lived-{number}" for number in range(4)]

    async def remembered(transport: Transport) -> list[bytes]:
        found: list[bytes] = []
        for key in await transport.command("KEYS", "*:lasting"):
            found += [field for field in await transport.command("HKEYS", key, key=key) if field.startswith(b"in:")]
        return found

    async with flow_at(url) as flow, await open_with_scripts(url) as transport:
        await flow.admin.create_queue("collector")
        for name in names:
            await flow.admin.create_queue(name, forward_to="collector")
        async with flow.mover():
            for name in names:
                await flow.send(name, name)
            assert sorted(bodies(await flow.take(len(names), "collector"))) == names
            assert await remembered(transport)
            for name in names:
                await flow.admin.delete_queue(name)
            assert await remembered(transport) == []


@pytest.mark.slow
async def test_a_former_destination_forgets_the_sources_that_are_gone_and_no_others(url: str) -> None:
    """A deletion only tells the present destination. A mover finds what a former one still remembers."""
    gone, kept = [[f"{kind}-{number}" for number in range(4)] for kind in ("gone", "kept")]
    async with flow_at(url) as flow, await open_with_scripts(url) as transport:

        async def remembered() -> set[str]:
            record = await flow.client._connection.record("collector", soon())
            found: set[str] = set()
            for key in await transport.command("KEYS", f"*:{record.id}:lasting"):
                fields = await transport.command("HKEYS", key, key=key)
                found |= {field.decode().split(":")[1] for field in fields if field.startswith(b"in:")}
            return found

        for name in ("collector", "other"):
            await flow.admin.create_queue(name)
        ids: dict[str, str] = {}
        for name in [*gone, *kept]:
            await flow.admin.create_queue(name, forward_to="collector")
            ids[name] = (await flow.client._connection.record(name, soon())).id
        async with flow.mover():
            for names in (gone, kept):  # a destination names those that it knows when it gets to know another one
                for name in names:
                    await flow.send(name, name)
                await flow.take(4, "collector")
            before = await remembered()
            assert before & {ids[name] for name in gone}
            assert before & {ids[name] for name in kept}
            for name in gone:
                queue = await flow.admin.get_queue(name)
                queue.forward_to = "other"
                await flow.admin.update_queue(queue)
                await flow.admin.delete_queue(name)

            async def forgotten() -> bool:
                return not await remembered() & {ids[name] for name in gone}

            await eventually(forgotten)
            assert await remembered() == before & {ids[name] for name in kept}
