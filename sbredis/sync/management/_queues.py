"""Creating, finding, changing, counting, listing and deleting queues, from a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._queues import QueueAdministration as Twin
from sbredis.model import (
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    names_keywords,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["QueueAdministration"]


@documented_by(Twin)
class QueueAdministration(Facade[ServiceBusAdministrationClient]):
    @names_keywords(QueueOptions)
    def create_queue(
        self,
        queue_name: str,
        *,
        timeout: float | None = None,
        **properties: Unpack[QueueOptions],
    ) -> QueueProperties:
        return self._bridge.call(self._aio.create_queue, queue_name, timeout=timeout, **properties)

    def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Unpack[QueueOptions]
    ) -> QueueProperties:
        return self._bridge.call(self._aio.ensure_queue, queue_name, timeout=timeout, **properties)

    def get_queue(self, queue_name: str, *, timeout: float | None = None) -> QueueProperties:
        return self._bridge.call(self._aio.get_queue, queue_name, timeout=timeout)

    def queue_exists(self, queue_name: str, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.queue_exists, queue_name, timeout=timeout)

    def get_queue_runtime_properties(self, queue_name: str, *, timeout: float | None = None) -> QueueRuntimeProperties:
        return self._bridge.call(self._aio.get_queue_runtime_properties, queue_name, timeout=timeout)

    def update_queue(
        self,
        queue: QueueProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[QueueOptions],
    ) -> None:
        self._bridge.call(self._aio.update_queue, queue, timeout=timeout, **kwargs)

    def delete_queue(self, queue_name: str, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.delete_queue, queue_name, timeout=timeout)

    def list_queues(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[QueueProperties]:
        return ItemPaged(self._bridge, self._aio.list_queues(skip=skip, top=top, timeout=timeout))

    def list_queues_runtime_properties(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[QueueRuntimeProperties]:
        return ItemPaged(self._bridge, self._aio.list_queues_runtime_properties(skip=skip, top=top, timeout=timeout))
