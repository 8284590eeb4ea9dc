"""Correct uses of the public API. The type checkers report no error here. This file is never run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type
from uuid import UUID

import sbredis
from sbredis import aio, management, testing
from sbredis.aio import management as aio_management

NOW = datetime.now(UTC)


def clients(options: dict[str, Any]) -> None:
    """Type checkers do not check options that are passed as a dictionary of Any."""
    aio.ServiceBusClient("memory://a", retry_total=1, retry_mode="fixed")
    aio.ServiceBusClient.from_connection_string("memory://a", namespace="n", credential=("user", "secret"))
    aio.ServiceBusClient.from_connection_string("memory://a", **options)
    sbredis.ServiceBusClient.from_connection_string("memory://a", maintenance=True)
    management.ServiceBusAdministrationClient.from_connection_string("memory://a", timeout=1, namespace="n")
    aio_management.ServiceBusAdministrationClient.from_connection_string("memory://a", connect_timeout=1)


async def made_by_clients(client: aio.ServiceBusClient, other: sbredis.ServiceBusClient) -> None:
    queue: management.QueueOptions = {"lock_duration": timedelta(minutes=1)}
    rule = management.RuleProperties("r", filter=management.SqlRuleFilter("a = 1"))
    client.get_queue_sender("q", create_if_missing=True)
    client.get_queue_sender("q", create_if_missing={"max_delivery_count": 3})
    client.get_queue_sender("q", create_if_missing=queue)
    client.get_subscription_receiver("t", "s", create_if_missing={"rules": [rule], "requires_session": True})
    await client.accept_next_session("q", create_if_missing={"requires_session": True, "enable_partitioning": True})
    await client.accept_next_session("t", "s", create_if_missing={"requires_session": True, "rules": [rule]})
    await client.ensure_queue("q", timeout=1, max_delivery_count=3)
    other.ensure_queue("q", max_delivery_count=3)


async def sessions(client: aio.ServiceBusClient, other: sbredis.ServiceBusClient) -> None:
    """A receiver with a session id has a session. A receiver without one has none."""
    assert_type(client.get_queue_receiver("q", session_id="a").session, aio.ServiceBusSession)
    assert_type(client.get_subscription_receiver("t", "s", session_id="a").session, aio.ServiceBusSession)
    assert_type(client.get_queue_receiver("q").session, aio.ServiceBusSession | None)
    assert_type(await client.accept_next_session("q"), aio.ServiceBusSessionReceiver | None)
    assert_type(other.get_queue_receiver("q", session_id=sbredis.NEXT_AVAILABLE_SESSION).session.session_id, str)
    assert_type(other.get_subscription_receiver("t", "s", session_id="a").session, sbredis.ServiceBusSession)
    assert_type(other.accept_next_session("q"), sbredis.ServiceBusSessionReceiver | None)


async def paths(client: aio.ServiceBusClient, other: sbredis.ServiceBusClient) -> None:
    """A client opens an entity by its path, with the options of its kind. Lock handles are text."""
    assert_type(
        client.get_receiver("t/Subscriptions/s", session_id="a", prefetch_count=1).session, aio.ServiceBusSession
    )
    assert_type(other.get_receiver("q", sub_queue="deadletter"), sbredis.ServiceBusReceiver)
    assert_type(other.get_sender("q", max_in_flight=1), sbredis.ServiceBusSender)
    assert_type(await client.get_settler("q").get_session_state("token"), bytes | None)
    other.get_settler("q").abandon_message("token", delay=1, properties_to_modify={"a": 1})


def messages(message: sbredis.ServiceBusReceivedMessage) -> None:
    """The body of a message has the type bytes, and its id has any type that AMQP allows."""
    assert_type(message.body, bytes)
    assert_type(message.raw_amqp_message.body, Any)
    assert_type(message.message_id, str | int | UUID | bytes | None)
    assert_type(message.raw_amqp, bytes | None)
    assert_type(message.sequence_number, int)
    assert_type(message.enqueued_sequence_number, int)
    assert_type(message.enqueued_time_utc, datetime)
    assert_type(message.delivery_count, int)
    assert_type(message.dead_letter_source_sequence_number, int | None)
    assert_type(message.expires_at_utc, datetime | None)
    body = message.body
    body = body.strip()
    sbredis.ServiceBusMessage(body, message_id=UUID(int=1), correlation_id=7, raw_amqp=b"")
    sbredis.ServiceBusMessage(body, message_id=b"x", application_properties={"a": Decimal(1), "b": None})
    message.message_id = message.correlation_id = 7


async def keys(tx: aio.ServiceBusTransaction, other: sbredis.ServiceBusTransaction) -> None:
    """The key of a transaction is what a message id may be."""
    tx.once(7, 60)
    tx.once(UUID(int=1), timedelta(days=1))
    other.once(b"x", 60)


async def administration(
    admin: aio_management.ServiceBusAdministrationClient, other: management.ServiceBusAdministrationClient
) -> None:
    await admin.update_queue(await admin.get_queue("q"), lock_duration="PT1M", status="Disabled")
    await admin.update_topic({"name": "t"}, user_metadata="ours")
    await admin.update_rule("t", "s", {"name": "r"}, filter=management.TrueRuleFilter(), action=None)
    other.update_subscription("t", {"name": "s"}, lock_duration=timedelta(minutes=1))


async def buses(bus: testing.Bus) -> None:
    await bus.create_subscription("t", "s", rules={"r": "a = 1"}, lock_duration="PT1M")
