"""Creating, finding, changing, listing and deleting rules."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Unpack

from sbredis._tasks import loop_time
from sbredis.aio.management._calls import Calls
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.engine import rule_name as named
from sbredis.entities import AsyncItemPaged, ListPage, given_in, subscription_path
from sbredis.exceptions import MessagingEntityNotFoundError
from sbredis.model import (
    RuleFilter,
    RuleOptions,
    RuleProperties,
    SqlRuleAction,
    TrueRuleFilter,
    moment,
    rule_created,
    rule_revised,
    rule_shown,
)
from sbredis.registry import EntityChangedError, KeptRule, place_of

__all__ = ["RuleAdministration"]

_ALL = TrueRuleFilter()


class RuleAdministration(Calls):
    """The calls of an administration client for rules."""

    async def create_rule(
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
        path = _path(topic_name, subscription_name, rule_name)
        rule = rule_created(RuleProperties(rule_name, filter=filter, action=action))
        return _shown(
            await self._ask(
                path,
                self._deadline(timeout),
                lambda left: self._namespace.create_rule(topic_name, subscription_name, rule, timeout=left),
            )
        )

    async def get_rule(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> RuleProperties:
        """Return a rule.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no rule of this name, or no such
        subscription.
        """
        return _shown(await self._rule(topic_name, subscription_name, rule_name, self._deadline(timeout)))

    async def rule_exists(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> bool:
        """Return whether there is a rule of this name; ``False`` if there is no such subscription.

        This method is an addition of sbredis.
        """
        try:
            await self._rule(topic_name, subscription_name, rule_name, self._deadline(timeout))
        except MessagingEntityNotFoundError:
            return False
        return True

    async def update_rule(
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
        given = given_in("update_rule", RuleProperties, rule, kwargs)
        path = _path(topic_name, subscription_name, given.name)
        rule_created(given)
        until = self._deadline(timeout)
        while True:
            kept = await self._rule(topic_name, subscription_name, given.name, until)
            with suppress(EntityChangedError):  # another client changed it first: apply the change to the new version
                await self._ask(path, until, partial(self._revise, topic_name, subscription_name, given, kept))
                return

    async def _revise(self, topic: str, subscription: str, given: RuleProperties, kept: KeptRule, left: float) -> None:
        revised = rule_revised(given.given, kept.rule)
        await self._namespace.update_rule(topic, subscription, revised, seen=kept, timeout=left)

    async def delete_rule(
        self, topic_name: str, subscription_name: str, rule_name: str, *, timeout: float | None = None
    ) -> None:
        """Delete a rule. A subscription without rules receives nothing.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no rule of this name, or no such
        subscription.
        """
        path = _path(topic_name, subscription_name, rule_name)
        await self._ask(
            path,
            self._deadline(timeout),
            lambda left: self._namespace.delete_rule(topic_name, subscription_name, rule_name, timeout=left),
        )

    def list_rules(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        skip: int = 0,
        top: int | None = None,
        timeout: float | None = None,
    ) -> AsyncItemPaged[RuleProperties]:
        """List the rules of a subscription, ordered by name, to iterate over with ``async for``.

        The first ``skip`` rules are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        rules. The iteration raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such
        subscription.
        """
        path = subscription_path(topic_name, subscription_name)
        part = list_part(skip, top)

        async def read(after: str, most: int, timeout: float) -> ListPage[KeptRule]:
            found = await self._ask(
                path,
                loop_time() + timeout,
                lambda left: self._namespace.page_of_rules(topic_name, subscription_name, after, most, timeout=left),
            )
            self._unreadable.note(found.unreadable, (place_of(path, kept.rule.name) for kept in found.records))
            return ListPage(found.records, found.onward)

        async def page(token: str) -> ListPage[RuleProperties]:
            rules, onwards = await self._page(read, _name, part.at(token, named), self._deadline(timeout))
            return ListPage(list(map(_shown, rules)), onwards)

        return AsyncItemPaged(page)

    async def _rule(self, topic_name: str, subscription_name: str, rule_name: str, until: float) -> KeptRule:
        path = _path(topic_name, subscription_name, rule_name)
        return await self._ask(
            path,
            until,
            lambda left: self._namespace.get_rule(topic_name, subscription_name, rule_name, timeout=left),
        )


def _path(topic: str, subscription: str, rule: str) -> str:
    """Return the path that names a rule in errors. Raise if one of the names is not valid."""
    return f"{subscription_path(topic, subscription)}/rules/{named(rule)}"


def _shown(kept: KeptRule) -> RuleProperties:
    return rule_shown(kept.rule, moment(kept.created_at))


def _name(kept: KeptRule) -> str:
    return kept.rule.name
