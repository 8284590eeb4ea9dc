# pyright: reportUnnecessaryTypeIgnoreComment=true
"""Typos that a user might make. Type checkers report an error in each marked line, and also report a mark without an
error.

This file is never run. ``test_typos.py`` removes the marks and compares the lines that mypy reports with the marked
lines.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sbredis
from sbredis import aio, management, testing
from sbredis.aio import management as aio_management

NOW = datetime.now(UTC)


def clients() -> None:
    aio.ServiceBusClient("memory://a", retry_totl=1)  # type: ignore[call-arg]
    aio.ServiceBusClient("memory://a", logging_enable=True)  # type: ignore[call-arg]
    aio.ServiceBusClient.from_connection_string("memory://a", namespce="n")  # type: ignore[call-arg]
    aio.ServiceBusClient.from_connection_string("memory://a", retry_total="3")  # type: ignore[arg-type]
    sbredis.ServiceBusClient("memory://a", retry_totl=1)  # type: ignore[call-arg]
    sbredis.ServiceBusClient.from_connection_string("memory://a", namespce="n")  # type: ignore[call-arg]
    aio_management.ServiceBusAdministrationClient("memory://a", timout=1)  # type: ignore[call-arg]
    aio_management.ServiceBusAdministrationClient.from_connection_string("memory://a", timout=1)  # type: ignore[call-arg]
    management.ServiceBusAdministrationClient("memory://a", timout=1)  # type: ignore[call-arg]
    management.ServiceBusAdministrationClient.from_connection_string("memory://a", timout=1)  # type: ignore[call-arg]


async def made_by_clients(client: aio.ServiceBusClient, other: sbredis.ServiceBusClient) -> None:
    client.get_queue_sender("q", max_inflight=1)  # type: ignore[call-arg]
    client.get_queue_sender("q", create_if_missing={"max_delivery_cuont": 3})  # type: ignore[arg-type]
    client.get_queue_sender("q", create_if_missing={"max_delivery_count": "3"})  # type: ignore[arg-type]
    client.get_topic_sender("t", create_if_missing={"max_delivery_count": 3})  # type: ignore[arg-type]
    client.get_queue_receiver("q", max_wait=1)  # type: ignore[call-overload]
    client.get_receiver("q", max_wait=1)  # type: ignore[call-overload]
    client.get_subscription_receiver("t", "s", prefetch=1)  # type: ignore[call-overload]
    client.get_subscription_receiver("t", "s", create_if_missing={"rule": []})  # type: ignore[call-overload]
    await client.accept_next_session("q", session_id="a")  # type: ignore[call-arg]
    await client.ensure_queue("q", max_delivery_cuont=3)  # type: ignore[call-arg]
    other.get_queue_sender("q", max_inflight=1)  # type: ignore[call-arg]
    other.get_topic_sender("t", max_inflight=1)  # type: ignore[call-arg]
    other.get_queue_receiver("q", max_wait=1)  # type: ignore[call-overload]
    other.get_receiver("q", max_wait=1)  # type: ignore[call-overload]
    other.get_subscription_receiver("t", "s", prefetch=1)  # type: ignore[call-overload]
    other.accept_next_session("q", prefetch=1)  # type: ignore[call-arg]
    other.ensure_queue("q", max_delivery_cuont=3)  # type: ignore[call-arg]


async def senders(sender: aio.ServiceBusSender, other: sbredis.ServiceBusSender) -> None:
    message = sbredis.ServiceBusMessage("x", sesion_id="a")  # type: ignore[call-arg]
    await sender.send_messages(message, timout=1)  # type: ignore[call-arg]
    await sender.schedule_messages(message, NOW, timout=1)  # type: ignore[call-arg]
    await sender.cancel_scheduled_messages(1, timout=1)  # type: ignore[call-arg]
    other.send_messages(message, timout=1)  # type: ignore[call-arg]
    other.schedule_messages(message, NOW, timout=1)  # type: ignore[call-arg]
    other.cancel_scheduled_messages(1, timout=1)  # type: ignore[call-arg]


async def receivers(receiver: aio.ServiceBusReceiver, other: sbredis.ServiceBusReceiver) -> None:
    message = (await receiver.receive_messages(max_mesage_count=1))[0]  # type: ignore[call-arg]
    await receiver.peek_messages(timout=1)  # type: ignore[call-arg]
    await receiver.receive_deferred_messages(1, timout=1)  # type: ignore[call-arg]
    await receiver.renew_message_lock(message, timout=1)  # type: ignore[call-arg]
    await receiver.abandon_message(message, dely=1)  # type: ignore[call-arg]
    other.peek_messages(timout=1)  # type: ignore[call-arg]
    other.receive_deferred_messages(1, timout=1)  # type: ignore[call-arg]
    other.renew_message_lock(message, timout=1)  # type: ignore[call-arg]


async def sessions(session: aio.ServiceBusSession, other: sbredis.ServiceBusSession) -> None:
    await session.renew_lock(timout=1)  # type: ignore[call-arg]
    await session.get_state(timout=1)  # type: ignore[call-arg]
    await session.set_state(None, timout=1)  # type: ignore[call-arg]
    other.renew_lock(timout=1)  # type: ignore[call-arg]
    other.get_state(timout=1)  # type: ignore[call-arg]
    other.set_state(None, timout=1)  # type: ignore[call-arg]


async def administration(
    admin: aio_management.ServiceBusAdministrationClient, other: management.ServiceBusAdministrationClient
) -> None:
    await admin.create_queue("q", lock_durration="PT1M")  # type: ignore[call-arg]
    await admin.ensure_queue("q", lock_durration="PT1M")  # type: ignore[call-arg]
    await admin.update_queue({"name": "q"}, lock_durration="PT1M")  # type: ignore[call-arg]
    await admin.update_topic({"name": "t"}, lock_duration="PT1M")  # type: ignore[call-arg]
    await admin.update_subscription("t", {"name": "s"}, lock_duration=60)  # type: ignore[arg-type]
    await admin.update_rule("t", "s", {"name": "r"}, filtr=None)  # type: ignore[call-arg]
    management.QueueProperties("q").update(lock_durration="PT1M")  # type: ignore[call-arg]
    other.update_queue({"name": "q"}, lock_durration="PT1M")  # type: ignore[call-arg]
    other.update_topic({"name": "t"}, lock_duration="PT1M")  # type: ignore[call-arg]
    other.update_subscription("t", {"name": "s"}, lock_durration="PT1M")  # type: ignore[call-arg]
    other.update_rule("t", "s", {"name": "r"}, filtr=None)  # type: ignore[call-arg]


async def buses(bus: testing.Bus, other: testing.SyncBus) -> None:
    await bus.create_queue("q", lock_durration="PT1M")  # type: ignore[call-arg]
    await bus.create_subscription("t", "s", rule=[])  # type: ignore[call-arg]
    other.create_queue("q", lock_durration="PT1M")  # type: ignore[call-arg]
