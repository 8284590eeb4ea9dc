"""Creating, finding, changing, counting, listing and deleting subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sbredis.aio.entities._counting import subscription_counts
from sbredis.aio.entities._definitions import SUBSCRIPTIONS, given_in, rules_of, subscription_path
from sbredis.aio.entities._paging import AsyncItemPaged, Page
from sbredis.aio.management._calls import Calls, Reading
from sbredis.engine import entity_name
from sbredis.model import (
    RuleProperties,
    SubscriptionOptions,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    names_keywords,
)
from sbredis.registry import EntityRecord

__all__ = ["SubscriptionAdministration"]


class SubscriptionAdministration(Calls):
    """What an administration client does with subscriptions."""

    @names_keywords(SubscriptionOptions)
    async def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Sequence[RuleProperties] | None = None,
        timeout: float | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """Create a subscription; the arguments are explained in :class:`~sbredis.management.SubscriptionProperties`.

        It has the rule ``$Default``, which takes every message, unless ``rules`` are given: then it has those from its
        first moment on, and with an empty list it takes nothing. That is an addition of sbredis. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is a subscription of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic.
        """
        path = subscription_path(topic_name, subscription_name)
        clock = self._connection.clock.kind
        kept = SUBSCRIPTIONS.check("create_subscription", subscription_name, properties, clock=clock)
        made = rules_of(rules)
        return self._described(
            SUBSCRIPTIONS,
            await self._ask(
                path,
                self._deadline(timeout),
                lambda left: SUBSCRIPTIONS.create(self._namespace, path, left, kept, made),
            ),
        )

    async def ensure_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Sequence[RuleProperties] | None = None,
        timeout: float | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """The subscription of this name, created as by :meth:`create_subscription` where there is none.

        A subscription that is there stays as it is, with its rules: what can be changed and differs from ``properties``
        is left to :meth:`update_subscription`. A difference in what cannot be changed (sessions) is a
        :class:`ValueError` that names it. Any number of clients may call this at once. An addition of sbredis.
        """
        path = subscription_path(topic_name, subscription_name)
        clock = self._connection.clock.kind
        SUBSCRIPTIONS.check("ensure_subscription", subscription_name, properties, clock=clock)
        rules_of(rules)
        return self._described(
            SUBSCRIPTIONS,
            await self._ask(
                path,
                self._deadline(timeout),
                lambda left: SUBSCRIPTIONS.create_or_get(
                    self._namespace, path, left, properties, clock=clock, rules=rules
                ),
            ),
        )

    async def get_subscription(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> SubscriptionProperties:
        """The properties of a subscription.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name, or no such
        topic.
        """
        path = subscription_path(topic_name, subscription_name)
        return self._described(SUBSCRIPTIONS, await self._found(SUBSCRIPTIONS, path, self._deadline(timeout)))

    async def subscription_exists(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> bool:
        """Whether there is a subscription of this name; there is none where there is no such topic. An addition of
        sbredis.
        """
        path = subscription_path(topic_name, subscription_name)
        return await self._exists(SUBSCRIPTIONS, path, self._deadline(timeout))

    async def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> SubscriptionRuntimeProperties:
        """What is in a subscription, counted in all its partitions at once.

        A partition that does not answer is no error: ``availability_status`` is then ``Limited``,
        ``unreachable_partitions`` names it, and the counts are those of the others.
        """
        path = subscription_path(topic_name, subscription_name)
        return subscription_counts(await self._counted(SUBSCRIPTIONS, path, self._deadline(timeout)))

    async def update_subscription(
        self,
        topic_name: str,
        subscription: SubscriptionProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[SubscriptionOptions],
    ) -> None:
        """Give a subscription other properties: those of ``subscription``, and above them those that are given by name.

        ``subscription`` is what :meth:`get_subscription` returned, with some assigned anew, or a mapping with ``name``.
        What it does not say stays as it is. Of several who change a subscription at once the last one wins, in what it
        says: so a mapping of what is to change only leaves the changes of others alone.

        Changed settings hold for calls that come after. A change of what cannot be changed is a :class:`ValueError`. If
        a partition could not be told, that is raised, and the next call that reaches the partition tells it.
        """
        given = given_in("update_subscription", SubscriptionProperties, subscription, kwargs)
        path = subscription_path(topic_name, given.name)
        await self._ask(
            path, self._deadline(timeout), lambda left: SUBSCRIPTIONS.revise(self._namespace, path, left, given.given)
        )

    async def delete_subscription(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> None:
        """Delete a subscription with its rules and all its messages. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name, or no such topic.
        """
        path = subscription_path(topic_name, subscription_name)
        await self._ask(
            path,
            self._deadline(timeout),
            lambda left: self._namespace.delete_entity(path, kind="subscription", timeout=left),
        )

    def list_subscriptions(
        self, topic_name: str, *, timeout: float | None = None
    ) -> AsyncItemPaged[SubscriptionProperties]:
        """All subscriptions of a topic by name, to be gone through with ``async for``; ``timeout`` is for each page of
        100.

        Those that are half made or half deleted are listed as such by their status. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError`, when it is gone through, if there is no such topic.
        """
        return self._list(SUBSCRIPTIONS, self._subscriptions(topic_name), timeout)

    def list_subscriptions_runtime_properties(
        self, topic_name: str, *, timeout: float | None = None
    ) -> AsyncItemPaged[SubscriptionRuntimeProperties]:
        """What is in all subscriptions of a topic, by name, to be gone through with ``async for``; ``timeout`` is for
        each page of 100.

        Those that are half made or half deleted, or are deleted meanwhile, are left out. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError`, when it is gone through, if there is no such topic.
        """

        async def count(record: EntityRecord, until: float) -> SubscriptionRuntimeProperties:
            return subscription_counts(await self._count(record, until))

        return self._list_counts(SUBSCRIPTIONS, self._subscriptions(topic_name), count, timeout)

    def _subscriptions(self, topic: str) -> Reading:
        entity_name(topic)

        async def read(after: str, most: int, timeout: float) -> Page[EntityRecord]:
            found = await self._namespace.list_subscriptions(topic, after, most, timeout=timeout)
            return Page(found, found[-1].name if found else None)  # they may be fewer for their size

        return read
