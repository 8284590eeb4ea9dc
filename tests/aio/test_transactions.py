"""Transactions: what a client sends and settles in a block happens together, or not at all."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import methodcaller
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender, ServiceBusTransaction
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import (
    MessageAlreadySettled,
    MessageLockLostError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    WatermarkChangedError,
)
from sbredis.management import CorrelationRuleFilter, EntityStatus
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, hold_of
from sbredis.servers import LocalServer
from tests.aio.gates import Gate
from tests.aio.queues import Calls, HandClock, bodies_in, receive_exactly
from tests.aio.scissors import Scissors
from tests.waiting import eventually

LATER = datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
async def client(url: str) -> AsyncIterator[ServiceBusClient]:
    """A client of two queues in one partition of the namespace."""
    async with ServiceBusClient(url) as client:
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        yield client


async def send(client: ServiceBusClient, name: str, *bodies: str, **options: Any) -> None:
    async with client.get_queue_sender(name) as sender:
        await sender.send_messages([ServiceBusMessage(body, **options) for body in bodies])


async def transact(
    client: ServiceBusClient, *records: Callable[[ServiceBusTransaction], object]
) -> ServiceBusTransaction:
    """Carry out a transaction with these calls, and return it."""
    async with client.transaction() as tx:
        for record in records:
            record(tx)
    return tx


def recorded(sender: ServiceBusSender, message: ServiceBusMessage, tx: ServiceBusTransaction) -> None:
    tx.send_messages(sender, message)


# -- together ----------------------------------------------------------------------------------------------------------


@pytest.mark.conformance
async def test_an_input_is_completed_and_its_outputs_are_sent_together(client: ServiceBusClient) -> None:
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        async with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("a"))
            tx.send_messages(sender, [ServiceBusMessage("b"), ServiceBusMessage("c")])
            assert await bodies_in(client, "outputs") == []
        assert await bodies_in(client, "inputs") == []
        assert await bodies_in(client, "outputs") == ["a", "b", "c"]
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(message)


async def test_every_settlement_is_part_of_the_transaction(client: ServiceBusClient) -> None:
    await send(client, "inputs", "complete", "abandon", "defer", "bury")
    async with client.get_queue_receiver("inputs") as receiver:
        done, again, aside, dead = await receive_exactly(receiver, 4)
        async with client.transaction() as tx:
            tx.complete_message(done)
            tx.abandon_message(again, properties_to_modify={"tries": 1})
            tx.defer_message(aside)
            tx.dead_letter_message(dead, "unreadable", "no header")
        (message,) = await receive_exactly(receiver, 1)
        assert (str(message), message.application_properties, message.delivery_count) == ("abandon", {"tries": 1}, 2)
        assert aside.sequence_number is not None
        (set_aside,) = await receiver.receive_deferred_messages([aside.sequence_number])
        assert str(set_aside) == "defer"
    async with client.get_queue_receiver("inputs", sub_queue="deadletter") as receiver:
        (buried,) = await receive_exactly(receiver, 1)
        assert (str(buried), buried.dead_letter_reason) == ("bury", "unreadable")


async def test_a_session_state_is_set_together_with_its_message_and_an_output(client: ServiceBusClient) -> None:
    await client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    await send(client, "jobs", "1", session_id="s")
    async with (
        client.get_queue_receiver("jobs", session_id="s") as receiver,
        client.get_queue_sender("outputs") as sender,
    ):
        (message,) = await receive_exactly(receiver, 1)
        async with client.transaction() as tx:
            tx.complete_message(message)
            tx.set_session_state(receiver.session, "early")
            tx.set_session_state(receiver.session, "1 done")
            tx.send_messages(sender, ServiceBusMessage("a"))
        assert await receiver.session.get_state() == b"1 done"
        assert await bodies_in(client, "outputs") == ["a"]
        assert await receiver.peek_messages(10) == []


async def test_the_state_of_a_session_that_is_not_held_is_refused_at_once(client: ServiceBusClient) -> None:
    """The rest of the transaction can happen."""
    await client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    async with client.get_queue_receiver("jobs", session_id="s") as receiver:
        session = receiver.session
    async with client.get_queue_sender("outputs") as sender, client.transaction() as tx:
        with pytest.raises(ValueError, match="session was given back"):
            tx.set_session_state(session, "x")
        tx.send_messages(sender, ServiceBusMessage("a"))
    assert await bodies_in(client, "outputs") == ["a"]


@pytest.mark.everywhere("a transaction needs all its keys in one slot")
async def test_a_message_is_published_to_a_topic_under_its_present_rules(client: ServiceBusClient, url: str) -> None:
    """Another client changes the rules after this client has read them."""
    async with ServiceBusAdministrationClient(url) as admin:
        sender = client.get_topic_sender("news")
        await admin.create_topic("news", colocate_with="inputs")
        await admin.create_subscription("news", "all")
        await sender.send_messages(ServiceBusMessage("first"))
        await admin.create_subscription("news", "late")
        await admin.delete_rule("news", "all", "$Default")
        await admin.create_rule("news", "all", "red", filter=CorrelationRuleFilter(label="red"))
        await send(client, "inputs", "1")
        async with client.get_queue_receiver("inputs") as receiver:
            (message,) = await receive_exactly(receiver, 1)
            async with client.transaction() as tx:
                tx.complete_message(message)
                tx.send_messages(sender, [ServiceBusMessage("x"), ServiceBusMessage("y", subject="red")])
        for name, expected in (("all", ["first", "y"]), ("late", ["x", "y"])):
            async with client.get_subscription_receiver("news", name) as subscriber:
                assert [str(each) for each in await subscriber.peek_messages(10)] == expected


async def test_scheduled_messages_have_their_numbers_after_the_block(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("outputs") as sender:
        async with client.transaction() as tx:
            tx.send_messages(sender, ServiceBusMessage("now"))
            numbers = tx.schedule_messages(sender, [ServiceBusMessage("a"), ServiceBusMessage("b")], LATER)
            assert numbers == []
        assert len(numbers) == 2
        await sender.cancel_scheduled_messages(numbers)
        assert await bodies_in(client, "outputs") == ["now"]


async def test_the_transaction_names_the_messages_that_were_dropped_as_duplicates(client: ServiceBusClient) -> None:
    await client.ensure_queue("once", requires_duplicate_detection=True, colocate_with="inputs")
    await send(client, "once", "first", message_id="1")
    again, new = ServiceBusMessage("again", message_id="1"), ServiceBusMessage("new", message_id="2")
    async with client.get_queue_sender("once") as sender:
        async with client.transaction() as tx:
            tx.send_messages(sender, [new, again])
        assert tx.duplicates == (again,)
    assert await bodies_in(client, "once") == ["first", "new"]


@pytest.mark.everywhere("a transaction needs all its keys in one slot")
async def test_messages_of_one_key_stay_together_on_colocated_partitioned_queues(client: ServiceBusClient) -> None:
    await client.ensure_queue("wide-inputs", enable_partitioning=True)
    await client.ensure_queue("wide-outputs", enable_partitioning=True, colocate_with="wide-inputs")
    await send(client, "wide-inputs", "1", partition_key="k")
    async with client.get_queue_receiver("wide-inputs") as receiver, client.get_queue_sender("wide-outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        async with client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("a", partition_key="k"))
        assert (await bodies_in(client, "wide-inputs"), await bodies_in(client, "wide-outputs")) == ([], ["a"])


async def test_tasks_and_threads_record_in_one_transaction(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("outputs") as sender:
        async with client.transaction() as tx:

            async def work(number: int) -> None:
                await asyncio.sleep(0)
                tx.send_messages(sender, ServiceBusMessage(f"task {number}"))

            threads = [
                threading.Thread(target=tx.send_messages, args=(sender, ServiceBusMessage(f"thread {number}")))
                for number in range(4)
            ]
            for thread in threads:
                thread.start()
            await asyncio.gather(*map(work, range(4)))
            for thread in threads:
                thread.join()
        assert sorted(await bodies_in(client, "outputs")) == [
            *(f"task {number}" for number in range(4)),
            *(f"thread {number}" for number in range(4)),
        ]


async def test_one_message_object_can_be_sent_twice_under_two_ids(client: ServiceBusClient) -> None:
    await client.ensure_queue("once", requires_duplicate_detection=True, colocate_with="inputs")
    message = ServiceBusMessage("same")
    async with client.get_queue_sender("once") as sender:
        async with client.transaction() as tx:
            tx.send_messages(sender, [message, message])
            tx.send_messages(sender, message)
        assert tx.duplicates == ()
    assert await bodies_in(client, "once") == ["same"] * 3


async def test_a_message_keeps_its_id_if_the_transaction_does_not_send_it(client: ServiceBusClient) -> None:
    await client.ensure_queue("once", requires_duplicate_detection=True, colocate_with="inputs")
    message = ServiceBusMessage("same")
    async with client.get_queue_sender("once") as sender:
        with pytest.raises(ZeroDivisionError):
            await transact(client, lambda tx: tx.send_messages(sender, message), lambda _: 1 / 0)
        first = message.message_id
        await sender.send_messages(message)
        assert message.message_id == first is not None


async def test_a_batch_can_be_sent_in_a_transaction(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("outputs") as sender:
        batch = await sender.create_message_batch()
        for number in range(3):
            batch.add_message(ServiceBusMessage(str(number)))
        async with client.transaction() as tx:
            tx.send_messages(sender, batch)
            tx.send_messages(sender, [])
            assert tx.schedule_messages(sender, [], LATER) == []
        assert await bodies_in(client, "outputs") == ["0", "1", "2"]


async def test_only_the_last_state_of_a_session_counts(client: ServiceBusClient) -> None:
    await client.ensure_queue("jobs", requires_session=True)
    await send(client, "jobs", "1", session_id="s")
    async with client.get_queue_receiver("jobs", session_id="s") as receiver:
        async with client.transaction() as tx:
            for number in range(150):
                tx.set_session_state(receiver.session, b"%d" % number * 50_000)
            tx.set_session_state(receiver.session, b"last")
        assert await receiver.session.get_state() == b"last"


# -- not at all --------------------------------------------------------------------------------------------------------


async def test_an_exception_in_the_block_sends_nothing_and_leaves_the_lock(client: ServiceBusClient) -> None:
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        with Calls(client._connection.transport) as calls, pytest.raises(ZeroDivisionError):
            await transact(
                client,
                lambda tx: tx.complete_message(message),
                lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
                lambda _: 1 / 0,
            )
        assert not calls.by_script["transact"]
        assert await bodies_in(client, "outputs") == []
        await receiver.renew_message_lock(message)
        await receiver.complete_message(message)


async def test_a_rollback_sends_nothing_and_refuses_further_calls(client: ServiceBusClient) -> None:
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        with Calls(client._connection.transport) as calls:
            async with client.transaction() as tx:
                tx.complete_message(message)
                tx.send_messages(sender, ServiceBusMessage("a"))
                tx.rollback()
                with pytest.raises(ValueError, match="was rolled back"):
                    tx.send_messages(sender, ServiceBusMessage("b"))
        assert not calls.by_script["transact"]
        assert await bodies_in(client, "outputs") == []
        await receiver.complete_message(message)


@pytest.mark.parametrize("records", [ServiceBusTransaction.complete_message, ServiceBusTransaction.renew_message_lock])
async def test_a_lost_lock_undoes_everything_and_is_named(
    client: ServiceBusClient, url: str, records: Callable[[ServiceBusTransaction, ServiceBusReceivedMessage], object]
) -> None:
    """Another client settles the message by its lock token."""
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        async with ServiceBusClient(url) as other, other.get_settler("inputs") as settler:
            await settler.complete_message(str(message.lock_token))
        with pytest.raises(MessageLockLostError, match=r"changed nothing\. The lock on message 1 has ended") as lost:
            await transact(
                client, lambda tx: tx.send_messages(sender, ServiceBusMessage("a")), lambda tx: records(tx, message)
            )
        assert lost.value.entity == "inputs"
        assert await bodies_in(client, "outputs") == []


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (lambda admin: admin.delete_queue("outputs"), MessagingEntityNotFoundError),
        (
            lambda admin: admin.update_queue({"name": "outputs", "status": EntityStatus.SEND_DISABLED}),
            MessagingEntityDisabledError,
        ),
    ],
    ids=["deleted", "disabled"],
)
async def test_a_change_of_a_queue_that_this_client_does_not_know_undoes_everything(
    client: ServiceBusClient,
    url: str,
    change: Callable[[ServiceBusAdministrationClient], Awaitable[object]],
    kind: type[ServiceBusError],
) -> None:
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        async with ServiceBusAdministrationClient(url) as admin:
            await change(admin)
        with pytest.raises(kind) as refused:
            await transact(
                client,
                lambda tx: tx.complete_message(message),
                lambda tx: tx.send_messages(sender, ServiceBusMessage("a")),
            )
        assert refused.value.entity == "outputs"
        await receiver.complete_message(message)


async def test_a_message_that_was_settled_outside_undoes_everything(client: ServiceBusClient) -> None:
    await send(client, "inputs", "1")
    async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
        (message,) = await receive_exactly(receiver, 1)
        tx = await client.transaction().__aenter__()
        tx.complete_message(message)
        tx.send_messages(sender, ServiceBusMessage("a"))
        await receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled, match="was settled, or is being settled, outside"):
            await tx.__aexit__(None, None, None)
        assert await bodies_in(client, "outputs") == []
        with pytest.raises(MessageAlreadySettled):
            await receiver.complete_message(message)


async def test_a_message_can_be_settled_if_its_transaction_ended_before_the_call(client: ServiceBusClient) -> None:
    """Two calls are under way, so the third transaction waits for the next one when its caller goes."""
    await send(client, "inputs", "1", "2", "3")
    async with client.get_queue_receiver("inputs") as receiver:
        messages = await receive_exactly(receiver, 3)
        with Gate(client, "transact") as gate:
            gate.shut = True
            commits: list[asyncio.Task[ServiceBusTransaction]] = []
            for message in messages:
                await gate.reached(len(commits))
                commits.append(asyncio.create_task(transact(client, methodcaller("complete_message", message))))
            await eventually(lambda: hold_of(messages[2]).settled)
            commits.pop().cancel()
            await eventually(lambda: not hold_of(messages[2]).settled)
            commits.append(asyncio.create_task(transact(client, methodcaller("complete_message", messages[2]))))
            await eventually(lambda: hold_of(messages[2]).settled)
            gate.open()
            await asyncio.gather(*commits)
        assert await bodies_in(client, "inputs") == []


# -- faults ------------------------------------------------------------------------------------------------------------


CUTS: dict[str, dict[str, Any]] = {"call lost": {"on_the_way": True}, "answer lost": {}, "answered": {"after": True}}


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("times", [1, 3])
async def test_a_commit_whose_connection_breaks_happens_once(server: LocalServer, times: int, cut: str) -> None:
    """It is not refused by its own key or its own watermark."""
    times = 1 if cut == "answered" else times
    async with (
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
    ):
        await client.ensure_queue("inputs")
        await client.ensure_queue("outputs", colocate_with="inputs")
        await send(client, "inputs", "1")
        async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
            (message,) = await receive_exactly(receiver, 1)
            network.cut("transact", times, **CUTS[cut])
            async with client.transaction() as tx:
                tx.complete_message(message)
                tx.send_messages(sender, ServiceBusMessage("a"))
                tx.once("a key", 60)
                tx.advance(sender, "a watermark", "1", expected=None)
            assert network.cuts == times
            assert (await bodies_in(client, "inputs"), await bodies_in(client, "outputs")) == ([], ["a"])
            with pytest.raises(WatermarkChangedError):
                await transact(client, lambda tx: tx.advance(sender, "a watermark", "1", expected=None))


@pytest.mark.parametrize("how", ["deleted", "made again"])
async def test_a_lost_answer_of_an_entity_that_is_gone_is_reported_as_unknown(server: LocalServer, how: str) -> None:
    """The record of the call is gone with the entity, and its other effects are there."""
    async with (
        Scissors(server).listening() as network,
        ServiceBusClient(f"redis://127.0.0.1:{network.port}", namespace="ns") as client,
        ServiceBusAdministrationClient(server.url, namespace="ns") as admin,
    ):
        await client.ensure_queue("first")
        await client.ensure_queue("outputs", colocate_with="first")
        first, second = client.get_queue_sender("first"), client.get_queue_sender("outputs")
        network.cut("transact", 1, then=partial(_replace, admin, again=how == "made again"))
        with pytest.raises(ServiceBusError) as unknown:
            await transact(
                client,
                lambda tx: tx.send_messages(first, ServiceBusMessage("a")),
                lambda tx: tx.send_messages(second, ServiceBusMessage("b")),
            )
        assert unknown.value.outcome is Outcome.UNKNOWN
        assert network.cuts == 1
        assert await bodies_in(client, "outputs") == ["b"]


async def _replace(admin: ServiceBusAdministrationClient, *, again: bool) -> None:
    await admin.delete_queue("first")
    if again:
        await admin.create_queue("first")


# -- bad input ---------------------------------------------------------------------------------------------------------


async def test_a_transaction_is_used_once_and_only_in_its_block(client: ServiceBusClient) -> None:
    sender = client.get_queue_sender("outputs")
    tx = client.transaction()
    with pytest.raises(ValueError, match="Enter the transaction first"):
        tx.send_messages(sender, ServiceBusMessage("a"))
    async with tx:
        pass
    with pytest.raises(ValueError, match="The transaction has ended"):
        tx.send_messages(sender, ServiceBusMessage("a"))
    with pytest.raises(ValueError, match="The transaction was used already"):
        await tx.__aenter__()
    assert await bodies_in(client, "outputs") == []


async def test_senders_messages_and_sessions_of_another_client_are_refused(client: ServiceBusClient, url: str) -> None:
    await client.ensure_queue("jobs", requires_session=True, colocate_with="inputs")
    await send(client, "inputs", "1")
    async with (
        ServiceBusClient(url) as other,
        other.get_queue_receiver("inputs") as receiver,
        other.get_queue_receiver("jobs", session_id="s") as of_session,
    ):
        (message,) = await receive_exactly(receiver, 1)
        async with client.transaction() as tx:
            with pytest.raises(ValueError, match="sender belongs to another client"):
                tx.send_messages(other.get_queue_sender("outputs"), ServiceBusMessage("a"))
            with pytest.raises(ValueError, match="message was received through another client"):
                tx.complete_message(message)
            with pytest.raises(ValueError, match="session was accepted through another client"):
                tx.set_session_state(of_session.session, b"x")
        await receiver.complete_message(message)


async def test_more_than_a_hundred_messages_are_refused(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("outputs") as sender:
        async with client.transaction() as tx:
            tx.send_messages(sender, [ServiceBusMessage("a")] * 100)
            with pytest.raises(MessageSizeExceededError, match="with this call it would have 101"):
                tx.send_messages(sender, ServiceBusMessage("b"))
        assert await bodies_in(client, "outputs") == ["a"] * 100


async def test_more_than_four_megabytes_are_refused(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("outputs") as sender, client.transaction() as tx:
        tx.send_messages(sender, [ServiceBusMessage("x" * 1_000_000)] * 4)
        with pytest.raises(MessageSizeExceededError, match="up to 4194304 bytes"):
            tx.send_messages(sender, ServiceBusMessage("x" * 1_000_000))
        tx.rollback()


async def test_more_than_eight_queues_are_refused(client: ServiceBusClient) -> None:
    names = [f"out{number}" for number in range(9)]
    for name in names:
        await client.ensure_queue(name, colocate_with="inputs")
    with pytest.raises(ValueError, match="up to 8 queues, topics and subscriptions, and this one has 9"):
        await transact(
            client, *(partial(recorded, client.get_queue_sender(name), ServiceBusMessage("a")) for name in names)
        )
    assert [await bodies_in(client, name) for name in names] == [[]] * 9


async def test_messages_with_too_many_copies_for_one_call_are_spread(client: ServiceBusClient, url: str) -> None:
    """The transaction stores the messages, and this client makes their copies before the commit returns."""
    async with ServiceBusAdministrationClient(url) as admin:
        await admin.create_topic("news", colocate_with="inputs")
        for number in range(30):
            await admin.create_subscription("news", f"s{number}")
        sender = client.get_topic_sender("news")
        await transact(client, partial(recorded_all, sender, [ServiceBusMessage("a")] * 100))
        for number in (0, 29):
            properties = await admin.get_subscription_runtime_properties("news", f"s{number}")
            assert properties.active_message_count == 100
        assert (await admin.get_topic_runtime_properties("news")).scheduled_message_count == 0


def recorded_all(sender: ServiceBusSender, messages: list[ServiceBusMessage], tx: ServiceBusTransaction) -> None:
    tx.send_messages(sender, messages)


@pytest.mark.parametrize(
    ("keys", "text"),
    [([None], "needs a key"), (["k", None], "needs a key"), (["k", "l"], r"different keys \('k', 'l'\)")],
)
async def test_keys_on_a_partitioned_queue_are_compared_before_the_call(
    client: ServiceBusClient, keys: list[str | None], text: str
) -> None:
    await client.ensure_queue("wide", enable_partitioning=True)
    async with client.get_queue_sender("wide") as sender:
        messages = [ServiceBusMessage("a", partition_key=key) for key in keys]
        with pytest.raises(ValueError, match=text):
            await transact(client, *(partial(recorded, sender, message) for message in messages))
        assert await bodies_in(client, "wide") == []


async def test_wrong_arguments_are_refused_by_the_call_that_gives_them(client: ServiceBusClient) -> None:
    async with client.transaction() as tx:
        with pytest.raises(TypeError, match=r"sbredis\.aio\.ServiceBusSender, not with str"):
            tx.send_messages("outputs", ServiceBusMessage("a"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="received message"):
            tx.complete_message("x")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"sbredis\.aio\.ServiceBusSession, not of str"):
            tx.set_session_state("s", b"x")  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            tx.send_messages(client.get_queue_sender("outputs"), 7)  # type: ignore[arg-type]


# -- renewing locks ----------------------------------------------------------------------------------------------------


async def test_a_lock_is_renewed_together_with_what_is_sent(url: str) -> None:
    """Only this message gets a longer lock, and it can be renewed and settled afterwards."""
    clock = HandClock()
    async with ServiceBusClient(url, _clock=clock) as client:
        await client.ensure_queue("inputs", lock_duration=timedelta(seconds=30))
        await client.ensure_queue("outputs", colocate_with="inputs")
        await send(client, "inputs", "1", "2")
        async with client.get_queue_receiver("inputs") as receiver, client.get_queue_sender("outputs") as sender:
            first, second = await receive_exactly(receiver, 2)
            before, untouched = first.locked_until_utc, second.locked_until_utc
            clock.move(20)
            async with client.transaction() as tx:
                tx.send_messages(sender, ServiceBusMessage("half done"))
                tx.renew_message_lock(first)
                assert first.locked_until_utc == before
            assert await bodies_in(client, "outputs") == ["half done"]
            assert before is not None
            assert first.locked_until_utc is not None
            assert timedelta(seconds=19) < first.locked_until_utc - before < timedelta(seconds=21)
            assert second.locked_until_utc == untouched
            clock.move(15)  # the other lock has ended
            (again,) = await receive_exactly(receiver, 1)
            assert str(again) == "2"
            await receiver.renew_message_lock(first)
            clock.move(25)
            await receiver.complete_message(first)


async def test_a_message_is_renewed_or_settled_and_a_session_has_another_lock(client: ServiceBusClient) -> None:
    await client.ensure_queue("sessions", requires_session=True)
    await send(client, "inputs", "1")
    await send(client, "sessions", "1", session_id="a")
    async with (
        client.get_queue_receiver("inputs") as receiver,
        client.get_queue_receiver("sessions", session_id="a") as of_session,
    ):
        (message,), (in_session,) = await receive_exactly(receiver, 1), await receive_exactly(of_session, 1)
        async with client.transaction() as tx:
            tx.renew_message_lock(message)
            with pytest.raises(MessageAlreadySettled, match="settles this message or renews its lock already"):
                tx.complete_message(message)
            with pytest.raises(TypeError, match="renew the lock of the session"):
                tx.renew_message_lock(in_session)
        await receiver.complete_message(message)
        with pytest.raises(MessageAlreadySettled):
            async with client.transaction() as tx:
                tx.renew_message_lock(message)
