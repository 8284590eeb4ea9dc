"""Topics and subscriptions from threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from sbredis import (
    AutoLockRenewer,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusSender,
)
from sbredis.exceptions import MessageNotFoundError
from sbredis.model import hold_of
from tests.sync.interruptions import interrupted_when

SOON = 5.0
NOTHING = 0.1


@pytest.fixture
def sender(client: ServiceBusClient) -> Iterator[ServiceBusSender]:
    """A sender to the topic ``news``; its subscription ``all`` takes every message."""
    with client.get_topic_sender("news", create_if_missing={"enable_partitioning": True}) as sender:
        with client.get_subscription_receiver("news", "all", create_if_missing=True) as receiver:
            assert receiver.entity_path == "news/subscriptions/all"
        yield sender


def texts(messages: list[ServiceBusReceivedMessage]) -> list[str]:
    return sorted(map(str, messages))


@pytest.mark.slow
def test_a_client_with_maintenance_delivers_messages_scheduled_on_a_topic(
    url: str, client: ServiceBusClient, sender: ServiceBusSender
) -> None:
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    sender.schedule_messages(ServiceBusMessage("later"), soon)
    (number,) = sender.schedule_messages(ServiceBusMessage("never"), soon + timedelta(days=1))
    sender.cancel_scheduled_messages(number)
    with pytest.raises(MessageNotFoundError):
        sender.cancel_scheduled_messages(number)
    with (
        ServiceBusClient(url, maintenance=True),
        client.get_subscription_receiver("news", "all", max_wait_time=20) as receiver,
    ):
        message = receiver.next()
        assert (str(message), message.enqueued_time_utc >= soon - timedelta(milliseconds=1)) == ("later", True)


@pytest.mark.slow
def test_sessions_of_a_subscription_work_from_a_thread(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    with client.get_subscription_receiver(
        "news", "turns", session_id="ann", create_if_missing={"requires_session": True}, max_wait_time=SOON
    ) as receiver:
        sender.send_messages([ServiceBusMessage(text, session_id="ann") for text in ("one", "two")])
        assert list(client.list_subscription_sessions("news", "turns")) == ["ann"]
        assert client.accept_next_session("news", "turns", max_wait_time=NOTHING) is None
        assert texts([receiver.next(), receiver.next()]) == ["one", "two"]
    again = client.accept_next_session("news", "turns", max_wait_time=SOON)
    assert again is not None
    assert again.session is not None
    assert again.session.session_id == "ann"


@pytest.mark.slow
def test_threads_share_a_topic(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    threads, each = 6, 15
    names = ("all", "too")
    receivers = [
        client.get_subscription_receiver("news", name, create_if_missing=True, prefetch_count=20, max_wait_time=SOON)
        for name in names
    ]
    for receiver in receivers:
        receiver.__enter__()

    def send(thread: int) -> None:
        for number in range(each):
            sender.send_messages(ServiceBusMessage(f"{thread} {number}"))

    def receive(place: int) -> Counter[str]:
        seen: Counter[str] = Counter()
        while seen.total() < threads * each:
            message = receivers[place].next()
            receivers[place].complete_message(message)
            seen[str(message)] += 1
        return seen

    with ThreadPoolExecutor(threads + 2) as pool:
        found = [pool.submit(receive, place) for place in range(2)]
        list(pool.map(send, range(threads)))
        for seen in found:
            assert set(seen.result().values()) == {1}
    for receiver in receivers:
        assert receiver.peek_messages() == []


@pytest.mark.slow
def test_a_wait_at_a_subscription_can_be_interrupted(
    client: ServiceBusClient, sender: ServiceBusSender, interrupt: Callable[[], None]
) -> None:
    receiver = client.get_subscription_receiver("news", "all")

    def waits() -> bool:
        inbox = receiver._aio._inbox
        return inbox is not None and inbox.demand > 0

    with interrupted_when(waits, interrupt), pytest.raises(KeyboardInterrupt):
        receiver.next()
    sender.send_messages(ServiceBusMessage("a"))
    with client.get_subscription_receiver("news", "all", max_wait_time=SOON) as another:
        assert another.next().delivery_count == 1


@pytest.mark.slow
def test_a_renewer_renews_messages_of_a_subscription(client: ServiceBusClient, sender: ServiceBusSender) -> None:
    sender.send_messages(ServiceBusMessage("a"))
    with (
        AutoLockRenewer() as renewer,
        client.get_subscription_receiver("news", "all", auto_lock_renewer=renewer, max_wait_time=SOON) as receiver,
    ):
        message = receiver.next()
        assert hold_of(message).watchers
        receiver.complete_message(message)
    with pytest.raises(TypeError, match=r"must be a sbredis\.AutoLockRenewer, not"):
        client.get_subscription_receiver("news", "all", auto_lock_renewer="yes")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]


def test_an_option_of_azures_library_causes_a_warning_at_the_callers_line(client: ServiceBusClient) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.get_topic_sender("news", keep_alive=30),  # type: ignore[call-arg]
        lambda: client.get_subscription_receiver("news", "all", keep_alive=30),  # type: ignore[call-overload]
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="ignores keywords of Azure's library: keep_alive") as seen:
            call()
        assert [warning.filename for warning in seen] == [__file__]
