"""The fixtures of sbredis. An environment that was installed before their entry point existed needs them here.

This folder also gives them short names.
"""

from __future__ import annotations

import pytest

from sbredis.testing import Bus, SyncBus
from sbredis.testing._fixtures import sbredis_bus, sbredis_sync_bus

__all__ = ["bus", "sbredis_bus", "sbredis_sync_bus", "sync_bus"]


@pytest.fixture
def bus(sbredis_bus: Bus) -> Bus:
    """The asynchronous bus of sbredis."""
    return sbredis_bus


@pytest.fixture
def sync_bus(sbredis_sync_bus: SyncBus) -> SyncBus:
    """The bus of sbredis for tests without an event loop."""
    return sbredis_sync_bus
