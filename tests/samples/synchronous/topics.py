"""Topics and subscriptions: sending to the one, receiving from the other, and looking after both; as with the clients
of azure.servicebus.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbredis import (  # row: imports
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiver,
    ServiceBusSubQueue,
)
from sbredis.exceptions import ResourceExistsError, ResourceNotFoundError  # row: exceptions-base
from sbredis.management import ServiceBusAdministrationClient  # row: imports

SUBSCRIPTIONS = ("kitchen", "office")


def given(connection_string: str, topic_name: str) -> None:
    """What the scenarios begin with: a topic with two subscriptions."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        administration.create_topic(topic_name)
        for name in SUBSCRIPTIONS:
            administration.create_subscription(topic_name, name)


def drained(receiver: ServiceBusReceiver) -> list[str]:
    """All that comes soon, completed."""
    got: list[str] = []
    with receiver:
        for message in receiver:
            got.append(str(message))
            receiver.complete_message(message)
    return got


def sent(connection_string: str, queue_name: str) -> object:
    """One message, a list, a batch: every subscription gets all of it."""
    topic_name = f"{queue_name}-news"
    given(connection_string, topic_name)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_topic_sender(topic_name=topic_name)
        with sender:
            sender.send_messages(ServiceBusMessage("one"))
            sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
            batch = sender.create_message_batch()
            batch.add_message(ServiceBusMessage("four"))
            sender.send_messages(batch)
        return [
            drained(client.get_subscription_receiver(topic_name=topic_name, subscription_name=name, max_wait_time=0.5))
            for name in SUBSCRIPTIONS
        ]


def settled(connection_string: str, queue_name: str) -> object:
    """What is done with a copy is done with none of the others."""
    topic_name = f"{queue_name}-news"
    given(connection_string, topic_name)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_topic_sender(topic_name) as sender:
            sender.send_messages([ServiceBusMessage(text) for text in ("one", "two", "three")])
        with client.get_subscription_receiver(topic_name, "kitchen", max_wait_time=5) as receiver:
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 3:
                got += receiver.receive_messages(max_message_count=3)
            receiver.complete_message(got[0])
            receiver.defer_message(got[1])
            receiver.dead_letter_message(got[2], reason="Unreadable")
            left = [(str(message), message.state.name) for message in receiver.peek_messages(5, sequence_number=1)]
            back = [str(message) for message in receiver.receive_deferred_messages(got[1].sequence_number)]
        with client.get_subscription_receiver(topic_name, "office") as receiver:
            others = [str(message) for message in receiver.peek_messages(5)]
        with client.get_subscription_receiver(
            topic_name, "kitchen", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            letter = dead.receive_messages()[0]
    return left, back, others, (str(letter), letter.dead_letter_reason)


def scheduled(connection_string: str, queue_name: str) -> object:
    """Enqueued later, at the topic, and until then in no subscription; or cancelled."""
    topic_name = f"{queue_name}-news"
    given(connection_string, topic_name)
    client = ServiceBusClient.from_connection_string(connection_string, maintenance=True)  # row: maintenance
    with client, client.get_topic_sender(topic_name) as sender:
        now = datetime.now(UTC)
        numbers = sender.schedule_messages([ServiceBusMessage("tea")], now + timedelta(seconds=1))
        numbers += sender.schedule_messages(ServiceBusMessage("milk"), now + timedelta(hours=1))
        message = ServiceBusMessage("cake", scheduled_enqueue_time_utc=now + timedelta(seconds=1))
        sender.send_messages(message)
        with client.get_subscription_receiver(topic_name, "kitchen", max_wait_time=20) as receiver:
            before = receiver.peek_messages(5)
            sender.cancel_scheduled_messages(numbers[1])
            got: list[str] = []
            while len(got) < 2:
                for each in receiver.receive_messages():
                    receiver.complete_message(each)
                    got.append(str(each))
            after = receiver.peek_messages(5)
    return before, sorted(got), after


def of_sessions(connection_string: str, queue_name: str) -> object:
    """A subscription that requires sessions: what has none is dead-lettered there."""
    topic_name = f"{queue_name}-news"
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        administration.create_topic(topic_name)
        administration.create_subscription(topic_name, "turns", requires_session=True)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_topic_sender(topic_name) as sender:
            sender.send_messages([ServiceBusMessage(text, session_id="ann") for text in ("one", "two")])
            sender.send_messages(ServiceBusMessage("three"))
        names = list(client.list_subscription_sessions(topic_name, "turns"))
        got = drained(client.get_subscription_receiver(topic_name, "turns", session_id="ann", max_wait_time=0.5))
        with client.get_subscription_receiver(
            topic_name, "turns", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            letter = dead.receive_messages()[0]
            reason = letter.dead_letter_reason  # row: session-null
    return names, got, (str(letter), reason)


def life_of_a_topic(connection_string: str, queue_name: str) -> object:
    """Created, listed, changed, counted, deleted."""
    topic_name = f"{queue_name}-news"
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        client.create_topic(topic_name=topic_name, default_message_time_to_live=timedelta(days=1))
        listed = [topic.name for topic in client.list_topics()]

        topic = client.get_topic(topic_name)
        before = topic.default_message_time_to_live, topic.requires_duplicate_detection
        topic.default_message_time_to_live = timedelta(minutes=10)
        client.update_topic(topic)
        after = (client.get_topic(topic_name)).default_message_time_to_live

        runtime = client.get_topic_runtime_properties(topic_name)
        counted = runtime.name == topic_name, runtime.subscription_count, runtime.scheduled_message_count
        client.delete_topic(topic_name)
        try:
            client.get_topic(topic_name)
        except ResourceNotFoundError:
            gone = True
        else:
            gone = False
    return listed == [topic_name], before, after, counted, gone


def life_of_a_subscription(connection_string: str, queue_name: str) -> object:
    """Created, listed, changed, counted, deleted."""
    topic_name = f"{queue_name}-news"
    given(connection_string, topic_name)
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_topic_sender(topic_name) as sender:
            sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        with client.get_subscription_receiver(topic_name, "kitchen", max_wait_time=5) as receiver:
            receiver.dead_letter_message(receiver.receive_messages()[0])
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        listed = sorted([each.name for each in administration.list_subscriptions(topic_name)])

        subscription = administration.get_subscription(topic_name, "kitchen")
        before = subscription.max_delivery_count, subscription.requires_session
        subscription.max_delivery_count = 5
        administration.update_subscription(topic_name, subscription)
        after = (administration.get_subscription(topic_name, "kitchen")).max_delivery_count

        runtime = administration.get_subscription_runtime_properties(topic_name, "kitchen")
        counted = runtime.active_message_count, runtime.dead_letter_message_count, runtime.total_message_count
        others = [
            (each.name, each.active_message_count)
            for each in administration.list_subscriptions_runtime_properties(topic_name)
        ]
        try:
            administration.create_subscription(topic_name, "kitchen")
        except ResourceExistsError:
            taken = True
        else:
            taken = False
        administration.delete_subscription(topic_name, "kitchen")
        left = [each.name for each in administration.list_subscriptions(topic_name)]
    return listed, before, after, counted, sorted(others), taken, left


def made_in_passing(connection_string: str, queue_name: str) -> object:
    """Topic and subscription made by who uses them first."""
    topic_name = f"{queue_name}-news"
    with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_topic_sender(topic_name, create_if_missing=True)  # row: create-if-missing
        receiver = client.get_subscription_receiver(
            topic_name,
            "kitchen",
            max_wait_time=0.5,
            create_if_missing={"max_delivery_count": 3},  # row: create-if-missing
        )
        with sender, receiver:
            sender.send_messages(ServiceBusMessage("one"))
            return drained(receiver)
