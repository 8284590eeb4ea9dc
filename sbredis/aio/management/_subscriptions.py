"""Creating, finding, changing, counting, listing and deleting subscriptions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sbredis._tasks import loop_time
from sbredis.aio.management._calls import Calls, Reading
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.engine import entity_name
from sbredis.entities import (
    SUBSCRIPTIONS,
    AsyncItemPaged,
    ListPage,
    given_in,
    rules_of,
    subscription_counts,
    subscription_path,
)
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
    """The calls of an administration client for subscriptions."""

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
        """Create a subscription; :class:`~sbredis.management.SubscriptionProperties` explains the arguments.

        Without ``rules`` it has the rule ``$Default``, which matches every message. With ``rules`` it has those rules
        from its creation on, and with an empty list it receives nothing. The argument ``rules`` is an addition of
        sbredis.
        Raises :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is a subscription of this name,
        and :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic, or if a destination of
        forwarding names no entity. Destinations that make a circle or too long a chain raise :class:`ValueError`.
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
        """Return the subscription of this name. If it does not exist, create it as :meth:`create_subscription` does.

        An existing subscription and its rules are not changed. Properties that can be changed may differ from
        ``properties``: change them with :meth:`update_subscription`. A difference in a property that cannot be changed
        (sessions) raises a :class:`ValueError` that names the property. Any number of clients may call this at the same
        time. This method is an addition of sbredis.
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
        """Return the properties of a subscription.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no subscription of this name, or no
        such topic.
        """
        path = subscription_path(topic_name, subscription_name)
        return self._described(SUBSCRIPTIONS, await self._found(SUBSCRIPTIONS, path, self._deadline(timeout)))

    async def subscription_exists(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> bool:
        """Return whether there is a subscription of this name; ``False`` if there is no such topic.

        This method is an addition of sbredis.
        """
        path = subscription_path(topic_name, subscription_name)
        return await self._exists(SUBSCRIPTIONS, path, self._deadline(timeout))

    async def get_subscription_runtime_properties(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> SubscriptionRuntimeProperties:
        """Return the message counts of a subscription. All its partitions are counted at the same time.

        A partition that does not answer causes no error. In that case ``availability_status`` is ``Limited``,
        ``unreachable_partitions`` names the partition, and the counts are the sums over the other partitions.
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
        """Update a subscription with the properties in ``subscription``, and with those given by name, which take
        precedence.

        ``subscription`` is a result of :meth:`get_subscription` with some attributes assigned, or a mapping with
        ``name``. Properties that the update does not contain keep their values. If several clients change a
        subscription at the same time, each property gets its value from the last update that contains it. So an update
        that contains only the changes keeps the changes of other clients.

        Changed settings apply to later calls. A change of a property that cannot be changed raises :class:`ValueError`.
        A new destination of forwarding is checked as in :meth:`create_subscription`.
        If the change could not be sent to a partition, the call raises an error, and the next call that reaches the
        partition sends it.
        """
        given = given_in("update_subscription", SubscriptionProperties, subscription, kwargs)
        path = subscription_path(topic_name, given.name)
        await self._ask(
            path, self._deadline(timeout), lambda left: SUBSCRIPTIONS.revise(self._namespace, path, left, given.given)
        )

    async def delete_subscription(
        self, topic_name: str, subscription_name: str, *, timeout: float | None = None
    ) -> None:
        """Delete a subscription with its rules and all its messages.

        The call is refused while messages of transactions wait in the subscription to be moved to other entities.
        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no subscription of this name, or no
        such topic.
        """
        await self._delete("subscription", subscription_path(topic_name, subscription_name), timeout)

    def list_subscriptions(
        self, topic_name: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[SubscriptionProperties]:
        """List all subscriptions of a topic, ordered by name, to iterate over with ``async for``.

        The first ``skip`` subscriptions are left out, and at most ``top`` are listed. ``timeout`` applies to each page
        of 100 subscriptions. Subscriptions that are half created or half deleted are listed too, and their status shows
        this. The iteration raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such topic.
        """
        return self._list(SUBSCRIPTIONS, self._subscriptions(topic_name), list_part(skip, top), timeout)

    def list_subscriptions_runtime_properties(
        self, topic_name: str, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[SubscriptionRuntimeProperties]:
        """List the counts of all subscriptions of a topic, ordered by name, to iterate over with ``async for``.

        The first ``skip`` subscriptions are left out, and at most ``top`` are listed. ``timeout`` applies to each page
        of 100 subscriptions. Subscriptions that are half created or half deleted, or that are deleted meanwhile, are
        left out. The iteration raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no such
        topic.
        """

        async def count(record: EntityRecord, until: float) -> SubscriptionRuntimeProperties:
            return subscription_counts(await self._count(record, until))

        return self._list_counts(SUBSCRIPTIONS, self._subscriptions(topic_name), count, list_part(skip, top), timeout)

    def _subscriptions(self, topic: str) -> Reading:
        entity_name(topic)

        async def read(after: str, most: int, timeout: float) -> ListPage[EntityRecord]:
            until = loop_time() + timeout
            await self._namespace.get_entity(topic, kind="topic", timeout=timeout)
            left = until - loop_time()
            return self._readable(await self._namespace.page_of_subscriptions(topic, after, most, timeout=left))

        return read
