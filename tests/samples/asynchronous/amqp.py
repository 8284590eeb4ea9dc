"""Messages in the terms of AMQP, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

from typing import Any

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage  # row: imports
from sbredis.aio import ServiceBusClient  # row: imports
from sbredis.amqp import (  # row: imports
    AmqpAnnotatedMessage,
    AmqpMessageBodyType,
    AmqpMessageHeader,
    AmqpMessageProperties,
)


async def round_trip(connection_string: str, queue_name: str, sent: AmqpAnnotatedMessage) -> ServiceBusReceivedMessage:
    """Send a message and receive it."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(sent)
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            message = (await receiver.receive_messages())[0]
            await receiver.complete_message(message)
            return message


async def data(connection_string: str, queue_name: str) -> object:
    """Send a body of bytes in several sections; they arrive as sections or as one."""
    sent = AmqpAnnotatedMessage(
        data_body=[b"aa", b"bb", b"cc"],
        application_properties={"body_type": "data"},
        delivery_annotations={"hint": "fast"},
    )
    message = await round_trip(connection_string, queue_name, sent)
    raw = message.raw_amqp_message
    assert raw.body_type == AmqpMessageBodyType.DATA
    sections = [section for section in raw.body]  # noqa: C416  # as the samples do
    assert raw.delivery_annotations is not None
    hint = raw.delivery_annotations["hint"]  # row: property-keys
    return b"".join(sections), hint, str(message)


async def sequence(connection_string: str, queue_name: str) -> object:
    """Send a body that is a list of values."""
    sent = AmqpAnnotatedMessage(
        sequence_body=[b"message", 123.456, True], footer={"checksum": 7}, properties={"subject": "sequence"}
    )
    message = await round_trip(connection_string, queue_name, sent)
    raw = message.raw_amqp_message
    assert raw.body_type == AmqpMessageBodyType.SEQUENCE
    values = list(raw.body)  # row: sequence-body
    assert raw.footer is not None
    checksum = raw.footer["checksum"]  # row: property-keys
    return values, checksum, message.subject


async def value(connection_string: str, queue_name: str) -> object:
    """Send a body of one value."""
    sent = AmqpAnnotatedMessage(
        value_body={"key": [-123, b"data", False]}, header={"priority": 10}, annotations={"origin": "shop"}
    )
    message = await round_trip(connection_string, queue_name, sent)
    raw = message.raw_amqp_message
    assert raw.body_type == AmqpMessageBodyType.VALUE
    inside = raw.body["key"]  # row: property-keys
    assert raw.header is not None
    assert raw.annotations is not None
    origin = raw.annotations["origin"]  # row: property-keys
    return inside, raw.header.priority, origin


async def sections(connection_string: str, queue_name: str) -> object:
    """Set the header and properties as objects; the message shows them under its own names."""
    sent = AmqpAnnotatedMessage(
        data_body="tea",
        header=AmqpMessageHeader(durable=True, time_to_live=60_000),
        properties=AmqpMessageProperties(
            message_id="7",
            correlation_id="12",
            subject="order",
            group_id="ann",
            content_type="text/plain",
            to="kitchen",
        ),
    )
    message = await round_trip(connection_string, queue_name, sent)
    raw = message.raw_amqp_message
    assert raw.header is not None
    assert raw.properties is not None
    return {
        "ids": (message.message_id, message.correlation_id, message.session_id),
        "words": (message.subject, message.content_type, message.to),
        "time to live": (message.time_to_live, raw.header.time_to_live),
        "durable": raw.header.durable,
        "attribute": str(raw.properties.subject),  # row: property-keys
        "mapping": str(raw.properties["subject"]),  # row: property-keys
        "failed": (raw.header.delivery_count or 0, message.delivery_count - 1),  # row: delivery-count
    }


async def broker_annotations(connection_string: str, queue_name: str) -> object:
    """The attributes of the message give the annotations of the broker."""
    message = await round_trip(connection_string, queue_name, AmqpAnnotatedMessage(data_body=b"tea"))
    number = message.sequence_number  # row: amqp-annotations
    enqueued = message.enqueued_time_utc  # row: amqp-annotations
    return number > 0, enqueued is not None


async def through_the_view(connection_string: str, queue_name: str) -> object:
    """Change a message through its AMQP view before it is sent."""
    message = ServiceBusMessage("tea", subject="draft")
    raw = message.raw_amqp_message
    assert raw.properties is not None
    raw.properties.subject = "order"
    annotations: dict[Any, Any] = {"origin": "shop"}
    raw.annotations = annotations
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages(message)
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            got = (await receiver.receive_messages())[0]
            await receiver.complete_message(got)
    assert got.raw_amqp_message.annotations is not None
    origin = got.raw_amqp_message.annotations["origin"]  # row: property-keys
    return got.subject, origin, got.body_type == AmqpMessageBodyType.DATA
