"""The fixtures. They are ordinary ones, so it does not matter which plug-in runs the asynchronous tests.

Their names begin with ``sbredis_``: pytest loads them in every run where sbredis is installed, and a fixture ``bus``
would collide with those of other projects.

A bus is opened in the event loop of the test, when it is first used there, and given up from outside.

PYTEST_DONT_REWRITE: there is no assertion of a test in here.
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
    """A fresh bus in memory, of sbredis, with a clock to move and helpers to see what was sent and what is left."""
    from sbredis.testing import Bus

    made = Bus()
    try:
        yield made
    finally:
        made.discard()


@pytest.fixture
def sbredis_sync_bus() -> Iterator[SyncBus]:
    """The same for tests without an event loop: its helpers are not awaited."""
    from sbredis.testing import SyncBus

    with SyncBus() as made:
        yield made
