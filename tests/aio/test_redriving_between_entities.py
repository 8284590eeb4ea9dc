"""Redrives that end at other entities: dying clients, messages of a mover in the way, and transfer dead letters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from sbredis import RedriveBudget, ServiceBusReceivedMessage
from sbredis.aio import ServiceBusReceiver
from sbredis.engine import read_record
from sbredis.exceptions import RedriveInProgressError, ServiceBusError
from sbredis.model import Purpose, hold_of, moved, read_purpose
from tests.aio.diverting import divert
from tests.aio.queues import PATIENT, handling, in_memory
from tests.maintenance.test_forwarding import Flow, Mortal, bodies, flow_at, text
from tests.waiting import eventually


async def kill(flow: Flow, name: str, *texts: str, reason: str = "Timeout") -> None:
    """Send messages and dead-letter them."""
    for each in texts:
        await flow.send(name, text(each, application_properties={"kept": 1}))
    async with flow.client.get_queue_receiver(name) as receiver:
        for _ in texts:
            (message,) = await receiver.receive_messages(1, 60)
            await receiver.dead_letter_message(message, reason, "why")


async def peeked(flow: Flow, name: str, sub_queue: Any = None) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    async with flow.client.get_queue_receiver(name, sub_queue=sub_queue) as receiver:
        while page := await receiver.peek_messages(100):
            found += page
    return found


CHANGES = {"redriven": True, "kept": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "runs"),
    [("freeze", True), ("take", False), ("take", True), ("settle_batch", False), ("settle_batch", True)],
)
async def test_a_mover_completes_a_redrive_as_its_client_would_have(url: str, script: str, runs: bool) -> None:
    """The messages are the same, byte for byte, whoever completes the batch."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from")
        await kill(flow, "from", *"abc")
        letters = await peeked(flow, "from", "deadletter")
        purpose = read_purpose(Purpose(True, CHANGES, "to").stored())
        expected = [
            moved(hold_of(each).delivery, purpose, number=each.sequence_number or 0, now=0, died_in="from")[0].payload
            for each in letters
        ]
        async with flow.other_client() as client:
            mortal = Mortal(client, 1, frozenset({script}), runs=runs)
            async with client.get_queue_receiver("from", sub_queue="deadletter") as receiver:
                with suppress(ServiceBusError):
                    await receiver.redrive_messages(to="to", properties_to_modify=CHANGES)
            assert mortal.dead, "the two queues are in one slot"
        async with flow.mover():

            async def completed() -> bool:
                counts = await flow.admin.get_queue_runtime_properties("from")
                return counts.dead_letter_message_count == 0

            await eventually(completed)
        found = await peeked(flow, "to")
        assert [read_record(hold_of(each).delivery.record).payload for each in found] == expected
        for message in found:
            assert message.application_properties == CHANGES
            assert (message.dead_letter_source, message.dead_letter_reason) == ("from", None)


@pytest.mark.slow
@pytest.mark.parametrize("deleted", [False, True])
async def test_any_later_redrive_completes_what_a_killed_one_has_left_behind(url: str, deleted: bool) -> None:
    """The messages go on to their destination. If it was deleted, they are dead letters as before."""
    async with flow_at(url, timings=replace(PATIENT, claiming_redrive=0.2)) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from")
        await kill(flow, "from", *"abc")
        async with flow.other_client() as client:
            mortal = Mortal(client, 1, frozenset({"freeze"}), runs=True)
            async with client.get_queue_receiver("from", sub_queue="deadletter") as receiver:
                with suppress(ServiceBusError):
                    await receiver.redrive_messages(to="to", properties_to_modify=CHANGES)
            assert mortal.dead
        if deleted:
            await flow.admin.delete_queue("to")
        async with flow.client.get_queue_receiver("from", sub_queue="deadletter") as letters:

            async def redriven() -> bool:
                with suppress(RedriveInProgressError):  # the claim of the killed client has not ended yet
                    result = await letters.redrive_messages()
                    assert (result.moved, result.skipped) == (3 if deleted else 0, 0)
                    return True
                return False

            await eventually(redriven)
        found = await flow.take(3, "from" if deleted else "to")
        assert [each.application_properties for each in found] == [{"kept": 1} if deleted else CHANGES] * 3


@pytest.mark.slow
async def test_a_batch_that_another_redrive_has_just_frozen_is_completed_as_that_one_would_have(url: str) -> None:
    """Both have chosen the same messages for the same destination, and change them in other ways."""
    others = Purpose(True, {"other": True}, "to", "another").stored()

    async def call(script: Any, keys: Any, arguments: Any, **options: Any) -> Any:
        if script.name == "freeze" and not frozen:
            replaced = [others if _is_purpose(each) else each for each in arguments]
            frozen.append(await through(script, keys, replaced))
        return await through(script, keys, arguments, **options)

    frozen: list[Any] = []
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from")
        await kill(flow, "from", *"ab")
        async with flow.other_client() as client:
            transport: Any = client._connection.transport
            through = transport.call
            divert(transport, call)
            async with client.get_queue_receiver("from", sub_queue="deadletter") as letters:
                result = await letters.redrive_messages(to="to", properties_to_modify=CHANGES)
        assert frozen, "the two queues are in one slot"
        assert result.moved == 0  # the other one counts them
        assert [each.application_properties for each in await peeked(flow, "to")] == [{"kept": 1, "other": True}] * 2


def _is_purpose(argument: Any) -> bool:
    return isinstance(argument, bytes) and argument.startswith(b"redrive ")


@pytest.mark.slow
async def test_messages_that_a_mover_has_frozen_arrive_as_forwarded_messages(url: str) -> None:
    """A redrive to the destination of a forward first completes the batch of a mover that has died."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("to")
        await flow.admin.create_queue("from")
        await kill(flow, "from", "dead")
        queue = await flow.admin.get_queue("from")
        queue.forward_to = "to"
        await flow.admin.update_queue(queue)
        await flow.send("from", text("alive", application_properties={"kept": 1}))
        async with flow.other_client() as client:
            mortal = Mortal(client, 1, frozenset({"take"}), runs=False)
            async with client.maintain():
                await eventually(lambda: mortal.dead)
        async with flow.client.get_queue_receiver("from", sub_queue="deadletter") as letters:
            result = await letters.redrive_messages(to="to", properties_to_modify=CHANGES)
        assert (result.matched, result.moved, result.skipped) == (1, 1, 0)
        alive, dead = sorted(await flow.take(2, "to"), key=str)
        assert (str(alive), alive.application_properties, alive.dead_letter_source) == ("alive", {"kept": 1}, None)
        assert (str(dead), dead.application_properties, dead.dead_letter_source) == ("dead", CHANGES, "from")


@pytest.mark.slow
@pytest.mark.parametrize("to", [None, "other"])
async def test_a_redriven_message_may_be_forwarded_as_often_as_a_new_one(url: str, to: str | None) -> None:
    """Messages that were forwarded too often arrive if the chain was made shorter before the redrive."""
    async with flow_at(url) as flow:
        await flow.admin.create_queue("end")
        for number in range(6):
            await flow.admin.create_queue(f"q{number}")
        for number in range(6):  # in this order, no update sees the whole chain
            queue = await flow.admin.get_queue(f"q{number}")
            queue.forward_to = "end" if number == 5 else f"q{number + 1}"
            await flow.admin.update_queue(queue)
        await flow.admin.create_queue("other", forward_to="end")
        async with flow.mover():
            await flow.send("q0", "a")

            async def dead() -> bool:
                return (await flow.admin.get_queue_runtime_properties("q4")).dead_letter_message_count == 1

            await eventually(dead)
            async with flow.client.get_queue_receiver("q4", sub_queue="deadletter") as letters:
                (letter,) = await letters.peek_messages(1)
                assert letter.dead_letter_reason == "MaxTransferHopCountExceeded"
                assert (await letters.redrive_messages(to=to)).moved == 1
            assert bodies(await flow.take(1, "end")) == ["a"]


async def test_a_message_that_is_too_large_with_its_new_properties_stays(url: str) -> None:
    async with flow_at(url, partitions=16) as flow:
        for name in ("from", "to"):
            await flow.admin.create_queue(name)
        await flow.send("from", text("large", application_properties={"first": "x" * 30_000}))
        async with flow.client.get_queue_receiver("from") as receiver:
            (message,) = await receiver.receive_messages(1, 60)
            await receiver.dead_letter_message(message)
        await kill(flow, "from", "small")
        async with flow.client.get_queue_receiver("from", sub_queue="deadletter") as letters:
            for to in ("to", None):
                result = await letters.redrive_messages(to=to, properties_to_modify={"second": "x" * 40_000})
                assert (result.moved, result.skipped, result.completed) == (int(to is not None), 1, True)
            assert (await letters.redrive_messages()).moved == 1


# -- transfer dead letters ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def undeliverable(flow: Flow, *texts: str, **options: Any) -> AsyncIterator[ServiceBusReceiver]:
    """Let a transaction of the queue "home" send to a queue that is deleted then; yield a receiver of the letters."""
    messages = [text(each, application_properties={"kept": 1}, **options) for each in texts]
    await flow.send_to_a_deleted_queue(*messages)
    async with flow.mover():

        async def refused() -> bool:
            counts = await flow.admin.get_queue_runtime_properties("home")
            return counts.transfer_dead_letter_message_count == len(texts)

        await eventually(refused)
    async with flow.client.get_queue_receiver("home", sub_queue="transferdeadletter") as letters:
        yield letters


@pytest.mark.slow
@pytest.mark.everywhere("messages move between nodes")
@pytest.mark.parametrize("partitioned", [False, True])
async def test_transfer_dead_letters_go_to_the_queue_to_which_they_were_sent(url: str, partitioned: bool) -> None:
    """They wait for a mover. The queue was created again meanwhile, so it has another id, or other partitions."""
    async with flow_at(url, partitions=16) as flow, undeliverable(flow, *"ab", message_id="1") as letters:
        found = await letters.redrive_messages(dry_run=True)
        assert (found.matched, found.by_reason) == (2, {"MessagingEntityNotFound": 2})
        assert "'to' does not exist." in next(iter(found.by_fingerprint))
        nothing = await letters.redrive_messages()
        assert (nothing.moved, nothing.skipped) == (0, 2)
        await flow.admin.create_queue("to", enable_partitioning=partitioned)
        result = await letters.redrive_messages(cursor=found.cursor, properties_to_modify={"redriven": True})
        assert (result.moved, result.skipped, result.completed) == (2, 0, True)
        assert (await flow.admin.get_queue_runtime_properties("home")).transfer_message_count == 2
        async with flow.mover():
            messages = await flow.take(2, "to")
        assert sorted(bodies(messages)) == ["a", "b"]
        for message in messages:
            assert message.application_properties == {"kept": 1, "redriven": True}
            assert (message.dead_letter_source, message.dead_letter_reason) == (None, None)
        assert (await letters.redrive_messages()).matched == 0


@pytest.mark.slow
async def test_transfer_dead_letters_go_elsewhere(url: str) -> None:
    async with flow_at(url, partitions=16) as flow, undeliverable(flow, *"ab") as letters:
        await flow.admin.create_queue("other")
        with pytest.raises(ValueError, match="through which these messages were sent"):
            await letters.redrive_messages(to="home")
        numbers = [each.sequence_number for each in await letters.peek_messages(10)]
        one = await letters.redrive_messages(to="other", sequence_numbers=[number for number in numbers[:1] if number])
        assert one.moved == 1
        result = await letters.redrive_messages(to="other", properties_to_modify=CHANGES)
        assert (result.moved, result.completed) == (1, True)
        first, second = await flow.take(2, "other")
        assert sorted(bodies([first, second])) == ["a", "b"]
        assert (first.application_properties, second.application_properties) == ({"kept": 1}, CHANGES)
        assert {first.dead_letter_source, second.dead_letter_source} == {"home"}


@pytest.mark.slow
async def test_the_budget_of_transfer_dead_letters_counts_messages_that_are_refused_again(url: str) -> None:
    async with flow_at(url, partitions=16) as flow, undeliverable(flow, *map(str, range(12))) as letters:
        await flow.admin.create_queue("to", status="SendDisabled")
        async with flow.mover():
            result = await letters.redrive_messages(budget=RedriveBudget(share=0.5, minimum=4))
        assert (result.moved, result.died_again, result.completed) == (4, 4, False)


async def test_the_cursor_of_the_other_dead_letter_queue_is_refused(url: str) -> None:
    async with flow_at(url, partitions=3) as flow:
        await flow.admin.create_queue("from")
        async with (
            flow.client.get_queue_receiver("from", sub_queue="deadletter") as dead,
            flow.client.get_queue_receiver("from", sub_queue="transferdeadletter") as letters,
        ):
            one, other = await dead.redrive_messages(dry_run=True), await letters.redrive_messages(dry_run=True)
            for receiver, cursor in ((dead, other.cursor), (letters, one.cursor)):
                with pytest.raises(ValueError, match="its other dead-letter queue"):
                    await receiver.redrive_messages(cursor=cursor)


# -- budgets elsewhere -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, 40])
async def test_a_budget_counts_messages_that_die_at_the_destination(url: str, rate: float | None) -> None:
    async with flow_at(url, partitions=16) as flow:
        for name in ("from", "to"):
            await flow.admin.create_queue(name)
        await kill(flow, "to", "other")
        await kill(flow, "from", *map(str, range(20)))
        async with (
            flow.client.get_queue_receiver("to") as receiver,
            handling(receiver),
            flow.client.get_queue_receiver("from", sub_queue="deadletter") as letters,
        ):
            budget = RedriveBudget(share=0.5, minimum=4)
            result = await letters.redrive_messages(to="to", rate=rate, budget=budget, properties_to_modify=CHANGES)
        assert not result.completed
        assert 4 <= result.moved < 20
        assert result.moved / 2 < result.died_again <= result.moved


@in_memory
async def test_a_budget_that_cannot_be_judged_is_refused_and_nothing_is_moved(url: str) -> None:
    async with flow_at(url, partitions=3) as flow:
        await flow.admin.create_topic("topic")
        await flow.admin.create_subscription("topic", "one")
        await flow.admin.create_queue("end")
        await flow.admin.create_queue("forwards", forward_to="end")
        await flow.admin.create_queue("buries", forward_dead_lettered_messages_to="end")
        await flow.admin.create_queue("from")
        await kill(flow, "from", "a")
        async with flow.client.get_queue_receiver("from", sub_queue="deadletter") as letters:
            for to in ("topic", "forwards", "buries"):
                for dry_run in (True, False):
                    with pytest.raises(ValueError, match=f"A budget cannot be judged: '{to}'"):
                        await letters.redrive_messages(to=to, budget=RedriveBudget(), dry_run=dry_run)
            with pytest.raises(ValueError, match="path of a subscription"):
                await letters.redrive_messages(to="topic/Subscriptions/one")
            assert (await letters.redrive_messages(dry_run=True)).matched == 1
