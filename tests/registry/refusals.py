"""Checks that a call is refused and changes nothing."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from sbredis.exceptions import Outcome, ServiceBusError
from sbredis.transport import Transport
from tests.registry.keys import snapshot

__all__ = ["refused"]


async def refused(transport: Transport, done: Awaitable[Any], error: type[Exception], text: str | None = None) -> str:
    """Check that a call is refused with this error, and that nothing has changed. Return the text of the error."""
    before = await snapshot(transport)
    with pytest.raises(error, match=text) as raised:
        await done
    assert type(raised.value) is error
    assert await snapshot(transport) == before
    if not isinstance(raised.value, ServiceBusError):
        return str(raised.value)
    assert raised.value.outcome is Outcome.REFUSED
    return raised.value.message
