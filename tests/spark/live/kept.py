"""Random messages with every part that a message may have, and what of them must survive a way through Spark."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from sbredis import ServiceBusClient
from sbredis.amqp import AmqpAnnotatedMessage
from sbredis.engine import Content
from sbredis.model._amqp import amqp_content_of
from tests.engine.test_codec import typed

__all__ = ["contents_of", "random_message", "send_random"]

_BROKERS = {"assigned", "id_used", "modified", "hops", "enqueued_number", "dead_letter_source", "dead_letter_number"}
"""The fields that are not the sender's."""
_NOON = datetime(2035, 5, 1, 12, tzinfo=UTC)
_TEXTS = ["", "a", "é𝄞", "x" * 300, "true", "1"]


def _value(chance: random.Random) -> Any:
    """Return a value that an application property may have."""
    made: list[Callable[[], Any]] = [
        lambda: None,
        lambda: chance.random() < 0.5,
        lambda: chance.choice([0, -1, 7, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**63)]),
        lambda: chance.choice([0.0, -0.0, 0.1, 1e300, 5e-324, float("inf"), -float("inf"), chance.random()]),
        lambda: chance.choice([Decimal("1.50"), Decimal("-1E+6000"), Decimal("0E-10"), Decimal("NaN"), Decimal(7)]),
        lambda: chance.choice(_TEXTS),
        lambda: chance.randbytes(chance.choice([0, 1, 200])),
        lambda: _NOON + timedelta(microseconds=chance.randrange(-(10**16), 10**16)),
        lambda: chance.choice([datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]),
        lambda: UUID(bytes=chance.randbytes(16)),
    ]
    return chance.choice(made)()


def _identifier(chance: random.Random) -> Any:
    return chance.choice(["id", "é", 0, 2**64 - 1, UUID(bytes=chance.randbytes(16)), b"\xff\x00", b"text", None])


def random_message(chance: random.Random) -> AmqpAnnotatedMessage:
    """Return a message with some of the parts that a message may have."""

    def maybe(value: Any) -> Any:
        return value if chance.random() < 0.6 else None

    def some() -> dict[str, Any]:
        return {f"p{number}": _value(chance) for number in range(chance.randrange(6))}

    key = chance.choice(["k", "é", "key 3"])
    properties = {
        "message_id": maybe(_identifier(chance)),
        "correlation_id": maybe(_identifier(chance)),
        "group_id": maybe(key),
        "content_type": maybe("text/plain"),
        "subject": maybe(chance.choice(_TEXTS)),
        "to": maybe("to"),
        "reply_to": maybe("replies"),
        "reply_to_group_id": maybe("session"),
    }
    annotations: dict[str, Any] = {"x-own": _value(chance)} if chance.random() < 0.3 else {}
    if chance.random() < 0.4:
        annotations["x-opt-partition-key"] = key
    if chance.random() < 0.3:
        annotations["x-opt-scheduled-enqueue-time"] = _NOON
    body: dict[str, Any] = chance.choice(
        [
            {"data_body": chance.randbytes(chance.choice([0, 5, 400]))},
            {"data_body": b"text"},
            {"value_body": {"a": [1, _value(chance)]}},
            {"sequence_body": [[1, "two"], [_value(chance)]]},
        ]
    )
    return AmqpAnnotatedMessage(
        **body,
        properties={name: value for name, value in properties.items() if value is not None},
        header={"time_to_live": chance.choice([3_600_000, 10**12])} if chance.random() < 0.4 else None,
        application_properties=maybe(some()),
        annotations=annotations or None,
        delivery_annotations=maybe(some()) if chance.random() < 0.2 else None,
        footer=maybe(some()) if chance.random() < 0.2 else None,
        raw_amqp=chance.choice([None, None, chance.randbytes(60), b"head" + b"text" * 9]),
    )


def send_random(url: str, queue: str, count: int, seed: int) -> None:
    """Send random messages to a new queue with several partitions."""
    chance = random.Random(seed)
    create: Any = {"enable_partitioning": True}
    with ServiceBusClient(url) as client, client.get_queue_sender(queue, create_if_missing=create) as sender:
        for _ in range(count):
            sender.send_messages(random_message(chance))


def contents_of(url: str, queue: str) -> list[Any]:
    """Return what the senders gave of all messages in a queue, in an order that depends on nothing else."""
    found: list[Any] = []
    with ServiceBusClient(url) as client, client.get_queue_receiver(queue) as receiver:
        last = 0
        while page := receiver.peek_messages(250, sequence_number=last + 1):
            last = page[-1].sequence_number
            contents = [amqp_content_of(message.raw_amqp_message) for message in page]
            found += [
                {each.name: typed(getattr(content, each.name)) for each in fields(Content) if each.name not in _BROKERS}
                for content in contents
            ]
    return sorted(found, key=repr)
