"""Forgetting bulk writers, from a thread."""

from __future__ import annotations

from sbredis.aio.management._bulk_writers import BulkWriterAdministration as Twin
from sbredis.sync._docstrings import documented_by
from sbredis.sync.management._calls import Calls

__all__ = ["BulkWriterAdministration"]


@documented_by(Twin)
class BulkWriterAdministration(Calls):
    def forget_writer(self, entity_path: str, writer: str, *, timeout: float | None = None) -> int:
        return self._portal.call(self._aio.forget_writer, entity_path, writer, timeout=timeout)
