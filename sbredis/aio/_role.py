"""A role of an application: one client of a namespace has it at a time."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sbredis.client import OWN, RoleKeeper, deadline_of, seconds_of
from sbredis.engine import role_name
from sbredis.exceptions import OperationTimeoutError, Outcome

if TYPE_CHECKING:
    from sbredis.client import Connection

__all__ = ["ServiceBusRole"]


class ServiceBusRole:
    """A role that only one client of the namespace has at a time: the result of :meth:`ServiceBusClient.claim_role`.

    ``async with`` waits until this client has the role. The client then renews its claim in the background until the
    block ends, and gives the role up at the end of the block. A client that waits for the role takes it at once. If the
    client dies, another client takes the role when the claim has ended.

    If the claim cannot be renewed in time, the role is *lost*: another client may take it, while the block still runs.
    Use :attr:`held` or :meth:`wait_lost` to notice this, and the :attr:`fence` to refuse late work of an old holder.
    """

    def __init__(self, connection: Connection, name: str, claim_duration: float, max_wait_time: float | None) -> None:
        self._connection = connection
        self._name = role_name(name)
        self._seconds = seconds_of(claim_duration, "claim_duration")
        if not 1 <= self._seconds <= 3600:
            raise ValueError(f"claim_duration must be from 1 to 3600 seconds, not {claim_duration}")
        self._wait = None if max_wait_time is None else seconds_of(max_wait_time, "max_wait_time", zero=True)
        self._keeper: RoleKeeper | None = None
        self._fence = 0
        self._lost = False
        self._ending = asyncio.Event()
        self._over = asyncio.Event()
        """Set when the role is lost or is being given up."""
        self._left = asyncio.Event()
        """Set when the role was given up."""

    def __repr__(self) -> str:
        return f"<ServiceBusRole {self._name!r}, {'held' if self.held else 'not held'}>"

    @property
    def name(self) -> str:
        """The name of the role."""
        return self._name

    @property
    def held(self) -> bool:
        """Whether this client has the role, by the clock of this process."""
        return self._keeper is not None and not self._over.is_set() and self._keeper.held

    @property
    def fence(self) -> int:
        """A number that is higher than that of every earlier holder of the role.

        Give it to a resource outside of the broker together with each change. If the resource refuses a fence that is
        lower than the highest one it has seen, an earlier holder cannot change the resource any more.
        """
        if not self._fence:
            raise ValueError(f"The role {self._name!r} has no fence before this client has had the role.")
        return self._fence

    async def __aenter__(self) -> Self:
        if self._keeper is not None:
            raise ValueError(f"This claim to the role {self._name!r} is in use: make another with claim_role().")
        await self._connection.open(deadline_of(None))
        self._ending, self._over, self._left = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._lost = False
        keeper = self._keeper = RoleKeeper(self._connection, f"{OWN}{self._name}", seconds=self._seconds)
        try:
            await self._take(keeper)
            self._fence = keeper.standing.fence
            if not self._connection.start(self._keep(keeper)):
                self._connection.check_open()
        except BaseException:
            self._keeper = None
            await keeper.leave()
            raise
        return self

    async def _take(self, keeper: RoleKeeper) -> None:
        if await keeper.try_once():
            return
        try:
            async with asyncio.timeout(self._wait):
                await keeper.take()
        except TimeoutError:
            raise OperationTimeoutError(
                f"Another client has had the role {self._name!r} for {self._wait:g} seconds. Wait longer, or try again "
                "later.",
                outcome=Outcome.REFUSED,
            ) from None

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        await self._left.wait()
        self._keeper = None

    async def wait_lost(self, *, timeout: float | None = None) -> bool:
        """Wait until the role is lost, and return ``True``.

        Return ``False`` if the role is given up before that, or if ``timeout`` seconds are over. Without a ``timeout``
        there is no limit.
        """
        seconds = None if timeout is None else seconds_of(timeout, "timeout", zero=True)
        if self._keeper is None:
            return self._lost
        try:
            async with asyncio.timeout(seconds):
                await self._over.wait()
        except TimeoutError:
            return False
        return self._lost

    async def _keep(self, keeper: RoleKeeper) -> None:
        loop = asyncio.get_running_loop()
        keeping, ending = loop.create_task(keeper.keep()), loop.create_task(self._ending.wait())
        try:
            await asyncio.wait((keeping, ending), return_when=asyncio.FIRST_COMPLETED)
            self._lost = keeping.done() and not keeping.cancelled()
            if self._lost and (error := keeping.exception()) is not None:
                self._connection.failures.report(f"the claim to the role {self._name!r}", error)
        finally:
            keeping.cancel()
            ending.cancel()
            self._over.set()
            try:
                await keeper.leave()
            finally:
                self._left.set()
