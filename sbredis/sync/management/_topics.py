"""Creating, finding, changing, counting, listing and deleting topics, from a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from sbredis.model import (
    AuthorizationRule,
    EntityStatus,
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
)
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["TopicAdministration"]


class TopicAdministration(Calls):
    """What an administration client does with topics."""

    def create_topic(
        self,
        topic_name: str,
        *,
        default_message_time_to_live: timedelta | str | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        enable_batched_operations: bool | None = None,
        size_in_bytes: int | None = None,
        filtering_messages_before_publishing: bool | None = None,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        support_ordering: bool | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        enable_partitioning: bool | None = None,
        enable_express: bool | None = None,
        user_metadata: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        colocate_with: str | None = None,
        status: EntityStatus | str | None = None,
        timeout: float | None = None,
    ) -> TopicProperties:
        """Create a topic; the arguments are explained in :class:`~sbredis.management.TopicProperties`.

        It has no subscriptions, and so keeps nothing of what is sent to it. Raises
        :class:`~sbredis.exceptions.MessagingEntityAlreadyExistsError` if there is an entity of this name, and
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of the name ``colocate_with``.
        """
        return self._portal.call(
            self._aio.create_topic,
            topic_name,
            default_message_time_to_live=default_message_time_to_live,
            max_size_in_megabytes=max_size_in_megabytes,
            requires_duplicate_detection=requires_duplicate_detection,
            duplicate_detection_history_time_window=duplicate_detection_history_time_window,
            enable_batched_operations=enable_batched_operations,
            size_in_bytes=size_in_bytes,
            filtering_messages_before_publishing=filtering_messages_before_publishing,
            authorization_rules=authorization_rules,
            support_ordering=support_ordering,
            auto_delete_on_idle=auto_delete_on_idle,
            enable_partitioning=enable_partitioning,
            enable_express=enable_express,
            user_metadata=user_metadata,
            max_message_size_in_kilobytes=max_message_size_in_kilobytes,
            colocate_with=colocate_with,
            status=status,
            timeout=timeout,
        )

    def ensure_topic(
        self, topic_name: str, *, timeout: float | None = None, **properties: Unpack[TopicOptions]
    ) -> TopicProperties:
        """The topic of this name, created with ``properties``, those of :meth:`create_topic`, where there is none.

        A topic that is there stays as it is: what can be changed and differs from ``properties`` is left to
        :meth:`update_topic`. A difference in what cannot be changed (partitions, duplicate detection, the neighbour) is
        a :class:`ValueError` that names it. Any number of clients may call this at once. An addition of sbredis.
        """
        return self._portal.call(self._aio.ensure_topic, topic_name, timeout=timeout, **properties)

    def get_topic(self, topic_name: str, *, timeout: float | None = None) -> TopicProperties:
        """The properties of a topic.

        Raises :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        return self._portal.call(self._aio.get_topic, topic_name, timeout=timeout)

    def topic_exists(self, topic_name: str, *, timeout: float | None = None) -> bool:
        """Whether there is a topic of this name. An addition of sbredis."""
        return self._portal.call(self._aio.topic_exists, topic_name, timeout=timeout)

    def get_topic_runtime_properties(self, topic_name: str, *, timeout: float | None = None) -> TopicRuntimeProperties:
        """What is in a topic, counted in all its partitions at once, and what belongs to it.

        A partition that does not answer is no error: ``availability_status`` is then ``Limited``,
        ``unreachable_partitions`` names it, and the counts are those of the others.
        """
        return self._portal.call(self._aio.get_topic_runtime_properties, topic_name, timeout=timeout)

    def update_topic(
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
        self._portal.call(self._aio.update_topic, topic, timeout=timeout, **kwargs)

    def delete_topic(self, topic_name: str, *, timeout: float | None = None) -> None:
        """Delete a topic with all its subscriptions, their rules and their messages. Raises
        :class:`~sbredis.exceptions.MessagingEntityNotFoundError` if there is none of this name.
        """
        self._portal.call(self._aio.delete_topic, topic_name, timeout=timeout)

    def list_topics(self, *, timeout: float | None = None) -> ItemPaged[TopicProperties]:
        """All topics by name, to be gone through with ``for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted are listed as such by their status.
        """
        return ItemPaged(self._portal, self._aio.list_topics(timeout=timeout))

    def list_topics_runtime_properties(self, *, timeout: float | None = None) -> ItemPaged[TopicRuntimeProperties]:
        """What is in all topics, by name, to be gone through with ``for``; ``timeout`` is for each page of 100.

        Those that are half made or half deleted, or are deleted meanwhile, are left out.
        """
        return ItemPaged(self._portal, self._aio.list_topics_runtime_properties(timeout=timeout))
