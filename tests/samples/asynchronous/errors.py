"""Errors, and how a program handles them, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sbredis import ServiceBusMessage  # row: imports
from sbredis.aio import AutoLockRenewer, ServiceBusClient, ServiceBusReceiver, ServiceBusSender  # row: imports
from sbredis.aio.management import ServiceBusAdministrationClient  # row: imports
from sbredis.exceptions import (  # row: imports
    MessageAlreadySettled,
    MessageLockLostError,
    MessageNotFoundError,
    MessageSizeExceededError,
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.management import EntityStatus  # row: imports


async def raised(expected: type[Exception], call: Callable[..., Any], *given: Any, **named: Any) -> bool:
    """Return whether a call raises this error."""
    try:
        await call(*given, **named)
    except expected:
        return True
    return False


async def no_such_queue(connection_string: str, queue_name: str) -> object:
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        try:
            async with client.get_queue_sender(f"{queue_name}-of-nobody") as sender:
                await sender.send_messages(ServiceBusMessage("tea"))
        except MessagingEntityNotFoundError as error:
            return isinstance(error, ServiceBusError)
    return None


async def too_large(connection_string: str, queue_name: str) -> object:
    """Send a message, a list and a batch that are too large."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue_name) as sender,
    ):
        message = ServiceBusMessage(bytes(2_000_000))
        large = await raised(MessageSizeExceededError, sender.send_messages, message)
        also = await raised(ValueError, sender.send_messages, [message, message])
        batch = await sender.create_message_batch(max_size_in_bytes=100)
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            full = len(batch)
        else:
            full = -1
        return large, also, full, await raised(ValueError, sender.create_message_batch, max_size_in_bytes=10**9)


async def not_a_message(connection_string: str, queue_name: str) -> object:
    """Pass invalid bodies, identifiers and keys."""
    said: list[str] = []
    wrong: list[dict[str, Any]] = [
        {"body": 7},
        {"body": "tea", "message_id": "x" * 129},
        {"body": "tea", "session_id": "x" * 129},
        {"body": "tea", "partition_key": "x" * 129},
        {"body": "tea", "reply_to_session_id": "x" * 129},
        {"body": "tea", "session_id": "ann", "partition_key": "bob"},
    ]
    for given in wrong:
        try:
            ServiceBusMessage(**given)
        except (TypeError, ValueError) as error:
            said.append(type(error).__name__)
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(queue_name) as sender,
    ):
        text: Any = "just text"
        refused = await raised(TypeError, sender.send_messages, text)
    return said, refused


async def out_of_range(connection_string: str, queue_name: str) -> object:
    """Pass invalid counts and times."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        refused = 0
        for options in ({"prefetch_count": -1}, {"prefetch_count": 50_001}, {"max_wait_time": -1}):  # row: wait-zero
            try:
                client.get_queue_receiver(queue_name, **options)  # type: ignore[call-overload]
            except ValueError:
                refused += 1
        sender, receiver = client.get_queue_sender(queue_name), client.get_queue_receiver(queue_name)
        async with sender, receiver:
            refused += await raised(ValueError, receiver.receive_messages, max_message_count=0)
            refused += await raised(ValueError, receiver.receive_messages, max_wait_time=-1)  # row: wait-zero
            refused += await raised(ValueError, receiver.peek_messages, timeout=0)
            refused += await raised(ValueError, receiver.peek_messages, -1)
            refused += await raised(ValueError, receiver.receive_deferred_messages, 1, timeout=-1)
            refused += await raised(ValueError, sender.send_messages, ServiceBusMessage("tea"), timeout=0)
            refused += await raised(ValueError, sender.cancel_scheduled_messages, 1, timeout=0)
    return refused


async def settled_wrongly(connection_string: str, queue_name: str) -> object:
    """Settle a message twice, after a peek, and after receive-and-delete."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages([ServiceBusMessage("tea"), ServiceBusMessage("milk")])
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            glimpse = (await receiver.peek_messages())[0]
            peeked = await raised(ValueError, receiver.complete_message, glimpse)
            message = (await receiver.receive_messages())[0]
            await receiver.complete_message(message)
            twice = await raised(MessageAlreadySettled, receiver.complete_message, message)
            also = await raised(ValueError, receiver.dead_letter_message, message)
        async with client.get_queue_receiver(queue_name, receive_mode="receiveanddelete", max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            deleted = await raised(ValueError, receiver.abandon_message, message)
    return peeked, twice, also, deleted


async def not_there(connection_string: str, queue_name: str) -> object:
    """Use sequence numbers that do not exist."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_receiver(queue_name) as receiver:
            deferred = await raised(MessageNotFoundError, receiver.receive_deferred_messages, [4711])
        async with client.get_queue_sender(queue_name) as sender:
            scheduled = await raised(MessageNotFoundError, sender.cancel_scheduled_messages, [4711])
    return deferred, scheduled


async def disabled(connection_string: str, queue_name: str) -> object:
    """Disable a queue for sending, and then for receiving."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        queue = await administration.get_queue(queue_name)
        queue.status = EntityStatus.SEND_DISABLED
        await administration.update_queue(queue)
        async with (
            ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client,
            client.get_queue_sender(queue_name) as sender,
        ):
            sending = await raised(MessagingEntityDisabledError, sender.send_messages, ServiceBusMessage("tea"))
        queue.status = EntityStatus.RECEIVE_DISABLED
        await administration.update_queue(queue)
        async with ServiceBusClient.from_connection_string(connection_string, retry_total=0) as client:
            async with client.get_queue_sender(queue_name) as sender:
                await sender.send_messages(ServiceBusMessage("tea"))
            async with client.get_queue_receiver(queue_name) as receiver:
                receiving = await raised(MessagingEntityDisabledError, receiver.receive_messages, max_wait_time=5)
    return sending, receiving


async def renewer_closed(connection_string: str, queue_name: str) -> object:
    """A closed renewer cannot be opened again."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(ServiceBusMessage("tea"))
        renewer = AutoLockRenewer()
        await renewer.close()
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            try:
                renewer.register(receiver, message)
            except ServiceBusError:
                refused = True
            else:
                refused = False
            await receiver.complete_message(message)
    return refused


async def defensively(connection_string: str, queue_name: str) -> object:
    """Catch every error at the usual place."""
    seen: list[str] = []
    for _attempt in range(3):
        try:
            async with ServiceBusClient.from_connection_string(connection_string) as client:
                async with client.get_queue_sender(queue_name) as sender:
                    await send_with_patience(sender)
                async with client.get_queue_receiver(queue_name, max_wait_time=0.5) as receiver:
                    await receive_with_patience(receiver, seen)
            return seen
        except ServiceBusConnectionError:
            continue
        except ServiceBusAuthorizationError:
            raise
    return None


async def send_with_patience(sender: ServiceBusSender) -> None:
    """Send a batch in up to three attempts."""
    batch = await sender.create_message_batch()
    for number in range(3):
        try:
            batch.add_message(ServiceBusMessage(f"cup {number}", time_to_live=timedelta(hours=1)))
        except MessageSizeExceededError:
            break
    for attempt in range(3):
        try:
            await sender.send_messages(batch)
        except OperationTimeoutError:
            continue
        except MessageSizeExceededError:
            raise
        except ServiceBusError:
            if attempt == 2:
                raise
        else:
            return


async def receive_with_patience(receiver: ServiceBusReceiver, seen: list[str]) -> None:
    """Handle and settle each message. Ignore the error if a settlement comes too late."""
    async for message in receiver:
        seen.append(str(message))
        for _attempt in range(3):
            try:
                await receiver.complete_message(message)
            except (MessageAlreadySettled, MessageLockLostError, MessageNotFoundError):
                break
            except ServiceBusError:
                continue
            else:
                break
