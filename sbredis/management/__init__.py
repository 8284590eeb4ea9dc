"""Namespaces and their entities: the registry, and how entities are created, changed and deleted."""

from __future__ import annotations

from sbredis.management._entity import EntityRecord, Json
from sbredis.management._namespace import Namespace
from sbredis.management._refusals import EntityChangedError, NamespacePartitionsError

__all__ = ["EntityChangedError", "EntityRecord", "Json", "Namespace", "NamespacePartitionsError"]
