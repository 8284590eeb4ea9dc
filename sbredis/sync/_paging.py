"""Lists that are read page by page during an iteration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from sbredis.entities import AsyncItemPaged, AsyncPages

if TYPE_CHECKING:
    from sbredis.sync._bridge import Bridge

__all__ = ["ItemPaged", "Pages"]

T = TypeVar("T")


class Pages(Iterator[Iterator[T]], Generic[T]):
    """The pages of a list."""

    def __init__(self, bridge: Bridge, pages: AsyncPages[T]) -> None:
        self._bridge = bridge
        self._pages = pages

    @property
    def continuation_token(self) -> str | None:
        """The start of the next page; ``None`` after the last page."""
        return self._pages.continuation_token

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Iterator[T]:
        return iter(self.next_page())

    def next_page(self) -> Sequence[T]:
        """Return the next page with all its items; raise :class:`StopIteration` after the last page."""
        try:
            return self._bridge.call(self._pages.next_page)
        except StopAsyncIteration:
            raise StopIteration from None


class ItemPaged(Iterator[T], Generic[T]):
    """A list to iterate over once with ``for``. The first page is read when the first item is requested."""

    def __init__(self, bridge: Bridge, paged: AsyncItemPaged[T]) -> None:
        self._bridge = bridge
        self._paged = paged
        self._pages: Pages[T] | None = None
        self._page: Iterator[T] = iter(())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._pages is None:
            self._pages = self.by_page()
        while True:
            for item in self._page:
                return item
            self._page = next(self._pages)

    def __repr__(self) -> str:
        return "<ItemPaged: for item in it, or its pages, by_page()>"

    def by_page(self, continuation_token: str | None = None) -> Pages[T]:
        """Return the pages of the list, from the beginning, or from the page that a ``continuation_token`` names."""
        return Pages(self._bridge, self._paged.by_page(continuation_token))
