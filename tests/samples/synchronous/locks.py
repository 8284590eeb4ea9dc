"""Locks: renewing them, having them renewed, losing them; as with the synchronous client of azure.servicebus.

The locks of these scenarios' queue last for less than a second, so that the work outlives them.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial

from sbredis import AutoLockRenewer, ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage  # row: imports
from sbredis.exceptions import AutoLockRenewTimeout, MessageLockLostError  # row: imports
from tests.waiting import wait_until


def given(client: ServiceBusClient, queue_name: str, *texts: str) -> None:
    """What the scenarios begin with."""
    with client.get_queue_sender(queue_name) as sender:
        sender.send_messages([ServiceBusMessage(text) for text in texts])


def past(moment: datetime | None) -> bool:
    """Whether a time has come."""
    assert moment is not None
    return datetime.now(UTC) > moment


def renewed(connection_string: str, queue_name: str) -> object:
    """By hand, while there is work to do."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "long work")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (receiver.receive_messages())[0]
            before = message.locked_until_utc
            until = receiver.renew_message_lock(message, timeout=30)
            assert before is not None
            later = until > before, until == message.locked_until_utc
            receiver.complete_message(message)
    return later


def lost(connection_string: str, queue_name: str) -> object:
    """A lock that ended: the message is settled no more, and comes again."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "too long")
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (receiver.receive_messages())[0]
            wait_until(lambda: past(message.locked_until_utc))
            try:
                receiver.complete_message(message)
            except MessageLockLostError:
                settled = False
            else:
                settled = True
            again = (receiver.receive_messages())[0]
            count = again.delivery_count - 1  # row: delivery-count
            receiver.complete_message(again)
    return settled, str(again), count


def registered(connection_string: str, queue_name: str) -> object:
    """Each message registered with a renewer, which keeps its lock until it is settled."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "one", "two", "three")
        renewer = AutoLockRenewer()
        with client.get_queue_receiver(queue_name, prefetch_count=10) as receiver:
            got: list[ServiceBusReceivedMessage] = []
            while len(got) < 3:
                for message in receiver.receive_messages(max_message_count=10, max_wait_time=5):
                    renewer.register(receiver, message, max_lock_renewal_duration=60)
                    got.append(message)
            first = [message.locked_until_utc for message in got]
            wait_until(lambda: all(map(past, first)))
            for message in got:
                receiver.complete_message(message)
        renewer.close()
    return [message.auto_renew_error for message in got]


def by_the_receiver(connection_string: str, queue_name: str) -> object:
    """A receiver that registers all that it receives."""
    seen: list[str] = []
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        AutoLockRenewer(max_lock_renewal_duration=60) as renewer,
    ):
        given(client, queue_name, "one", "two")
        receiver = client.get_queue_receiver(queue_name, auto_lock_renewer=renewer, max_wait_time=1)
        with receiver:
            for message in receiver:
                first = message.locked_until_utc
                wait_until(partial(past, first))
                receiver.complete_message(message)
                seen.append(str(message))
    return seen


def callback(connection_string: str, queue_name: str) -> object:
    """Who is renewed no longer is told so, and so is the application."""
    told: list[tuple[str, str]] = []

    def on_lock_renew_failure(renewable: object, error: Exception | None) -> None:
        told.append((str(renewable), type(error).__name__))

    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "too long")
        with (
            AutoLockRenewer(on_lock_renew_failure=on_lock_renew_failure) as renewer,
            client.get_queue_receiver(queue_name, max_wait_time=5) as receiver,
        ):
            message = (receiver.receive_messages())[0]
            renewer.register(receiver, message, max_lock_renewal_duration=0.1)
            wait_until(lambda: told)
            wait_until(lambda: past(message.locked_until_utc))
            try:
                receiver.complete_message(message)
            except MessageLockLostError:
                settled = False
            else:
                settled = True
    return told, isinstance(message.auto_renew_error, AutoLockRenewTimeout), settled


def misused(connection_string: str, queue_name: str) -> object:
    """What has no lock cannot be renewed."""
    said: list[str] = []
    with ServiceBusClient.from_connection_string(connection_string) as client:
        given(client, queue_name, "tea", "milk")
        renewer = AutoLockRenewer()
        with client.get_queue_receiver(queue_name, receive_mode="receiveanddelete") as receiver:
            message = (receiver.receive_messages(max_wait_time=5))[0]
            try:
                renewer.register(receiver, message)
            except ValueError as error:
                said.append(type(error).__name__)
        with client.get_queue_receiver(queue_name) as receiver:
            message = (receiver.receive_messages(max_wait_time=5))[0]
            receiver.complete_message(message)
            try:
                receiver.renew_message_lock(message)
            except ValueError as error:
                said.append(type(error).__name__)
        renewer.close()
    return said
