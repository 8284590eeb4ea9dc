"""The fixtures of sbredis, also for an environment older than the entry point through which pytest finds them.

In this folder they have short names as well.
"""

from __future__ import annotations

import pytest

from sbredis.testing import Bus, SyncBus
from sbredis.testing._fixtures import sbredis_bus, sbredis_sync_bus

__all__ = ["bus", "sbredis_bus", "sbredis_sync_bus", "sync_bus"]


@pytest.fixture
def bus(sbredis_bus: Bus) -> Bus:
    """The bus of sbredis."""
    return sbredis_bus


@pytest.fixture
def sync_bus(sbredis_sync_bus: SyncBus) -> SyncBus:
    """The bus for tests without an event loop."""
    return sbredis_sync_bus
