"""What the tests of the registry work on. A module may give these names another meaning."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sbredis.registry import Namespace
from sbredis.transport import Transport
from tests.engine.opening import open_with_scripts


@pytest.fixture
async def transport(url: str) -> AsyncIterator[Transport]:
    async with await open_with_scripts(url) as transport:
        yield transport


@pytest.fixture
async def namespace(transport: Transport) -> Namespace:
    """A namespace of four partitions."""
    return await Namespace.open(transport, "ns", 4)
