"""Clients, their options and their end, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

from typing import Any

from sbredis import ServiceBusMessage, TransportType  # row: imports
from sbredis.aio import ServiceBusClient  # row: imports


async def with_a_credential(connection_string: str, queue_name: str) -> object:
    """Pass the address and the credential separately."""
    fully_qualified_namespace = connection_string  # row: connection-string
    credential = ("default", "secret")  # row: credential
    client = ServiceBusClient(fully_qualified_namespace, credential)  # row: credential
    async with client, client.get_queue_sender(queue_name=queue_name) as sender:
        await sender.send_messages(ServiceBusMessage("tea"))
    return "secret" in repr(client)


async def with_options(connection_string: str, queue_name: str) -> object:
    """Pass the options of Azure's connection: some have an effect, and the others are ignored with a warning."""
    without_effect: dict[str, Any] = {  # row: transport-options
        "transport_type": TransportType.AmqpOverWebsocket,
        "http_proxy": {"proxy_hostname": "proxy", "proxy_port": 3128},
        "user_agent": "shop/1.0",
        "logging_enable": True,
    }
    client = ServiceBusClient.from_connection_string(
        connection_string,
        **without_effect,  # row: transport-options
        retry_total=5,
        retry_backoff_factor=0.05,
        retry_backoff_max=2,
        retry_mode="fixed",
    )
    async with client:
        async with client.get_queue_sender(queue_name, socket_timeout=10) as sender:
            await sender.send_messages(ServiceBusMessage("tea"))
        async with client.get_queue_receiver(queue_name, socket_timeout=10, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            await receiver.complete_message(message)
    return str(message)


async def identified(connection_string: str, queue_name: str) -> object:
    """Senders and receivers have a name for the logs: a given one, or a generated one."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_queue_sender(queue_name, client_identifier="till 4")
        receiver = client.get_queue_receiver(queue_name, client_identifier="kitchen")
        another = client.get_queue_receiver(queue_name)
        async with sender, receiver, another:
            made = another.client_identifier
            names = sender.client_identifier, receiver.client_identifier, made != "", made != receiver.client_identifier
        return names, sender.entity_name == queue_name, receiver.entity_path == queue_name, receiver.session


async def closed_by_hand(connection_string: str, queue_name: str) -> object:
    """Close without context managers. A second close is no error, and a closed object refuses calls."""
    client = ServiceBusClient.from_connection_string(connection_string)
    sender = client.get_queue_sender(queue_name)
    receiver = client.get_queue_receiver(queue_name)
    said: list[str] = []
    try:
        await sender.send_messages(ServiceBusMessage("tea"))
        message = (await receiver.receive_messages(max_wait_time=5))[0]
        await receiver.complete_message(message)
    finally:
        await sender.close()
        await receiver.close()
        await receiver.close()
        try:
            await sender.send_messages(ServiceBusMessage("late"))
        except ValueError:
            said.append("the sender is closed")
        try:
            await receiver.receive_messages()
        except ValueError:
            said.append("the receiver is closed")
        await client.close()
        await client.close()
    return str(message), said


async def opened_again(connection_string: str, queue_name: str) -> object:
    """Use one client for each round of work."""
    seen: list[str] = []
    for number in range(2):
        client = ServiceBusClient.from_connection_string(connection_string)  # row: closed-client
        async with client:
            async with client.get_queue_sender(queue_name) as sender:
                await sender.send_messages(ServiceBusMessage(f"round {number}"))
            async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
                for message in await receiver.receive_messages():
                    seen.append(str(message))
                    await receiver.complete_message(message)
    return seen


async def named(connection_string: str, queue_name: str) -> object:
    """Read the namespace of a client."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        assert queue_name
        return client.namespace  # row: fully-qualified-namespace
