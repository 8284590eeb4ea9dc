"""Sending to topics, receiving from subscriptions, and administration of both.

The scenarios correspond to those of the asynchronous clients of azure.servicebus.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue  # row: imports
from sbredis.aio import ServiceBusClient, ServiceBusReceiver  # row: imports
from sbredis.aio.management import ServiceBusAdministrationClient  # row: imports
from sbredis.exceptions import ResourceExistsError, ResourceNotFoundError  # row: exceptions-base

SUBSCRIPTIONS = ("kitchen", "office")


async def given(connection_string: str, topic_name: str) -> None:
    """Create the topic with two subscriptions that the scenarios need."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        await administration.create_topic(topic_name)
        for name in SUBSCRIPTIONS:
            await administration.create_subscription(topic_name, name)


async def drained(receiver: ServiceBusReceiver) -> list[str]:
    """Complete all messages that arrive soon, and return them."""
    got: list[str] = []
    async with receiver:
        async for message in receiver:
            got.append(str(message))
            await receiver.complete_message(message)
    return got


async def sent(connection_string: str, queue_name: str) -> object:
    """Send one message, a list and a batch: every subscription gets all of them."""
    topic_name = f"{queue_name}-news"
    await given(connection_string, topic_name)
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_topic_sender(topic_name=topic_name)
        async with sender:
            await sender.send_messages(ServiceBusMessage("one"))
            await sender.send_messages([ServiceBusMessage("two"), ServiceBusMessage("three")])
            batch = await sender.create_message_batch()
            batch.add_message(ServiceBusMessage("four"))
            await sender.send_messages(batch)
        return [
            await drained(
                client.get_subscription_receiver(topic_name=topic_name, subscription_name=name, max_wait_time=0.5)
            )
            for name in SUBSCRIPTIONS
        ]


async def settled(connection_string: str, queue_name: str) -> object:
    """Settle one copy of a message. The copies in other subscriptions stay unchanged."""
    topic_name = f"{queue_name}-news"
    await given(connection_string, topic_name)
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_topic_sender(topic_name) as sender:
            await sender.send_messages([ServiceBusMessage(text) for text in ("one", "two", "three")])
        async with client.get_subscription_receiver(topic_name, "kitchen", max_wait_time=5) as receiver:
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 3:
                got += await receiver.receive_messages(max_message_count=3)
            await receiver.complete_message(got[0])
            await receiver.defer_message(got[1])
            await receiver.dead_letter_message(got[2], reason="Unreadable")
            left = [
                (str(message), message.state.name) for message in await receiver.peek_messages(5, sequence_number=1)
            ]
            back = [str(message) for message in await receiver.receive_deferred_messages(got[1].sequence_number)]
        async with client.get_subscription_receiver(topic_name, "office") as receiver:
            others = [str(message) for message in await receiver.peek_messages(5)]
        async with client.get_subscription_receiver(
            topic_name, "kitchen", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            letter = (await dead.receive_messages())[0]
    return left, back, others, (str(letter), letter.dead_letter_reason)


async def scheduled(connection_string: str, queue_name: str) -> object:
    """A scheduled message reaches the subscriptions when it is due, unless it is cancelled."""
    topic_name = f"{queue_name}-news"
    await given(connection_string, topic_name)
    client = ServiceBusClient.from_connection_string(connection_string, maintenance=True)  # row: maintenance
    async with client, client.get_topic_sender(topic_name) as sender:
        now = datetime.now(UTC)
        numbers = await sender.schedule_messages([ServiceBusMessage("tea")], now + timedelta(seconds=1))
        numbers += await sender.schedule_messages(ServiceBusMessage("milk"), now + timedelta(hours=1))
        message = ServiceBusMessage("cake", scheduled_enqueue_time_utc=now + timedelta(seconds=1))
        await sender.send_messages(message)
        async with client.get_subscription_receiver(topic_name, "kitchen", max_wait_time=20) as receiver:
            before = await receiver.peek_messages(5)
            await sender.cancel_scheduled_messages(numbers[1])
            got: list[str] = []
            while len(got) < 2:
                for each in await receiver.receive_messages():
                    await receiver.complete_message(each)
                    got.append(str(each))
            after = await receiver.peek_messages(5)
    return before, sorted(got), after


async def of_sessions(connection_string: str, queue_name: str) -> object:
    """A subscription that requires sessions dead-letters a message without one."""
    topic_name = f"{queue_name}-news"
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        await administration.create_topic(topic_name)
        await administration.create_subscription(topic_name, "turns", requires_session=True)
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_topic_sender(topic_name) as sender:
            await sender.send_messages([ServiceBusMessage(text, session_id="ann") for text in ("one", "two")])
            await sender.send_messages(ServiceBusMessage("three"))
        names = [session_id async for session_id in client.list_subscription_sessions(topic_name, "turns")]
        got = await drained(client.get_subscription_receiver(topic_name, "turns", session_id="ann", max_wait_time=0.5))
        async with client.get_subscription_receiver(
            topic_name, "turns", sub_queue=ServiceBusSubQueue.DEAD_LETTER, max_wait_time=5
        ) as dead:
            letter = (await dead.receive_messages())[0]
            reason = letter.dead_letter_reason  # row: session-null
    return names, got, (str(letter), reason)


async def life_of_a_topic(connection_string: str, queue_name: str) -> object:
    """Create, list, change, count and delete a topic."""
    topic_name = f"{queue_name}-news"
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        await client.create_topic(topic_name=topic_name, default_message_time_to_live=timedelta(days=1))
        listed = [topic.name async for topic in client.list_topics()]

        topic = await client.get_topic(topic_name)
        before = topic.default_message_time_to_live, topic.requires_duplicate_detection
        topic.default_message_time_to_live = timedelta(minutes=10)
        await client.update_topic(topic)
        after = (await client.get_topic(topic_name)).default_message_time_to_live

        runtime = await client.get_topic_runtime_properties(topic_name)
        counted = runtime.name == topic_name, runtime.subscription_count, runtime.scheduled_message_count
        await client.delete_topic(topic_name)
        try:
            await client.get_topic(topic_name)
        except ResourceNotFoundError:
            gone = True
        else:
            gone = False
    return listed == [topic_name], before, after, counted, gone


async def life_of_a_subscription(connection_string: str, queue_name: str) -> object:
    """Create, list, change, count and delete a subscription."""
    topic_name = f"{queue_name}-news"
    await given(connection_string, topic_name)
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_topic_sender(topic_name) as sender:
            await sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
        async with client.get_subscription_receiver(topic_name, "kitchen", max_wait_time=5) as receiver:
            await receiver.dead_letter_message((await receiver.receive_messages())[0])
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        listed = sorted([each.name async for each in administration.list_subscriptions(topic_name)])

        subscription = await administration.get_subscription(topic_name, "kitchen")
        before = subscription.max_delivery_count, subscription.requires_session
        subscription.max_delivery_count = 5
        await administration.update_subscription(topic_name, subscription)
        after = (await administration.get_subscription(topic_name, "kitchen")).max_delivery_count

        runtime = await administration.get_subscription_runtime_properties(topic_name, "kitchen")
        counted = runtime.active_message_count, runtime.dead_letter_message_count, runtime.total_message_count
        others = [
            (each.name, each.active_message_count)
            async for each in administration.list_subscriptions_runtime_properties(topic_name)
        ]
        try:
            await administration.create_subscription(topic_name, "kitchen")
        except ResourceExistsError:
            taken = True
        else:
            taken = False
        await administration.delete_subscription(topic_name, "kitchen")
        left = [each.name async for each in administration.list_subscriptions(topic_name)]
    return listed, before, after, counted, sorted(others), taken, left


async def made_in_passing(connection_string: str, queue_name: str) -> object:
    """The first client that uses a topic and a subscription creates them."""
    topic_name = f"{queue_name}-news"
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_topic_sender(topic_name, create_if_missing=True)  # row: create-if-missing
        receiver = client.get_subscription_receiver(
            topic_name,
            "kitchen",
            max_wait_time=0.5,
            create_if_missing={"max_delivery_count": 3},  # row: create-if-missing
        )
        async with sender, receiver:
            await sender.send_messages(ServiceBusMessage("one"))
            return await drained(receiver)
