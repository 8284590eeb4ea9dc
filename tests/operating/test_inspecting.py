"""Tests of finding out about the entities of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.management import TopicProperties
from sbredis.operating import existing_in


class Deleting(ServiceBusAdministrationClient):
    """Another client deletes a topic as soon as this one has listed the topics."""

    async def list_topics(self, **options: Any) -> AsyncIterator[TopicProperties]:  # type: ignore[override]  # no pages
        async for topic in super().list_topics(**options):
            yield topic
        await self.delete_topic("gone")


async def test_a_topic_that_is_deleted_meanwhile_has_no_subscriptions(url: str) -> None:
    async with Deleting(url) as administration:
        await administration.create_queue("orders")
        for topic in ("gone", "news"):
            await administration.create_topic(topic)
            await administration.create_subscription(topic, "all")
        found = [each.path for each in await existing_in(administration)]
    assert found == ["orders", "gone", "news", "news/subscriptions/all", "news/subscriptions/all/rules/$Default"]
