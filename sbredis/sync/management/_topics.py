"""Creating, finding, changing, counting, listing and deleting topics, from a thread."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Unpack

from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.aio.management._topics import TopicAdministration as Twin
from sbredis.model import (
    TopicOptions,
    TopicProperties,
    TopicRuntimeProperties,
    names_keywords,
)
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade
from sbredis.sync._paging import ItemPaged

__all__ = ["TopicAdministration"]


@documented_by(Twin)
class TopicAdministration(Facade[ServiceBusAdministrationClient]):
    @names_keywords(TopicOptions)
    def create_topic(
        self,
        topic_name: str,
        *,
        timeout: float | None = None,
        **properties: Unpack[TopicOptions],
    ) -> TopicProperties:
        return self._bridge.call(self._aio.create_topic, topic_name, timeout=timeout, **properties)

    def ensure_topic(
        self, topic_name: str, *, timeout: float | None = None, **properties: Unpack[TopicOptions]
    ) -> TopicProperties:
        return self._bridge.call(self._aio.ensure_topic, topic_name, timeout=timeout, **properties)

    def get_topic(self, topic_name: str, *, timeout: float | None = None) -> TopicProperties:
        return self._bridge.call(self._aio.get_topic, topic_name, timeout=timeout)

    def topic_exists(self, topic_name: str, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.topic_exists, topic_name, timeout=timeout)

    def get_topic_runtime_properties(self, topic_name: str, *, timeout: float | None = None) -> TopicRuntimeProperties:
        return self._bridge.call(self._aio.get_topic_runtime_properties, topic_name, timeout=timeout)

    def update_topic(
        self,
        topic: TopicProperties | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **kwargs: Unpack[TopicOptions],
    ) -> None:
        self._bridge.call(self._aio.update_topic, topic, timeout=timeout, **kwargs)

    def delete_topic(self, topic_name: str, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.delete_topic, topic_name, timeout=timeout)

    def list_topics(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[TopicProperties]:
        return ItemPaged(self._bridge, self._aio.list_topics(skip=skip, top=top, timeout=timeout))

    def list_topics_runtime_properties(
        self, *, skip: int = 0, top: int | None = None, timeout: float | None = None
    ) -> ItemPaged[TopicRuntimeProperties]:
        return ItemPaged(self._bridge, self._aio.list_topics_runtime_properties(skip=skip, top=top, timeout=timeout))
