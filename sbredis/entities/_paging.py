"""Lists that are read page by page, while the caller iterates over them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Self, TypeVar

__all__ = ["AsyncItemPaged", "AsyncPages", "ListPage"]

T = TypeVar("T")


class ListPage(NamedTuple, Generic[T]):
    """A part of a list, and the token of the next page. The token of the last page is ``None``."""

    items: Sequence[T]
    onwards: str | None


class AsyncPages(AsyncIterator[AsyncIterator[T]], Generic[T]):
    """The pages of a list. :attr:`continuation_token` is the start of the next page; ``None`` after the last page."""

    def __init__(self, read: Callable[[str], Awaitable[ListPage[T]]], continuation_token: str | None) -> None:
        self.continuation_token = continuation_token
        self._read = read
        self._ended = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> AsyncIterator[T]:
        return _each(await self.next_page())

    async def next_page(self) -> Sequence[T]:
        """Return the next page with all its items; raise :class:`StopAsyncIteration` after the last page."""
        if self._ended:
            raise StopAsyncIteration
        page = await self._read(self.continuation_token or "")
        self.continuation_token = page.onwards
        self._ended = page.onwards is None
        return page.items


class AsyncItemPaged(AsyncIterator[T], Generic[T]):
    """A list to iterate over once with ``async for``. The first page is read when the first item is requested."""

    def __init__(self, read: Callable[[str], Awaitable[ListPage[T]]]) -> None:
        self._read = read
        self._pages: AsyncPages[T] | None = None
        self._page: Sequence[T] = ()
        self._place = 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._pages is None:
            self._pages = self.by_page()
        while self._place >= len(self._page):
            self._page, self._place = await self._pages.next_page(), 0
        self._place += 1
        return self._page[self._place - 1]

    def __repr__(self) -> str:
        return "<AsyncItemPaged: async for item in it, or its pages, by_page()>"

    def by_page(self, continuation_token: str | None = None) -> AsyncPages[T]:
        """Return the pages of the list, from the beginning, or from the page that a ``continuation_token`` names."""
        token = continuation_token
        if token is not None and not isinstance(token, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
            raise TypeError(
                "continuation_token must be the continuation_token of an earlier page, or None for the first page, "
                f"not {type(token).__name__}"
            )
        return AsyncPages(self._read, token)


async def _each(items: Sequence[T]) -> AsyncIterator[T]:
    for item in items:
        yield item
