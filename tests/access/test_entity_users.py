"""What users with rights to single entities can do: the table of users and operations in SECURITY.md.

Each user tries each operation. A refused operation has changed nothing.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest
import redis
import redis.exceptions

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.cli import main
from sbredis.engine import whole_library
from sbredis.exceptions import ServiceBusAuthorizationError
from sbredis.management import SqlRuleFilter
from sbredis.servers import LocalCluster, LocalServer
from tests.access.users import nodes_of, set_user, url_of
from tests.plugins.parts import first
from tests.waiting import eventually
from tools.repository import ROOT

Running = LocalServer | LocalCluster
OWN = {"queue": ("q", "chats"), "topic": ("t",), "subscription": ("t/subscriptions/s",)}
"""The entities that each user of entities may use."""


@dataclass(frozen=True)
class Work:
    """A client and an administration client of a user."""

    client: ServiceBusClient
    administration: ServiceBusAdministrationClient


Operation = Callable[[Work], Awaitable[object]]


async def send(work: Work, queue: str = "q") -> None:
    async with work.client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage("1", session_id="x"), ServiceBusMessage("2", session_id="x")])
        later = await sender.schedule_messages(
            ServiceBusMessage("3", session_id="x"), datetime.now(UTC) + timedelta(hours=1)
        )
        await sender.cancel_scheduled_messages(later)


async def receive(work: Work) -> None:
    async with work.client.get_queue_receiver("q", max_wait_time=30) as receiver:
        assert await receiver.peek_messages(5)
        (message,) = await receiver.receive_messages(1)
        await receiver.renew_message_lock(message)
        await receiver.abandon_message(message)
        (message,) = await receiver.receive_messages(1)
        assert message.sequence_number is not None
        await receiver.defer_message(message)
        (message,) = await receiver.receive_deferred_messages(message.sequence_number)
        await receiver.dead_letter_message(message)
        await receiver.purge_messages()
    async with work.client.get_queue_receiver("q", sub_queue="deadletter", max_wait_time=30) as letters:
        (message,) = await letters.receive_messages(1)
        await letters.complete_message(message)


async def redrive(work: Work) -> None:
    async with work.client.get_queue_receiver("q", sub_queue="deadletter") as letters:
        await letters.redrive_messages()


async def wait_for_a_message(work: Work) -> None:
    async def waits() -> bool:
        return [each.waiting_receiver_count async for each in work.administration.list_partitions("q")] == [1]

    async with work.client.get_queue_receiver("q") as receiver, work.client.get_queue_sender("q") as sender:
        await receiver.purge_messages()
        waiting = asyncio.create_task(receiver.receive_messages(1, 60))
        await eventually(waits)
        await sender.send_messages(ServiceBusMessage("w"))
        (message,) = await waiting
        await receiver.complete_message(message)


async def use_a_session(work: Work) -> None:
    async with work.client.get_queue_receiver("chats", session_id="c", max_wait_time=30) as receiver:
        await receiver.session.set_state("s")
        (message,) = await receiver.receive_messages(1)
        await receiver.session.renew_lock()
        await receiver.complete_message(message)


async def do_a_transaction(work: Work) -> None:
    async with (
        work.client.get_queue_receiver("q", max_wait_time=30) as receiver,
        work.client.get_queue_sender("q") as sender,
    ):
        await sender.send_messages(ServiceBusMessage("m"))
        (message,) = await receiver.receive_messages(1)
        async with work.client.transaction() as tx:
            tx.complete_message(message)
            tx.send_messages(sender, ServiceBusMessage("t"))


async def publish(work: Work) -> None:
    async with work.client.get_topic_sender("t") as sender:
        await sender.send_messages(ServiceBusMessage("p"))


async def receive_from_the_subscription(work: Work) -> None:
    async with work.client.get_subscription_receiver("t", "s", max_wait_time=30) as receiver:
        assert await receiver.peek_messages(1)
        (message,) = await receiver.receive_messages(1)
        await receiver.complete_message(message)


async def receive_from_another_subscription(work: Work) -> None:
    async with work.client.get_subscription_receiver("t", "s2", max_wait_time=30) as receiver:
        (message,) = await receiver.receive_messages(1)
        await receiver.complete_message(message)


async def peek_at_another_queue(work: Work) -> None:
    async with work.client.get_queue_receiver("other") as receiver:
        assert await receiver.peek_messages(1)


async def send_to_another_queue(work: Work) -> None:
    await send(work, "other")


async def read_the_registry(work: Work) -> None:
    names = [each.name async for each in work.administration.list_queues()]
    assert names == ["chats", "other", "q"]
    assert (await work.administration.get_topic("t")).name == "t"
    assert [each.name async for each in work.administration.list_rules("t", "s")] == ["$Default"]
    assert (await work.client.describe_entity("other")).kind == "queue"


async def count_messages(work: Work) -> None:
    assert (await work.administration.get_queue_runtime_properties("q")).total_message_count


async def create_a_queue(work: Work) -> None:
    await work.administration.create_queue("new")


async def update_a_queue(work: Work) -> None:
    await work.administration.update_queue({"name": "q"}, lock_duration=timedelta(seconds=61))


async def delete_a_queue(work: Work) -> None:
    await work.administration.delete_queue("q")


async def create_a_rule(work: Work) -> None:
    await work.administration.create_rule("t", "s", "r", filter=SqlRuleFilter("1=1"))


async def take_a_role(work: Work) -> None:
    async with work.client.claim_role("nightly", max_wait_time=30) as role:
        assert role.held


OPERATIONS: dict[str, tuple[Operation, str]] = {
    "send to a queue, schedule and cancel": (send, "namespace queue"),
    "receive and settle messages and dead letters of a queue": (receive, "namespace queue"),
    "redrive the dead letters of a queue": (redrive, "namespace"),
    "wait in a queue and be woken": (wait_for_a_message, "namespace queue"),
    "use a session of a queue": (use_a_session, "namespace queue"),
    "a transaction within a queue": (do_a_transaction, "namespace queue"),
    "count the messages of a queue": (count_messages, "namespace queue"),
    "send to a topic": (publish, "namespace topic"),
    "receive from a subscription": (receive_from_the_subscription, "namespace topic subscription"),
    "receive from another subscription of the topic": (receive_from_another_subscription, "namespace topic"),
    "send to another queue": (send_to_another_queue, "namespace"),
    "peek at another queue": (peek_at_another_queue, "namespace"),
    "read which entities there are, and their properties": (read_the_registry, "namespace queue topic subscription"),
    "create a queue": (create_a_queue, "namespace"),
    "update a queue": (update_a_queue, "namespace"),
    "delete a queue": (delete_a_queue, "namespace"),
    "create a rule": (create_a_rule, "namespace"),
    "take a role": (take_a_role, "namespace"),
}
"""Each operation, and the users that can do it."""
USERS = ("namespace", *OWN)


def dump(running: Running) -> dict[str, object]:
    """Return all that is stored, except what looks have noted of their time."""
    found: dict[str, object] = {}
    for node in nodes_of(running):
        with redis.Redis(host=node.host, port=node.port) as connection:
            found |= {key.decode(): connection.dump(key) for key in connection.scan_iter()}
    return found


async def prepare(running: Running) -> None:
    """Make the entities with a message in each, and the users."""
    url = f"{running.url}?namespace=ns"
    async with ServiceBusAdministrationClient(url) as administration, ServiceBusClient(url) as client:
        for name in ("q", "other"):
            await administration.create_queue(name)
        await administration.create_queue("chats", requires_session=True)
        await administration.create_topic("t")
        for name in ("s", "s2"):
            await administration.create_subscription("t", name)
        for name in ("q", "other", "chats"):
            async with client.get_queue_sender(name) as sender:
                await sender.send_messages(ServiceBusMessage("m", session_id="c" if name == "chats" else None))
        async with client.get_topic_sender("t") as topic:
            await topic.send_messages(ServiceBusMessage("m"))


def give_rights(running: Running, user: str, capsys: pytest.CaptureFixture[str], form: str = "needed") -> str:
    """Make a user with the rights that the command prints. Return the user's connection string.

    With the form ``library``, the user calls the functions that an administrator has loaded.
    """
    place = f"{running.url}?namespace=ns"
    arguments = ["namespace", "ns"] if user == "namespace" else ["entity", *OWN[user], "--url", place]
    capsys.readouterr()
    assert main(["acl", *arguments, "--user", user, "--output", "json"]) == 0
    set_user(running, user, json.loads(capsys.readouterr().out)["rules"])
    if form == "library":
        for node in nodes_of(running):
            node.ask("FUNCTION", "LOAD", "REPLACE", whole_library().source)
    return f"{url_of(running, user)}?namespace=ns&scripts={form}"


async def attempt(url: str, operation: Operation) -> None:
    async with ServiceBusClient(url) as client, ServiceBusAdministrationClient(url) as administration:
        await operation(Work(client, administration))


@pytest.mark.any_form("the users may not load the library")
@pytest.mark.parametrize("user", OWN)
@pytest.mark.parametrize(
    ("target", "form"),
    first(
        1,
        [pytest.param("server", "needed"), pytest.param("server", "library"), pytest.param("cluster", "needed")],
        "the users have the same rights in each form",
    ),
)
def test_a_user_can_do_what_the_table_says_and_a_refusal_changes_nothing(
    user: str, target: str, form: str, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The user of a namespace is left out here, because the whole suite runs under these rights."""
    running: Running = request.getfixturevalue(target)
    asyncio.run(prepare(running))
    url = give_rights(running, user, capsys, form)
    for name, (operation, users) in OPERATIONS.items():
        if user in users.split():
            asyncio.run(attempt(url, operation))
            continue
        before = dump(running)
        with pytest.raises(ServiceBusAuthorizationError):
            asyncio.run(attempt(url, operation))
        assert dump(running) == before, name


@pytest.mark.parametrize("user", OWN)
def test_no_user_of_entities_can_push_to_the_receivers_of_others(
    user: str, server: LocalServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(prepare(server))
    give_rights(server, user, capsys)

    async def id_of(path: str) -> str:
        async with ServiceBusClient(f"{server.url}?namespace=ns") as client:
            return (await client.describe_entity(path)).id

    own = {*OWN[user], *(["t/subscriptions/s", "t/subscriptions/s2"] if user == "topic" else [])}
    with redis.Redis(host=server.host, port=server.port, username=user, password=f"{user}-pw") as connection:
        for path in ("q", "other", "chats", "t", "t/subscriptions/s", "t/subscriptions/s2"):
            words = "SPUBLISH", f"sb:ns:{{abc}}:{asyncio.run(id_of(path))}:push:x", ""
            if path in own:
                assert connection.execute_command(*words) == 0
                continue
            with pytest.raises(redis.exceptions.NoPermissionError):
                connection.execute_command(*words)


def test_the_table_of_users_is_in_the_document() -> None:
    text = (ROOT / "SECURITY.md").read_text("utf-8")
    rows = re.findall(r"^\| ([^|]+) \| (yes|no) \| (yes|no) \| (yes|no) \| (yes|no) \|$", text, re.MULTILINE)
    expected = [
        (name, *("yes" if user in users.split() else "no" for user in USERS)) for name, (_, users) in OPERATIONS.items()
    ]
    assert rows == expected
