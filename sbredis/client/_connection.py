"""The connection that all senders and receivers of a client share: one transport, one namespace, and its entities.

The connection is not opened before it is needed. The first user opens it for all. If this fails, the next user tries
again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import secrets
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from sbredis._call_site import calling_line, warn_of_line
from sbredis._tasks import TaskScope, to_the_end
from sbredis._threads import in_thread
from sbredis.client._arguments import count_of, seconds_of
from sbredis.client._background_work import BackgroundFailures
from sbredis.client._clock import Clock
from sbredis.client._entity import Creation, Entity, KnownEntities
from sbredis.client._lane import OTHER_LOOP
from sbredis.client._pushing import PushChannels
from sbredis.client._resting import RestingReceivers
from sbredis.client._server_clock import ServerClocks
from sbredis.client._test_hooks import hooks_for
from sbredis.client._timings import Timings
from sbredis.client._turns import LaterTurns, TurnShare
from sbredis.engine import (
    MOST_SLOTS,
    every_script,
    library_keys,
    name_key,
    namespace_name,
    preloaded,
    whole_library,
)
from sbredis.exceptions import (
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    Outcome,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
    ServiceBusError,
)
from sbredis.registry import SLOTS_OF_NEW, EntityRecord, Namespace, name_library
from sbredis.transport import Backoff, Target, open_transport, require_asyncio

if TYPE_CHECKING:
    from sbredis.transport import Library, Transport

__all__ = ["Connected", "Connection", "ConnectionObserver", "ConnectionReference", "SharedAttempt", "connection_of"]

T = TypeVar("T")
_MARGIN = 0.25
"""An attempt ends this number of seconds before its caller's deadline, so that the caller gets the attempt's error."""
_GRACE = 0.05
"""The caller that began an attempt waits this much longer, because the attempt's error explains more than its own."""


class SharedAttempt(Generic[T]):
    """An attempt that is shared by all callers that come while it is under way.

    The attempt runs in a task of its own, because the caller that began it may be cancelled while others wait for it.
    """

    def __init__(self, name: str, late: str, outcome: Outcome, when_over: Callable[[], object] = lambda: None) -> None:
        self._name = name
        self._late = late, outcome
        """The error text and the outcome for a caller whose deadline is over."""
        self._when_over = when_over
        """A function that is called when an attempt ends, unless another attempt has begun meanwhile."""
        self._begun = 0
        """The number of attempts that were begun."""
        self.task: asyncio.Task[T] | None = None
        """The attempt under way, or the last one."""

    @property
    def under_way(self) -> bool:
        """Whether an attempt is under way."""
        return self.task is not None and not self.task.done()

    async def join(self, begin: Callable[[], Coroutine[Any, Any, T]], until: float) -> T:
        """Return the result of the attempt under way, or of a new attempt that ``begin`` makes.

        Wait at most until the loop time ``until``. If an attempt that began before this caller came fails, this caller
        makes another attempt, because the cause may be gone. If a later caller's attempt fails temporarily, this caller
        also makes another attempt, because the later caller may have had less time.
        """
        loop = asyncio.get_running_loop()
        begun_before = self._begun
        while True:
            task, mine = self.task, False
            if task is None or task.done():
                mine = True
                self._begun += 1
                task = self.task = loop.create_task(begin(), name=self._name)
                task.add_done_callback(self._ended)
            is_older = self._begun == begun_before
            await asyncio.wait((task,), timeout=max(0.0, until - loop.time()) + (_GRACE if mine else 0.0))
            if not task.done():
                late, outcome = self._late
                raise OperationTimeoutError(late, outcome=outcome)
            try:
                return task.result()
            except ServiceBusError as error:
                if mine or loop.time() >= until or not (is_older or error.is_transient):
                    raise error.twin() from None

    def _ended(self, attempt: asyncio.Task[Any]) -> None:
        if not attempt.cancelled():
            attempt.exception()  # asyncio would report an error that is never read
        if self.task is attempt:
            self._when_over()


_log = logging.getLogger("sbredis.client")
_OPENINGS = 50
"""The largest number of receivers that begin in one turn of the event loop. Each takes some tenths of a ms."""
_GOING_ON = 10
"""The same for receivers that go on. Each may make a call to each of 16 partitions."""
_PARTING = 3.0
"""The seconds that the closing of a client waits for calls for which nobody waits."""
_LATE = "The registry did not answer in time when asked for {!r}."


class ConnectionReference:
    """An object that every user of the connection references. When no user references it, the connection closes."""

    __slots__ = ("__weakref__",)


class ConnectionObserver:
    """The owner of a connection, as far as the connection tells it about events. This base class ignores all events."""

    def opened(self, connection: Connection) -> None:
        """The connection was opened."""

    def dropped_duplicates(self, entity: str, count: int) -> None:
        """An entity has dropped this number of messages as duplicates."""

    def scheduled_on(self, connection: Connection, topic: Entity) -> None:
        """Messages were scheduled on a topic."""

    async def spread(self, connection: Connection, topic: Entity, number: int, until: float) -> None:
        """Messages wait in a partition of a topic to be spread. Return when a client does it, or has done it.

        Return at the time ``until`` at the latest. The work goes on.
        """

    def moves_from(self, connection: Connection, record: EntityRecord, *, waits: bool) -> None:
        """Messages of an entity are moved elsewhere. ``waits`` says that a message certainly waits for its move."""


class Connection:
    """The one connection of a client: its transport, namespace, clock and entities, and its background tasks.

    It belongs to the event loop in which it is first used. Opening it sets the attributes without a default.

    ``namespace`` takes precedence over the namespace of the target.
    """

    id: str
    """The start of the names of this client's lanes. It is chosen at random when the connection is opened."""
    transport: Transport
    namespace: Namespace
    library: Library | None
    """The scripts as functions of a library; ``None`` for single scripts."""

    def __init__(
        self,
        target: Target,
        *,
        namespace: str | None = None,
        credential_provider: Any = None,
        connect_timeout: float = 5.0,
        slot_count: int | None = None,
        retry: Backoff | None = None,
        clock: Clock | None = None,
        timings: Timings | None = None,
    ) -> None:
        if namespace is not None:
            target = replace(target, namespace=namespace_name(namespace))
        if slot_count is not None:
            count_of(slot_count, "slot_count", MOST_SLOTS)
        self.target = target
        self.test_hooks = hooks_for(target)
        """The hooks of the test bus, if the target belongs to a test bus."""
        self.clock = clock or (Clock() if self.test_hooks is None else self.test_hooks.clock)
        self.timings = timings or Timings()
        self.retry = retry or Backoff()
        """The waits and limits for repetitions of calls."""
        self.server_clock = ServerClocks(self.clock).__getitem__
        """Returns what the client knows of the clock of a server process, which is named by its run id."""
        self.openings = TurnShare(_OPENINGS)
        """The receivers that begin in one turn of the event loop, or that hear that they get nothing."""
        self.turns = TurnShare(_GOING_ON)
        """The receivers that go on in one turn of the event loop, after an event."""
        self.later = LaterTurns(self.turns)
        """The receivers that go on at a time."""
        self.resting = RestingReceivers(self.turns)
        """The receivers that only wait for pushes."""
        self.pushes = PushChannels(self)
        """The channels on which partitions push messages to receivers of the client."""
        self.observer = ConnectionObserver()
        """The object that is told about events. The owner may replace it before it opens the connection."""
        self.lane_numbers = count(1)
        """Numbers for the names of lanes. No two lanes of a client have the same name, not even if the client has
        forgotten one of them: its partition would take the calls of the other one for repetitions.
        """
        self.closed = False
        """Whether the client is closed or being closed."""
        self.closing = asyncio.Event()
        """Set when the client is closed or begins to be closed."""
        self.failures = BackgroundFailures(_log, lambda: self.closed)
        """The failures of work for which no caller waits."""
        self._background: TaskScope
        self._seen_off: set[asyncio.Task[None]] = set()
        self._credential_provider = credential_provider
        self._connect_timeout = seconds_of(connect_timeout, "connect_timeout")
        self._slot_count = slot_count
        self._entities = KnownEntities()
        self._look_ups: dict[tuple[str, Creation | None], SharedAttempt[EntityRecord]] = {}
        late = f"The connection to {target} was not ready in time."
        self._opening = SharedAttempt[None](f"sbredis opens {target}", late, Outcome.NEVER_SENT)
        self._root: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opened = False
        self._dropped = False
        """Whether the last user disappeared while the connection was being opened."""
        self._made_at = calling_line()
        self._reference: Callable[[], ConnectionReference | None] = lambda: None

    def another(self) -> Connection:
        """Return a new connection to the same namespace, for the event loop in which it will be used."""
        return Connection(
            self.target,
            credential_provider=self._credential_provider,
            connect_timeout=self._connect_timeout,
            slot_count=self._slot_count,
            retry=self.retry,
            clock=self.clock,
            timings=self.timings,
        )

    def for_other_process(self) -> bytes:
        """Return the line from which another process makes a connection to the same namespace. Raise if it cannot."""
        if self.target.kind == "memory":
            raise ValueError("memory:// is in this process alone: no other process can reach it.")
        if self._credential_provider is not None:
            raise ValueError("A credential provider is asked in this process alone. Give a user and a password.")
        from sbredis.transport import reach_line

        return reach_line(self.target, self._connect_timeout)

    @classmethod
    def of_other_process(cls, line: bytes) -> Self:
        """Return a new connection to the namespace of another process, from the line that it has told."""
        from sbredis.transport import reach_in

        target, connect_timeout = reach_in(line)
        return cls(target, connect_timeout=connect_timeout)

    # -- opening and closing -------------------------------------------------------------------------------------------

    async def open(self, until: float) -> None:
        """Connect before the loop time ``until``, unless the connection is open already."""
        require_asyncio()
        loop = asyncio.get_running_loop()
        if self._loop is not loop and self._begun:
            raise RuntimeError(OTHER_LOOP)
        if self._opened and not self.closed:
            return
        self.check_open()
        self._loop = loop
        last = max(until - _MARGIN, loop.time() + self._connect_timeout)
        try:
            await self._opening.join(lambda: self._open(last), until)
        except asyncio.CancelledError:
            if self.closed and not self._opening.under_way:
                self.check_open()
            raise
        self.check_open()

    def reference(self) -> ConnectionReference:
        """Return the reference that keeps the connection open.

        If its last user disappears before the connection is closed, the connection closes with a warning.
        """
        reference = self._reference()
        if reference is None:
            reference = ConnectionReference()
            self._reference = weakref.ref(reference)
            # The loop keeps an open connection alive, and the finalizer must not: a loop may end without closing it.
            weakref.finalize(reference, _forget, weakref.ref(self)).atexit = False
        return reference

    def forget(self) -> None:
        """Close the connection with a warning, because its last user has disappeared."""
        loop = self._loop
        if loop is None or loop.is_closed() or self.closed:
            return
        if not self._opened:
            self._dropped = True
            return
        with suppress(RuntimeError):  # the event loop was closed at this moment
            loop.call_soon_threadsafe(lambda: self.see_off(self.aclose()))
        warn_of_line(f"A client was not closed: {self.target}", ResourceWarning, self._made_at)

    def check_loop(self) -> None:
        """Raise if the connection belongs to another event loop that is still open."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and loop is not asyncio.get_running_loop() and self._begun:
            raise RuntimeError(OTHER_LOOP)

    @property
    def loop(self) -> asyncio.AbstractEventLoop | None:
        """The event loop to which the connection belongs; ``None`` before its first use."""
        return self._loop

    @property
    def orphaned(self) -> bool:
        """Whether the event loop of the connection was closed, so that its tasks cannot run any more."""
        return self._loop is not None and self._loop.is_closed()

    @property
    def _begun(self) -> bool:
        return self._opened or self._opening.under_way

    async def _open(self, until: float) -> None:
        self.check_open()  # the connection may have been closed after the start of this attempt
        loop = asyncio.get_running_loop()
        self.id = secrets.token_hex(6)
        # A server holds a script until it ends, and the garbage collector of its Lua looks at all of them again and
        # again: a call takes a quarter longer if the server holds all scripts. So a connection loads only those that
        # every client calls at once. The other ones are loaded when a call needs them and the server lacks them.
        # The servers in memory take a script over from the process before it is called.
        if self.target.scripts == "all":
            scripts = await in_thread(every_script)
        else:
            scripts = () if self.target.kind == "memory" else preloaded()
        library = whole_library() if self.target.has_library else None
        transport = await open_transport(
            self.target,
            scripts=scripts,
            library=library,
            credential_provider=self._credential_provider,
            connect_timeout=self._connect_timeout,
            timeout=until - loop.time(),
            retry=self.retry,
        )
        try:
            namespace = await Namespace.open(
                transport,
                self.target.namespace,
                self._slot_count,
                slots_of_new=SLOTS_OF_NEW if self.test_hooks is None else self.test_hooks.slots,
                timeout=max(self._connect_timeout, until - loop.time()),
                told=self.clock.told,
            )
            ready: asyncio.Future[None] = loop.create_future()
            work = self._run_background(transport, ready)
            self._root = loop.create_task(work, name=f"sbredis client {self.target}")
            await ready
        except BaseException:
            await to_the_end(transport.aclose())
            raise
        self.transport, self.namespace, self.library, self._opened = transport, namespace, library, True
        if library is not None:
            self.attempt("the naming of the library of functions", partial(self._name_library, library.name))
        self.observer.opened(self)
        if self._dropped:
            self.see_off(self.aclose())

    async def _name_library(self, name: str) -> None:
        """Name the library in the registry now and once a day, so that no other client deletes it.

        A user who may only read the registry leaves this to others. While the server of the registry gets single
        scripts, there is nothing to name.
        """
        (key,) = library_keys(self.namespace.name)
        while True:
            form = self.transport.form_of(key)
            try:
                if form is not None and form.has_library:
                    await name_library(self.transport, self.namespace.name, name)
            except ServiceBusAuthorizationError:
                return
            except ServiceBusError as error:
                self.failures.report("the naming of the library of functions", error)
            await asyncio.sleep(self.timings.naming)

    async def _run_background(self, transport: Transport, ready: asyncio.Future[None]) -> None:
        """Run the background tasks. When this task ends, they end too. The transport ends early only by a defect."""
        try:
            async with TaskScope() as self._background:
                self._background.start(_require_open(transport))
                if not ready.done():
                    ready.set_result(None)
                await asyncio.sleep(math.inf)  # the event loop references a task that sleeps, but not other tasks
        except Exception as error:  # noqa: BLE001  # callers get an error when the calls that they wait for end
            if self.closed:
                _log.debug(
                    "a task of the client of %s has ended, because the client was closed: %r", self.target, error
                )
            else:
                _log.exception("the client of %s failed because of a defect and is closed", self.target)
        finally:
            self._note_closing()
            for entity in self._entities:
                entity.close()

    async def aclose(self) -> None:
        """Close the connection. Calls under way end with an error that reports their outcome, as far as it is known.

        If the event loop was closed before, there is nothing to wait for.
        """
        self.check_loop()
        self._note_closing()
        if self.orphaned:
            if self._opened:
                self._opened = False
                self.transport.abandon()
            return
        for task in (self._opening.task, self._root):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait((task,))
        seen_off = self._seen_off - {asyncio.current_task()}  # the current task may be in the set
        for task in seen_off:
            task.cancel()
        if seen_off:
            await asyncio.wait(seen_off)
        if self._opened:
            self._opened = False
            await self.transport.aclose()

    def _note_closing(self) -> None:
        self.closed = True
        if not self.orphaned:  # nobody waits in an event loop that was closed
            self.closing.set()

    # -- background tasks ----------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the client is closed, or has ended with its event loop."""
        if self.closed:
            if self._opened and self.orphaned:
                raise RuntimeError(OTHER_LOOP)
            raise ValueError("The client is closed, and so are all its senders and receivers. Make another client.")

    def start(self, work: Coroutine[Any, Any, None]) -> bool:
        """Run a coroutine in the background, until it ends or the client is closed. Callers wait for what it does.

        If it raises an error, the client is closed, so that no caller waits for ever. Return whether it was started. It
        is not started if the client is being closed.
        """
        return self._background.start(work)

    def attempt(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
        """Do some work in the background for which no caller waits. If it fails, only log that ``what`` has failed.

        Return whether it was started. It is not started if the client is being closed.
        """
        return self._background.start(self.failures.attempt(what, work))

    def see_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine that no caller waits for. Closing the client waits for it, but only for a short time."""
        task = asyncio.get_running_loop().create_task(work)
        self._seen_off.add(task)
        task.add_done_callback(self._seen_off.discard)

    async def all_seen_off(self) -> None:
        """Wait a short time until all coroutines of :meth:`see_off` have ended. Nobody accepts sessions any more."""
        for entity in self._entities:
            for inbox in list(entity.free_sessions.values()):
                self.see_off(inbox.aclose())
        if self._seen_off:
            await asyncio.wait(self._seen_off, timeout=_PARTING)

    # -- entities ------------------------------------------------------------------------------------------------------

    async def entity(self, name: str, until: float, create: Creation | None = None) -> Entity:
        """Return the entity of this name. Read it from the registry the first time. If it is missing, ``create`` it."""
        await self.open(until)
        key = name_key(name)
        known = self._entities.get(key)
        if known is not None and not known.gone:
            known.create = create or known.create
            return known
        look_up = self._look_ups.get((key, create))
        if look_up is None:
            look_up = self._look_ups[key, create] = SharedAttempt(
                f"sbredis looks for {name}",
                _LATE.format(name),
                Outcome.UNKNOWN,
                when_over=lambda: self._look_ups.pop((key, create), None),
            )
        try:
            record = await look_up.join(partial(self.record, name, until, create), until)
        except ServiceBusError as error:
            error.entity = error.entity or name
            if error.outcome is Outcome.UNKNOWN:  # the look-up may have changed the entity, but the call comes after it
                error.outcome = Outcome.NEVER_SENT
            raise
        known = self._know(key, record)
        known.create = create or known.create
        return known

    def _know(self, key: str, record: EntityRecord) -> Entity:
        """Return the entity of a record that was just read."""
        known = self._entities.get(key)
        if known is None:
            known = Entity(self, record)
            self._entities.add(key, known)
        elif known.gone:
            known.adopt(record)
        return known

    def forget_entities(self) -> None:
        """Let the next call of each entity look the entity up, because the servers have lost the registry."""
        for entity in self._entities:
            entity.gone = True

    async def read_entity(self, name: str, until: float) -> EntityRecord:
        """Read the registry's record of an entity, also if the entity is known. Its next user need not read it."""
        record = await self.record(name, until)
        self._know(name_key(name), record)
        return record

    async def record(self, name: str, until: float, create: Creation | None = None) -> EntityRecord:
        """Return the registry's record of an entity. If it is missing, ``create`` it."""
        await self.open(until)
        loop = asyncio.get_running_loop()
        try:
            return await self.namespace.get_entity(name, timeout=until - loop.time())
        except ServiceBusError as error:
            error.entity = name
            if create is None or not isinstance(error, MessagingEntityNotFoundError):
                raise
        return await create(self.namespace, name, until - loop.time())


class Connected:
    """An object that works over a connection of its own, such as a client."""

    _connection: Connection


def connection_of(owner: Connected) -> Connection:
    """Return the connection of a client, for parts of the library that work on partitions and not on messages."""
    return owner._connection  # pyright: ignore[reportPrivateUsage]  # this function is the way to it for other rooms


async def _require_open(transport: Transport) -> None:
    """Wait until the transport has ended, and raise then."""
    await transport.wait_closed()
    raise ServiceBusConnectionError(f"The transport to {transport.target} has ended.", is_transient=False)


def _forget(forgotten: weakref.ref[Connection]) -> None:
    connection = forgotten()
    if connection is not None:
        connection.forget()
