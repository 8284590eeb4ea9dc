"""Creating, finding, changing, listing and deleting rules, from a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._rules import RuleAdministration as Twin
from sbredis.model import (
    RuleFilter,
    RuleOptions,
    RuleProperties,
    SqlRuleAction,
    TrueRuleFilter,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["RuleAdministration"]

_ALL = TrueRuleFilter()


@documented_by(Twin)
class RuleAdministration(Facade[ServiceBusAdministrationClient]):
    def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        *,
        filter: RuleFilter = _ALL,  # noqa: A002 -- Azure's name
        action: SqlRuleAction | None = None,
        timeout: float | None = None,
    ) -> RuleProperties:
        return self._bridge.call(
            self._aio.create_rule,
            topic_name,
            subscription_name,
            rule_name,
            filter=filter,
            action=action,
            timeout=timeout,
        )

    def get_rule(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> RuleProperties:
        return self._bridge.call(self._aio.get_rule, topic_name, subscription_name, rule_name, timeout=timeout)

    def rule_exists(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> bool:
        return self._bridge.call(self._aio.rule_exists, topic_name, subscription_name, rule_name, timeout=timeout)

    def update_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule: RuleProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[RuleOptions],
    ) -> None:
        self._bridge.call(self._aio.update_rule, topic_name, subscription_name, rule, timeout=timeout, **kwargs)

    def delete_rule(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> None:
        self._bridge.call(self._aio.delete_rule, topic_name, subscription_name, rule_name, timeout=timeout)

    def list_rules(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> ItemPaged[RuleProperties]:
        return ItemPaged(
            self._bridge, self._aio.list_rules(topic_name, subscription_name, skip=skip, top=top, timeout=timeout)
        )
