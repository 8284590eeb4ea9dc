"""Checks that a call is refused and changes nothing."""

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
    """Await a call that must be refused with this error, and check that nothing has changed."""
    before = await held(admin)
    with pytest.raises(error, match=text):
        await done
    assert await held(admin) == before
