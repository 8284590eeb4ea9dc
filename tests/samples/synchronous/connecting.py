"""Clients, their options and their end, as with the synchronous client of azure.servicebus."""

from __future__ import annotations

from typing import Any

from sbredis import ServiceBusClient, ServiceBusMessage, TransportType  # row: imports


def with_a_credential(connection_string: str, queue_name: str) -> object:
    """Where and who, apart."""
    fully_qualified_namespace = connection_string  # row: connection-string
    credential = ("default", "secret")  # row: credential
    client = ServiceBusClient(fully_qualified_namespace, credential)  # row: credential
    with client, client.get_queue_sender(queue_name=queue_name) as sender:
        sender.send_messages(ServiceBusMessage("tea"))
    return "secret" in repr(client)


def with_options(connection_string: str, queue_name: str) -> object:
    """The options of Azure's connection: those that mean something, and those that are ignored with a warning."""
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
    with client:
        with client.get_queue_sender(queue_name, socket_timeout=10) as sender:
            sender.send_messages(ServiceBusMessage("tea"))
        with client.get_queue_receiver(queue_name, socket_timeout=10, max_wait_time=5) as receiver:
            message = (receiver.receive_messages())[0]
            receiver.complete_message(message)
    return str(message)


def identified(connection_string: str, queue_name: str) -> object:
    """Senders and receivers have a name for the logs: their own, or one that is made for them."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        sender = client.get_queue_sender(queue_name, client_identifier="till 4")
        receiver = client.get_queue_receiver(queue_name, client_identifier="kitchen")
        another = client.get_queue_receiver(queue_name)
        with sender, receiver, another:
            made = another.client_identifier
            names = sender.client_identifier, receiver.client_identifier, made != "", made != receiver.client_identifier
        return names, sender.entity_name == queue_name, receiver.entity_path == queue_name, receiver.session


def closed_by_hand(connection_string: str, queue_name: str) -> object:
    """Without context managers; closing twice is no error, and what is closed is of no use any more."""
    client = ServiceBusClient.from_connection_string(connection_string)
    sender = client.get_queue_sender(queue_name)
    receiver = client.get_queue_receiver(queue_name)
    said: list[str] = []
    try:
        sender.send_messages(ServiceBusMessage("tea"))
        message = (receiver.receive_messages(max_wait_time=5))[0]
        receiver.complete_message(message)
    finally:
        sender.close()
        receiver.close()
        receiver.close()
        try:
            sender.send_messages(ServiceBusMessage("late"))
        except ValueError:
            said.append("the sender is closed")
        try:
            receiver.receive_messages()
        except ValueError:
            said.append("the receiver is closed")
        client.close()
        client.close()
    return str(message), said


def opened_again(connection_string: str, queue_name: str) -> object:
    """A client per round of work."""
    seen: list[str] = []
    for number in range(2):
        client = ServiceBusClient.from_connection_string(connection_string)  # row: closed-client
        with client:
            with client.get_queue_sender(queue_name) as sender:
                sender.send_messages(ServiceBusMessage(f"round {number}"))
            with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
                for message in receiver.receive_messages():
                    seen.append(str(message))
                    receiver.complete_message(message)
    return seen


def named(connection_string: str, queue_name: str) -> object:
    """What a client says of where it is."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        assert queue_name
        return client.namespace  # row: fully-qualified-namespace
