"""Maintain a namespace for all its clients.

There are three roles, and each has a duty: publish on topics and visit partitions
(:mod:`sbredis.maintenance._routing`), move messages from one entity to another, and remove entities that nobody
uses. A client that offers maintenance wants all three. The first two are divided into shards of slots, so several
clients share the work, and a client that is alone does all of it.

Clients of a test bus do all duties without claiming a role, so that no test waits for a role.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from sbredis._tasks import TaskScope
from sbredis.client import RoleKeeper
from sbredis.maintenance._duty import Duty, DutyResources, Tenure
from sbredis.maintenance._idle import IdleDuty
from sbredis.maintenance._moving import MovingDuty
from sbredis.maintenance._routing import RoutingDuty

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping, Sequence

    from sbredis.client import Connection

__all__ = ["Maintenance"]

_log = logging.getLogger("sbredis.maintenance")
DUTIES: Sequence[type[Duty]] = (RoutingDuty, MovingDuty, IdleDuty)
"""The duties of a client that maintains its namespace, one for each role."""


class _DutyRunner:
    """Does the duty of a role while this client has the role."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self._connection = duty.connection
        self._failures = duty.shared.failures
        self._census = duty.shared.census
        self.keeper = RoleKeeper(
            duty.connection,
            duty.role,
            shards=duty.shards,
            changed=duty.shards_changed,
            ready=lambda: self._census.known,
            joined=self._prepare,
        )

    async def run(self) -> None:
        """Do the duty whenever no other client does, until the task is cancelled."""
        if self._connection.test_hooks is not None:
            await self._work(self._tenure(lambda: None))
        try:
            while True:
                await self.keeper.take()
                _log.debug("%s: this client has the role %r", self._connection.target, self.duty.role)
                async with TaskScope() as tasks:
                    tasks.start(self._work(self._tenure(lambda: self.keeper.standing.shards)))
                    await self.keeper.keep()
                    tasks.cancel()
        finally:
            self._prepare(False)
            await self.keeper.leave()

    def _prepare(self, member: bool) -> None:
        """Read the census while this client has shards or waits for some: before it takes shards from another client.

        The client asks for its shards when all entities are known.
        """
        self._census.prepare(self.duty.role, self._ask_if_waiting if member else None)

    def _ask_if_waiting(self) -> None:
        if not self.keeper.held:
            self.keeper.doubt()

    def _tenure(self, fences: Callable[[], Mapping[int, int] | None]) -> Tenure:
        return Tenure(self._connection.namespace.slots, self.duty.shards, fences, self.keeper.doubt)

    async def _work(self, tenure: Tenure) -> None:
        await self._failures.tend(
            f"{self._connection.target}: the duty {self.duty.role!r}", partial(self.duty.run, tenure)
        )


class Maintenance:
    """The maintenance of a namespace by one client: its duties, and the list of entities that they share."""

    def __init__(self, connection: Connection, duties: Sequence[type[Duty]] = DUTIES) -> None:
        shared = DutyResources.of(connection)
        self.census, self._failures = shared.census, shared.failures
        self.duties: dict[str, Duty] = {duty.role: duty(shared) for duty in duties}
        """The duties by their roles."""
        self._runners = {role: _DutyRunner(duty) for role, duty in self.duties.items()}
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()

    def keeper(self, role: str) -> RoleKeeper:
        """Return this client's part in a role."""
        return self._runners[role].keeper

    async def run(self) -> None:
        """Maintain the namespace whenever no other client does, until this client is closed or :meth:`end` is called.

        At the end, the client gives up its roles. No error in a duty ends another duty, or the client.
        """
        try:
            async with TaskScope() as tasks:
                tasks.start(self._failures.tend("the list of entities", self.census.run))
                tasks.start(self._run_duties(tasks))
                await self._ending.wait()
                tasks.cancel()
        finally:
            self._ended.set()

    async def _run_duties(self, tasks: TaskScope) -> None:
        """Start all duties. The others ask when this client takes part in the first role.

        So the same few clients take part in all roles, the others ask for one role alone, and a user without the rights
        is refused only once.
        """
        first, *others = self._runners.values()
        tasks.start(self._tended(first))
        if first.duty.connection.test_hooks is None:
            await first.keeper.joined.wait()
        for runner in others:
            tasks.start(self._tended(runner))

    def _tended(self, runner: _DutyRunner) -> Coroutine[Any, Any, None]:
        return self._failures.tend(f"the role {runner.duty.role!r}", runner.run)

    async def end(self) -> None:
        """Stop maintaining the namespace, and give up the roles."""
        self._ending.set()
        await self._ended.wait()
