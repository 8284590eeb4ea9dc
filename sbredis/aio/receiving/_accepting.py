# pyright: reportPrivateUsage=false
"""Accepting a session: one by its name, or the next one that is free, in whichever partition that is.

Whoever goes away in between leaves nothing behind. What a call brings that was under way is given back, a session that
came in the same moment as well; and where it waited, it is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from sbredis.aio.calls._arguments import AT_ONCE
from sbredis.aio.calls._lane_kinds import CallJob
from sbredis.aio.calls._waking import REGISTERED, listen
from sbredis.aio.receiving._session import ServiceBusSession, lane_for
from sbredis.aio.receiving._watcher import passing
from sbredis.engine import (
    Accepted,
    Partition,
    Request,
    SessionLock,
    Turn,
    accept_session,
    look_for_session,
    new_token,
    release_session,
)
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError, SessionCannotBeLockedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbredis.aio.calls._entity import Entity
    from sbredis.aio.calls._partition_client import PartitionClient
    from sbredis.aio.calls._waking import Listening
    from sbredis.aio.telemetry._telemetry import Telemetry

__all__ = ["NoSessionError", "accept_named", "accept_next"]

_log = logging.getLogger("sbredis.client")
_LATE = 1.0
"""An answer that has not come after so many seconds is not waited for before the others are asked."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
_FORGETTING = 2.0
_CALLING = 60.0


class NoSessionError(OperationTimeoutError):
    """No session became free in time."""

    is_failure: ClassVar[bool] = False
    """To find none is no failure: spans, metrics and the log tell it like a receive that brought nothing."""


async def accept_named(entity: Entity, name: str, deadline: float, telemetry: Telemetry) -> ServiceBusSession:
    """Lock a session, which need not have messages. Raises :class:`SessionCannotBeLockedError` if somebody else has."""
    partition_client = entity.of_session(name)
    while True:
        session, found = await _accept(partition_client, name, deadline, telemetry)
        if session is not None:
            return session
        if found.outcome == "locked":
            error = SessionCannotBeLockedError(
                f"The requested session {name!r} cannot be accepted: another receiver has its lock. It is free when "
                "that one is closed, or lets the lock end.",
                outcome=Outcome.REFUSED,
            )
            error.entity = entity.name
            raise error


async def _accept(  # noqa: PLR0917 -- what is asked, and who learns of it
    partition_client: PartitionClient,
    name: str | None,
    deadline: float,
    telemetry: Telemetry,
    waiter: bytes = b"",
    left: list[asyncio.Future[Accepted]] | None = None,
) -> tuple[ServiceBusSession | None, Accepted]:
    """Try once. What comes when nobody waits for it any more is given back; ``left`` then has what is under way."""
    connection = partition_client.entity.runtime
    token = new_token()

    def make(partition: Partition, turn: Turn) -> Request[Accepted]:
        return accept_session(partition, turn, token, name, waiter=waiter)

    def orphaned(result: Accepted) -> None:
        if result.outcome == "taken":
            connection.see_off(_give_back(partition_client, SessionLock(result.session, token)))

    async def see() -> None:
        await asyncio.wait((future,))
        if not future.cancelled() and future.exception() is None:
            orphaned(future.result())

    job = CallJob(make, deadline, orphaned)
    future: asyncio.Future[Accepted] = partition_client.calling(lane_for("y", token if name is None else name)).submit(
        job
    )
    try:
        found = await asyncio.shield(future)
    except asyncio.CancelledError:
        connection.see_off(see())
        if left is not None:
            left.append(future)
        raise
    if found.outcome != "taken":
        return None, found
    lease = partition_client.lease(token, found.lock, job.since)
    lease.session = found.session
    lock = SessionLock(found.session, token)
    return ServiceBusSession(partition_client, lock, lease, telemetry), found


async def _give_back(partition_client: PartitionClient, lock: SessionLock) -> None:
    def make(partition: Partition, turn: Turn) -> Request[int]:
        return release_session(partition, turn, lock)

    with suppress(ServiceBusError):  # its lock ends by itself
        await partition_client.call(lane_for("v", lock.name), make, asyncio.get_running_loop().time() + _FORGETTING)


async def accept_next(entity: Entity, seconds: float, telemetry: Telemetry) -> ServiceBusSession:
    """Lock the next session that is free, as soon as there is one.

    Raises :class:`OperationTimeoutError` if there was none within so many seconds. With 0 seconds each partition is
    asked, and none is waited at.
    """
    search = _Search(entity, telemetry, waits=seconds != 0)
    try:
        async with asyncio.timeout(seconds or AT_ONCE):
            return await search.run()
    except TimeoutError:
        when = f"became free within {seconds:g} s" if seconds else "is free"
        error = search.trouble() or NoSessionError(f"No session of {entity.name!r} {when}.", outcome=Outcome.REFUSED)
        error.entity = entity.name
        raise error from None
    finally:
        search.end()


class _Search:
    """Waiting for a session at all partitions of an entity at once.

    One of them, another one each time, is asked for a session straight away. If it has none, all are looked at, at
    once, which locks nothing; of those that have one, one is asked at a time. One that does not answer keeps nobody
    from the others.
    """

    def __init__(self, entity: Entity, telemetry: Telemetry, *, waits: bool = True) -> None:
        self.entity = entity
        self.waits = waits
        """Whether it waits for a session to become free, or wants one that is free now."""
        self.telemetry = telemetry
        self.identity = secrets.token_hex(5)
        self.turn = asyncio.Lock()
        """Of who asks a partition for a session: so there is no more than one that nobody wants in the end."""
        self._loop = asyncio.get_running_loop()
        self._won: asyncio.Future[ServiceBusSession] = self._loop.create_future()
        self._handed_over = False
        self._posts: list[_Post] = []
        self._ended_moving: Callable[[], None] | None = None
        self._numbers = entity.numbers

    async def run(self) -> ServiceBusSession:
        """The session."""
        self.entity.watchers.add(self._entity_changed)
        self._ended_moving = self.entity.runtime.clock.when_moved(self._ask_anew)
        self._take_post()
        first = self._posts[0]
        first.start(straight=True)
        if len(self._posts) > 1:
            await asyncio.wait((self._won, first.asked), timeout=_LATE, return_when=asyncio.FIRST_COMPLETED)
            for post in () if self._won.done() else self._posts:
                post.start(straight=False)
        if not self.waits:
            await self._all_asked()
        session = await self._won
        self._handed_over = True
        return session

    async def _all_asked(self) -> None:
        """Return when there is a session; :class:`TimeoutError` if no partition that answers has one."""
        asking = self._loop.create_task(self.nobody_finds_one())
        try:
            await asyncio.wait((self._won, asking), return_when=asyncio.FIRST_COMPLETED)
        finally:
            asking.cancel()
            await asyncio.wait((asking,))
        if not self._won.done() and self.trouble() is not None:
            first: list[asyncio.Future[Any]] = [self._won, *(post.asked for post in self._posts)]
            await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        if not self._won.done():
            raise TimeoutError

    def _take_post(self) -> None:
        numbers = self._numbers = self.entity.numbers
        start = secrets.randbelow(len(numbers))
        self._posts = [
            _Post(self, self.entity.partition_client(number)) for number in (*numbers[start:], *numbers[:start])
        ]

    @property
    def over(self) -> bool:
        """Whether nobody waits any more."""
        return self._won.done()

    @property
    def alone(self) -> bool:
        """Whether there is one partition only."""
        return len(self._numbers) == 1

    async def nobody_finds_one(self) -> None:
        """Return when all have been asked, and nobody is about to get what was found; late ones are not waited for."""
        await asyncio.wait([post.asked for post in self._posts], timeout=_LATE)
        async with self.turn:
            pass

    def won(self, session: ServiceBusSession) -> None:
        """Here it is."""
        if self._won.done():
            session._give_back()
        else:
            self._won.set_result(session)

    def failed(self, error: ServiceBusError) -> None:
        """Another attempt would not mend this."""
        if not self._won.done():
            self._won.set_exception(error.twin())

    def trouble(self) -> ServiceBusError | None:
        """Why nothing can be said of any partition, if that is so."""
        troubles = [post.trouble for post in self._posts]
        if any(trouble is None for trouble in troubles):
            return None
        return next((trouble.twin() for trouble in troubles if trouble is not None), None)

    def _ask_anew(self) -> None:
        for post in self._posts:
            post.news.set()

    def _entity_changed(self) -> None:
        """The queue may have been deleted and created again, and be in other partitions now."""
        if self._numbers == self.entity.numbers:
            self._ask_anew()
            return
        for post in self._posts:
            post.end()
        self._take_post()
        for post in self._posts:
            post.start(straight=self.alone)

    def end(self) -> None:
        """Wait no longer. What came and was not handed over is given back."""
        self.entity.watchers.discard(self._entity_changed)
        if self._ended_moving is not None:
            self._ended_moving()
        if not self._won.done():
            self._won.cancel()
        elif not self._handed_over and not self._won.cancelled() and self._won.exception() is None:
            self._won.result()._give_back()
        for post in self._posts:
            post.end()


class _Post:
    """Where it waits at one partition."""

    def __init__(self, search: _Search, partition_client: PartitionClient) -> None:
        loop = asyncio.get_running_loop()
        self.news = asyncio.Event()
        self.asked: asyncio.Future[None] = loop.create_future()
        """Done when it has been asked once."""
        self._search = search
        self._partition_client = partition_client
        self._loop = loop
        self._straight = False
        self._since = loop.time()
        self._trouble: ServiceBusError | None = None
        self._answered = False
        self._subscription: Listening | None = None
        self._left: list[asyncio.Future[Accepted]] = []
        self._task: asyncio.Task[None] | None = None

    def start(self, *, straight: bool) -> None:
        """Begin, if that was not done yet; without looking first, if ``straight``."""
        if self._task is None:
            self._straight, self._since = straight, self._loop.time()
            self._task = self._loop.create_task(self._wait())

    @property
    def trouble(self) -> ServiceBusError | None:
        """Why nothing is known of it, if that is so."""
        if self._answered:
            return None
        if self._trouble is None and self._task is not None and self._loop.time() - self._since >= _LATE:
            return OperationTimeoutError(f"{self._partition_client} does not answer.", outcome=Outcome.UNKNOWN)
        return self._trouble

    async def _wait(self) -> None:
        pause = 0.0
        while True:
            self.news.clear()
            try:
                wait, pause = await self._ask(), 0.0
                self._answered = True
                if self._search.over:
                    return
            except ServiceBusError as error:
                if not passing(error):
                    self._search.failed(error)
                    return
                self._answered, self._trouble = False, error
                _log.info("%s: %s", self._partition_client, error)
                wait = pause = min(max(_FIRST_PAUSE, pause * 2), _LONGEST_PAUSE)
            if wait:
                self._say_asked()
                with suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self.news.wait()

    def _say_asked(self) -> None:
        if not self.asked.done():
            self.asked.set_result(None)

    async def _ask(self) -> float:
        """Take a session if there is one; else in how many seconds to ask again."""
        straight, self._straight = self._straight, False
        if not straight and not self._search.alone:
            looked = await self._look()
            if looked.outcome != "found":
                return await self._nothing(looked)
        async with self._search.turn:
            taking = asyncio.ensure_future(self._take())
            try:
                await asyncio.wait((taking,), timeout=_LATE)
            except BaseException:
                taking.cancel()
                raise
        found = await taking
        if found.outcome != "none":
            return 0
        return await self._nothing(found)

    async def _look(self) -> Accepted:
        """Whether it has a free session."""
        waiter = self._waiter

        def make(partition: Partition, turn: Turn) -> Request[Accepted]:
            return look_for_session(partition, waiter=waiter, turn=Turn("", 0, turn.now))

        return await self._partition_client.call(self._lane, make, self._loop.time() + _CALLING)

    async def _take(self) -> Accepted:
        search = self._search
        until = self._loop.time() + _CALLING
        session, found = await _accept(self._partition_client, None, until, search.telemetry, self._waiter, self._left)
        if session is not None:
            search.won(session)
        return found

    async def _nothing(self, found: Accepted) -> float:
        if found.more:
            return 0
        self._say_asked()
        search = self._search
        if not search.waits:
            return REGISTERED
        if self._subscription is None:
            await search.nobody_finds_one()
            if search.over:
                return 0
            transport = search.entity.runtime.transport
            self._subscription = await listen(transport, self._channel(), woken=self.news.set, missed=self.news.set)
            return 0  # what came before we were heard was not said: ask once more
        return min(REGISTERED, found.due / 1000 if found.due else REGISTERED)

    @property
    def _lane(self) -> str:
        return f"k{self._search.identity}"

    @property
    def _waiter(self) -> bytes:
        return b"" if self._subscription is None else self._channel()

    def _channel(self) -> bytes:
        return self._partition_client.channel(self._search.identity)

    def end(self) -> None:
        """Be forgotten where it waits, so that the next in line is woken."""
        task = self._task
        if task is not None and (not task.done() or self._subscription is not None):
            task.cancel()
            self._search.entity.runtime.see_off(self._leave(task))
        else:
            self._partition_client.dismiss(self._lane)

    async def _leave(self, task: asyncio.Task[None]) -> None:
        await asyncio.wait((task,))
        if self._left:
            await asyncio.wait(self._left, timeout=_FORGETTING)  # they may have it registered
        waiter = self._waiter
        if self._subscription is not None:
            self._subscription.close()

            def make(partition: Partition, turn: Turn) -> Request[Accepted]:
                return look_for_session(partition, waiter=waiter, waiting_for=0, turn=Turn("", 0, turn.now))

            with suppress(ServiceBusError):  # it is given up by itself
                await self._partition_client.call(self._lane, make, self._loop.time() + _FORGETTING)
        self._partition_client.dismiss(self._lane)
