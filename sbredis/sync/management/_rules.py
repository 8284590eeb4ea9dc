"""Creating, finding, changing, listing and deleting rules, from a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.model import (
    RuleFilter,
    RuleOptions,
    RuleProperties,
    SqlRuleAction,
    TrueRuleFilter,
)
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["RuleAdministration"]

_ALL = TrueRuleFilter()


class RuleAdministration(Calls):
    """What an administration client does with rules."""

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
        """Create a rule, which takes all messages unless ``filter`` says which.

        A filter or an action that is not written as the language wants it is a
        :class:`~sbredis.exceptions.RuleSyntaxError`, with line, column, and what could stand there. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if the subscription has a rule of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such subscription.

        It holds for messages that are sent after it; a new subscription has the rule ``$Default``, which takes all.
        """
        return self._portal.call(
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
        """A rule. Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name, or no
        such subscription.
        """
        return self._portal.call(self._aio.get_rule, topic_name, subscription_name, rule_name, timeout=timeout)

    def rule_exists(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> bool:
        """Whether there is a rule of this name; there is none where there is no such subscription. An addition of
        sbredis.
        """
        return self._portal.call(self._aio.rule_exists, topic_name, subscription_name, rule_name, timeout=timeout)

    def update_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule: RuleProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[RuleOptions],
    ) -> None:
        """Give a rule another filter or action: those of ``rule``, and above them those that are given by name.

        ``rule`` is what :meth:`get_rule` returned, with something assigned anew, or a mapping with ``name``. What it
        does not say stays as it is; an action that is said to be ``None`` is taken away. Of several who change a rule
        at once the last one wins, in what it says. Raises what :meth:`create_rule` raises of filters and actions, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such rule.
        """
        self._portal.call(self._aio.update_rule, topic_name, subscription_name, rule, timeout=timeout, **kwargs)

    def delete_rule(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> None:
        """Delete a rule; a subscription without rules takes nothing.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name, or no such
        subscription.
        """
        self._portal.call(self._aio.delete_rule, topic_name, subscription_name, rule_name, timeout=timeout)

    def list_rules(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> ItemPaged[RuleProperties]:
        """All rules of a subscription by name, to be gone through with ``for``; ``timeout`` is for each page of
        100.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError`, when it is gone through, if there is no such
        subscription.
        """
        return ItemPaged(self._portal, self._aio.list_rules(topic_name, subscription_name, timeout=timeout))
