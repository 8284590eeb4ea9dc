"""Sending, scheduling and cancelling with senders, and messages that are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient, ServiceBusSender
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.engine import MAXIMUM_CALL_BYTES
from sbredis.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    Outcome,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)
from sbredis.model import ServiceBusMessage
from tests.aio.gates import Gate, stored_bodies
from tests.aio.queues import HandClock, Queue, bodies, both, in_memory, queue_at, queue_with
from tests.transport.hand import turns

SOON = datetime(2030, 1, 1, tzinfo=UTC)


def flat(found: list[list[str]]) -> list[str]:
    return sorted(body for bodies in found for body in bodies)


# -- sending -----------------------------------------------------------------------------------------------------------


@in_memory
async def test_an_empty_list_or_batch_makes_no_call(queue: Queue, sender: ServiceBusSender) -> None:
    with Gate(queue.client) as gate:
        await sender.send_messages([])
        await sender.send_messages(await sender.create_message_batch())
        assert await sender.schedule_messages([], SOON) == []
        await sender.cancel_scheduled_messages([])
        assert gate.arrived == []


# -- scheduling --------------------------------------------------------------------------------------------------------


@both
async def test_scheduled_messages_are_counted_until_they_are_due(queue: Queue, clock: HandClock) -> None:
    when = datetime.fromtimestamp(clock.utc() + 100, UTC)
    async with queue.client.get_queue_sender("q") as sender:
        numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], when)
        (single,) = await sender.schedule_messages({"body": "c"}, when)
        await sender.send_messages(ServiceBusMessage("d", scheduled_enqueue_time_utc=when))
        await sender.send_messages(ServiceBusMessage("e", scheduled_enqueue_time_utc=when - timedelta(seconds=100)))
        counts = await queue.counts()
        assert (counts.scheduled, counts.active) == (4, 1)
        assert len({*numbers, single}) == 3
        assert numbers[1] == numbers[0] + 1
        clock.move(100)
        await queue.process_due()
        counts = await queue.counts()
        assert (counts.scheduled, counts.active) == (0, 5)


async def test_each_message_of_a_list_can_be_scheduled_at_its_own_time(queue: Queue, clock: HandClock) -> None:
    """One call schedules all messages and returns their sequence numbers in the order of the messages."""
    times = [datetime.fromtimestamp(clock.utc() + seconds, UTC) for seconds in (30, 10, 20)]
    messages = [ServiceBusMessage(text) for text in "abc"]
    async with queue.client.get_queue_sender("q") as sender:
        with Gate(queue.client) as gate:
            numbers = await sender.schedule_messages(messages, times)
            assert len(gate.arrived) == 1
        assert [message.scheduled_enqueue_time_utc for message in messages] == times
        assert numbers == [numbers[0], numbers[0] + 1, numbers[0] + 2]
        (single,) = await sender.schedule_messages(ServiceBusMessage("d"), [times[1]])
        await sender.cancel_scheduled_messages(numbers[2])
        receiver = queue.receiver()
        for seconds, expected in ((9, []), (1, ["b", "d"]), (10, []), (10, ["a"])):
            clock.move(seconds)
            await queue.process_due()
            received = await receiver.receive_messages(5, 0.1) if expected else []
            assert bodies(received) == expected
            await receiver.complete_messages(received)
            assert (await queue.counts()).active == 0
        assert single > numbers[2]


@in_memory
async def test_one_message_object_can_be_scheduled_at_several_times(queue: Queue, clock: HandClock) -> None:
    times = [datetime.fromtimestamp(clock.utc() + seconds, UTC) for seconds in (10, 20)]
    async with queue.client.get_queue_sender("q") as sender:
        await sender.schedule_messages([ServiceBusMessage("x")] * 2, times)
        clock.move(10)
        await queue.process_due()
        counts = await queue.counts()
        assert (counts.scheduled, counts.active) == (1, 1)


@in_memory
@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ([SOON], ValueError),
        ([SOON] * 3, ValueError),
        ([], ValueError),
        ([SOON, SOON.replace(tzinfo=None)], ValueError),
        ([SOON, "tomorrow"], TypeError),
        ([SOON, None], TypeError),
        (None, TypeError),
        ("tomorrow", TypeError),
    ],
)
async def test_invalid_schedule_times_are_refused_before_any_call(url: str, wrong: Any, kind: type[Exception]) -> None:
    messages = [ServiceBusMessage("a"), ServiceBusMessage("b")]
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        with Gate(queue.client) as gate, pytest.raises(kind, match="schedule"):
            await sender.schedule_messages(messages, wrong)
        assert gate.arrived == []
        assert [message.scheduled_enqueue_time_utc for message in messages] == [None, None]


@pytest.mark.everywhere("the partitions lie on several nodes")
@both
async def test_scheduled_messages_are_cancelled_by_sequence_number(queue: Queue, sender: ServiceBusSender) -> None:
    numbers = [
        number
        for text in "abcdef"
        for number in await sender.schedule_messages(ServiceBusMessage(text, partition_key=text), SOON)
    ]
    await sender.cancel_scheduled_messages(numbers[0])
    await sender.cancel_scheduled_messages([*numbers[1:5], numbers[1]])
    assert (await queue.counts()).scheduled == 1
    assert flat(await stored_bodies(queue)) == ["f"]


@both
async def test_an_unknown_sequence_number_is_named_in_the_error(queue: Queue, sender: ServiceBusSender) -> None:
    (number,) = await sender.schedule_messages(ServiceBusMessage("a"), SOON)
    for unknown in (0, -1, 4711, 10**15, 2 << 48, (77 << 48) + 1, 1 << 70):
        with pytest.raises(
            MessageNotFoundError,
            match=rf"These messages are not scheduled, or are no longer scheduled: {unknown}\.",
        ) as caught:
            await sender.cancel_scheduled_messages(unknown)
        assert (caught.value.entity, caught.value.outcome) == ("q", Outcome.REFUSED)
        assert (await queue.counts()).scheduled == 1
    await sender.cancel_scheduled_messages([number])


async def test_several_scheduled_messages_are_cancelled_together_or_not_at_all(url: str) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], SOON)
        with pytest.raises(MessageNotFoundError, match="No message was cancelled") as caught:
            await sender.cancel_scheduled_messages([*numbers, 99])
        assert caught.value.outcome is Outcome.REFUSED
        assert (await queue.counts()).scheduled == 2


@pytest.mark.slow
@in_memory
async def test_the_error_lists_the_numbers_that_earlier_calls_have_already_cancelled(url: str) -> None:
    """Several calls are needed for more numbers than a call takes, and for numbers of several partitions."""
    async with queue_at(url, partitioned=True) as queue, queue.client.get_queue_sender("q") as sender:
        first = await sender.schedule_messages(ServiceBusMessage("a", partition_key="a"), SOON)
        others = (
            number for key in "bcdefgh" for number in [key] if queue.entity.pinned(key) is not queue.entity.pinned("a")
        )
        second = await sender.schedule_messages(ServiceBusMessage("b", partition_key=next(others)), SOON)
        with pytest.raises(MessageNotFoundError, match=f"cancelled before: \\[{first[0]}\\]") as caught:
            await sender.cancel_scheduled_messages([*first, *second, second[0] + 1])
        assert caught.value.outcome is Outcome.UNKNOWN
        assert flat(await stored_bodies(queue)) == ["b"]
        many: list[int] = []
        for _ in range(2):
            listed = [ServiceBusMessage("c", partition_key="c") for _ in range(700)]
            many += await sender.schedule_messages(listed, SOON)
        with pytest.raises(MessageNotFoundError, match=f"cancelled before: \\[{many[0]}, "):
            await sender.cancel_scheduled_messages([*many, many[-1] + 1])
        assert (await queue.counts()).scheduled == 401


@pytest.mark.parametrize("wrong", ["12", b"12", 1.5, None, True, [True], ["1"], [None]])
@in_memory
async def test_a_sequence_number_must_be_a_whole_number(sender: ServiceBusSender, wrong: Any) -> None:
    with pytest.raises(TypeError, match="sequence number"):
        await sender.cancel_scheduled_messages(wrong)


@in_memory
async def test_a_time_without_a_time_zone_is_refused(queue: Queue, sender: ServiceBusSender) -> None:
    message = ServiceBusMessage("x")
    with pytest.raises(ValueError, match="time zone"):
        await sender.schedule_messages(message, datetime(2030, 1, 1))  # noqa: DTZ001  # the missing zone is tested
    assert message.scheduled_enqueue_time_utc is None
    assert flat(await stored_bodies(queue)) == []


@in_memory
@pytest.mark.parametrize("when", [datetime.max.replace(tzinfo=UTC), datetime.min.replace(tzinfo=UTC)])
async def test_an_extreme_time_does_not_affect_concurrent_sends(sender: ServiceBusSender, when: datetime) -> None:
    """The sender accepts or refuses such a time. Concurrent sends succeed."""
    ended = await asyncio.gather(
        sender.send_messages(ServiceBusMessage("a")),
        sender.schedule_messages(ServiceBusMessage("b"), when),
        sender.send_messages(ServiceBusMessage("c", time_to_live=timedelta.max)),
        return_exceptions=True,
    )
    assert ended[0] is None
    assert ended[2] is None
    assert not isinstance(ended[1], BaseException) or type(ended[1]) is ValueError


# -- size limits -------------------------------------------------------------------------------------------------------


async def refused_unsent(
    queue: Queue, error: type[Exception], match: str, call: Callable[[], Awaitable[Any]]
) -> Exception:
    """Check that a call is refused with this error, sends nothing and changes nothing."""
    before = await queue.contents()
    with Gate(queue.client) as gate:
        with pytest.raises(error, match=match) as caught:
            await call()
        assert gate.arrived == []
    assert await queue.contents() == before
    return caught.value


@both
@queue_with(largest_message=2000)
async def test_a_message_above_the_size_limit_is_refused_before_it_is_sent(queue: Queue) -> None:
    async with queue.client.get_queue_sender("q") as sender:
        large, small = ServiceBusMessage(bytes(2000)), ServiceBusMessage(bytes(900))
        error = await refused_unsent(
            queue,
            MessageSizeExceededError,
            "The message has 20[0-9]+ bytes; the queue takes messages of up to 2000 bytes, .*Make it smaller, or",
            lambda: sender.send_messages(large),
        )
        assert isinstance(error, MessageSizeExceededError)
        assert (error.entity, error.outcome, error.is_transient) == ("q", Outcome.NEVER_SENT, False)
        await refused_unsent(
            queue,
            MessageSizeExceededError,
            "The 3 messages have 2[0-9]+ bytes together, .* up to 2000 bytes at once. Send fewer messages at once, "
            "or raise max",
            lambda: sender.send_messages([small, small, small]),
        )
        await refused_unsent(
            queue, MessageSizeExceededError, "The message has", lambda: sender.schedule_messages(large, SOON)
        )
        await sender.send_messages([small, small])
        batch = await sender.create_message_batch()
        assert batch.max_size_in_bytes == 2000
        with pytest.raises(MessageSizeExceededError):
            batch.add_message(large)
        assert sender.in_flight == 0


@both
async def test_a_message_above_a_newly_lowered_size_limit_is_refused(url: str, *, partitioned: bool) -> None:
    """This also holds if the sender does not know the new limit yet."""
    async with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        large = ServiceBusMessage(bytes(3000))
        await sender.send_messages(large)
        async with ServiceBusAdministrationClient(url + ("&" if "?" in url else "?") + "namespace=ns") as admin:
            await admin.update_queue({"name": "q"}, max_message_size_in_kilobytes=2)
        text = "^The message has 30[0-9]+ bytes.* takes messages of up to 2048 bytes.*or raise max_message_size"
        for _ in range(2):
            with pytest.raises(MessageSizeExceededError, match=text) as caught:
                await sender.send_messages(large)
            assert (caught.value.entity, caught.value.outcome) == ("q", Outcome.NEVER_SENT)
        assert (await queue.counts()).active == 1


@both
async def test_a_message_below_a_newly_raised_size_limit_is_sent(url: str, *, partitioned: bool) -> None:
    """The sender and the transaction read the limit again before they refuse a message because of it."""
    async with queue_at(url, partitioned=partitioned) as queue, queue.client.get_queue_sender("q") as sender:
        large = ServiceBusMessage(bytes(2**20), partition_key="k")
        with pytest.raises(MessageSizeExceededError):
            await sender.send_messages(large)
        async with ServiceBusAdministrationClient(url + ("&" if "?" in url else "?") + "namespace=ns") as admin:
            await admin.update_queue({"name": "q"}, max_message_size_in_kilobytes=2048)
            await sender.send_messages(large)
            await admin.update_queue({"name": "q"}, max_message_size_in_kilobytes=3072)
        async with queue.client.transaction() as transaction:
            transaction.send_messages(sender, ServiceBusMessage(bytes(2**21), partition_key="k"))
        assert (await queue.counts()).active == 2


async def test_a_size_error_of_a_topic_names_the_topic(url: str) -> None:
    async with ServiceBusClient(url) as client, client.get_topic_sender("t", create_if_missing=True) as sender:
        large = ServiceBusMessage(bytes(2**20))
        with pytest.raises(MessageSizeExceededError, match="; the topic takes messages of up to 1048576 bytes"):
            await sender.send_messages(large)
        with pytest.raises(ValueError, match="the topic 't' takes batches of up to 1048576 bytes"):
            await sender.create_message_batch(2**21)


async def test_a_list_of_more_than_a_thousand_messages_is_refused(queue: Queue, sender: ServiceBusSender) -> None:
    many = [ServiceBusMessage("x") for _ in range(1001)]
    await refused_unsent(
        queue,
        MessageSizeExceededError,
        "^1001 messages are too many for one call, which takes up to 1000. Send fewer messages at once, .*send_stream",
        lambda: sender.send_messages(many),
    )
    await sender.send_messages(many[:1000])
    assert (await queue.counts()).active == 1000


@queue_with(largest_message=MAXIMUM_CALL_BYTES * 2)
async def test_a_single_message_may_exceed_the_size_limit_of_a_shared_call(queue: Queue) -> None:
    """A single message may be larger than the limit of a call. Several messages together may not."""
    async with queue.client.get_queue_sender("q") as sender:
        large = ServiceBusMessage(bytes(MAXIMUM_CALL_BYTES + 1))
        await sender.send_messages(large)
        half = ServiceBusMessage(bytes(MAXIMUM_CALL_BYTES // 2))
        await refused_unsent(
            queue,
            MessageSizeExceededError,
            f"the queue takes up to {MAXIMUM_CALL_BYTES} bytes at once. Send fewer messages at once. ",
            lambda: sender.send_messages([half, half]),
        )
        assert (await sender.create_message_batch()).max_size_in_bytes == MAXIMUM_CALL_BYTES
        await asyncio.gather(sender.send_messages(half), sender.send_messages(large), sender.send_messages(half))
        assert (await queue.counts()).active == 4


@in_memory
async def test_a_batch_may_not_exceed_the_size_limit_of_the_queue(url: str) -> None:
    async with queue_at(url, largest_message=2000) as queue, queue.client.get_queue_sender("q") as sender:
        assert (await sender.create_message_batch(1000)).max_size_in_bytes == 1000
        with pytest.raises(ValueError, match="takes batches of up to 2000 bytes"):
            await sender.create_message_batch(2001)
        with pytest.raises(ValueError, match="max_size_in_bytes"):
            await sender.create_message_batch(0)


# -- messages that the queue refuses -----------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize("way", ["one", "list", "batch"])
@pytest.mark.parametrize(
    ("settings", "name", "size", "kind", "outcome", "says"),
    [
        (
            {},
            "unknown",
            10,
            MessagingEntityNotFoundError,
            Outcome.REFUSED,
            ("There is no entity", "Create it", "will not help"),
        ),
        (
            {"status": "SendDisabled"},
            "q",
            10,
            MessagingEntityDisabledError,
            Outcome.REFUSED,
            ("status is SendDisabled", "Nothing was changed", "when the status is Active", "a retry may help"),
        ),
        (
            {"largest_message": 2000},
            "q",
            3000,
            MessageSizeExceededError,
            Outcome.NEVER_SENT,
            ("bytes", "2000", "will not help"),
        ),
        (
            {"quota": 2000},
            "q",
            3000,
            ServiceBusQuotaExceededError,
            Outcome.REFUSED,
            ("The entity is full", "Receive or purge"),
        ),
    ],
)
async def test_the_error_of_a_refused_send_says_what_happened_and_whether_a_retry_can_help(  # noqa: PLR0917 -- the columns of a table
    url: str,
    way: str,
    settings: Any,
    name: str,
    size: int,
    kind: type[ServiceBusError],
    outcome: Outcome,
    says: tuple[str, ...],
) -> None:
    async with queue_at(url, **settings) as queue, queue.client.get_queue_sender("q") as other:
        batch = await other.create_message_batch()
        before = await queue.contents()
        sender = queue.client.get_queue_sender(name)
        message = ServiceBusMessage(bytes(size))

        async def send() -> None:
            if way == "batch":
                batch.add_message(message)
            several = batch if way == "batch" else [message, ServiceBusMessage("y")]
            await sender.send_messages(message if way == "one" else several)

        with pytest.raises(kind) as caught:
            await send()
        text = str(caught.value)
        assert [said for said in says if said not in text] == []
        by_batch = way == "batch" and outcome is Outcome.NEVER_SENT  # the batch refuses it, without an entity or a call
        expected = (None, None) if by_batch else (name, outcome)
        assert (caught.value.entity, caught.value.outcome) == expected
        assert caught.value.tracking_id in text
        assert text[0].isupper()
        assert await queue.contents() == before
        assert sender.in_flight == 0


async def test_the_error_for_an_unknown_queue_says_how_to_create_it(queue: Queue) -> None:
    sender = queue.client.get_queue_sender("nowhere")
    for call in (
        lambda: sender.send_messages(ServiceBusMessage("x")),
        lambda: sender.send_messages([]),
        lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON),
        lambda: sender.cancel_scheduled_messages([1]),
        sender.create_message_batch,
        sender.__aenter__,
    ):
        with pytest.raises(MessagingEntityNotFoundError, match=r"ensure_queue.*create_if_missing") as caught:
            await call()
        assert caught.value.outcome is Outcome.REFUSED


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_create_if_missing_creates_a_missing_queue_once(queue: Queue) -> None:
    client = queue.client
    async with client.get_queue_sender("new", create_if_missing={"max_delivery_count": 3}) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    record = await client._connection.namespace.get_entity("new")
    assert record.settings.max_delivery_count == 3
    crowd = [client.get_queue_sender("crowded", create_if_missing=True) for _ in range(8)]
    await asyncio.gather(*(sender.send_messages(ServiceBusMessage("x")) for sender in crowd))
    assert (await client._connection.namespace.get_entity("crowded")).version == 1


@in_memory
async def test_properties_for_create_if_missing_are_validated_immediately(queue: Queue) -> None:
    with pytest.raises(TypeError, match="create_if_missing does not take 'wrong'"):
        queue.client.get_queue_sender("new", create_if_missing={"wrong": 1})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_delivery_count"):
        queue.client.get_queue_sender("new", create_if_missing={"max_delivery_count": 0})


@in_memory
@pytest.mark.usefixtures("clock")
async def test_a_queue_created_by_a_client_uses_the_clock_of_the_client(queue: Queue) -> None:
    async with queue.client.get_queue_sender("new", create_if_missing=True) as sender:
        await sender.send_messages(ServiceBusMessage("x"))


# -- closed senders and clients ----------------------------------------------------------------------------------------


def calls_of(sender: ServiceBusSender) -> list[Callable[[], Awaitable[Any]]]:
    return [
        lambda: sender.send_messages(ServiceBusMessage("x")),
        lambda: sender.send_messages([]),
        lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON),
        lambda: sender.schedule_messages([], SOON),
        lambda: sender.cancel_scheduled_messages(1),
        lambda: sender.cancel_scheduled_messages([]),
        sender.create_message_batch,
        sender.__aenter__,
    ]


async def test_a_closed_sender_refuses_every_call(queue: Queue) -> None:
    async with queue.client.get_queue_sender("q") as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    for call in calls_of(sender):
        with pytest.raises(ValueError, match="The sender is closed"):
            await call()
    with pytest.raises(ValueError, match="The sender is closed"):
        await sender.send_stream([])
    await sender.close()


async def test_a_closed_client_refuses_every_call(queue: Queue) -> None:
    used, unused = queue.client.get_queue_sender("q"), queue.client.get_queue_sender("q")
    await used.send_messages(ServiceBusMessage("x"))
    await queue.client.close()
    for call in calls_of(used) + calls_of(unused):
        with pytest.raises(ValueError, match="closed"):
            await call()
    with pytest.raises(ValueError, match="The client is closed"):
        queue.client.get_queue_sender("q")
    with pytest.raises(ValueError, match="The client is closed"):
        await queue.client.ensure_queue("q")
    await queue.client.close()


@both
async def test_closing_a_sender_waits_for_its_running_sends(queue: Queue) -> None:
    sender = queue.client.get_queue_sender("q")
    await sender.send_messages([])
    with Gate(queue.client) as gate:
        gate.shut = True
        sends = [asyncio.create_task(sender.send_messages(ServiceBusMessage(str(number)))) for number in range(5)]
        await gate.reached()
        closing = asyncio.create_task(sender.close())
        await turns()
        assert not closing.done()
        with pytest.raises(ValueError, match="closed"):
            await sender.send_messages(ServiceBusMessage("late"))
        gate.open()
        await closing
        assert sender.in_flight == 0
        await asyncio.gather(*sends)
    assert flat(await stored_bodies(queue)) == list("01234")


@in_memory
async def test_a_send_that_waits_for_room_when_the_sender_closes_is_not_sent(queue: Queue) -> None:
    """The send no longer occupies room, so closing does not wait for it."""
    sender = queue.client.get_queue_sender("q", max_in_flight=2)
    await sender.send_messages([])
    with Gate(queue.client) as gate:
        gate.shut = True
        sends = [asyncio.create_task(sender.send_messages(ServiceBusMessage(str(number)))) for number in range(4)]
        await gate.reached()
        closing = asyncio.create_task(sender.close())
        await turns()
        gate.open()
        await closing
    ended = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(error) for error in ended] == [type(None), type(None), ValueError, ValueError]
    assert sender.in_flight == 0
    assert flat(await stored_bodies(queue)) == ["0", "1"]


@in_memory
async def test_a_failed_send_without_a_waiting_caller_is_logged(url: str, caplog: pytest.LogCaptureFixture) -> None:
    async with queue_at(url, quota=100) as queue, queue.client.get_queue_sender("q") as sender:
        await sender.send_messages([])
        with Gate(queue.client) as gate, caplog.at_level(logging.WARNING, "sbredis"):
            gate.shut = True
            send = asyncio.create_task(sender.send_messages(ServiceBusMessage(bytes(200))))
            await gate.reached()
            send.cancel()
            await turns()
            gate.open()
            await sender.close()
        (record,) = caplog.records
        assert "failed, and no caller waits for its result any more: The entity is full" in record.getMessage()
        assert "tracking id" in record.getMessage()


@in_memory
@pytest.mark.parametrize("listed", [False, True])
async def test_a_failed_send_is_logged_if_its_caller_is_cancelled_at_that_moment(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, *, listed: bool
) -> None:
    async with queue_at(url, quota=100) as queue, queue.client.get_queue_sender("q") as sender:
        message = ServiceBusMessage(bytes(200))
        with caplog.at_level(logging.WARNING, "sbredis"):
            send = asyncio.create_task(sender.send_messages([message] if listed else message))
            lane = queue.entity.partition_client(queue.entity.numbers[0]).sending
            fail = lane.fail

            def failed(jobs: Any, error: ServiceBusError) -> None:
                fail(jobs, error)
                send.cancel()

            monkeypatch.setattr(lane, "fail", failed)
            with pytest.raises(asyncio.CancelledError):
                await send
        assert "The entity is full" in caplog.text
        assert "tracking id" in caplog.text


@in_memory
async def test_an_interrupted_close_of_a_client_ends_running_sends(queue: Queue) -> None:
    """The errors state the outcomes: the first message may have been sent, and the others were not sent."""
    sender = queue.client.get_queue_sender("q")
    await sender.send_messages([])
    with Gate(queue.client) as gate:
        gate.shut = True
        first = asyncio.create_task(sender.send_messages(ServiceBusMessage("1")))
        await gate.reached()
        others = [asyncio.create_task(sender.send_messages(ServiceBusMessage("2"))) for _ in range(3)]
        await turns(20)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await queue.client.close()
        ended = await asyncio.gather(first, *others, return_exceptions=True)
    outcomes = [error.outcome for error in ended if isinstance(error, ServiceBusError)]
    assert len(outcomes) == 4
    assert outcomes[0] is Outcome.UNKNOWN
    assert all("The client was closed meanwhile" in str(error) and "entity 'q'" in str(error) for error in ended)
    assert sender.in_flight == 0
    await sender.close()


# -- invalid arguments -------------------------------------------------------------------------------------------------


@in_memory
@pytest.mark.parametrize(("timeout", "error"), [(0, ValueError), (-1, ValueError), ("5", TypeError), (True, TypeError)])
async def test_a_timeout_must_be_positive(url: str, timeout: Any, error: type[Exception]) -> None:
    async with queue_at(url) as queue, queue.client.get_queue_sender("q") as sender:
        for call in (
            lambda: sender.send_messages(ServiceBusMessage("x"), timeout=timeout),
            lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON, timeout=timeout),
            lambda: sender.cancel_scheduled_messages(1, timeout=timeout),
            lambda: queue.client.ensure_queue("q", timeout=timeout),
        ):
            with pytest.raises(error, match="timeout"):
                await call()
        with pytest.raises(error, match="timeout"):
            await sender.send_stream([], timeout=timeout)


@in_memory
async def test_unknown_options_are_refused_and_send_nothing(queue: Queue, sender: ServiceBusSender) -> None:
    for call in (
        lambda: sender.send_messages(ServiceBusMessage("x"), wrong=1),  # type: ignore[call-arg]
        lambda: sender.schedule_messages(ServiceBusMessage("x"), SOON, wrong=1),  # type: ignore[call-arg]
        lambda: sender.cancel_scheduled_messages([], wrong=1),  # type: ignore[call-arg]
    ):
        with pytest.raises(TypeError, match=r"ServiceBusSender.* unexpected keyword argument 'wrong'"):
            await call()
    assert flat(await stored_bodies(queue)) == []


@in_memory
@pytest.mark.parametrize("wrong", ["text", b"bytes", 5, None, {"subject": "no body"}, {"body": "x", "wrong": 1}, ["x"]])
async def test_invalid_messages_are_refused(queue: Queue, sender: ServiceBusSender, wrong: Any) -> None:
    with pytest.raises(TypeError):
        await sender.send_messages(wrong)
    with pytest.raises(TypeError):
        await sender.schedule_messages(wrong, SOON)
    assert flat(await stored_bodies(queue)) == []
    assert sender.in_flight == 0


@in_memory
async def test_a_sender_has_properties_for_its_name_and_state(queue: Queue) -> None:
    sender = queue.client.get_queue_sender("Q", client_identifier="me")
    assert (sender.entity_name, sender.client_identifier) == ("Q", "me")
    assert repr(sender) == "<ServiceBusSender 'Q' open>"
    assert queue.client.get_queue_sender("q").client_identifier != queue.client.get_queue_sender("q").client_identifier
    await sender.close()
    assert repr(sender) == "<ServiceBusSender 'Q' closed>"
    with pytest.raises(TypeError, match="client_identifier must be text"):
        queue.client.get_queue_sender("q", client_identifier=5)  # type: ignore[arg-type]
