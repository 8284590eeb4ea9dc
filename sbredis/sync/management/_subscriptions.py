"""Creating, finding, changing, counting, listing and deleting subscriptions, from a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._subscriptions import SubscriptionAdministration as Twin
from sbredis.model import (
    RuleProperties,
    SubscriptionOptions,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    names_keywords,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["SubscriptionAdministration"]


@documented_by(Twin)
class SubscriptionAdministration(Facade[ServiceBusAdministrationClient]):
    @names_keywords(SubscriptionOptions)
    def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Sequence[RuleProperties] | None = None,
        timeout: float | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        return self._bridge.call(
            self._aio.create_subscription, topic_name, subscription_name, rules=rules, timeout=timeout, **properties
        )

    def ensure_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Sequence[RuleProperties] | None = None,
        timeout: float | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        return self._bridge.call(
            self._aio.ensure_subscription, topic_name, subscription_name, rules=rules, timeout=timeout, **properties
        )

    def get_subscription(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> SubscriptionProperties:
        return self._bridge.call(self._aio.get_subscription, topic_name, subscription_name, timeout=timeout)

    def subscription_exists(self, topic_name: str, subscription_name: str, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.subscription_exists, topic_name, subscription_name, timeout=timeout)

    def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> SubscriptionRuntimeProperties:
        return self._bridge.call(
            self._aio.get_subscription_runtime_properties, topic_name, subscription_name, timeout=timeout
        )

    def update_subscription(
        self,
        topic_name: str,
        subscription: SubscriptionProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[SubscriptionOptions],
    ) -> None:
        self._bridge.call(self._aio.update_subscription, topic_name, subscription, timeout=timeout, **kwargs)

    def delete_subscription(self, topic_name: str, subscription_name: str, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.delete_subscription, topic_name, subscription_name, timeout=timeout)

    def list_subscriptions(
        self, topic_name: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[SubscriptionProperties]:
        return ItemPaged(self._bridge, self._aio.list_subscriptions(topic_name, skip=skip, top=top, timeout=timeout))

    def list_subscriptions_runtime_properties(
        self, topic_name: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[SubscriptionRuntimeProperties]:
        return ItemPaged(
            self._bridge,
            self._aio.list_subscriptions_runtime_properties(topic_name, skip=skip, top=top, timeout=timeout),
        )
