"""Creating, finding, changing, counting, listing and deleting topics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

import anyio

from sbredis.aio.entities._counting import Tally, topic_counts
from sbredis.aio.entities._definitions import TOPICS, given_in
from sbredis.aio.entities._paging import AsyncItemPaged
from sbredis.aio.management._calls import Calls
from sbredis.engine import entity_name
from sbredis.model import (
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
    names_keywords,
)
from sbredis.registry import EntityRecord

__all__ = ["TopicAdministration"]


class TopicAdministration(Calls):
    """What an administration client does with topics."""

    @names_keywords(TopicOptions)
    async def create_topic(
        self,
        topic_name: str,
        *,
        timeout: float | None = None,
        **properties: Unpack[TopicOptions],
    ) -> TopicProperties:
        """Create a topic; the arguments are explained in :class:`~sbredis.management.TopicProperties`.

        It has no subscriptions, and so keeps nothing of what is sent to it. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an entity of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of the name ``colocate_with``.
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
        """The topic of this name, created with ``properties``, those of :meth:`create_topic`, where there is none.

        A topic that is there stays as it is: what can be changed and differs from ``properties`` is left to
        :meth:`update_topic`. A difference in what cannot be changed (partitions, duplicate detection, the neighbour) is
        a :class:`ValueError` that names it. Any number of clients may call this at once. An addition of sbredis.
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
        """The properties of a topic.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        return self._described(TOPICS, await self._found(TOPICS, entity_name(topic_name), self._deadline(timeout)))

    async def topic_exists(self, topic_name: str, *, timeout: float | None = None) -> bool:
        """Whether there is a topic of this name. An addition of sbredis."""
        return await self._exists(TOPICS, entity_name(topic_name), self._deadline(timeout))

    async def get_topic_runtime_properties(
        self, topic_name: str, *, timeout: float | None = None
    ) -> TopicRuntimeProperties:
        """What is in a topic, counted in all its partitions at once, and what belongs to it.

        A partition that does not answer is no error: ``availability_status`` is then ``Limited``,
        ``unreachable_partitions`` names it, and the counts are those of the others.
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
        """Give a topic other properties: those of ``topic``, and above them those that are given by name.

        ``topic`` is what :meth:`get_topic` returned, with some assigned anew, or a mapping with ``name``. What it does
        not say stays as it is. Of several who change a topic at once the last one wins, in what it says: so a mapping
        of what is to change only, ``update_topic({"name": "orders"}, user_metadata="ours")``, leaves the changes of
        others alone.

        Changed settings hold for calls that come after. A change of what cannot be changed is a :class:`ValueError`. If
        a partition could not be told, that is raised, and the next call that reaches the partition tells it.
        """
        given = given_in("update_topic", TopicProperties, topic, kwargs)
        name = entity_name(given.name)
        await self._ask(
            name, self._deadline(timeout), lambda left: TOPICS.revise(self._namespace, name, left, given.given)
        )

    async def delete_topic(self, topic_name: str, *, timeout: float | None = None) -> None:
        """Delete a topic with all its subscriptions, their rules and their messages. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        entity_name(topic_name)
        await self._ask(
            topic_name,
            self._deadline(timeout),
            lambda left: self._namespace.delete_entity(topic_name, kind="topic", timeout=left),
        )

    def list_topics(self, *, timeout: float | None = None) -> AsyncItemPaged[TopicProperties]:
        """All topics by name, to be gone through with ``async for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted are listed as such by their status.
        """
        return self._list(TOPICS, self._entities, timeout)

    def list_topics_runtime_properties(self, *, timeout: float | None = None) -> AsyncItemPaged[TopicRuntimeProperties]:
        """What is in all topics, by name, to be gone through with ``async for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted, or are deleted meanwhile, are left out.
        """

        async def count(record: EntityRecord, until: float) -> TopicRuntimeProperties:
            return await self._with_facts(await self._count(record, until), until)

        return self._list_counts(TOPICS, self._entities, count, timeout)

    async def _with_facts(self, tally: Tally, until: float) -> TopicRuntimeProperties:
        path = tally.record.path
        facts = await self._namespace.topic_facts(path, timeout=until - anyio.current_time())
        return topic_counts(tally, facts)
