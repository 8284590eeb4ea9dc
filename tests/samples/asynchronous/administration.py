"""Create, find, change, count, list and delete queues, as with the asynchronous client of azure.servicebus."""

from __future__ import annotations

from datetime import timedelta

from sbredis import ServiceBusMessage  # row: imports
from sbredis.aio import ServiceBusClient  # row: imports
from sbredis.aio.management import ServiceBusAdministrationClient  # row: imports
from sbredis.exceptions import ResourceExistsError, ResourceNotFoundError  # row: exceptions-base
from sbredis.management import (  # row: imports
    AccessRights,
    AuthorizationRule,
    EntityAvailabilityStatus,
    EntityStatus,
    QueueProperties,
)


async def life_of_a_queue(connection_string: str, queue_name: str) -> object:
    """Create, list, change, count and delete a queue."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        name = f"{queue_name}-managed"
        await client.create_queue(name, max_delivery_count=10, dead_lettering_on_message_expiration=True)
        listed = [queue.name async for queue in client.list_queues()]

        queue = await client.get_queue(name)
        before = queue.max_delivery_count, queue.dead_lettering_on_message_expiration, queue.lock_duration
        queue.max_delivery_count = 5
        await client.update_queue(queue)
        after = (await client.get_queue(name)).max_delivery_count

        runtime = await client.get_queue_runtime_properties(name)
        counted = runtime.name == name, runtime.total_message_count, runtime.size_in_bytes
        await client.delete_queue(name)
        return sorted(listed) == sorted([queue_name, name]), before, after, counted


async def with_all_options(connection_string: str, queue_name: str) -> object:
    """Create a queue with every option, and read the options back."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        queue: QueueProperties = await client.create_queue(
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
            forward_to=queue_name,
            forward_dead_lettered_messages_to=f"sb://shop.servicebus.windows.net/{queue_name}",
            auto_delete_on_idle=timedelta(minutes=10),
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
            "forwarding": [
                str(destination).endswith(queue_name)
                for destination in (queue.forward_to, queue.forward_dead_lettered_messages_to)
            ],
            "idle": queue.auto_delete_on_idle,
            "status": queue.status == EntityStatus.ACTIVE,
            "available": queue.availability_status == EntityAvailabilityStatus.AVAILABLE,
        }


async def changed(connection_string: str, queue_name: str) -> object:
    """Change a queue by assignment, by keyword and by a mapping; its properties act like a mapping too."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        queue = await client.get_queue(queue_name)
        queue.lock_duration = timedelta(seconds=20)
        queue["max_delivery_count"] = 4
        await client.update_queue(queue)
        await client.update_queue(queue, user_metadata="changed", dead_lettering_on_message_expiration=True)
        await client.update_queue(dict(await client.get_queue(queue_name)), default_message_time_to_live="PT2H")
        now = await client.get_queue(queue_name)
        return (
            now.lock_duration,
            now["max_delivery_count"],
            now.user_metadata,
            now.dead_lettering_on_message_expiration,
            now.default_message_time_to_live,
            "lock_duration" in now,
            now.get("nothing", "no such property"),
        )


async def counted(connection_string: str, queue_name: str) -> object:
    """Count the messages in a queue by state."""
    async with ServiceBusClient.from_connection_string(connection_string) as client:
        async with client.get_queue_sender(queue_name) as sender:
            await sender.send_messages([ServiceBusMessage(str(number)) for number in range(3)])
        async with client.get_queue_receiver(queue_name, max_wait_time=5) as receiver:
            await receiver.dead_letter_message((await receiver.receive_messages())[0], reason="Unreadable")
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        runtime = await administration.get_queue_runtime_properties(queue_name)
        rows = [row async for row in administration.list_queues_runtime_properties()]
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


async def taken_and_missing(connection_string: str, queue_name: str) -> object:
    """Use names that are taken, and names that do not exist."""
    said: list[str] = []
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        try:
            await client.create_queue(queue_name)
        except ResourceExistsError:
            said.append("exists")
        try:
            await client.get_queue(f"{queue_name}-of-nobody")
        except ResourceNotFoundError:
            said.append("not found")
        try:
            await client.get_queue_runtime_properties(f"{queue_name}-of-nobody")
        except ResourceNotFoundError:
            said.append("not found")
        try:
            await client.delete_queue(f"{queue_name}-of-nobody")
        except ResourceNotFoundError:
            said.append("not found")
        try:
            await client.create_queue(f"{queue_name}-strange", lock_duration=timedelta(minutes=6))
        except ValueError:  # row: bad-properties
            said.append("refused")
    return said


async def by_page(connection_string: str, queue_name: str) -> object:
    """Read a list page by page."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        for number in range(3):
            await client.create_queue(f"{queue_name}-{number}")
        names: list[str | None] = []
        async for page in client.list_queues().by_page():
            names += [queue.name async for queue in page]
        return len(names), f"{queue_name}-2" in names


async def the_namespace(connection_string: str, queue_name: str) -> object:
    async with ServiceBusAdministrationClient.from_connection_string(
        connection_string, api_version="2021-05"
    ) as client:
        found = await client.get_namespace_properties()
        assert queue_name
        return (
            found.name,
            found.namespace_type,
            found.created_at_utc is not None,
            found.created_at_utc == found.modified_at_utc,
        )
