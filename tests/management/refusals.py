"""What must be refused, and must change nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from sbredis.aio.management import ServiceBusAdministrationClient
from tests.management.conftest import held

__all__ = ["refused"]


async def refused(
    admin: ServiceBusAdministrationClient, done: Awaitable[Any], error: type[Exception], text: str
) -> None:
    """Wait for what must be refused with this error, and see that nothing has changed."""
    before = await held(admin)
    with pytest.raises(error, match=text):
        await done
    assert await held(admin) == before
