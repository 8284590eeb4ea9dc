"""One topic, four subscriptions, and what their rules make of the same messages.

python examples/topic_with_rules.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.management import CorrelationRuleFilter, RuleProperties, SqlRuleAction, SqlRuleFilter


async def create(administration: ServiceBusAdministrationClient) -> None:
    """A topic, and who is interested in what. What is there already stays as it is."""
    await administration.ensure_topic("sales")
    # Without rules of its own a subscription has one that takes everything.
    await administration.ensure_subscription("sales", "archive")
    # The fastest way to choose: properties that are to be equal.
    await administration.ensure_subscription(
        "sales",
        "europe",
        rules=[RuleProperties("europe", filter=CorrelationRuleFilter(label="order", properties={"region": "eu"}))],
    )
    # The most powerful one: an expression. Of several rules without an action one has to match, and makes one copy.
    await administration.ensure_subscription(
        "sales",
        "large",
        rules=[
            RuleProperties("dear", filter=SqlRuleFilter("price >= @least", {"@least": 1000})),
            RuleProperties("heavy", filter=SqlRuleFilter("weight > 50 OR name LIKE '%piano%'")),
        ],
    )
    # An action changes the copy of this subscription, and no other one.
    discount = RuleProperties(
        "discount",
        filter=SqlRuleFilter("price > 100"),
        action=SqlRuleAction("SET price = price * 9 / 10; SET sys.Label = 'offer'; REMOVE weight"),
    )
    await administration.ensure_subscription("sales", "marketing", rules=[discount])


async def main(url: str) -> None:
    """Send three orders, and look at what has come to each subscription."""
    async with ServiceBusAdministrationClient(url) as administration, ServiceBusClient(url) as client:
        await create(administration)
        async with client.get_topic_sender("sales") as sender:
            for name, price, weight, region in (
                ("teapot", 20, 1, "eu"),
                ("painting", 1200, 8, "us"),
                ("grand piano", 9000, 400, "eu"),
            ):
                properties = {"name": name, "price": price, "weight": weight, "region": region}
                # It is stored once, however many subscriptions it is for.
                await sender.send_messages(ServiceBusMessage(name, subject="order", application_properties=properties))

        async for subscription in administration.list_subscriptions("sales"):
            async with client.get_subscription_receiver("sales", subscription.name, max_wait_time=0.5) as receiver:
                print(f"{subscription.name}:")
                async for message in receiver:
                    print(f"  {message}, {message.subject}: {message.application_properties}")
                    await receiver.complete_message(message)


if __name__ == "__main__":
    from command_line import connection_string

    with connection_string(__doc__) as url:
        asyncio.run(main(url))
