"""Creating, finding, changing, counting, listing and deleting topics, from a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from sbredis.aio.management._topics import TopicAdministration as Twin
from sbredis.model import (
    AuthorizationRule,
    EntityStatus,
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["TopicAdministration"]


@documented_by(Twin)
class TopicAdministration(Calls):
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
        return self._portal.call(self._aio.ensure_topic, topic_name, timeout=timeout, **properties)

    def get_topic(self, topic_name: str, *, timeout: float | None = None) -> TopicProperties:
        return self._portal.call(self._aio.get_topic, topic_name, timeout=timeout)

    def topic_exists(self, topic_name: str, *, timeout: float | None = None) -> bool:
        return self._portal.call(self._aio.topic_exists, topic_name, timeout=timeout)

    def get_topic_runtime_properties(self, topic_name: str, *, timeout: float | None = None) -> TopicRuntimeProperties:
        return self._portal.call(self._aio.get_topic_runtime_properties, topic_name, timeout=timeout)

    def update_topic(
        self,
        topic: TopicProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[TopicOptions],
    ) -> None:
        self._portal.call(self._aio.update_topic, topic, timeout=timeout, **kwargs)

    def delete_topic(self, topic_name: str, *, timeout: float | None = None) -> None:
        self._portal.call(self._aio.delete_topic, topic_name, timeout=timeout)

    def list_topics(self, *, timeout: float | None = None) -> ItemPaged[TopicProperties]:
        return ItemPaged(self._portal, self._aio.list_topics(timeout=timeout))

    def list_topics_runtime_properties(self, *, timeout: float | None = None) -> ItemPaged[TopicRuntimeProperties]:
        return ItemPaged(self._portal, self._aio.list_topics_runtime_properties(timeout=timeout))
