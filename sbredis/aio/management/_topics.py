"""Creating, finding, changing, counting, listing and deleting topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis._tasks import loop_time
from sbredis.aio.management._calls import Calls
from sbredis.aio.management._parts_of_lists import list_part
from sbredis.engine import entity_name
from sbredis.entities import TOPICS, AsyncItemPaged, Tally, given_in, topic_counts
from sbredis.model import (
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
    names_keywords,
)
from sbredis.registry import EntityRecord

__all__ = ["TopicAdministration"]


class TopicAdministration(Calls):
    """The calls of an administration client for topics."""

    @names_keywords(TopicOptions)
    async def create_topic(
        self,
        topic_name: str,
        *,
        timeout: float | None = None,
        **properties: Unpack[TopicOptions],
    ) -> TopicProperties:
        """Create a topic; :class:`~sbredis.management.TopicProperties` explains the arguments.

        A new topic has no subscriptions, so the messages that are sent to it are not kept. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an entity of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if ``colocate_with`` names no entity.
        """
        kept = TOPICS.check("create_topic", topic_name, properties, clock=self._connection.clock.kind)
        return self._described(
            TOPICS,
            await self._ask(
                topic_name, self._deadline(timeout), lambda left: TOPICS.create(self._namespace, topic_name, left, kept)
            ),
        )

    async def ensure_topic(
        self, topic_name: str, *, timeout: float | None = None, **properties: Unpack[TopicOptions]
    ) -> TopicProperties:
        """Return the topic of this name. If it does not exist, create it as :meth:`create_topic` does.

        An existing topic is not changed. Properties that can be changed may differ from ``properties``: change them
        with :meth:`update_topic`. A difference in a property that cannot be changed (partitions, duplicate detection,
        the neighbour) raises a :class:`ValueError` that names the property. Any number of clients may call this at the
        same time. This method is an addition of sbredis.
        """
        clock = self._connection.clock.kind
        TOPICS.check("ensure_topic", topic_name, properties, clock=clock)
        return self._described(
            TOPICS,
            await self._ask(
                topic_name,
                self._deadline(timeout),
                lambda left: TOPICS.create_or_get(self._namespace, topic_name, left, properties, clock=clock),
            ),
        )

    async def get_topic(self, topic_name: str, *, timeout: float | None = None) -> TopicProperties:
        """Return the properties of a topic.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no topic of this name.
        """
        return self._described(TOPICS, await self._found(TOPICS, entity_name(topic_name), self._deadline(timeout)))

    async def topic_exists(self, topic_name: str, *, timeout: float | None = None) -> bool:
        """Return whether there is a topic of this name. This method is an addition of sbredis."""
        return await self._exists(TOPICS, entity_name(topic_name), self._deadline(timeout))

    async def get_topic_runtime_properties(
        self, topic_name: str, *, timeout: float | None = None
    ) -> TopicRuntimeProperties:
        """Return the counts and the size of a topic. All its partitions are counted at the same time.

        A partition that does not answer causes no error. In that case ``availability_status`` is ``Limited``,
        ``unreachable_partitions`` names the partition, and the counts are the sums over the other partitions.
        """
        until = self._deadline(timeout)
        return await self._with_facts(await self._counted(TOPICS, entity_name(topic_name), until), until)

    async def update_topic(
        self,
        topic: TopicProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[TopicOptions],
    ) -> None:
        """Update a topic with the properties in ``topic``, and with those given by name, which take precedence.

        ``topic`` is a result of :meth:`get_topic` with some attributes assigned, or a mapping with ``name``. Properties
        that the update does not contain keep their values. If several clients change a topic at the same time, each
        property gets its value from the last update that contains it. So an update that contains only the changes, such
        as ``update_topic({"name": "orders"}, user_metadata="ours")``, keeps the changes of other clients.

        Changed settings apply to later calls. A change of a property that cannot be changed raises :class:`ValueError`.
        If the change could not be sent to a partition, the call raises an error, and the next call that reaches the
        partition sends it.
        """
        given = given_in("update_topic", TopicProperties, topic, kwargs)
        name = entity_name(given.name)
        await self._ask(
            name, self._deadline(timeout), lambda left: TOPICS.revise(self._namespace, name, left, given.given)
        )

    async def delete_topic(self, topic_name: str, *, timeout: float | None = None) -> None:
        """Delete a topic with all its subscriptions, their rules and their messages.

        The call is refused while messages of transactions wait in the topic to be moved to other entities. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is no topic of this name.
        """
        entity_name(topic_name)
        await self._delete("topic", topic_name, timeout)

    def list_topics(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[TopicProperties]:
        """List all topics, ordered by name, to iterate over with ``async for``.

        The first ``skip`` topics are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        topics. Topics that are half created or half deleted are listed too, and their status shows this.
        """
        return self._list(TOPICS, self._entities(), list_part(skip, top), timeout)

    def list_topics_runtime_properties(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> AsyncItemPaged[TopicRuntimeProperties]:
        """List the counts of all topics, ordered by name, to iterate over with ``async for``.

        The first ``skip`` topics are left out, and at most ``top`` are listed. ``timeout`` applies to each page of 100
        topics. Topics that are half created or half deleted, or that are deleted meanwhile, are left out.
        """

        async def count(record: EntityRecord, until: float) -> TopicRuntimeProperties:
            return await self._with_facts(await self._count(record, until), until)

        return self._list_counts(TOPICS, self._entities(), count, list_part(skip, top), timeout)

    async def _with_facts(self, tally: Tally, until: float) -> TopicRuntimeProperties:
        path = tally.record.path
        facts = await self._namespace.topic_facts(path, timeout=until - loop_time())
        return topic_counts(tally, facts)
