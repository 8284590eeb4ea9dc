"""Reads lists page by page."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from sbredis._tasks import loop_time
from sbredis.registry._refusals import IncompleteListError
from sbredis.registry._registry import LONGEST_PAGE, Listing, Page
from sbredis.registry._steps import Steps

__all__ = ["SubscriptionPages", "first_readable", "read_to_end"]

T = TypeVar("T")


async def first_readable(
    read: Callable[[str, float], Awaitable[Listing[T]]], after: str, timeout: float
) -> tuple[T, ...]:
    """Return the first page with a record that can be read; an empty one if there is none after that name.

    ``read`` reads the page after a name within a number of seconds.
    """
    until = loop_time() + timeout
    while True:
        page = await read(after, until - loop_time())
        if page.records or page.onward is None:
            return page.records
        after = page.onward


async def read_to_end(items: AsyncIterator[T]) -> tuple[list[T], IncompleteListError | None]:
    """Return the items of a list, and the error at its end if it lacks entities."""
    found: list[T] = []
    try:
        async for item in items:
            found.append(item)  # noqa: PERF401 -- what came before the error is wanted
    except IncompleteListError as error:
        return found, error
    return found, None


class SubscriptionPages:
    """The pages of a topic's subscriptions, in the order of the subscriptions' names."""

    __slots__ = ("_after", "_limit", "_steps", "_topic", "_until", "more")

    def __init__(self, steps: Steps, topic: str, until: float, *, limit: int = LONGEST_PAGE) -> None:
        self._steps = steps
        self._topic = topic
        self._until = until
        self._limit = limit
        self._after = ""
        self.more = True
        """Whether there is another page."""

    async def next(self) -> Page:
        """Read the next page. Raises an error if the topic does not exist any more."""
        request = self._steps.registry.subscriptions(self._topic, self._after, self._limit)
        page = await self._steps.ask(request, self._until, self._topic)
        self.more = page.onward is not None
        self._after = page.onward or ""
        return page
