"""Filters, actions and administration of rules, as with the asynchronous clients of azure.servicebus."""

from __future__ import annotations

from datetime import timedelta

from sbredis import ServiceBusMessage, ServiceBusReceivedMessage  # row: imports
from sbredis.aio import ServiceBusClient  # row: imports
from sbredis.aio.management import ServiceBusAdministrationClient  # row: imports
from sbredis.exceptions import ResourceExistsError, ResourceNotFoundError  # row: exceptions-base
from sbredis.management import (  # row: imports
    CorrelationRuleFilter,
    FalseRuleFilter,
    RuleProperties,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

Filter = CorrelationRuleFilter | SqlRuleFilter
ORDERS = [
    ServiceBusMessage("tea", subject="order", application_properties={"price": 5, "colour": "brown"}),
    ServiceBusMessage("pot", subject="order", application_properties={"price": 50, "colour": "red"}),
    ServiceBusMessage("set", subject="order", application_properties={"price": 150, "colour": "red"}),
    ServiceBusMessage("note", subject="note", correlation_id="high", application_properties={"price": "free"}),
]


async def given(connection_string: str, topic_name: str, **filters: Filter) -> None:
    """Create a topic with one subscription for each filter. Each subscription has one rule, with this filter."""
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        await client.create_topic(topic_name)
        for name, each in filters.items():
            await client.create_subscription(topic_name, name)
            await client.create_rule(topic_name, name, "only", filter=each)
            await client.delete_rule(topic_name, name, "$Default")


async def send(connection_string: str, topic_name: str) -> None:
    """Send all orders, and a note."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_topic_sender(topic_name) as sender,
    ):
        await sender.send_messages(ORDERS)


async def received(connection_string: str, topic_name: str, name: str) -> list[ServiceBusReceivedMessage]:
    """Return the messages in a subscription."""
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_subscription_receiver(topic_name, name) as receiver,
    ):
        return await receiver.peek_messages(max_message_count=20)


async def filters(connection_string: str, queue_name: str) -> object:
    """Use filters of every kind: each subscription gets the messages that match."""
    topic_name = f"{queue_name}-shop"
    kinds: dict[str, Filter] = {
        "all": TrueRuleFilter(),
        "none": FalseRuleFilter(),
        "dear": SqlRuleFilter("sys.Label = 'order' AND price > 10"),
        "limited": SqlRuleFilter("price > @limit", parameters={"@limit": 100}),
        "red": CorrelationRuleFilter(label="order", properties={"colour": "red"}),
        "urgent": CorrelationRuleFilter(correlation_id="high"),
        "like": SqlRuleFilter("colour LIKE 'b%' OR NOT EXISTS(colour)"),
        "listed": SqlRuleFilter("colour IN ('brown', 'blue') AND price IS NOT NULL"),
    }
    await given(connection_string, topic_name, **kinds)
    await send(connection_string, topic_name)
    return {name: [str(message) for message in await received(connection_string, topic_name, name)] for name in kinds}


async def actions(connection_string: str, queue_name: str) -> object:
    """Each rule with an action makes a separate copy. All rules without an action make one copy together."""
    topic_name = f"{queue_name}-shop"
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        await client.create_topic(topic_name)
        await client.create_subscription(topic_name, "sales")
        await client.create_rule(
            topic_name,
            "sales",
            "cheaper",
            filter=SqlRuleFilter("price > 100"),
            action=SqlRuleAction("SET price = price / 2; SET sys.Label = 'sale of ' + colour; REMOVE colour"),
        )
        await client.create_rule(topic_name, "sales", "red", filter=SqlRuleFilter("colour = 'red'"))
    await send(connection_string, topic_name)
    seen: list[tuple[str, str | None, object, object]] = []
    for message in await received(connection_string, topic_name, "sales"):
        properties = message.application_properties or {}
        seen.append(
            (
                str(message),
                message.subject,
                properties.get("price"),  # row: property-keys
                properties.get("RuleName"),  # row: property-keys
            )
        )
    return sorted(seen, key=str)


async def life_of_a_rule(connection_string: str, queue_name: str) -> object:
    """Create, list, change and delete a rule."""
    topic_name = f"{queue_name}-shop"
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        await client.create_topic(topic_name)
        await client.create_subscription(topic_name, "sales")
        await client.create_rule(topic_name, "sales", "dear", filter=SqlRuleFilter("price > 100"))
        await client.create_rule(
            topic_name,
            "sales",
            "mail",
            filter=CorrelationRuleFilter(content_type="text/plain", properties={"to": "all"}),
            action=SqlRuleAction("SET sys.To = 'everybody'"),
        )
        listed = [rule.name async for rule in client.list_rules(topic_name, "sales")]

        rule = await client.get_rule(topic_name, "sales", "dear")
        assert isinstance(rule.filter, SqlRuleFilter)
        before = rule.filter.sql_expression, rule.action
        rule.filter = SqlRuleFilter("price > @limit", parameters={"@limit": timedelta(days=1)})
        rule.action = SqlRuleAction("SET seen = TRUE")
        await client.update_rule(topic_name, "sales", rule)
        rule = await client.get_rule(topic_name, "sales", "dear")
        assert isinstance(rule.filter, SqlRuleFilter)
        assert rule.action is not None
        after = rule.filter.sql_expression, rule.filter.parameters, rule.action.sql_expression

        mail = (await client.get_rule(topic_name, "sales", "mail")).filter
        assert isinstance(mail, CorrelationRuleFilter)
        said: list[str] = []
        try:
            await client.create_rule(topic_name, "sales", "mail")
        except ResourceExistsError:
            said.append("exists")
        await client.delete_rule(topic_name, "sales", "mail")
        try:
            await client.delete_rule(topic_name, "sales", "mail")
        except ResourceNotFoundError:
            said.append("not found")
        left = [rule.name async for rule in client.list_rules(topic_name, "sales")]
    return listed, before, after, (mail.content_type, mail.properties), said, left


async def wrong(connection_string: str, queue_name: str) -> object:
    """Use a filter that cannot be parsed, and a filter that fails on a message."""
    topic_name = f"{queue_name}-shop"
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as administration:
        await administration.create_topic(topic_name)
        await administration.create_subscription(topic_name, "sales")
        try:
            await administration.create_rule(topic_name, "sales", "broken", filter=SqlRuleFilter("price >"))
        except ValueError:  # row: rule-values
            said = "refused"
        else:
            said = "taken"
        await administration.delete_rule(topic_name, "sales", "$Default")
        await administration.create_rule(topic_name, "sales", "fails", filter=SqlRuleFilter("price / 0 > 1"))
    await send(connection_string, topic_name)
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_subscription_receiver(topic_name, "sales", sub_queue="deadletter") as dead,
    ):
        letters = await dead.peek_messages(20)
    return said, {str(letter) for letter in letters}, {letter.dead_letter_reason for letter in letters}


async def from_the_first(connection_string: str, queue_name: str) -> object:
    """Create a subscription together with its first rules. A filter value of another type matches no message."""
    topic_name = f"{queue_name}-shop"
    rules = [RuleProperties("dear", filter=SqlRuleFilter("price <> 5"))]
    async with ServiceBusAdministrationClient.from_connection_string(connection_string) as client:
        await client.create_topic(topic_name)
        await client.create_subscription(topic_name, "sales", rules=rules)  # row: first-rules
        listed = [rule.name async for rule in client.list_rules(topic_name, "sales")]
    await send(connection_string, topic_name)
    got = [str(message) for message in await received(connection_string, topic_name, "sales")]  # row: rule-kinds
    return listed, got
