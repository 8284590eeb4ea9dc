"""Entities whose records in the registry cannot be read: they alone are affected, and can be deleted or repaired."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import DataLayoutError, MessagingEntityNotFoundError, ServiceBusError
from sbredis.management import EntityStatus, RuleProperties, SqlRuleFilter
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from tests.offenders import for_each
from tests.registry.damage import DAMAGED, DAMAGED_RULES, UNREADABLE, UNREADABLE_RULES, Registered
from tests.registry.keys import bucket_of, snapshot
from tests.waiting import eventually

SUBSCRIPTION = "news/subscriptions/bad"


class House:
    """A namespace with entities, of which one can be spoilt."""

    def __init__(self, client: ServiceBusClient, admin: ServiceBusAdministrationClient, url: str) -> None:
        self.client = client
        self.admin = admin
        self.url = url

    def other_client(self, *, maintenance: bool = False) -> ServiceBusClient:
        """Return a client that knows nothing yet."""
        return ServiceBusClient(self.url, namespace=self.client.namespace, maintenance=maintenance)

    @property
    def transport(self) -> Any:
        return self.client._connection.transport

    def registered(self, path: str, rule: str | None = None) -> Registered:
        return Registered(self.transport, path, rule=rule, namespace=self.client.namespace, slots=3)

    async def send(self, entity: str, text: str) -> None:
        await self.client.get_sender(entity).send_messages(ServiceBusMessage(text))

    async def take(self, entity: str, sub_queue: ServiceBusSubQueue | None = None) -> list[ServiceBusReceivedMessage]:
        path = entity if sub_queue is None else f"{entity}/$DeadLetterQueue"
        async with self.client.get_receiver(path) as receiver:
            messages = await receiver.receive_messages(10, 0.2)
            for message in messages:
                await receiver.complete_message(message)
            return messages

    async def queues(self) -> list[str]:
        return [each.name async for each in self.admin.list_queues()]

    async def unreadable(self) -> list[str]:
        return [each.path async for each in self.admin.list_unreadable_entities()]


@asynccontextmanager
async def house(url: str) -> AsyncIterator[House]:
    """Make a namespace of its own for each case of a test."""
    namespace = uuid.uuid4().hex
    async with (
        ServiceBusClient(url, namespace=namespace, slot_count=3) as client,
        ServiceBusAdministrationClient(url, namespace=namespace) as admin,
    ):
        for name in ("bad", "good"):
            await admin.create_queue(name)
        for topic in ("news", "weather"):
            await admin.create_topic(topic)
            for name in ("bad", "good"):
                await admin.create_subscription(topic, name)
        yield House(client, admin, url)


def warnings(caplog: pytest.LogCaptureFixture, path: str) -> int:
    return sum(each.getMessage().startswith(f"The record of '{path}' cannot be read") for each in caplog.records)


# -- queues ------------------------------------------------------------------------------------------------------------

LOOK_UPS: dict[str, Callable[[House], Awaitable[object]]] = {
    "get": lambda it: it.admin.get_queue("bad"),
    "exists": lambda it: it.admin.queue_exists("bad"),
    "counts": lambda it: it.admin.get_queue_runtime_properties("bad"),
    "update": lambda it: it.admin.update_queue({"name": "bad"}, max_delivery_count=5),
    "create": lambda it: it.admin.create_queue("bad"),
    "ensure": lambda it: it.admin.ensure_queue("bad"),
    "partitions": lambda it: anext(it.admin.list_partitions("bad")),
    "describe": lambda it: it.client.describe_entity("bad"),
    "forward there": lambda it: it.admin.create_queue("new", forward_to="bad"),
    "beside it": lambda it: it.admin.create_queue("new", colocate_with="bad"),
    "send": lambda it: it.send("bad", "x"),
    "receive": lambda it: it.take("bad"),
}


@pytest.mark.long("it uses a queue in every way for each damage")
@for_each("damage", UNREADABLE)
async def test_a_record_that_cannot_be_read_costs_its_queue_alone(
    url: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(url) as it:
        await it.send("good", "before")
        record = it.registered("bad")
        await record.spoil(UNREADABLE[damage])
        before = await snapshot(it.transport)
        for name, look_up in LOOK_UPS.items():
            with pytest.raises(
                DataLayoutError, match=r"of 'bad' cannot be read: .*(install that|delete 'bad')"
            ) as caught:
                await look_up(it)
            assert caught.value.entity == "bad" or name in {"forward there", "beside it"}
            if name != "create":  # a script refuses that, and only its text has the layout
                assert (caught.value.layout == "3") is (damage == "a newer layout")
        assert await snapshot(it.transport) == before
        caplog.clear()
        for _ in range(2):
            assert await it.queues() == ["good"]
            assert [each.name async for each in it.admin.list_queues_runtime_properties()] == ["good"]
            assert [each.name async for each in it.admin.list_topics()] == ["news", "weather"]
        assert warnings(caplog, "bad") == 1
        assert await it.unreadable() == ["bad"]
        assert [each async for each in it.admin.list_reservations()] == []
        await it.admin.create_queue("source", forward_to="good")
        with pytest.raises(MessagingEntityNotFoundError, match="Did you mean 'good'"):
            await it.admin.create_queue("other", forward_to="goood")
        await it.send("good", "after")
        assert [str(each) for each in await it.take("good")] == ["before", "after"]
        await record.heal()
        assert (await it.admin.get_queue("bad")).status is EntityStatus.ACTIVE
        assert await it.queues() == ["bad", "good", "source"]
        assert await it.unreadable() == []
        await it.send("bad", "healed")
        assert [str(each) for each in await it.take("bad")] == ["healed"]
        caplog.clear()
        await record.spoil(UNREADABLE[damage])
        assert await it.queues() == ["good", "source"]
        assert warnings(caplog, "bad") == 1, "it has healed and is broken again"


@for_each("damage", DAMAGED)
async def test_a_queue_with_a_damaged_record_is_deleted_and_created_again(
    url: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(url) as it:
        await it.send("bad", "old")
        await it.registered("bad").spoil(DAMAGED[damage])
        await it.admin.delete_queue("bad")
        assert await it.unreadable() == []
        assert await it.queues() == ["good"]
        with pytest.raises(MessagingEntityNotFoundError):
            await it.admin.delete_queue("bad")
        await it.admin.create_queue("bad")
        async with it.other_client() as other:
            await other.get_queue_sender("bad").send_messages(ServiceBusMessage("new"))
            async with other.get_queue_receiver("bad") as receiver:
                assert [str(each) for each in await receiver.receive_messages(10, 1)] == ["new"]
        assert "deleted although its record cannot be read" in caplog.text


async def test_a_queue_of_a_newer_layout_is_not_deleted(url: str) -> None:
    async with house(url) as it:
        deletions: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("bad", lambda: it.admin.delete_queue("bad")),
            ("news", lambda: it.admin.delete_topic("news")),
            (SUBSCRIPTION, lambda: it.admin.delete_subscription("news", "bad")),
            (SUBSCRIPTION, lambda: it.admin.delete_topic("news")),
        ]
        for path, delete in deletions:
            record = it.registered(path)
            await record.spoil(UNREADABLE["a newer layout"])
            before = await snapshot(it.transport)
            with pytest.raises(DataLayoutError, match="has data layout '3'"):
                await delete()
            assert await snapshot(it.transport) == before
            await record.heal()


# -- topics and subscriptions ------------------------------------------------------------------------------------------


@for_each("damage", UNREADABLE)
async def test_a_topic_that_cannot_be_read_leaves_its_subscriptions_to_their_receivers(url: str, damage: str) -> None:
    async with house(url) as it:
        await it.send("news", "before")
        record = it.registered("news")
        await record.spoil(UNREADABLE[damage])
        async with it.other_client() as other:
            with pytest.raises(DataLayoutError, match="of 'news' cannot be read"):
                await other.get_topic_sender("news").send_messages(ServiceBusMessage("x"))
            async with other.get_subscription_receiver("news", "good") as receiver:
                assert [str(each) for each in await receiver.receive_messages(1, 1)] == ["before"]
        with pytest.raises(DataLayoutError, match="of 'news' cannot be read"):
            await anext(it.admin.list_subscriptions("news"))
        assert [each.name async for each in it.admin.list_topics()] == ["weather"]
        assert await it.unreadable() == ["news"]
        await it.send("weather", "elsewhere")
        assert len(await it.take("weather/subscriptions/good")) == 1
        await record.heal()
        await it.send("news", "after")
        assert [str(each) for each in await it.take(SUBSCRIPTION)] == ["before", "after"]


@for_each("damage", DAMAGED)
async def test_a_topic_with_a_damaged_record_is_deleted_with_its_subscriptions(url: str, damage: str) -> None:
    async with house(url) as it:
        await it.registered("news").spoil(DAMAGED[damage])
        with pytest.raises(MessagingEntityNotFoundError, match="is a topic"):
            await it.admin.delete_queue("news")
        await it.admin.delete_topic("news")
        assert await it.unreadable() == []
        await it.admin.create_topic("news")
        assert [each async for each in it.admin.list_subscriptions("news")] == []
        await it.admin.create_subscription("news", "bad")
        async with it.other_client() as other:
            await other.get_topic_sender("news").send_messages(ServiceBusMessage("new"))
            async with other.get_subscription_receiver("news", "bad") as receiver:
                assert [str(each) for each in await receiver.receive_messages(10, 1)] == ["new"]


@pytest.mark.long("it does so for each damage")
@for_each("damage", UNREADABLE)
async def test_no_copy_for_a_subscription_is_lost_that_cannot_be_read(url: str, damage: str) -> None:
    """A sender that does not know the subscription is refused, with an error that names it. All else goes on."""
    async with house(url) as it:
        await it.send("news", "before")
        record = it.registered(SUBSCRIPTION)
        await record.spoil(UNREADABLE[damage])
        async with it.other_client() as other:
            sender = other.get_topic_sender("news")
            with pytest.raises(DataLayoutError, match=f"No message can be sent to the topic 'news'.*'{SUBSCRIPTION}'"):
                await sender.send_messages(ServiceBusMessage("x"))
            async with other.get_subscription_receiver("news", "good") as receiver:
                assert [str(each) for each in await receiver.receive_messages(1, 1)] == ["before"]
            assert [each.name async for each in it.admin.list_subscriptions("news")] == ["good"]
            listed = it.admin.list_subscriptions_runtime_properties("news")
            assert [each.name async for each in listed] == ["good"]
            assert await it.unreadable() == [SUBSCRIPTION]
            with pytest.raises(DataLayoutError, match=f"'{SUBSCRIPTION}' cannot be read"):
                await it.admin.get_subscription("news", "bad")
            with pytest.raises(DataLayoutError, match=f"'{SUBSCRIPTION}' cannot be read"):
                await it.admin.create_subscription("news", "bad")
            await it.send("news", "the sender knows the subscription")
            await record.heal()
            await sender.send_messages(ServiceBusMessage("after"))
        assert len(await it.take(SUBSCRIPTION)) == 3


@pytest.mark.long("it does so for each damage")
@for_each("damage", DAMAGED)
async def test_a_subscription_with_a_damaged_record_is_deleted_and_its_topic_goes_on(url: str, damage: str) -> None:
    async with house(url) as it:
        await it.send("news", "before")
        await it.registered(SUBSCRIPTION).spoil(DAMAGED[damage])
        await it.admin.delete_subscription("news", "bad")
        assert await it.unreadable() == []
        await it.send("news", "after")
        assert len(await it.take("news/subscriptions/good")) == 2
        assert (await it.admin.get_topic_runtime_properties("news")).subscription_count == 1
        await it.admin.create_subscription("news", "bad")
        await it.send("news", "new")
        assert [str(each) for each in await it.take(SUBSCRIPTION)] == ["new"]


@for_each("damage", DAMAGED)
async def test_a_topic_is_deleted_with_a_subscription_whose_record_is_damaged(url: str, damage: str) -> None:
    async with house(url) as it:
        await it.registered(SUBSCRIPTION).spoil(DAMAGED[damage])
        await it.admin.delete_topic("news")
        assert await it.unreadable() == []
        await it.admin.create_topic("news")
        assert [each async for each in it.admin.list_subscriptions("news")] == []


# -- rules -------------------------------------------------------------------------------------------------------------


@for_each("damage", UNREADABLE_RULES)
async def test_a_rule_that_cannot_be_read_dead_letters_the_messages_of_its_subscription(
    url: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with house(url) as it:
        await it.admin.create_rule("news", "bad", "red", filter=SqlRuleFilter("colour = 'red'"))
        await it.admin.create_subscription(
            "news", "lenient", dead_lettering_on_filter_evaluation_exceptions=False, rules=[RuleProperties("$Default")]
        )
        records = [it.registered(SUBSCRIPTION, "$Default"), it.registered("news/subscriptions/lenient", "$Default")]
        for record in records:
            await record.spoil(UNREADABLE_RULES[damage])
        caplog.clear()
        async with it.other_client() as other:
            sender = other.get_topic_sender("news")
            await sender.send_messages(ServiceBusMessage("plain"))
            await sender.send_messages(ServiceBusMessage("red", application_properties={"colour": "red"}))
            assert [str(each) for each in await it.take("news/subscriptions/good")] == ["plain", "red"]
            assert [str(each) for each in await it.take(SUBSCRIPTION)] == ["red"], "the other rule goes on"
            dead = await it.take(SUBSCRIPTION, ServiceBusSubQueue.DEAD_LETTER)
            assert [str(each) for each in dead] == ["plain", "red"]
            assert all("cannot be read" in str(each.dead_letter_error_description) for each in dead)
            assert await it.take("news/subscriptions/lenient") == []
            assert await it.take("news/subscriptions/lenient", ServiceBusSubQueue.DEAD_LETTER) == []
            unusable = [each for each in caplog.records if f"of {SUBSCRIPTION} cannot be used" in each.getMessage()]
            assert len(unusable) == 1
            assert [each.name async for each in it.admin.list_rules("news", "bad")] == ["red"]
            assert sorted(await it.unreadable()) == sorted(
                f"{path}/rules/$default" for path in (SUBSCRIPTION, "news/subscriptions/lenient")
            )
            with pytest.raises(DataLayoutError, match=f"The rule of '{SUBSCRIPTION}/rules/.default' cannot be read"):
                await it.admin.get_rule("news", "bad", "$Default")


@pytest.mark.parametrize("damage", ["missing", "an unknown filter"])
async def test_a_sender_notices_that_a_rule_can_be_read_again(url: str, damage: str) -> None:
    """Nothing but the text of the rule has changed, so no partition can refuse the sender's version of the rules."""
    async with house(url) as it:
        record = it.registered(SUBSCRIPTION, "$Default")
        await record.spoil(UNREADABLE_RULES[damage])
        async with it.other_client() as other:
            sender = other.get_topic_sender("news")
            await sender.send_messages(ServiceBusMessage("broken"))
            assert len(await it.take(SUBSCRIPTION, ServiceBusSubQueue.DEAD_LETTER)) == 1
            await record.heal()

            async def healed() -> bool:
                await sender.send_messages(ServiceBusMessage("healed"))
                return bool(await it.take(SUBSCRIPTION))

            await eventually(healed)


@for_each("damage", DAMAGED_RULES)
async def test_a_damaged_rule_is_deleted_and_created_again(url: str, damage: str) -> None:
    async with house(url) as it:
        await it.registered(SUBSCRIPTION, "$Default").spoil(DAMAGED_RULES[damage])
        await it.send("news", "before")
        await it.admin.delete_rule("news", "bad", "$Default")
        assert await it.unreadable() == []
        with pytest.raises(MessagingEntityNotFoundError):
            await it.admin.delete_rule("news", "bad", "$Default")
        await it.admin.create_rule("news", "bad", "$Default")
        await it.send("news", "after")
        assert "after" in {str(each) for each in await it.take(SUBSCRIPTION)}


async def test_a_rule_of_a_newer_layout_is_not_deleted(url: str) -> None:
    async with house(url) as it:
        await it.registered(SUBSCRIPTION, "$Default").spoil(UNREADABLE_RULES["a newer layout"])
        before = await snapshot(it.transport)
        with pytest.raises(DataLayoutError, match="has data layout '3'"):
            await it.admin.delete_rule("news", "bad", "$Default")
        assert await snapshot(it.transport) == before


# -- maintenance -------------------------------------------------------------------------------------------------------


@pytest.mark.long("it does so for each damage")
@for_each("damage", UNREADABLE)
async def test_maintenance_goes_on_with_all_other_entities(
    url: str, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages are forwarded, and the deletion of an unused entity is finished, while records cannot be read."""
    async with house(url) as it:
        records = [it.registered(path) for path in ("bad", "weather", SUBSCRIPTION)]
        for record in records:
            await record.spoil(UNREADABLE[damage])
        caplog.clear()
        await it.admin.create_queue("source", forward_to="good")
        async with it.other_client(maintenance=True) as maintaining:
            await it.send("source", "x")

            async def forwarded() -> bool:
                return bool(await it.take("good"))

            await eventually(forwarded)
            offer = maintaining._offer.maintenance
            assert offer is not None
            await offer.census.read()
            assert [warnings(caplog, path) for path in ("bad", "weather", SUBSCRIPTION)] == [1, 1, 1]
            assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
            assert not maintaining._connection.closed
            for record in records:
                await record.heal()
            await it.admin.update_queue({"name": "bad"}, forward_to="good")
            await it.send("bad", "y")
            offer.census.read_now()
            await eventually(forwarded)


async def test_three_workers_handle_all_messages_beside_a_bad_record(url: str) -> None:
    from sbredis.workers import Worker

    async with house(url) as it:
        await it.registered("bad").spoil(UNREADABLE["nested deeply"])
        await it.registered("weather").spoil(UNREADABLE["missing"])
        handled: list[str] = []

        def worker() -> Worker:
            made = Worker(url, namespace=it.client.namespace)

            @made.queue("good")
            async def handle(text: str) -> None:
                handled.append(text)

            return made

        workers = [worker() for _ in range(3)]
        async with workers[0].running(), workers[1].running(), workers[2].running():
            censuses = [offer.census for each in workers if (offer := each.client._offer.maintenance) is not None]
            assert len(censuses) == 3
            await eventually(lambda: any(census.by_id for census in censuses))
            for number in range(6):
                await it.send("good", f"{number}")
            await eventually(lambda: sorted(handled) == list("012345"))
            assert not any(each.client._connection.closed for each in workers)


async def test_an_entity_is_not_taken_for_gone_while_a_record_cannot_be_read(url: str) -> None:
    """Messages for an entity that is gone would be given up."""
    async with house(url) as it, it.other_client(maintenance=True) as maintaining:
        offer = maintaining._offer.maintenance
        assert offer is not None
        bad = (await it.client._connection.entity("bad", asyncio.get_running_loop().time() + 60)).record.id
        record = it.registered("bad")
        await record.spoil(UNREADABLE["no head"])
        with pytest.raises(DataLayoutError):
            await it.client._connection.namespace.find_entity(bad)
        await it.admin.delete_queue("bad")
        await offer.census.read()
        assert await offer.census.find(bad) is None
        await it.admin.create_queue("bad")
        assert await offer.census.find(bad) is None


async def test_counts_that_cannot_be_read_stop_changes_of_rules_and_nothing_else(url: str) -> None:
    async with house(url) as it:
        tallies = bucket_of("news", it.client._connection.namespace.slots, it.client.namespace)[6]
        for name in ("news", SUBSCRIPTION):
            await it.transport.command("HSET", tallies, name, b"2 x", key=tallies)
        async with it.other_client() as other:
            await other.get_topic_sender("news").send_messages(ServiceBusMessage("x"))
        assert len(await it.take(SUBSCRIPTION)) == 1
        with pytest.raises(ServiceBusError, match="The record of the counts of 'news' cannot be read"):
            await it.admin.create_rule("news", "bad", "red")
        await it.admin.delete_topic("news")
        await it.admin.create_topic("news")
