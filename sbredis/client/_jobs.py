"""Jobs: the parts of a call that belong to its callers, in columns.

There is a job for each message. An object for each of them would cost a large part of the time of a send, also because
Python's garbage collector looks at each object of a waiting caller. So the jobs are entries in lists, and what most
jobs are about is there already: the payload of a message, or the hold of a received one. The other jobs are objects
(:class:`Job`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import compress
from operator import not_
from typing import Any, Generic, Self, TypeVar

__all__ = ["Job", "Jobs"]

T = TypeVar("T")


class Job:
    """What a job is about that needs an object of its own. It has its caller's future and deadline."""

    size = 0
    """The bytes that the job adds to its call."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        """The future result."""


class Jobs(Generic[T]):
    """Jobs in the order in which they came. The entries of one job have the same place in all lists."""

    __slots__ = ("deadlines", "futures", "terms", "what")

    def __init__(self) -> None:
        self.what: list[T] = []
        """What each job is about."""
        self.futures: list[asyncio.Future[Any]] = []
        """The future results."""
        self.deadlines: list[float] = []
        self.terms: list[Any] = []
        """What is said about each job beside that, in an object that many jobs share; ``None`` for most kinds."""

    def __len__(self) -> int:
        return len(self.futures)

    def __iter__(self) -> Iterator[tuple[T, asyncio.Future[Any], float, Any]]:
        return zip(self.what, self.futures, self.deadlines, self.terms, strict=True)

    def add(self, what: T, future: asyncio.Future[Any], deadline: float, terms: Any) -> None:
        """Append a job."""
        self.what.append(what)
        self.futures.append(future)
        self.deadlines.append(deadline)
        self.terms.append(terms)

    def take(self, count: int) -> Self:
        """Remove the first ``count`` jobs, or all if there are fewer, and return them."""
        taken = type(self)()
        if count < len(self.futures):
            for name in self.__slots__:
                listed = getattr(self, name)
                setattr(taken, name, listed[:count])
                del listed[:count]
        else:
            for name in self.__slots__:
                setattr(taken, name, getattr(self, name))
                setattr(self, name, [])
        return taken

    def put_back(self, jobs: Jobs[T]) -> None:
        """Put jobs before all others."""
        for name in self.__slots__:
            getattr(self, name)[:0] = getattr(jobs, name)

    def split_off(self, chosen: Sequence[bool]) -> Self:
        """Remove the chosen jobs, and return them."""
        taken, others = type(self)(), list(map(not_, chosen))
        for name in self.__slots__:
            listed: list[Any] = getattr(self, name)
            setattr(taken, name, list(compress(listed, chosen)))
            listed[:] = compress(listed, others)
        return taken

    def clear(self) -> None:
        """Remove all jobs, because they have ended."""
        self.what.clear()
        self.futures.clear()
        self.deadlines.clear()
        self.terms.clear()
