"""Namespaces and their entities: the registry, and how entities are created, changed and deleted."""

from __future__ import annotations

from sbredis.registry._entity import EntityRecord, Json, require_properties
from sbredis.registry._namespace import Namespace
from sbredis.registry._refusals import EntityChangedError, NamespacePartitionsError

__all__ = ["EntityChangedError", "EntityRecord", "Json", "Namespace", "NamespacePartitionsError", "require_properties"]
