"""Locks are renewed by hand, renewed automatically, and lost; as with the asynchronous client of azure.servicebus.

The queue of these scenarios has locks of less than a second, so that the work takes longer than a lock.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage  # row: imports
from sbredis.aio import AutoLockRenewer, ServiceBusClient  # row: imports
from sbredis.exceptions import AutoLockRenewTimeout, MessageLockLostError  # row: imports
from tests.waiting import eventually


async def given(client: ServiceBusClient, queue_name: str, *texts: str) -> None:
    """Send the messages that the scenarios need."""
    async with client.get_queue_sender(queue_name) as sender:
        await sender.send_messages([ServiceBusMessage(text) for text in texts])


def past(moment: datetime | None) -> bool:
    """Return whether a time has passed."""
    assert moment is not None
    return datetime.now(UTC) > moment


async def renewed(connection_string: str, queue_name: str) -> object:
    """Renew a lock by hand during the work."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "long work")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            before = message.locked_until_utc
            until = await receiver.renew_message_lock(message, timeout=30)
            assert before is not None
            later = until > before, until == message.locked_until_utc
            await receiver.complete_message(message)
    return later


async def lost(connection_string: str, queue_name: str) -> object:
    """After a lock has ended, the message cannot be settled, and is delivered again."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "too long")
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            await eventually(lambda: past(message.locked_until_utc))
            try:
                await receiver.complete_message(message)
            except MessageLockLostError:
                settled = False
            else:
                settled = True
            again = (await receiver.receive_messages())[0]
            count = again.delivery_count - 1  # row: delivery-count
            await receiver.complete_message(again)
    return settled, str(again), count


async def registered(connection_string: str, queue_name: str) -> object:
    """Register each message with a renewer, which keeps its lock until the message is settled."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "one", "two", "three")
        renewer = AutoLockRenewer()
        async with client.get_queue_receiver(queue_name, prefetch_count=10) as receiver:
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 3:
                for message in await receiver.receive_messages(max_message_count=10, max_wait_time=5):
                    renewer.register(receiver, message, max_lock_renewal_duration=60)
                    got.append(message)
            first = [message.locked_until_utc for message in got]
            await eventually(lambda: all(map(past, first)))
            for message in got:
                await receiver.complete_message(message)
        await renewer.close()
    return [message.auto_renew_error for message in got]


async def by_the_receiver(connection_string: str, queue_name: str) -> object:
    """Let a receiver register every message that it receives."""
    seen: list[str] = []
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        AutoLockRenewer(max_lock_renewal_duration=60) as renewer,
    ):
        await given(client, queue_name, "one", "two")
        receiver = client.get_queue_receiver(queue_name, auto_lock_renewer=renewer, max_wait_time=1)
        async with receiver:
            async for message in receiver:
                first = message.locked_until_utc
                await eventually(partial(past, first))
                await receiver.complete_message(message)
                seen.append(str(message))
    return seen


async def callback(connection_string: str, queue_name: str) -> object:
    """When renewal ends, the message records the error, and the callback reports it to the application."""
    reported: list[tuple[str, str]] = []

    async def on_lock_renew_failure(renewable: object, error: Exception | None) -> None:
        reported.append((str(renewable), type(error).__name__))

    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "too long")
        async with (
            AutoLockRenewer(on_lock_renew_failure=on_lock_renew_failure) as renewer,
            client.get_queue_receiver(queue_name, max_wait_time=5) as receiver,
        ):
            message = (await receiver.receive_messages())[0]
            renewer.register(receiver, message, max_lock_renewal_duration=0.1)
            await eventually(lambda: reported)
            await eventually(lambda: past(message.locked_until_utc))
            try:
                await receiver.complete_message(message)
            except MessageLockLostError:
                settled = False
            else:
                settled = True
    return reported, isinstance(message.auto_renew_error, AutoLockRenewTimeout), settled


async def misused(connection_string: str, queue_name: str) -> object:
    """A message without a lock cannot be renewed."""
    said: list[str] = []
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        await given(client, queue_name, "tea", "milk")
        renewer = AutoLockRenewer()
        async with client.get_queue_receiver(queue_name, receive_mode="receiveanddelete") as receiver:
            message = (await receiver.receive_messages(max_wait_time=5))[0]
            try:
                renewer.register(receiver, message)
            except ValueError as error:
                said.append(type(error).__name__)
        async with client.get_queue_receiver(queue_name) as receiver:
            message = (await receiver.receive_messages(max_wait_time=5))[0]
            await receiver.complete_message(message)
            try:
                await receiver.renew_message_lock(message)
            except ValueError as error:
                said.append(type(error).__name__)
        await renewer.close()
    return said
