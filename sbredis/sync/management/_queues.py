"""Creating, finding, changing, counting, listing and deleting queues, from a thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Unpack

from sbredis.aio.management._queues import QueueAdministration as Twin
from sbredis.model import (
    AuthorizationRule,
    EntityStatus,
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._paging import ItemPaged
from sbredis.sync.management._calls import Calls

__all__ = ["QueueAdministration"]


@documented_by(Twin)
class QueueAdministration(Calls):
    def create_queue(
        self,
        queue_name: str,
        *,
        authorization_rules: Sequence[AuthorizationRule] | None = None,
        auto_delete_on_idle: timedelta | str | None = None,
        dead_lettering_on_message_expiration: bool | None = None,
        default_message_time_to_live: timedelta | str | None = None,
        duplicate_detection_history_time_window: timedelta | str | None = None,
        enable_batched_operations: bool | None = None,
        enable_express: bool | None = None,
        enable_partitioning: bool | None = None,
        lock_duration: timedelta | str | None = None,
        max_delivery_count: int | None = None,
        max_size_in_megabytes: int | None = None,
        requires_duplicate_detection: bool | None = None,
        requires_session: bool | None = None,
        forward_to: str | None = None,
        user_metadata: str | None = None,
        forward_dead_lettered_messages_to: str | None = None,
        max_message_size_in_kilobytes: int | None = None,
        colocate_with: str | None = None,
        status: EntityStatus | str | None = None,
        timeout: float | None = None,
    ) -> QueueProperties:
        return self._portal.call(
            self._aio.create_queue,
            queue_name,
            authorization_rules=authorization_rules,
            auto_delete_on_idle=auto_delete_on_idle,
            dead_lettering_on_message_expiration=dead_lettering_on_message_expiration,
            default_message_time_to_live=default_message_time_to_live,
            duplicate_detection_history_time_window=duplicate_detection_history_time_window,
            enable_batched_operations=enable_batched_operations,
            enable_express=enable_express,
            enable_partitioning=enable_partitioning,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            max_size_in_megabytes=max_size_in_megabytes,
            requires_duplicate_detection=requires_duplicate_detection,
            requires_session=requires_session,
            forward_to=forward_to,
            user_metadata=user_metadata,
            forward_dead_lettered_messages_to=forward_dead_lettered_messages_to,
            max_message_size_in_kilobytes=max_message_size_in_kilobytes,
            colocate_with=colocate_with,
            status=status,
            timeout=timeout,
        )

    def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        return self._portal.call(self._aio.ensure_queue, queue_name, timeout=timeout, **properties)

    def get_queue(self, queue_name: str, *, timeout: float | None = None) -> QueueProperties:
        return self._portal.call(self._aio.get_queue, queue_name, timeout=timeout)

    def queue_exists(self, queue_name: str, *, timeout: float | None = None) -> bool:
        return self._portal.call(self._aio.queue_exists, queue_name, timeout=timeout)

    def get_queue_runtime_properties(self, queue_name: str, *, timeout: float | None = None) -> QueueRuntimeProperties:
        return self._portal.call(self._aio.get_queue_runtime_properties, queue_name, timeout=timeout)

    def update_queue(
        self,
        queue: QueueProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[QueueOptions],
    ) -> None:
        self._portal.call(self._aio.update_queue, queue, timeout=timeout, **kwargs)

    def delete_queue(self, queue_name: str, *, timeout: float | None = None) -> None:
        self._portal.call(self._aio.delete_queue, queue_name, timeout=timeout)

    def list_queues(self, *, timeout: float | None = None) -> ItemPaged[QueueProperties]:
        return ItemPaged(self._portal, self._aio.list_queues(timeout=timeout))

    def list_queues_runtime_properties(self, *, timeout: float | None = None) -> ItemPaged[QueueRuntimeProperties]:
        return ItemPaged(self._portal, self._aio.list_queues_runtime_properties(timeout=timeout))
