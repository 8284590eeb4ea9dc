"""The first messages that match, and a remark if there are more than these."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, TypeAlias

from sbredis.cli._invocation import Invocation

if TYPE_CHECKING:
    from sbredis.model import ServiceBusReceivedMessage

__all__ = ["FEW", "Matches", "first_of", "remark_more"]

FEW = 20
"""The number of messages that are shown if the user gives no number."""
Matches: TypeAlias = "Callable[[ServiceBusReceivedMessage], bool]"


async def first_of(
    messages: AsyncIterator[ServiceBusReceivedMessage], limit: int, matches: Matches
) -> tuple[list[ServiceBusReceivedMessage], bool]:
    """Return the first messages that match, and whether others come after them, which may match or not."""
    found: list[ServiceBusReceivedMessage] = []
    async for message in messages:
        if matches(message):
            found.append(message)
            if len(found) == limit:
                return found, await anext(messages, None) is not None
    return found, False


def remark_more(invocation: Invocation, *, chosen: bool) -> None:
    """Say that only some messages were shown. If the user has ``chosen`` them, the others may not match."""
    verb = "may be" if chosen else "are"
    invocation.out.remark(f"only the first {FEW} messages are shown, and there {verb} more: see --count")
