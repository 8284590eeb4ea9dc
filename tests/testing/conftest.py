"""The fixtures of sbredis, also where the environment is older than the entry point that pytest finds them by.

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
