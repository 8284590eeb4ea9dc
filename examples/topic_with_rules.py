"""One topic, four subscriptions, and the copies that their rules make of the same messages.

python examples/topic_with_rules.py [CONNECTION STRING]
"""

from __future__ import annotations

import asyncio
import sys

from sbredis import ServiceBusMessage
from sbredis.aio import ServiceBusClient
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.management import CorrelationRuleFilter, RuleProperties, SqlRuleAction, SqlRuleFilter


async def create(administration: ServiceBusAdministrationClient) -> None:
    """Create a topic and its subscriptions. Entities that exist are not changed."""
    await administration.ensure_topic("sales")
    # A subscription that is created without rules has one rule that matches every message.
    await administration.ensure_subscription("sales", "archive")
    # A correlation filter is the fastest filter: it compares properties with values.
    await administration.ensure_subscription(
        "sales",
        "europe",
        rules=[RuleProperties("europe", filter=CorrelationRuleFilter(label="order", properties={"region": "eu"}))],
    )
    # An SQL filter is the most powerful one. If one or both of these rules match, the subscription gets one copy.
    await administration.ensure_subscription(
        "sales",
        "large",
        rules=[
            RuleProperties("dear", filter=SqlRuleFilter("price >= @least", {"@least": 1000})),
            RuleProperties("heavy", filter=SqlRuleFilter("weight > 50 OR name LIKE '%piano%'")),
        ],
    )
    # An action changes only the copy of its own subscription.
    discount = RuleProperties(
        "discount",
        filter=SqlRuleFilter("price > 100"),
        action=SqlRuleAction("SET price = price * 9 / 10; SET sys.Label = 'offer'; REMOVE weight"),
    )
    await administration.ensure_subscription("sales", "marketing", rules=[discount])


async def main(url: str = "memory://example") -> None:
    """Send three orders, and show the messages of each subscription."""
    async with ServiceBusAdministrationClient(url) as administration, ServiceBusClient(url) as client:
        await create(administration)
        async with client.get_topic_sender("sales") as sender:
            for name, price, weight, region in (
                ("teapot", 20, 1, "eu"),
                ("painting", 1200, 8, "us"),
                ("grand piano", 9000, 400, "eu"),
            ):
                properties = {"name": name, "price": price, "weight": weight, "region": region}
                # The topic stores the message once, however many subscriptions get it.
                await sender.send_messages(ServiceBusMessage(name, subject="order", application_properties=properties))

        async for subscription in administration.list_subscriptions("sales"):
            async with client.get_subscription_receiver("sales", subscription.name, max_wait_time=0.5) as receiver:
                print(f"{subscription.name}:")
                async for message in receiver:
                    print(f"  {message}, {message.subject}: {message.application_properties}")
                    await receiver.complete_message(message)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
