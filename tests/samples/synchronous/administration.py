"""Queues created, found, changed, counted, listed and deleted, as with the synchronous client of azure.servicebus."""

from __future__ import annotations

from datetime import timedelta

from sbredis import ServiceBusClient, ServiceBusMessage  # row: imports
from sbredis.exceptions import ResourceExistsError, ResourceNotFoundError  # row: exceptions-base
from sbredis.management import (  # row: imports
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    QueueProperties,
    ServiceBusAdministrationClient,
)


def life_of_a_queue(connection_string: str, queue_name: str) -> object:
    """Created, listed, changed, counted, deleted."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        name = f"{queue_name}-managed"
        client.create_queue(name, max_delivery_count=10, dead_lettering_on_message_expiration=True)
        listed = [queue.name for queue in client.list_queues()]

        queue = client.get_queue(name)
        before = queue.max_delivery_count, queue.dead_lettering_on_message_expiration, queue.lock_duration
        queue.max_delivery_count = 5
        client.update_queue(queue)
        after = (client.get_queue(name)).max_delivery_count

        runtime = client.get_queue_runtime_properties(name)
        counted = runtime.name == name, runtime.total_message_count, runtime.size_in_bytes
        client.delete_queue(name)
        return sorted(listed) == sorted([queue_name, name]), before, after, counted


def with_all_options(connection_string: str, queue_name: str) -> object:
    """Everything that can be said of a queue when it is created, and what of it comes back."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        queue: QueueProperties = client.create_queue(
            f"{queue_name}-complete",
            authorization_rules=[
                AuthorizationRule(
                    type="SharedAccessAuthorizationRule",
                    rights=[AccessRights.SEND, AccessRights.LISTEN],
                    key_name="shop",
                    claim_type="SharedAccessKey",
                    claim_value="None",
                )
            ],
            dead_lettering_on_message_expiration=True,
            default_message_time_to_live=timedelta(hours=11),
            duplicate_detection_history_time_window="PT12M",
            enable_batched_operations=True,
            enable_express=False,
            enable_partitioning=True,
            lock_duration=timedelta(seconds=13),
            max_delivery_count=14,
            max_size_in_megabytes=2048,
            requires_duplicate_detection=True,
            requires_session=False,
            user_metadata="for the samples",
            max_message_size_in_kilobytes=2048,
        )
        assert queue.authorization_rules is not None
        (rule,) = queue.authorization_rules
        return {
            "rule": (rule.key_name, rule.rights),
            "dead letters": queue.dead_lettering_on_message_expiration,
            "life": queue.default_message_time_to_live,
            "window": queue.duplicate_detection_history_time_window,
            "batched, express": (queue.enable_batched_operations, queue.enable_express),
            "partitioned": queue.enable_partitioning,
            "lock": queue.lock_duration,
            "deliveries": queue.max_delivery_count,
            "sizes": (queue.max_size_in_megabytes, queue.max_message_size_in_kilobytes),
            "duplicates, sessions": (queue.requires_duplicate_detection, queue.requires_session),
            "note": queue.user_metadata,
            "forwarding": (queue.forward_to, queue.forward_dead_lettered_messages_to),
            "idle": queue.auto_delete_on_idle,
            "status": queue.status == EntityStatus.ACTIVE,
            "available": queue.availability_status == EntityAvailabilityStatus.AVAILABLE,
        }


def changed(connection_string: str, queue_name: str) -> object:
    """By assigning, by keyword, by a mapping, and as with any mapping."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        queue = client.get_queue(queue_name)
        queue.lock_duration = timedelta(seconds=20)
        queue["max_delivery_count"] = 4
        client.update_queue(queue)
        client.update_queue(queue, user_metadata="changed", dead_lettering_on_message_expiration=True)
        client.update_queue(dict(client.get_queue(queue_name)), default_message_time_to_live="PT2H")
        now = client.get_queue(queue_name)
        return (
            now.lock_duration,
            now["max_delivery_count"],
            now.user_metadata,
            now.dead_lettering_on_message_expiration,
            now.default_message_time_to_live,
            "lock_duration" in now,
            now.get("nothing", "no such property"),
        )


def counted(connection_string: str, queue_name: str) -> object:
    """What is in a queue, by state."""
    with ServiceBusClient.from_connection_string(connection_string) as client:
        with client.get_queue_sender(queue_name) as sender:
            sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            receiver.dead_letter_message((receiver.receive_messages())[0], reason="Unreadable")
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        runtime = administration.get_queue_runtime_properties(queue_name)
        rows = list(administration.list_queues_runtime_properties())
        assert runtime.created_at_utc is not None
        assert runtime.updated_at_utc is not None
        return {
            "active": runtime.active_message_count,
            "dead": runtime.dead_letter_message_count,
            "scheduled": runtime.scheduled_message_count,
            "transferred": (runtime.transfer_message_count, runtime.transfer_dead_letter_message_count),
            "total": runtime.total_message_count,
            "bytes": (runtime.size_in_bytes or 0) > 0,
            "times": runtime.created_at_utc <= runtime.updated_at_utc,
            "accessed": runtime.accessed_at_utc is not None,
            "listed": [(row.name == queue_name, row.total_message_count) for row in rows],
        }


def taken_and_missing(connection_string: str, queue_name: str) -> object:
    """Names that are taken, and names of nothing."""
    said: list[str] = []
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        try:
            client.create_queue(queue_name)
        except ResourceExistsError:
            said.append("exists")
        try:
            client.get_queue(f"{queue_name}-of-nobody")
        except ResourceNotFoundError:
            said.append("not found")
        try:
            client.get_queue_runtime_properties(f"{queue_name}-of-nobody")
        except ResourceNotFoundError:
            said.append("not found")
        try:
            client.delete_queue(f"{queue_name}-of-nobody")
        except ResourceNotFoundError:
            said.append("not found")
        try:
            client.create_queue(f"{queue_name}-strange", lock_duration=timedelta(minutes=6))
        except ValueError:  # row: bad-properties
            said.append("refused")
    return said


def by_page(connection_string: str, queue_name: str) -> object:
    """A list, page by page."""
    with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        for number in range(3):
            client.create_queue(f"{queue_name}-{number}")
        names: list[str | None] = []
        for page in client.list_queues().by_page():
            names += [queue.name for queue in page]
        return len(names), f"{queue_name}-2" in names


def the_namespace(connection_string: str, queue_name: str) -> object:
    with ServiceBusAdministrationClient.from_connection_string(connection_string, api_version="2021-05") as client:
        told = client.get_namespace_properties()
        assert queue_name
        return (
            told.name,
            told.namespace_type,
            told.created_at_utc is not None,
            told.created_at_utc == told.modified_at_utc,
        )
