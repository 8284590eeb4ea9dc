"""Tests of the destinations of entities: where messages may be forwarded to, and where they may not.

A refused call changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError, OperationTimeoutError
from sbredis.registry import _forwarding as forwarding
from sbredis.registry._registry import Registry
from tests.management.refusals import refused
from tests.stored_settings import settings_of

in_memory = pytest.mark.parametrize("target", ["memory"], indirect=True)
both_properties = pytest.mark.parametrize("name", ["forward_to", "forward_dead_lettered_messages_to"])
Admin = ServiceBusAdministrationClient
FORWARD, FORWARD_DEAD = "forward_to", "forward_dead_lettered_messages_to"


async def stored(admin: Admin, path: str) -> set[tuple[bytes, bytes]]:
    """Return the two flags of forwarding, as the partitions of an entity store them."""
    namespace = admin._connection.namespace
    record = await namespace.get_entity(path)
    keys = [namespace.partition(record, number).keys[0] for number in record.partitions]
    command = admin._connection.transport.command
    held = [settings_of(await command("HGET", key, "settings", key=key)) for key in keys]
    return {(each["forwards"], each["forwards_dead"]) for each in held}


async def chained(admin: Admin, names: Sequence[str], **last: Any) -> None:
    """Create queues, each of which forwards its messages to the queue whose name comes after its own."""
    await admin.create_queue(names[-1], **last)
    for name, destination in zip(names[-2::-1], names[:0:-1], strict=True):
        await admin.create_queue(name, forward_to=destination)


# -- setting -----------------------------------------------------------------------------------------------------------


@pytest.mark.everywhere("the registry and the partitions lie in different slots")
async def test_the_partitions_know_whether_messages_and_dead_letters_are_forwarded(admin: Admin) -> None:
    await admin.create_queue("all")
    await admin.create_topic("dead")
    await admin.create_queue("q", enable_partitioning=True, forward_to="ALL")
    assert await stored(admin, "q") == {(b"1", b"0")}
    await admin.update_queue({"name": "q"}, forward_dead_lettered_messages_to="dead")
    assert await stored(admin, "q") == {(b"1", b"1")}
    await admin.update_queue({"name": "q"}, forward_to=None)
    assert await stored(admin, "q") == {(b"0", b"1")}
    await admin.update_queue({"name": "q"}, forward_dead_lettered_messages_to="")
    assert await stored(admin, "q") == {(b"0", b"0")}


async def test_properties_that_were_read_can_be_sent_again_after_the_destination_was_deleted(admin: Admin) -> None:
    """Only a destination that changes must exist. A destination that an entity forwards to may be deleted."""
    await admin.create_queue("all")
    queue = await admin.create_queue("q", forward_to="all")
    await admin.delete_queue("all")
    queue.max_delivery_count = 3
    await admin.update_queue(queue)
    await admin.update_queue({"name": "q", "forward_to": "ALL"})
    assert await admin.get_queue("q") == queue
    text = r"'q' was to forward messages to 'all' \(forward_dead_lettered_messages_to\)\. There is no entity 'all'"
    done = admin.update_queue(queue, forward_dead_lettered_messages_to="all")
    await refused(admin, done, MessagingEntityNotFoundError, text)


async def test_all_functions_that_create_entities_set_and_check_destinations(admin: Admin, url: str) -> None:
    await admin.create_queue("all")
    assert (await admin.ensure_queue("ensured", forward_to="all")).forward_to == "all"
    assert (await admin.ensure_queue("ensured", forward_to="other")).forward_to == "all"
    await admin.create_topic("news")
    assert (await admin.ensure_subscription("news", "s", forward_to="all")).forward_to == "all"
    async with ServiceBusClient(url, namespace="ns") as client:
        async with client.get_queue_sender("made", create_if_missing={"forward_to": "all"}):
            assert (await admin.get_queue("made")).forward_to == "all"
        text = r"'x' was to forward messages to 'nothing' \(forward_to\)"
        sender = client.get_queue_sender("x", create_if_missing={"forward_to": "nothing"})
        done = sender.send_messages(ServiceBusMessage("to nothing"))
        await refused(admin, done, MessagingEntityNotFoundError, text)
    for made in (admin.ensure_queue("x", forward_to="nothing"), admin.create_queue("x", forward_to="nothing")):
        await refused(admin, made, MessagingEntityNotFoundError, text)


@both_properties
async def test_the_error_about_an_unknown_destination_names_the_nearest_queue_or_topic(admin: Admin, name: str) -> None:
    await admin.create_queue("Orders")
    await admin.create_queue("letters")
    await admin.create_topic("all-news")
    for unknown, near in (("odrers", "Orders"), ("all-new", "all-news")):
        given: Any = {name: unknown}
        text = rf"There is no entity '{unknown}'.* Did you mean '{near}'\? \("
        await refused(admin, admin.create_queue("x", **given), MessagingEntityNotFoundError, text)
    for unknown in ("zzz", "leters"):  # none is near, or only the entity itself
        given = {name: unknown}
        done = admin.update_queue({"name": "letters"}, **given)
        await refused(admin, done, MessagingEntityNotFoundError, r"another namespace\. \(")


async def test_an_unknown_destination_is_refused_also_if_the_names_cannot_be_listed(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(*_: object) -> None:
        raise OperationTimeoutError

    await admin.create_queue("orders")
    monkeypatch.setattr(Registry, "listed", unreachable)
    with pytest.raises(MessagingEntityNotFoundError, match=r"There is no entity 'order' .* another namespace\. \("):
        await admin.create_queue("x", forward_to="order")
    monkeypatch.undo()
    assert [each.name async for each in admin.list_queues()] == ["orders"]


# -- refusals ----------------------------------------------------------------------------------------------------------


@both_properties
async def test_the_destination_must_exist(admin: Admin, name: str) -> None:
    queue = await admin.create_queue("q")
    await admin.create_topic("news")
    await admin.create_subscription("news", "s")
    text = rf"'{{}}' was to forward messages to 'Nothing' \({name}\)\. There is no entity 'Nothing' in namespace 'ns'"
    given: Any = {name: "Nothing"}
    for made in (admin.create_queue, admin.ensure_queue):
        await refused(admin, made("x", **given), MessagingEntityNotFoundError, text.format("x"))
    await refused(admin, admin.update_queue(queue, **given), MessagingEntityNotFoundError, text.format("q"))
    for create in (admin.create_subscription, admin.ensure_subscription):
        path = "news/subscriptions/x"
        await refused(admin, create("news", "x", **given), MessagingEntityNotFoundError, text.format(path))
    done = admin.update_subscription("news", {"name": "s"}, **given)
    await refused(admin, done, MessagingEntityNotFoundError, text.format("news/subscriptions/s"))


@both_properties
async def test_an_entity_does_not_forward_to_itself(admin: Admin, name: str) -> None:
    await admin.create_queue("Orders")
    given: Any = {name: "ORDERS"}
    text = f"^The entity 'Orders' has an auto-forwarding policy to itself: {name}='ORDERS'. Choose another destination"
    await refused(admin, admin.update_queue({"name": "orders"}, **given), ValueError, text)
    given = {name: "x"}
    for make in (admin.create_queue, admin.ensure_queue):
        await refused(admin, make("X", **given), ValueError, "^The entity 'X' has an auto-forwarding policy to itself")


@in_memory
async def test_the_check_of_a_chain_reads_a_limited_number_of_entities(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination itself is always checked. A message in a circle that was not found makes four hops."""
    await chained(admin, ["a", "b", "c"])
    monkeypatch.setattr(forwarding, "_MOST_READS", 1)
    text = "There is no entity 'nothing'"
    await refused(admin, admin.update_queue({"name": "c"}, forward_to="nothing"), MessagingEntityNotFoundError, text)
    await admin.update_queue({"name": "c"}, forward_to="a")
    assert (await admin.get_queue("c")).forward_to == "a"
