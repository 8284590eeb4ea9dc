"""What all senders and receivers of a client share: one transport, one namespace, the entities that were met.

Nothing is opened before it is needed. Whoever needs it first opens it, for all; if that fails, whoever comes next
tries again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import weakref
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

from sbredis._callers import calling_line, warn_of_line
from sbredis.aio.calls._arguments import count_of, seconds_of
from sbredis.aio.calls._clock import Clock
from sbredis.aio.calls._entity import Entity
from sbredis.aio.calls._lane import OTHER_LOOP
from sbredis.aio.calls._test_hooks import hooks_for
from sbredis.aio.maintenance._maintenance import ROUTING, Maintenance, call_routing
from sbredis.aio.maintenance._role import is_held
from sbredis.engine import MOST_PARTITIONS, load, name_key, namespace_name, operations
from sbredis.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, Outcome, ServiceBusError
from sbredis.registry import EntityRecord, Namespace
from sbredis.transport import Backoff, Script, Target, open_transport, require_asyncio

if TYPE_CHECKING:
    from sbredis.transport import Transport

__all__ = ["Connection", "Creation", "Share"]

_log = logging.getLogger("sbredis.client")
_PARTING = 3.0
_MARGIN = 0.25
"""Seconds before the deadline of whoever opens at which the opening ends, so that its error says what is in the way."""
Creation = Callable[[Namespace, str, float], Coroutine[Any, Any, EntityRecord]]
"""Creates an entity of this name within so many seconds, for who asked for that where it is missing."""


class Share:
    """Held by each thing that a user holds of a client; without any the connection is forgotten."""

    __slots__ = ("__weakref__",)


class Connection:
    """The one connection of a client. It belongs to the event loop in which it is first used.

    ``namespace`` stands above the one of the target.
    """

    def __init__(
        self,
        target: Target,
        *,
        namespace: str | None = None,
        credential_provider: Any = None,
        connect_timeout: float = 5.0,
        partition_count: int | None = None,
        retry: Backoff | None = None,
        clock: Clock | None = None,
        maintenance: bool = False,
    ) -> None:
        if namespace is not None:
            target = replace(target, namespace=namespace_name(namespace))
        if partition_count is not None:
            count_of(partition_count, "partition_count", MOST_PARTITIONS)
        self.target = target
        self.test_hooks = hooks_for(target)
        """The test bus that it goes to, if it does."""
        self.clock = clock or (Clock() if self.test_hooks is None else self.test_hooks.clock)
        self.id = ""
        """In the names of this client's lanes: drawn when it is opened, by the process that opens it."""
        self._credential_provider = credential_provider
        self._connect_timeout = seconds_of(connect_timeout, "connect_timeout")
        self._partition_count = partition_count
        self.retry = retry or Backoff()
        """How calls are repeated."""
        self._announced: set[str] = set()
        self._maintains = maintenance or self.test_hooks is not None
        self.maintenance: Maintenance | None = None
        """What it does for all clients of the namespace, if it offered to."""
        self.count_dropped: Callable[[str, int], None] | None = None
        """Counts the messages that an entity has dropped as duplicates."""
        self._entities: dict[str, Entity] = {}
        self._seen_off: set[asyncio.Task[None]] = set()
        self._opening: asyncio.Task[None] | None = None
        self._root: asyncio.Task[None] | None = None
        self._closing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self.transport: Transport
        self.namespace: Namespace
        self.tasks: anyio.abc.TaskGroup
        self._opened = False
        self._made_at = calling_line()
        self._share: Callable[[], Share | None] = lambda: None

    # -- opening and closing -------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether it was closed, or is being closed."""
        return self._closing

    async def open(self, until: float) -> None:
        """Connect, if that was not done yet, by the time ``until`` of the event loop."""
        require_asyncio()
        loop = asyncio.get_running_loop()
        if self._loop is not loop and self._begun:
            raise RuntimeError(OTHER_LOOP)
        if self._opened and not self._closing:
            return
        self.check_open()
        begun = self._opening is None or self._opening.done()
        if begun:
            # A task of its own: whoever began it may be cancelled while others wait for it.
            self._loop = loop
            last = max(until - _MARGIN, loop.time() + self._connect_timeout)
            self._opening = loop.create_task(self._open(last), name=f"sbredis opens {self.target}")
            self._opening.add_done_callback(_looked_at)
        assert self._opening is not None
        try:
            async with asyncio.timeout_at(until):
                await asyncio.shield(self._opening)
        except TimeoutError:
            raise OperationTimeoutError(
                f"{self.target} was not connected to in time.", outcome=Outcome.NEVER_SENT
            ) from None
        except asyncio.CancelledError:
            if self._closing and self._opening.done():
                self.check_open()
            raise
        except ServiceBusError as error:
            if begun or not error.is_transient or loop.time() + _MARGIN >= until:
                raise error.twin() from None
            await self.open(until)  # whoever began it had less time than this caller has
        self.check_open()

    def share(self) -> Share:
        """What keeps it open: when nobody holds it any more, and it was not closed, it is closed, with a warning."""
        share = self._share()
        if share is None:
            share = Share()
            self._share = weakref.ref(share)
            weakref.finalize(share, self._forgotten).atexit = False
        return share

    def _forgotten(self) -> None:
        loop = self._loop
        if loop is None or loop.is_closed() or not self._opened or self._closing:
            return
        with suppress(RuntimeError):  # it was closed just now
            loop.call_soon_threadsafe(lambda: self.see_off(self.aclose()))
        warn_of_line(f"A client was not closed: {self.target}", ResourceWarning, self._made_at)

    def check_loop(self) -> None:
        """Raise if another event loop, which has not ended, is the one that it belongs to."""
        loop = self._loop
        if loop is not None and not loop.is_closed() and loop is not asyncio.get_running_loop() and self._begun:
            raise RuntimeError(OTHER_LOOP)

    @property
    def orphaned(self) -> bool:
        """Whether the event loop that it belonged to has ended, and all that ran with it."""
        return self._loop is not None and self._loop.is_closed()

    @property
    def _begun(self) -> bool:
        return self._opened or (self._opening is not None and not self._opening.done())

    def check_open(self) -> None:
        """Raise if it was closed."""
        if self._closing:
            raise ValueError("The client is closed, and with it all its senders and receivers: make another one.")

    async def _open(self, until: float) -> None:
        loop = asyncio.get_running_loop()
        self.id = secrets.token_hex(6)
        scripts = await anyio.to_thread.run_sync(_scripts)
        transport = await open_transport(
            self.target,
            scripts=scripts,
            credential_provider=self._credential_provider,
            connect_timeout=self._connect_timeout,
            timeout=until - loop.time(),
            retry=self.retry,
        )
        try:
            namespace = await Namespace.open(
                transport,
                self.target.namespace,
                self._partition_count,
                timeout=max(self._connect_timeout, until - loop.time()),
                told=self.clock.told,
            )
            ready: asyncio.Future[None] = loop.create_future()
            self._root = loop.create_task(self._live(ready), name=f"sbredis client {self.target}")
            await ready
        except BaseException:
            with anyio.CancelScope(shield=True):
                await transport.aclose()
            raise
        self.transport, self.namespace, self._opened = transport, namespace, True
        if self._maintains:
            self.maintenance = Maintenance(self)
            self.tasks.start_soon(self.maintenance.run)

    async def _live(self, ready: asyncio.Future[None]) -> None:
        """All that runs beside the callers runs in here, and ends with it."""
        try:
            async with anyio.create_task_group() as tasks:
                self.tasks = tasks
                if not ready.done():
                    ready.set_result(None)
                await anyio.sleep_forever()
        except Exception:  # noqa: BLE001  # a defect: callers learn of it by the end of what they wait for
            _log.exception("the client of %s broke on a defect and is closed", self.target)
        finally:
            self._closing = True
            for entity in self._entities.values():
                entity.close()

    def see_off(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done for which nobody waits, and before which the connection is not closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._seen_off.add(task)
        task.add_done_callback(self._seen_off.discard)

    async def all_seen_off(self) -> None:
        """Wait until all of that has been done, for a moment."""
        if self._seen_off:
            await asyncio.wait(self._seen_off, timeout=_PARTING)

    async def aclose(self) -> None:
        """Close it. What is under way ends with an error that says what is known of it.

        After the end of its event loop nothing is left to wait for.
        """
        self.check_loop()
        self._closing = True
        if self.orphaned:
            if self._opened:
                self._opened = False
                self.transport.abandon()
            return
        for task in (self._opening, self._root):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait((task,))
        seen_off = self._seen_off - {asyncio.current_task()}  # it may be what closes this
        for task in seen_off:
            task.cancel()
        if seen_off:
            await asyncio.wait(seen_off)
        if self._opened:
            self._opened = False
            await self.transport.aclose()

    # -- entities ------------------------------------------------------------------------------------------------------

    async def entity(self, name: str, until: float, create: Creation | None = None) -> Entity:
        """The entity of this name; made by ``create`` if it is missing. Read from the registry once a client."""
        await self.open(until)
        key = name_key(name)
        known = self._entities.get(key)
        if known is not None and not known.gone:
            known.create = create or known.create
            return known
        try:
            record = await self.record(name, until, create)
        except ServiceBusError as error:
            error.entity = error.entity or name
            raise
        known = self._entities.get(key)
        if known is None:
            known = self._entities[key] = Entity(self, record)
        elif known.gone:
            known.adopt(record)
        known.create = create or known.create
        return known

    def scheduled_on(self, entity: Entity) -> None:
        """Something was scheduled on a topic: somebody has to publish it when its time has come. Tells who does, once
        for each topic; for it may be a new one.
        """
        if entity.record.incarnation not in self._announced:
            self._announced.add(entity.record.incarnation)
            self.tasks.start_soon(self._announce)

    async def _announce(self) -> None:
        """Say that there is something scheduled on a topic; and warn, if there is nobody who would publish it."""
        try:
            await call_routing(self)
            if self.maintenance is None and not await is_held(self.transport, self.namespace.name, ROUTING):
                _log.warning(
                    "%s: nobody publishes what is scheduled on topics, which waits: make one client with "
                    "maintenance=True, wherever it runs",
                    self.target,
                )
        except ServiceBusError as error:
            _log.debug("who publishes what is scheduled is not known: %s", error)

    async def record(self, name: str, until: float, create: Creation | None = None) -> EntityRecord:
        """What the registry says of an entity."""
        await self.open(until)
        try:
            return await self.namespace.get_entity(name, timeout=until - anyio.current_time())
        except ServiceBusError as error:
            error.entity = name
            if create is None or not isinstance(error, MessagingEntityNotFoundError):
                raise
        return await create(self.namespace, name, until - anyio.current_time())


def _scripts() -> list[Script]:
    """All scripts, read and put together, which takes a moment the first time."""
    return [load(name) for name in operations()]


def _looked_at(opening: asyncio.Task[None]) -> None:
    """Whoever still waits for it learns of its error; if nobody does, it is in the log of the transport."""
    if not opening.cancelled():
        opening.exception()
