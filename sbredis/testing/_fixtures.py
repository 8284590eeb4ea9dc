"""The fixtures. They are synchronous, so any plug-in can run the asynchronous tests.

Their names begin with ``sbredis_``. pytest loads them in every run if sbredis is installed, and a fixture ``bus`` would
collide with those of other projects.

A bus opens in the event loop of the test, at its first use there, and the fixture discards it from outside the loop.

PYTEST_DONT_REWRITE: this module has no assertions of tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sbredis.testing import Bus, SyncBus

__all__ = ["sbredis_bus", "sbredis_sync_bus"]


@pytest.fixture
def sbredis_bus() -> Iterator[Bus]:
    """A new bus in memory, with a clock that the test moves, and helpers that show sent and remaining messages."""
    from sbredis.testing import Bus

    made = Bus()
    try:
        yield made
    finally:
        made.discard()


@pytest.fixture
def sbredis_sync_bus() -> Iterator[SyncBus]:
    """A new bus for tests without an event loop: its helpers are not awaited."""
    from sbredis.testing import SyncBus

    with SyncBus() as made:
        yield made
