"""The search for partitions of an entity that have something for a receiver: calls that only read.

All receivers of a client that want the same from an entity share a search. A receiver that needs one while partitions
are being read takes part in the next one, because this one may have read a partition too early.

A partition of an entity that has many calls receivers itself, when something becomes ready and no receiver is there.
Receivers that wait hear these calls. A call may be lost, so they also search when a channel is confirmed, and now and
then, all of them together.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from contextlib import suppress
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sbredis.client import PartitionCalls
from sbredis.engine import find_ready
from sbredis.exceptions import ServiceBusError

if TYPE_CHECKING:
    from sbredis.client import Entity
    from sbredis.engine import Request
    from sbredis.receiving._seats import Seats

__all__ = ["SEARCH_TABLE", "PartitionSearch", "SearchEvent", "SearchState", "SeatSearch", "search_of"]

_PAUSES: Final = 0.005, 0.5
"""The first and the longest pause between two searches of a receiver that waits. Each pause is twice the last one."""
_LONG_PAUSE: Final = 10.0
"""The pause if partitions can call the receiver."""
_HURRIED: Final = 0.2
"""The part of ``Timings.late`` after which a search is late for a caller whose time is over."""


def search_of(entity: Entity, source: str) -> PartitionSearch:
    """Return the search that all receivers of a client share that want this from an entity."""
    found: PartitionSearch | None = entity.searches.get(source)
    if found is None:
        found = entity.searches[source] = PartitionSearch(entity, source)
    return found


class PartitionSearch:
    """The searches in one entity, one after the other."""

    def __init__(self, entity: Entity, source: str) -> None:
        self._entity, self._source = entity, source
        self._connection = entity.connection
        self._loop = asyncio.get_running_loop()
        self._number = 0
        """The number of the latest search that has begun to read."""
        self._missing: set[int] = set()
        """The indexes of the partitions that have not answered it."""
        self._answered = False
        """Whether a partition has answered it."""
        self._timer: asyncio.TimerHandle | None = None
        self._searchers: dict[SeatSearch, None] = {}
        """The receivers that take part in it."""
        self._next: dict[SeatSearch, None] = {}
        """The receivers that take part in the next one."""
        self._requests: dict[int, Request[bool]] = {}
        """The request to each partition, if the partition uses the clock of the server."""
        self._id = ""
        """The entity that these requests are for."""
        self._hearers: dict[SeatSearch, None] = {}
        """The receivers that hear calls."""
        self._calls: PartitionCalls | None = None
        self._heard_id = ""
        """The entity whose calls are heard."""
        self.next_at = -math.inf
        """The time of the loop at which receivers that hear calls search again. It is the same for all of them, so that
        they share the search.
        """

    def begin(self, searcher: SeatSearch) -> None:
        """Let a receiver take part in the next search. It begins in the next turn of the event loop, or after the one
        under way.
        """
        if not self._next and not self._missing:
            self._loop.call_soon(self._begin)
        self._next[searcher] = None

    def expects(self, searcher: SeatSearch) -> bool:
        """Return whether a receiver takes part in the next search."""
        return searcher in self._next

    def has_answer(self, searcher: SeatSearch) -> bool:
        """Return whether a partition has answered the search under way that a receiver takes part in."""
        return self._answered and searcher in self._searchers

    def leave(self, searcher: SeatSearch) -> None:
        """Tell a receiver nothing more."""
        self._next.pop(searcher, None)
        self._searchers.pop(searcher, None)

    # -- calls of partitions -------------------------------------------------------------------------------------------

    @property
    def hears(self) -> bool:
        """Whether the calls of all partitions are heard."""
        return self._calls is not None and self._calls.heard

    def hear(self, searcher: SeatSearch) -> None:
        """Let a receiver hear the calls of partitions."""
        self._hearers[searcher] = None
        self.follow()

    def follow(self) -> None:
        """Hear the calls of the entity that there is now, also if it was deleted and created again."""
        if self._calls is not None and self._heard_id != self._entity.record.id:
            self._calls.close()
            self._calls = None
        if self._calls is None and self._hearers:
            self._heard_id = self._entity.record.id
            self._calls = PartitionCalls(self._entity, self.called, self.confirmed)

    def stop_hearing(self, searcher: SeatSearch) -> None:
        """Let a receiver hear no more calls."""
        self._hearers.pop(searcher, None)
        if not self._hearers and self._calls is not None:
            self._calls.close()
            self._calls = None

    def called(self, place: int, ready: frozenset[str]) -> None:
        """Handle the call of a partition."""
        if self._source in ready:
            for searcher in list(self._hearers):
                searcher.found(place)

    def confirmed(self) -> None:
        """Handle a new subscription. Earlier calls may be lost."""
        for searcher in self._hearers:
            self.begin(searcher)

    # -- a search ------------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._missing:  # a search has begun since this was planned
            return
        self._searchers, self._next = self._next, {}
        if self._searchers and self._loop.time() >= self.next_at:
            self._searchers |= self._hearers  # it is time for all of them
        if not self._searchers or self._connection.closed:
            return
        self._number += 1
        self._answered, self._missing = False, set(range(len(self._entity.numbers)))
        for searcher in self._searchers:
            searcher.began()
        search = self._number
        self._timer = self._loop.call_later(self._connection.timings.late, self._end_late)
        for place, number in enumerate(self._entity.numbers):
            self._read(search, place, number)

    def _read(self, search: int, place: int, number: int) -> None:
        request = self._request(number)

        def answered(reply: object) -> None:
            try:
                ready = request.result(reply)
            except ServiceBusError:
                ready = None
            self._take(search, place, ready=ready)

        def failed(rest: Callable[[], Coroutine[Any, Any, Any]]) -> None:
            self._connection.start(self._read_again(rest, answered))

        timeout, transport = self._connection.timings.answering, self._connection.transport
        if not transport.begin(
            request.script,
            request.keys,
            request.arguments,
            timeout=timeout,
            repeatable=True,
            written=None,
            answered=answered,
            failed=failed,
        ):
            failed(
                partial(
                    transport.call, request.script, request.keys, request.arguments, timeout=timeout, repeatable=True
                )
            )

    async def _read_again(
        self, rest: Callable[[], Coroutine[Any, Any, Any]], answered: Callable[[object], None]
    ) -> None:
        """Make further attempts. A partition that cannot be read has not answered when the search is late."""
        with suppress(ServiceBusError):
            answered(await rest())

    def _request(self, number: int) -> Request[bool]:
        """Return the request to a partition."""
        entity, now = self._entity, self._connection.clock.told()
        if entity.record.id != self._id:
            self._requests, self._id = {}, entity.record.id
        request = self._requests.get(number)
        if request is None or now is not None:
            namespace = self._connection.namespace
            request = find_ready(namespace.name, namespace.salt(number), self._id, self._source, now)
            self._requests[number] = request
        return request

    def _take(self, search: int, place: int, *, ready: bool | None) -> None:
        """Tell the receivers what a partition has answered."""
        if search != self._number or place not in self._missing:
            return
        self._missing.discard(place)
        self._answered = self._answered or ready is not None
        if ready is not False:
            for searcher in list(self._searchers):
                searcher.found(place)
        if not self._missing:
            self._end()

    def _end_late(self) -> None:
        """End a search that is late, unless no partition has answered: then the server may be busy."""
        timings = self._connection.timings
        if self._answered:
            self._end()
        else:
            self._timer = self._loop.call_later(max(0.0, timings.answering - timings.late), self._end)

    def _end(self) -> None:
        """End the search under way. The partitions that have not answered may have something."""
        if self._timer is not None:
            self._timer.cancel()
        missing, self._missing = self._missing, set()
        searchers, self._searchers = self._searchers, {}
        if (now := self._loop.time()) >= self.next_at:
            self.next_at = now + _LONG_PAUSE
        if self._next:
            self._loop.call_soon(self._begin)
        for searcher in searchers:
            for place in missing:
                searcher.found(place, answered=False)
            searcher.ended(answered=self._answered)


class SearchState(Enum):
    """The state of the searches of a receiver."""

    RESTING = auto()
    """No search is under way."""
    ASKED = auto()
    """A search was asked for that has not ended."""
    LATE = auto()
    """Its end is late."""


class SearchEvent(Enum):
    """An event that can change the state."""

    ASK = auto()
    """The receiver asks for a search, or takes part in one that it has asked for before."""
    DELAY = auto()
    """The search has taken too long."""
    END = auto()
    """The search ends, or the receiver leaves."""


_S, _E = SearchState, SearchEvent
SEARCH_TABLE: Final[dict[tuple[SearchState, SearchEvent], SearchState]] = {
    (_S.RESTING, _E.ASK): _S.ASKED,
    (_S.ASKED, _E.DELAY): _S.LATE,
    (_S.ASKED, _E.END): _S.RESTING,
    (_S.LATE, _E.END): _S.RESTING,
}
"""The transitions. An event without a row changes nothing."""


class SeatSearch:
    """The searches of one receiver. For its callers, a search is a source of messages like a partition."""

    def __init__(self, seats: Seats, entity: Entity, source: str) -> None:
        self.partition_client = entity.partition_client(entity.numbers[0])
        self.calls = 0
        """The number of searches that have begun to read, including the one under way."""
        self.state = SearchState.RESTING
        self.has_answer: bool | None = None
        """Whether a partition has answered the last search that has ended."""
        self.next_at = -math.inf
        """The time of the loop at which a receiver that waits searches again."""
        self._seats = seats
        self._search = search_of(entity, source)
        self._loop = asyncio.get_running_loop()
        self._lateness = entity.connection.timings.late
        self._asked_at, self._late_at = 0.0, math.inf
        self._pause = _PAUSES[0]
        """The pause after a search; 0 if it has found something."""

    # -- a source of messages ------------------------------------------------------------------------------------------

    @property
    def under_way(self) -> bool:
        """Whether a search was asked for that has not ended."""
        return self.state is not SearchState.RESTING

    @property
    def late(self) -> bool:
        """Whether the end of the search is late."""
        return self.state is SearchState.LATE

    @property
    def troubled(self) -> bool:
        """Whether no partition has answered the last search, or the first one is late."""
        return not self.is_answered and (self.late or self.has_answer is False)

    @property
    def may_answer(self) -> bool:
        """Whether an answer may still come, as far as the client knows, or was found and is not used yet."""
        return self.under_way or self._seats.seeks

    @property
    def is_answered(self) -> bool:
        """Whether a partition has answered the search under way, or the last one."""
        return self.has_answer is True or self._search.has_answer(self)

    @property
    def late_at(self) -> float:
        """The time of the loop at which the search under way is late from then on."""
        return self._late_at if self.state is SearchState.ASKED else math.inf

    def ask_now(self) -> None:
        """Search for what the partitions have now. A search under way may have read them too early."""
        self._happens(SearchEvent.ASK)
        self._search.begin(self)

    def _happens(self, event: SearchEvent) -> None:
        before, self.state = self.state, SEARCH_TABLE.get((self.state, event), self.state)
        if before is SearchState.RESTING and self.state is SearchState.ASKED:
            self._asked_at = self._loop.time()
            self._late_at = self._asked_at + self._lateness

    def look_again(self) -> None:
        """Search again: something may have changed."""
        self._search.follow()
        self.next_at, self._pause = -math.inf, _PAUSES[0]

    def hurry(self) -> None:
        """Let the search be late sooner, because the time of a caller is over."""
        self._late_at = min(self._late_at, self._asked_at + self._lateness * _HURRIED)

    def on_time(self, now: float) -> None:
        """Note that the search is late."""
        if now >= self._late_at:
            self._happens(SearchEvent.DELAY)

    def hear(self) -> None:
        """Hear the calls of partitions from now on."""
        self._search.hear(self)

    def stop_hearing(self) -> None:
        """Hear the calls of partitions no more."""
        self._search.stop_hearing(self)

    def leave(self) -> None:
        """Stop searching."""
        self.stop_hearing()
        self._search.leave(self)
        self._happens(SearchEvent.END)

    # -- a part of the search that receivers share ---------------------------------------------------------------------

    def began(self) -> None:
        """Note that a search begins to read."""
        self._happens(SearchEvent.ASK)
        self.calls += 1

    def found(self, place: int, *, answered: bool = True) -> None:
        """Note that a partition may have something: it has ``answered`` so, or not at all."""
        if answered:
            self._pause = 0.0
        self._seats.found(place, answered=answered)

    def ended(self, *, answered: bool) -> None:
        """Note the end of a search. The next one comes after a pause, which grows while nothing is found."""
        first, longest = _PAUSES
        self.has_answer = answered
        self._happens(SearchEvent.END)
        if self._search.expects(self):
            self._happens(SearchEvent.ASK)
        self._pause = min(max(first, 2 * self._pause), longest)
        self.next_at = self._search.next_at if self._search.hears else self._loop.time() + self._pause
        self._seats.searched()
