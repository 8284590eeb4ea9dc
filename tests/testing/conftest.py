"""The fixtures of sbredis, also where the environment is older than the entry point that pytest finds them by."""

from __future__ import annotations

from sbredis.testing._fixtures import bus, sync_bus

__all__ = ["bus", "sync_bus"]
