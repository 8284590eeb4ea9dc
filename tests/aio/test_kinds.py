"""A receiver refuses an entity of the wrong kind immediately and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from sbredis.aio import ServiceBusReceiver
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError, Outcome, ServiceBusError
from sbredis.model import NEXT_AVAILABLE_SESSION, ServiceBusMessage
from tests.aio.queues import Calls, Queue, bodies, both, queue_with
from tests.aio.session_queues import SessionQueue, session_queue_at

Call = Callable[[ServiceBusReceiver], Awaitable[object]]
RECEIVING: dict[str, Call] = {
    "opened": ServiceBusReceiver.__aenter__,
    "receiving": lambda receiver: receiver.receive_messages(1, 1),
    "iterating": anext,
}
ALL: dict[str, Call] = {
    **RECEIVING,
    "peeking": lambda receiver: receiver.peek_messages(),
    "deferred": lambda receiver: receiver.receive_deferred_messages(1),
    "purging": lambda receiver: receiver.purge_messages(),
    "deleting": lambda receiver: receiver.delete_messages(1),
}


@both
@pytest.mark.parametrize("call", RECEIVING)
@pytest.mark.parametrize("prefetch", [0, 5])
async def test_a_receiver_without_a_session_is_refused_by_a_session_queue(
    url: str, partitioned: bool, call: str, prefetch: int
) -> None:
    async with session_queue_at(url, partitioned=partitioned) as queue:
        await queue.send_to("a", "1")
        before = await queue.stored()
        with Calls(queue.transport) as calls, pytest.raises(ServiceBusError, match="non-sessionful") as caught:
            await RECEIVING[call](queue.receiver(prefetch_count=prefetch))
        assert (caught.value.outcome, caught.value.entity) == (Outcome.NEVER_SENT, "q")
        assert (caught.value.is_transient, "with session_id" in str(caught.value)) == (False, True)
        assert set(calls.by_script) == {"read_entity"}  # the entity may have changed
        assert await queue.stored() == before


@both
@pytest.mark.parametrize("call", RECEIVING)
@pytest.mark.parametrize("name", ["a", NEXT_AVAILABLE_SESSION], ids=["named", "next"])
async def test_a_session_receiver_is_refused_by_a_queue_without_sessions(queue: Queue, call: str, name: str) -> None:
    await queue.send("1")
    before = await queue.stored()
    with Calls(queue.transport) as calls, pytest.raises(ServiceBusError, match="no sessions") as caught:
        await RECEIVING[call](queue.receiver(session_id=name, max_wait_time=1))
    assert (caught.value.outcome, caught.value.entity) == (Outcome.NEVER_SENT, "q")
    assert (caught.value.is_transient, "requires_session=True" in str(caught.value)) == (False, True)
    assert set(calls.by_script) == {"read_entity"}  # the entity may have changed
    assert await queue.stored() == before


@pytest.mark.parametrize("call", ALL)
async def test_receiving_from_a_topic_is_refused(queue: Queue, call: str) -> None:
    """A peek at a topic raises an error instead of returning an empty list."""
    async with queue.client.get_topic_sender("news", create_if_missing=True) as sender:
        await sender.send_messages([])
    receiver = queue.client.get_queue_receiver("news")
    with Calls(queue.transport) as calls, pytest.raises(MessagingEntityNotFoundError, match="is a topic") as caught:
        await ALL[call](receiver)
    assert caught.value.entity == "news"
    assert not {"grant", "receive", "peek", "purge", "receive_deferred"} & calls.by_script.keys()


@pytest.mark.parametrize("call", ALL)
async def test_a_missing_subscription_is_named_in_the_error(queue: Queue, call: str) -> None:
    async with queue.client.get_topic_sender("news", create_if_missing=True) as sender:
        await sender.send_messages([])
    for topic in ("news", "q"):
        with pytest.raises(MessagingEntityNotFoundError, match="nowhere"):
            await ALL[call](queue.client.get_subscription_receiver(topic, "nowhere"))


@both
@queue_with(sessions=True)
async def test_a_session_queue_can_be_peeked_purged_and_dead_lettered_without_a_session(queue: SessionQueue) -> None:
    await queue.send_to("a", "1", "2")
    async with queue.session("a") as receiver:
        await receiver.dead_letter_message(await anext(receiver))
    anybody = queue.receiver()
    shown: list[str] = []
    while page := await anybody.peek_messages(5):
        shown += bodies(page)
    assert shown == ["2"]
    assert await anybody.purge_messages() == 1
    async with queue.receiver(sub_queue="deadletter") as dead:
        assert bodies(await dead.receive_messages(2, 60)) == ["1"]


# -- entities that forward their messages ------------------------------------------------------------------------------

FORWARDING = "^Cannot create a message receiver on an entity with auto-forwarding enabled"


async def forward(queue: Queue, destination: str | None = "all") -> None:
    """Set the destination of the queue."""
    async with ServiceBusAdministrationClient(queue.url, namespace="ns") as admin:
        await admin.ensure_queue("all")
        await admin.update_queue({"name": "q"}, forward_to=destination)


@both
@pytest.mark.parametrize("call", RECEIVING)
async def test_a_receiver_is_refused_by_a_queue_that_forwards_its_messages(queue: Queue, call: str) -> None:
    await queue.send("1")
    await forward(queue)
    before = await queue.stored()
    async with queue.other_client() as client:
        receiver = client.get_queue_receiver("q")
        with pytest.raises(ServiceBusError, match=f"{FORWARDING}.*'q' forwards its messages to 'all'") as caught:
            await RECEIVING[call](receiver)
    assert (caught.value.outcome, caught.value.entity) == (Outcome.NEVER_SENT, "q")
    assert await queue.stored() == before


@both
async def test_a_queue_that_forwards_can_be_peeked_and_purged_and_its_sub_queues_received_from(queue: Queue) -> None:
    await queue.send("dead", "deferred", "held", "left", at=0)
    async with queue.receiver() as receiver:
        dead, deferred, held = [await anext(receiver) for _ in range(3)]
        await receiver.dead_letter_message(dead)
        await receiver.defer_message(deferred)
        await forward(queue)
        await receiver.complete_message(held)
    async with queue.other_client() as client:
        anybody = client.get_queue_receiver("q")
        assert deferred.sequence_number is not None
        (found,) = await anybody.receive_deferred_messages(deferred.sequence_number)
        await anybody.complete_message(found)
        assert bodies(await anybody.peek_messages(5)) == ["left"]
        assert await anybody.purge_messages() == 1
        async with client.get_queue_receiver("q", sub_queue="deadletter") as dead_letters:
            assert bodies(await dead_letters.receive_messages(2, 60)) == ["dead"]
        async with client.get_queue_receiver("q", sub_queue="transferdeadletter") as transfers:
            assert await transfers.receive_messages(1, 0) == []


@both
@pytest.mark.parametrize("prefetch", [0, 5])
async def test_a_receiver_is_refused_when_its_queue_begins_to_forward(queue: Queue, prefetch: int) -> None:
    """The partition refuses the receiver. A receiver that waits learns of the change at once."""
    async with queue.receiver(prefetch_count=prefetch) as receiver:
        await queue.send("1")
        assert bodies(await receiver.receive_messages(1, 60)) == ["1"]
        await forward(queue)
        for _ in range(2):
            with pytest.raises(ServiceBusError, match=FORWARDING) as caught:
                await receiver.receive_messages(1, 60)
            assert caught.value.outcome is Outcome.REFUSED
        await forward(queue, None)
        async with queue.other_client() as client:
            await client.get_queue_sender("q").send_messages(ServiceBusMessage("2"))
        assert bodies(await receiver.receive_messages(1, 60)) == ["2"]


# -- entities that have changed ----------------------------------------------------------------------------------------


@both
async def test_a_client_that_was_refused_receives_when_the_queue_forwards_no_more(queue: Queue) -> None:
    await forward(queue)
    async with queue.other_client() as client:
        with pytest.raises(ServiceBusError, match=FORWARDING):
            await client.get_queue_receiver("q").receive_messages(1, 0)
        await forward(queue, None)
        async with queue.other_client() as other:
            await other.get_queue_sender("q").send_messages(ServiceBusMessage("1"))
        async with client.get_queue_receiver("q") as receiver:
            assert bodies(await receiver.receive_messages(1, 60)) == ["1"]


@queue_with(sessions=True)
async def test_a_queue_made_again_is_judged_by_its_new_settings(queue: Queue) -> None:
    """The client decides whether a message needs a session, and whether a receiver does, before it calls."""

    async def made_again(sessions: bool) -> None:
        async with ServiceBusAdministrationClient(queue.url, namespace="ns") as admin:
            await admin.delete_queue("q")
            await admin.create_queue("q", requires_session=sessions)

    async with queue.other_client() as client, client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("0", session_id="s"))
        await made_again(False)
        await sender.send_messages(ServiceBusMessage("1"))
        assert bodies(await client.get_queue_receiver("q").receive_messages(1, 60)) == ["1"]
        await made_again(True)
        await sender.send_messages(ServiceBusMessage("2", session_id="s"))
        await made_again(False)
        async with client.transaction() as tx:
            tx.send_messages(sender, ServiceBusMessage("3"))
        await made_again(True)
        async with queue.other_client() as other:
            await other.get_queue_sender("q").send_messages(ServiceBusMessage("4", session_id="s"))
        async with client.get_queue_receiver("q", session_id="s") as receiver:
            assert bodies(await receiver.receive_messages(1, 60)) == ["4"]
