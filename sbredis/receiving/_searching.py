"""Search all partitions of an entity for one free session. Pure.

Theory
------

A search needs exactly one session, from any partition. Accepting a session locks it, so the search *accepts* in one
partition at a time. It only *looks* at the other partitions, because a look locks nothing.

1. The search first tries to accept in one partition. Each search starts with a different partition. Mostly there is a
   session, and the search ends.
2. If there is no session, or the call fails, or the answer is late, the search looks at all other partitions at the
   same time. Then it accepts in the partitions that have a session, one at a time (see
   :func:`sbredis.receiving._fetching.fetches`).
3. When no partition has a session, the search starts to listen to all of them. At its next look at a partition, the
   partition registers the search. So the search subscribes to no channel as long as it may find a session without one.

A partition that fails or answers late does not delay the search. Such a partition counts as empty, as long as another
partition answers. If no partition has answered, the search cannot conclude that there is no session.
"""

from __future__ import annotations

from collections.abc import Sequence

from sbredis.client import Watch
from sbredis.receiving._fetching import Fetch, fetches

__all__ = ["Search"]


class Search:
    """The search for one session. It decides which calls to make next, and which partitions to listen to."""

    __slots__ = ("_first", "_turn", "_watches")

    def __init__(self, watches: Sequence[Watch], start: int, *, straight: bool = True) -> None:
        """Start at the partition ``start``. Without ``straight``, first look at all partitions."""
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
        """Return the partitions to listen to now. The list is empty as long as a partition may have a session."""
        if any(_is_open(watch) for watch in self._watches):
            return []
        return [place for place, watch in enumerate(self._watches) if watch.unheard]

    @property
    def found_nothing(self) -> bool:
        """Whether no partition has a session. If all answers are late, this is not known before the first answer."""
        watches = self._watches
        settled = all(watch.troubled or not _is_open(watch) for watch in watches)
        return settled and not all(watch.late for watch in watches)


def _is_open(watch: Watch) -> bool:
    """Return whether the partition may have a session: it may be asked, or a call is under way that is not late."""
    return watch.may_ask or (watch.under_way and not watch.late)
