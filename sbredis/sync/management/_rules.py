"""Creating, finding, changing, listing and deleting rules."""

# Made by tools/make_sync from sbredis/aio/management/_rules.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio import management as aio
from sbredis.model import RuleFilter, RuleOptions, RuleProperties, SqlRuleAction, TrueRuleFilter
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["RuleAdministration"]

_ALL = TrueRuleFilter()


class RuleAdministration(Facade[aio.ServiceBusAdministrationClient]):
    """The calls of an administration client for rules."""

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
        """Create a rule. Without a ``filter`` it matches all messages.

        If a filter or an action is not valid, raises :class:`~sbredis.exceptions.RuleSyntaxError` with the line, the
        column, and the input that is valid there. Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError`
        if the subscription has a rule of this name, and :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if
        there is no such subscription.

        The rule applies to messages that are sent after it was created. A new subscription has the rule ``$Default``,
        which matches all messages.
        """
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
        """Return a rule.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no rule of this name, or no such
        subscription.
        """
        return self._bridge.call(self._aio.get_rule, topic_name, subscription_name, rule_name, timeout=timeout)

    def rule_exists(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> bool:
        """Return whether there is a rule of this name; ``False`` if there is no such subscription.

        This method is an addition of sbredis.
        """
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
        """Update a rule with the filter and action in ``rule``, and with those given by name, which take precedence.

        ``rule`` is a result of :meth:`get_rule` with some attributes assigned, or a mapping with ``name``. A filter or
        action that the update does not contain is not changed; an explicit action of ``None`` removes the action. If
        several clients change a rule at the same time, each part gets its value from the last update that contains it.
        Raises the errors of :meth:`create_rule` for filters and actions, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such rule.
        """
        self._bridge.call(self._aio.update_rule, topic_name, subscription_name, rule, timeout=timeout, **kwargs)

    def delete_rule(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> None:
        """Delete a rule. A subscription without rules receives nothing.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no rule of this name, or no such
        subscription.
        """
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
        """List the rules of a subscription, ordered by name, to iterate over with ``for``.

        The first ``skip`` rules are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        rules. The iteration raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such
        subscription.
        """
        return ItemPaged(
            self._bridge, self._aio.list_rules(topic_name, subscription_name, skip=skip, top=top, timeout=timeout)
        )
