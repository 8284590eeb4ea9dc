"""Tests of topics and subscriptions on a bus: their messages, what happens to them, and scheduled messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from sbredis.aio import ServiceBusClient
from sbredis.exceptions import MessagingEntityNotFoundError, RuleSyntaxError
from sbredis.management import CorrelationRuleFilter, EntityStatus, RuleProperties, SqlRuleAction, SqlRuleFilter
from sbredis.model import ServiceBusMessage
from sbredis.testing import Bus, SyncBus
from tests.offenders import for_each
from tests.testing.waiters import wait_for_waiters


async def send(bus: Bus, *bodies: str, topic: str = "news", **options: Any) -> None:
    async with bus.client.get_topic_sender(topic) as sender:
        for body in bodies:
            await sender.send_messages(ServiceBusMessage(body, **options))


async def schedule(bus: Bus, *bodies: str, **by: float) -> None:
    async with bus.client.get_topic_sender("news") as sender:
        when = bus.clock.now + timedelta(**by)
        await sender.schedule_messages([ServiceBusMessage(body) for body in bodies], when)


def bodies(messages: list[Any]) -> list[bytes]:
    return [message.body for message in messages]


# -- creating ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.both_shapes
async def test_a_topic_delivers_messages_to_its_subscriptions(bus: Bus, partitioned: bool) -> None:
    await bus.create_topic("news", enable_partitioning=partitioned)
    await bus.create_subscription("news", "all", max_delivery_count=3)
    await bus.create_subscription("news", "dear", rules={"dear": "price > 100"})
    await send(bus, "cheap", application_properties={"price": 5})
    await send(bus, "dear", application_properties={"price": 500})
    assert bodies(await bus.sent("news")) == bodies(await bus.sent("NEWS")) == [b"cheap", b"dear"]
    assert sorted(bodies(await bus.active("news", "all"))) == [b"cheap", b"dear"]
    assert bodies(await bus.messages("news", "dear")) == bodies(await bus.active("News", "DEAR")) == [b"dear"]
    assert (await bus.counts("news", "all")).active_message_count == 2


@pytest.mark.slow
async def test_rules_can_be_given_in_several_forms(bus: Bus) -> None:
    await bus.create_topic("news")
    made = RuleProperties("made", filter=SqlRuleFilter("price > 100"), action=SqlRuleAction("SET sys.Label = 'dear'"))
    await bus.create_subscription("news", "listed", rules=[made])
    await bus.create_subscription(
        "news", "mapped", rules={"dear": "price > 100", "eu": CorrelationRuleFilter(properties={"region": "eu"})}
    )
    await bus.create_subscription("news", "none", rules=[])
    await bus.create_subscription("news", "later", rules={})
    rule = await bus.create_rule("news", "later", "dear", "price > 100", "SET price = 1")
    assert isinstance(rule.filter, SqlRuleFilter)
    assert rule.action is not None
    assert (rule.name, rule.filter.sql_expression, rule.action.sql_expression) == (
        "dear",
        "price > 100",
        "SET price = 1",
    )
    await bus.create_rule("news", "none", "all")
    await send(bus, "one", application_properties={"price": 500, "region": "eu"})
    (listed,), (mapped,), (later,) = [await bus.active("news", name) for name in ("listed", "mapped", "later")]
    assert (listed.subject, mapped.subject) == ("dear", None)
    assert later.application_properties == {"price": 1, "region": "eu", "RuleName": "dear"}
    assert len(await bus.active("news", "none")) == 1
    with pytest.raises(RuleSyntaxError):
        await bus.create_subscription("news", "wrong", rules={"dear": "price >"})


# -- listing messages --------------------------------------------------------------------------------------------------


@pytest.fixture
async def news(bus: Bus) -> None:
    """Create a topic and its subscription."""
    await bus.create_topic("news")
    await bus.create_subscription("news", "all")


@pytest.mark.usefixtures("news")
@for_each("look", [Bus.messages, Bus.active, Bus.locked, Bus.deferred, Bus.dead_lettered, Bus.counts, Bus.purge])
async def test_a_misspelt_subscription_name_is_an_error(bus: Bus, look: Callable[..., Any]) -> None:
    """Otherwise a test with the typo ``assert not await bus.active("news", "al")`` would pass."""
    with pytest.raises(MessagingEntityNotFoundError, match="al"):
        await look(bus, "news", "al")
    with pytest.raises(MessagingEntityNotFoundError, match="new"):
        await look(bus, "new", "all")


async def test_properties_of_another_kind_of_entity_are_refused(bus: Bus) -> None:
    await bus.create_topic("news")
    await bus.create_subscription("news", "all")
    for look in (Bus.messages, Bus.active, Bus.locked, Bus.deferred, Bus.dead_lettered, Bus.counts):
        with pytest.raises(ValueError, match="name a subscription as well"):
            await look(bus, "news")
    with pytest.raises(ValueError, match="its topic"):
        await bus.sent("news/subscriptions/all")
    with pytest.raises(ValueError, match="wait on the topic"):
        await bus.scheduled("news/subscriptions/all")


# -- the clock ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.both_shapes
async def test_a_message_scheduled_on_a_topic_is_listed_when_due(bus: Bus, partitioned: bool) -> None:
    """When the time is reached, the helpers list it as active at once, with or without a waiting receiver."""
    await bus.create_topic("news", enable_partitioning=partitioned)
    await bus.create_subscription("news", "all")
    await bus.create_subscription("news", "none", rules=[])
    await schedule(bus, "one", "two", hours=3)
    await send(bus, "at once")
    assert bodies(await bus.scheduled("news")) == [b"one", b"two"]
    assert bodies(await bus.sent("news")) == [b"one", b"two", b"at once"]
    assert bodies(await bus.active("news", "all")) == [b"at once"]
    bus.clock.advance(hours=3)
    assert sorted(bodies(await bus.active("news", "all"))) == [b"at once", b"one", b"two"]
    assert await bus.scheduled("news") == await bus.messages("news", "none") == []
    assert (await bus.counts("news", "all")).active_message_count == 3
    assert len(await bus.sent("news")) == 3


async def test_a_waiting_receiver_gets_a_scheduled_message_of_any_client(bus: Bus) -> None:
    """The receiver gets the message even if the client that scheduled it is closed by then."""
    await bus.create_topic("news")
    await bus.create_subscription("news", "all")
    receiver = bus.client.get_subscription_receiver("news", "all")
    waiting = asyncio.ensure_future(receiver.receive_messages(max_wait_time=200))
    async with ServiceBusClient(bus.url) as other, other.get_topic_sender("news") as sender:
        await sender.schedule_messages(ServiceBusMessage("later"), bus.clock.now + timedelta(hours=3))
    await wait_for_waiters(bus.client, "news/subscriptions/all")
    assert not waiting.done()
    bus.clock.advance(hours=3)
    assert bodies(await waiting) == [b"later"]


@pytest.mark.slow
async def test_a_message_scheduled_on_a_disabled_topic_is_delivered_after_the_topic_is_enabled(bus: Bus) -> None:
    await bus.create_topic("news", status=EntityStatus.ACTIVE)
    await bus.create_subscription("news", "all")
    await schedule(bus, "one", hours=1)
    assert await bus.purge("news") == 1
    assert await bus.scheduled("news") == []
    await schedule(bus, "two", hours=1)
    await bus._clients.administration().update_topic({"name": "news"}, status=EntityStatus.SEND_DISABLED)
    bus.clock.advance(hours=2)
    assert await bus.active("news", "all") == []
    await bus._clients.administration().update_topic({"name": "news"}, status=EntityStatus.ACTIVE)
    assert bodies(await bus.active("news", "all")) == [b"two"]


# -- without an event loop ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_helpers_work_without_an_event_loop(sync_bus: SyncBus) -> None:
    sync_bus.create_topic("news")
    sync_bus.create_subscription("news", "all", max_delivery_count=3)
    sync_bus.create_subscription("news", "dear", rules={"dear": "price > 100"})
    sync_bus.create_rule("news", "dear", "big", "size > 10")
    client = sync_bus.client
    with client.get_topic_sender("news") as sender, client.get_subscription_receiver("news", "all") as receiver:
        for body in ("locked", "deferred", "dead", "active"):
            sender.send_messages(ServiceBusMessage(body, application_properties={"size": len(body)}))
        sender.schedule_messages(ServiceBusMessage("later"), sync_bus.clock.now + timedelta(hours=1))
        _, deferred, dead = receiver.receive_messages(3)
        receiver.defer_message(deferred)
        receiver.dead_letter_message(dead)
        assert bodies(sync_bus.scheduled("news")) == [b"later"]
        assert bodies(sync_bus.locked("news", "all")) == [b"locked"]
        assert bodies(sync_bus.deferred("news", "all")) == [b"deferred"]
        assert bodies(sync_bus.dead_lettered("news", "all")) == [b"dead"]
        with ThreadPoolExecutor(1) as pool:
            receiver.receive_messages()
            waiting = pool.submit(receiver.receive_messages, max_wait_time=60)
            sync_bus.clock.advance(hours=1)
            assert waiting.result(60)
    assert sorted(bodies(sync_bus.active("news", "all"))) == [b"active", b"later", b"locked"]
    assert len(sync_bus.messages("news", "all")) == 4
    assert sync_bus.messages("news", "dear") == []
    assert sync_bus.counts("news", "all").dead_letter_message_count == 1
    assert len(sync_bus.sent("news")) == 5
    assert sync_bus.purge("news", "all") >= 2
