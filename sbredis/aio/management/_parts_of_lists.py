"""The part of a list that a caller asks for: which items are left out, and how many follow. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self, TypeVar

from sbredis._quoting import quoted
from sbredis.client import count_of

__all__ = ["ListPart", "list_part"]

T = TypeVar("T")
_NUMBER = re.compile(r"[1-9][0-9]{0,14}", re.ASCII)


class ListPart(NamedTuple):
    """The part of a list that is not read yet."""

    after: str = ""
    """The name after which the part begins; empty for the beginning of the list."""
    skip: int = 0
    """The number of items that are left out first."""
    left: int | None = None
    """The largest number of items that follow; ``None`` for all."""

    def at(self, token: str, check: Callable[[str], object]) -> Self:
        """Return the part from the page of this continuation token on; the token of the first page is empty.

        Raise :class:`ValueError` if the token cannot be from a list: it names the last item before the page, which
        ``check`` checks, and before it the number of items that are left, if the list has a limit.
        """
        if not token:
            return self
        left, colon, name = token.rpartition(":")
        try:
            check(name if not colon or _NUMBER.fullmatch(left) else token)  # no name has a colon
        except ValueError as error:
            raise ValueError(
                f"{quoted(token)} is not a continuation_token of this list, because it is not a valid name: {error}. "
                "Give the continuation_token of an earlier page, or None for the first page."
            ) from None
        return self._replace(after=name, skip=0, left=int(left) if colon else self.left)

    def size(self, page: int) -> int:
        """Return how many items the next page has if the list is long enough."""
        return page if self.left is None else min(page, self.left)

    def wanted(self, page: int) -> int:
        """Return how many items must be read for a page, and to know whether another page follows."""
        size = self.size(page)
        return self.skip + size + (size != self.left)

    def token(self, name: str, shown: int) -> str | None:
        """Return the token of the page after ``shown`` items, the last of which has this name; ``None`` at the end."""
        if self.left is None:
            return name
        return f"{self.left - shown}:{name}" if shown < self.left else None

    def of(self, items: Sequence[T]) -> Sequence[T]:
        """Return this part of a list that was read as a whole."""
        return items[self.skip :] if self.left is None else items[self.skip : self.skip + self.left]


def list_part(skip: int, top: int | None) -> ListPart:
    """Return the part of a list that a caller asks for. Raise if there is no such part."""
    count_of(skip, "skip", least=0)
    if top is not None:
        count_of(top, "top")
    return ListPart("", skip, top)
