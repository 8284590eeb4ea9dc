"""Searching the partitions of an entity for one session that is free. Pure.

Theory
------

A search wants exactly one session, wherever it is. Sessions are locked when they are accepted, so the search *accepts*
in one partition at a time. All other partitions are *looked* at, which locks nothing.

1. One partition, another one each time, is asked for a session straight away. Mostly it has one, and that is all.
2. If it has none, fails, or is late, all others are looked at, at the same time. Of those that have a session, one is
   asked at a time (see :func:`sbredis.aio.core._fetching.fetches`).
3. When no partition has one, the search listens to all of them and is registered with its next question there. So it
   subscribes to nothing as long as a session may be had without.

A partition that fails or answers late holds up nobody. It counts as one that has nothing, as long as there is another
one that answers. If nothing is known of any partition, the search has not found out that there is no session.
"""

from __future__ import annotations

from collections.abc import Sequence

from sbredis.aio.core._fetching import Fetch, fetches
from sbredis.aio.core._watching import Watch

__all__ = ["Search"]


class Search:
    """What to do next in the search for one session."""

    __slots__ = ("_first", "_turn", "_watches")

    def __init__(self, watches: Sequence[Watch], start: int, *, straight: bool = True) -> None:
        """``start`` is the partition whose turn it is. If it is not asked ``straight`` away, all are looked at."""
        self._watches = watches
        self._turn = start
        self._first = start if straight else None

    def calls(self) -> list[Fetch]:
        """Return the calls to make now."""
        if any(watch.wanted and not watch.late for watch in self._watches):
            return []
        only: set[int] | None = None
        if self._first is not None:
            if self._watches[self._first].calls == 0:
                only = {self._first}
            else:
                self._first = None
        made, self._turn = fetches(self._watches, self._turn, 1, only)
        return made

    def listens(self) -> list[int]:
        """Return the partitions to listen to now: none as long as one of them may have a session."""
        if any(_is_open(watch) for watch in self._watches):
            return []
        return [place for place, watch in enumerate(self._watches) if watch.unheard]

    @property
    def found_nothing(self) -> bool:
        """Whether no partition has a session. Late ones are waited for as long as none has said anything."""
        watches = self._watches
        settled = all(watch.troubled or not _is_open(watch) for watch in watches)
        return settled and not all(watch.late for watch in watches)


def _is_open(watch: Watch) -> bool:
    """Whether it may have a session: it is to be asked, or its answer is under way."""
    return watch.may_ask or (watch.under_way and not watch.late)
