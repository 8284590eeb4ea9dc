"""Transactions over several partitions of the namespace: messages for another partition wait until they are moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import anyio
import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.client import Timings
from sbredis.engine import partition_for_key, perform, read_record, recipient_of, slot_for_name, slots_for_name
from sbredis.exceptions import (
    MessageSizeExceededError,
    MessagingEntityNotFoundError,
    Outcome,
    ScriptRefusedError,
    ServiceBusError,
)
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus
from tests.aio.diverting import divert
from tests.aio.queues import Calls, bodies_in, receive_exactly
from tests.aio.test_transactions import send, transact
from tests.waiting import eventually

LATER = datetime(2100, 1, 1, tzinfo=UTC)


def elsewhere(than: str, kind: str = "outputs") -> str:
    """Return a name of an unpartitioned entity that is in another partition of the namespace."""
    here = slot_for_name(than, 256)
    return next(name for number in range(100) if slot_for_name(name := f"{kind}{number}", 256) != here)


OUTPUTS = elsewhere("inputs")


def other_key(than: str) -> str:
    """Return a key whose messages are in another partition of a partitioned entity."""
    return next(key for key in "bcdefghijk" if partition_for_key(key, 16) != partition_for_key(than, 16))


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    """A client of two queues in different partitions of the namespace."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue(OUTPUTS)
        yield client


async def waiting(client: ServiceBusClient, name: str) -> list[tuple[str, str, int]]:
    """Return the messages that wait in an entity to be moved: body, id of the destination and its partition."""
    connection = client._connection
    entity = await connection.entity(name, connection.clock.now() + 60)
    found: list[tuple[str, str, int]] = []
    for number in entity.numbers:
        shown = await perform(connection.transport, entity.partition(number).peek(0, 1000, states="x"))
        for message in shown.messages:
            recipient = recipient_of(message)
            assert recipient is not None
            body = read_record(message.record).payload.decode().rpartition("\x00")[2]
            found.append((body, recipient.entity, recipient.number))
    return found


async def place_of(client: ServiceBusClient, name: str) -> tuple[str, int]:
    """Return the id of an unpartitioned entity, and its partition."""
    record = (await client._connection.entity(name, client._connection.clock.now() + 60)).record
    return record.id, record.partitions[0]


# -- which messages wait, and where ------------------------------------------------------------------------------------


async def test_waiting_messages_are_counted(client: ServiceBusClient, url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.create_topic("news", colocate_with="inputs")
        await admin.create_subscription("news", "all")
        news, outputs = client.get_topic_sender("news"), client.get_queue_sender(OUTPUTS)
        await news.send_messages(ServiceBusMessage("1"))
        await send(client, "inputs", "1")
        async with client.get_queue_receiver("inputs") as one, client.get_subscription_receiver("news", "all") as two:
            for first in (*await receive_exactly(one, 1), *await receive_exactly(two, 1)):
                await transact(
                    client,
                    lambda tx, first=first: tx.complete_message(first),  # type: ignore[misc]
                    lambda tx: tx.send_messages(outputs, ServiceBusMessage("a")),
                )
        await transact(
            client,
            lambda tx: tx.send_messages(news, ServiceBusMessage("2")),
            lambda tx: tx.send_messages(outputs, [ServiceBusMessage("b"), ServiceBusMessage("c")]),
        )
        queue = await admin.get_queue_runtime_properties("inputs")
        topic = await admin.get_topic_runtime_properties("news")
        subscription = await admin.get_subscription_runtime_properties("news", "all")
    assert (queue.transfer_message_count, queue.active_message_count, queue.total_message_count) == (1, 0, 1)
    assert (topic.transfer_message_count, topic.transfer_dead_letter_message_count) == (2, 0)
    assert (subscription.transfer_message_count, subscription.active_message_count) == (1, 1)
    assert subscription.total_message_count == 2


async def test_an_entity_is_not_deleted_while_messages_in_it_wait(client: ServiceBusClient, url: str) -> None:
    """A topic is not deleted either while messages wait in one of its subscriptions."""
    async with ServiceBusAdministrationClient(url, _timings=Timings(moving_first=0.0)) as admin:
        await admin.create_topic("news", colocate_with="inputs")
        await admin.create_subscription("news", "all")
        outputs = client.get_queue_sender(OUTPUTS)
        await client.get_topic_sender("news").send_messages(ServiceBusMessage("1"))
        await send(client, "inputs", "1")
        async with client.get_queue_receiver("inputs") as one, client.get_subscription_receiver("news", "all") as two:
            for first in (*await receive_exactly(one, 1), *await receive_exactly(two, 1)):
                await transact(
                    client,
                    lambda tx, first=first: tx.complete_message(first),  # type: ignore[misc]
                    lambda tx: tx.send_messages(outputs, ServiceBusMessage("a")),
                )
        deletions = (
            ("inputs", admin.delete_queue("inputs")),
            ("news", admin.delete_topic("news")),
            ("news/subscriptions/all", admin.delete_subscription("news", "all")),
        )
        for path, deletion in deletions:
            with pytest.raises(
                ServiceBusError, match=f"^'{path}' was not deleted, because 1 of its messages"
            ) as caught:
                await deletion
            assert (caught.value.outcome, caught.value.is_transient) == (Outcome.REFUSED, True)
        await send(client, "inputs", "2")  # nothing has changed
        assert (await admin.get_queue_runtime_properties("inputs")).total_message_count == 2

        async with (
            ServiceBusAdministrationClient(url, _timings=Timings(moving_first=30.0)) as patient,
            ServiceBusClient(url, maintenance=True),  # a mover comes while the deletion waits
        ):
            await patient.delete_topic("news")
            await patient.delete_queue("inputs")
        assert not await admin.queue_exists("inputs")
        assert (await admin.get_queue_runtime_properties(OUTPUTS)).active_message_count == 2


@pytest.mark.everywhere("a transaction needs all its keys in one slot")
async def test_a_message_for_another_partition_waits_in_the_entity_of_the_settled_message(
    client: ServiceBusClient,
) -> None:
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender(OUTPUTS) as sender:
        (message,) = await receive_exactly(receiver, 1)
        async with client.transaction() as tx:
            tx.send_messages(sender, [ServiceBusMessage("a"), ServiceBusMessage("b")])
            tx.complete_message(message)
        there = await place_of(client, OUTPUTS)
        assert await waiting(client, "inputs") == [("a", *there), ("b", *there)]
        assert (await bodies_in(client, "inputs"), await bodies_in(client, OUTPUTS)) == ([], [])
        assert tx.duplicates == ()


async def test_without_a_settlement_messages_wait_in_the_first_entity_to_which_the_transaction_sends(
    client: ServiceBusClient,
) -> None:
    async with client.get_queue_sender("inputs") as near, client.get_queue_sender(OUTPUTS) as far:
        async with client.transaction() as tx:
            tx.send_messages(far, [])
            tx.send_messages(near, ServiceBusMessage("near"))
            tx.send_messages(far, ServiceBusMessage("far"))
        assert await bodies_in(client, "inputs") == ["near"]
        assert await waiting(client, "inputs") == [("far", *await place_of(client, OUTPUTS))]
        async with client.transaction() as tx:
            tx.send_messages(far, ServiceBusMessage("now far"))
            tx.send_messages(near, ServiceBusMessage("now near"))
        assert await bodies_in(client, OUTPUTS) == ["now far"]
        assert await waiting(client, OUTPUTS) == [("now near", *await place_of(client, "inputs"))]


async def test_the_key_chooses_the_partition_of_the_destination(client: ServiceBusClient) -> None:
    await client.ensure_queue("wide", enable_partitioning=True)
    places, here = slots_for_name("wide", 16, 256), slot_for_name("inputs", 256)
    key = next(key for key in "bcdefghijk" if places[partition_for_key(key, 16)] != here)
    async with client.get_queue_sender("inputs") as near, client.get_queue_sender("wide") as wide:
        async with client.transaction() as tx:
            tx.send_messages(near, ServiceBusMessage("near"))
            tx.send_messages(wide, ServiceBusMessage("far", partition_key=key))
        ((body, _, number),) = await waiting(client, "inputs")
        assert (body, number) == ("far", places[partition_for_key(key, 16)])


async def test_partitioned_queues_share_a_transaction_if_one_was_colocated_with_the_other(
    client: ServiceBusClient,
) -> None:
    for name, options in (("wide", {}), ("beside", {"colocate_with": "wide"}), ("apart", {})):
        await client.ensure_queue(name, enable_partitioning=True, **options)  # type: ignore[arg-type]
    for name in ("wide", "beside", "apart"):
        await send(client, name, name, partition_key="a")
    async with (
        client.get_queue_receiver("wide") as one,
        client.get_queue_receiver("beside") as two,
        client.get_queue_receiver("apart") as three,
        client.get_queue_sender("apart") as far,
    ):
        (first,), (second,), (third,) = [await receive_exactly(each, 1) for each in (one, two, three)]
        with pytest.raises(ServiceBusError, match=r"'wide' and of 'apart', which are .*colocate_with"):
            await transact(client, lambda tx: tx.complete_message(first), lambda tx: tx.complete_message(third))
        with pytest.raises(ServiceBusError, match="create one entity with colocate_with the other"):
            await transact(
                client,
                lambda tx: tx.complete_message(first),
                lambda tx: tx.schedule_messages(far, ServiceBusMessage("x", partition_key="a"), LATER),
            )
        with pytest.raises(ServiceBusError, match=r"a watermark of 'apart'.*Create one entity with colocate_with"):
            await transact(
                client, lambda tx: tx.complete_message(first), lambda tx: tx.advance(far, "a", "1", expected=None)
            )
        await transact(client, lambda tx: tx.complete_message(first), lambda tx: tx.complete_message(second))
    assert [await bodies_in(client, name) for name in ("wide", "beside")] == [[], []]


# -- refusals ----------------------------------------------------------------------------------------------------------


async def test_messages_that_are_scheduled_elsewhere_would_have_no_numbers(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("inputs") as near, client.get_queue_sender(OUTPUTS) as far:
        with pytest.raises(ServiceBusError, match="have no sequence numbers") as refused:
            await transact(
                client,
                lambda tx: tx.send_messages(near, ServiceBusMessage("a")),
                lambda tx: tx.schedule_messages(far, ServiceBusMessage("b"), LATER),
            )
        assert (refused.value.entity, refused.value.outcome) == (OUTPUTS, Outcome.NEVER_SENT)
        assert (await bodies_in(client, "inputs"), await waiting(client, "inputs")) == ([], [])


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_a_destination_that_was_deleted_before_the_commit_is_refused(
    client: ServiceBusClient, url: str, kind: str
) -> None:
    """The client has used the destination before, so it knows an entity that does not exist any more."""
    name = OUTPUTS if kind == "queue" else elsewhere("inputs", "news")
    await send(client, "inputs", "1")
    async with ServiceBusAdministrationClient(url) as admin:
        if kind == "topic":
            await admin.create_topic(name)
        async with (
            client.get_queue_receiver("inputs") as receiver,
            client.get_queue_sender(OUTPUTS) if kind == "queue" else client.get_topic_sender(name) as far,
        ):
            await far.send_messages(ServiceBusMessage("before"))
            (message,) = await receive_exactly(receiver, 1)
            await (admin.delete_queue(name) if kind == "queue" else admin.delete_topic(name))
            with pytest.raises(MessagingEntityNotFoundError) as refused:
                await transact(
                    client,
                    lambda tx: tx.complete_message(message),
                    lambda tx: tx.send_messages(far, ServiceBusMessage("a")),
                )
            assert (refused.value.entity, refused.value.outcome) == (name, Outcome.REFUSED)
            counts = await admin.get_queue_runtime_properties("inputs")
            assert (counts.active_message_count, counts.transfer_message_count) == (1, 0)
            await receiver.complete_message(message)  # its lock was not touched


async def test_a_destination_that_was_deleted_and_created_again_gets_the_messages(
    client: ServiceBusClient, url: str
) -> None:
    """The messages are for the new entity, and not for the one that the client knew."""
    await send(client, OUTPUTS, "before")
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.delete_queue(OUTPUTS)
        await admin.create_queue(OUTPUTS)
        near, far = client.get_queue_sender("inputs"), client.get_queue_sender(OUTPUTS)
        await transact(
            client,
            lambda tx: tx.send_messages(near, ServiceBusMessage("a")),
            lambda tx: tx.send_messages(far, ServiceBusMessage("b")),
        )
    async with ServiceBusClient(url) as other:
        assert await waiting(other, "inputs") == [("b", *await place_of(other, OUTPUTS))]


async def test_transactions_that_commit_at_the_same_time_look_for_their_destination_together(
    client: ServiceBusClient,
) -> None:
    """One of them looks at once, and the others, which have come meanwhile, share a second look."""
    await send(client, OUTPUTS, "before")
    near, far = client.get_queue_sender("inputs"), client.get_queue_sender(OUTPUTS)
    await near.send_messages(ServiceBusMessage("before"))
    with Calls(client._connection.transport) as calls:
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(
                    transact,
                    client,
                    lambda tx: tx.send_messages(near, ServiceBusMessage("a")),
                    lambda tx, number=number: tx.send_messages(far, ServiceBusMessage(f"{number}")),
                )
    assert len(await waiting(client, "inputs")) == 20
    assert calls.by_script["read_entity"] == 2


@pytest.mark.usefixtures("client")
async def test_a_message_that_is_too_large_for_its_destination_is_refused(url: str) -> None:
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.update_queue({"name": OUTPUTS, "max_message_size_in_kilobytes": 1})
    async with ServiceBusClient(url) as fresh:
        near, far = fresh.get_queue_sender("inputs"), fresh.get_queue_sender(OUTPUTS)
        with pytest.raises(MessageSizeExceededError) as refused:
            await transact(
                fresh,
                lambda tx: tx.send_messages(near, ServiceBusMessage("a")),
                lambda tx: tx.send_messages(far, ServiceBusMessage("x" * 2000)),
            )
        assert refused.value.entity == OUTPUTS
        assert (await bodies_in(fresh, "inputs"), await waiting(fresh, "inputs")) == ([], [])


async def test_a_message_without_a_session_is_refused_by_a_session_queue_elsewhere(client: ServiceBusClient) -> None:
    name = elsewhere("inputs", "jobs")
    await client.ensure_queue(name, requires_session=True)
    near, far = client.get_queue_sender("inputs"), client.get_queue_sender(name)
    with pytest.raises(ServiceBusError, match="The SessionId was not set"):
        await transact(
            client,
            lambda tx: tx.send_messages(near, ServiceBusMessage("a")),
            lambda tx: tx.send_messages(far, ServiceBusMessage("b")),
        )
    assert (await bodies_in(client, "inputs"), await waiting(client, "inputs")) == ([], [])


async def test_settlements_of_two_partitions_of_one_queue_are_refused(client: ServiceBusClient) -> None:
    await client.ensure_queue("wide", enable_partitioning=True)
    await send(client, "wide", "1", partition_key="a")
    await send(client, "wide", "2", partition_key=other_key("a"))
    async with client.get_queue_receiver("wide") as receiver:
        first, second = await receive_exactly(receiver, 2)
        with pytest.raises(ServiceBusError, match="settles messages of two partitions of 'wide'"):
            await transact(client, lambda tx: tx.complete_message(first), lambda tx: tx.complete_message(second))
        await receiver.complete_message(first)
        await receiver.complete_message(second)


@pytest.mark.parametrize(("key", "far"), [("a", True), ("a", False), (None, True)])
async def test_a_send_with_another_key_to_the_queue_of_the_settled_message_is_refused(
    client: ServiceBusClient, key: str | None, far: bool
) -> None:
    """Keys are compared, so the error does not depend on the partitions to which they happen to belong."""
    await client.ensure_queue("wide", enable_partitioning=True)
    await send(client, "wide", "1", partition_key=key)
    async with client.get_queue_receiver("wide") as receiver, client.get_queue_sender("wide") as sender:
        (message,) = await receive_exactly(receiver, 1)
        assert message.sequence_number is not None
        here = slots_for_name("wide", 16, 256).index(message.sequence_number >> 48)
        keys = (f"k{number}" for number in range(1000))
        there = next(each for each in keys if (partition_for_key(each, 16) != here) is far)
        output = ServiceBusMessage("2", partition_key=there)
        with pytest.raises(ValueError, match=r"without a key" if key is None else r"different keys \('a', "):
            await transact(client, lambda tx: tx.complete_message(message), lambda tx: tx.send_messages(sender, output))
        await receiver.complete_message(message)
    assert await bodies_in(client, "wide") == []


async def test_several_sessions_of_a_partitioned_queue_are_refused(client: ServiceBusClient) -> None:
    await client.ensure_queue("jobs", requires_session=True, enable_partitioning=True)
    await send(client, "jobs", "1", session_id="a")
    async with client.get_queue_receiver("jobs", session_id="a") as receiver, client.get_queue_sender("jobs") as sender:
        session = receiver.session
        with pytest.raises(ValueError, match="different keys"):
            await transact(
                client,
                lambda tx: tx.set_session_state(session, b"x"),
                lambda tx: tx.send_messages(sender, ServiceBusMessage("2", session_id="b")),
            )
        with pytest.raises(ValueError, match="different keys"):
            await transact(
                client,
                lambda tx: tx.send_messages(sender, ServiceBusMessage("2", session_id="a")),
                lambda tx: tx.send_messages(sender, ServiceBusMessage("3", session_id="b")),
            )
        assert await session.get_state() is None


# -- arriving ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_messages_arrive_once_in_the_partitions_of_their_keys(url: str) -> None:
    async with ServiceBusClient(url, maintenance=True) as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue("jobs", requires_session=True, enable_partitioning=True)
        await client.ensure_queue("once", requires_duplicate_detection=True, enable_partitioning=True)
        jobs, once = client.get_queue_sender("jobs"), client.get_queue_sender("once")
        await send(client, "inputs", *"12345")
        async with client.get_queue_receiver("inputs") as receiver:
            for message in await receive_exactly(receiver, 5):
                async with client.transaction() as tx:
                    tx.complete_message(message)
                    tx.send_messages(jobs, ServiceBusMessage(f"job {message}", session_id=str(message)))
                    tx.send_messages(
                        once, ServiceBusMessage(f"once {message}", message_id=f"id {int(str(message)) % 2}")
                    )
        for session in "12345":
            async with client.get_queue_receiver("jobs", session_id=session) as receiver:
                assert [str(message) for message in await receive_exactly(receiver, 1)] == [f"job {session}"]
        async with client.get_queue_receiver("once") as receiver:
            found = await receive_exactly(receiver, 2)
        assert {message.message_id for message in found} == {"id 0", "id 1"}
        await eventually(lambda: no_more_waits(client, "inputs"))
        assert len(await bodies_in(client, "once")) == 2


@pytest.mark.slow
async def test_a_scheduled_message_is_scheduled_at_its_destination(url: str) -> None:
    async with ServiceBusClient(url, maintenance=True) as client, ServiceBusAdministrationClient(url) as admin:
        await client.ensure_queue("inputs")
        await client.ensure_queue(OUTPUTS)
        near, far = client.get_queue_sender("inputs"), client.get_queue_sender(OUTPUTS)
        async with client.transaction() as tx:
            tx.send_messages(near, ServiceBusMessage("near"))
            tx.send_messages(far, ServiceBusMessage("later", scheduled_enqueue_time_utc=LATER))

        async def scheduled() -> bool:
            return (await admin.get_queue_runtime_properties(OUTPUTS)).scheduled_message_count == 1

        await eventually(scheduled)
        (message,) = await client.get_queue_receiver(OUTPUTS).peek_messages()
        assert message.scheduled_enqueue_time_utc == LATER


@pytest.mark.parametrize("refuses", [True, False])
async def test_one_server_moves_with_one_script_and_a_proxy_in_front_of_a_cluster_with_three(
    url: str, refuses: bool
) -> None:
    async def call(script: Any, keys: Any, *arguments: Any, **options: Any) -> Any:
        called.add(script.name)
        if refuses and len({key.partition(b"}")[0] for key in keys}) > 1:
            raise ScriptRefusedError("CROSSSLOT", "Keys in request don't hash to the same slot")
        return await through(script, keys, *arguments, **options)

    called = set[str]()
    async with ServiceBusClient(url, maintenance=True) as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue(OUTPUTS)
        transport: Any = client._connection.transport
        through = transport.call
        divert(transport, call)
        near, far = client.get_queue_sender("inputs"), client.get_queue_sender(OUTPUTS)
        async with client.get_queue_receiver(OUTPUTS) as receiver:
            for text in ("1", "2"):
                async with client.transaction() as tx:
                    tx.send_messages(near, ServiceBusMessage("near"))
                    tx.send_messages(far, ServiceBusMessage(text))
                assert [str(message) for message in await receive_exactly(receiver, 1)] == [text]
        await eventually(lambda: no_more_waits(client, "inputs"))
        divert(transport, through)
    assert ("take" in called) == (refuses or url.startswith("redis+cluster"))


@pytest.mark.slow
async def test_messages_arrive_on_a_test_bus() -> None:
    async with Bus() as bus:
        await bus.create_queue("inputs")
        await bus.create_queue(OUTPUTS)
        near, far = bus.client.get_queue_sender("inputs"), bus.client.get_queue_sender(OUTPUTS)
        async with bus.client.transaction() as tx:
            tx.send_messages(near, ServiceBusMessage("near"))
            tx.send_messages(far, ServiceBusMessage("far"))
        async with bus.client.get_queue_receiver(OUTPUTS) as receiver:
            assert [str(message) for message in await receive_exactly(receiver, 1)] == ["far"]
        assert [str(message) for message in await bus.sent(OUTPUTS)] == ["far"]


async def no_more_waits(client: ServiceBusClient, name: str) -> bool:
    return await waiting(client, name) == []
