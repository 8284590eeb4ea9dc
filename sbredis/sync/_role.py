"""A role of an application: one client of a namespace has it at a time."""

# Made by tools/make_sync from sbredis/aio/_role.py.
# Change one of these two, and run `make sync`; a change in this file is lost.

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Self

from sbredis import aio
from sbredis._public import public
from sbredis.sync._facade import Facade

__all__ = ["ServiceBusRole"]


@public
class ServiceBusRole(Facade[aio.ServiceBusRole]):
    """A role that only one client of the namespace has at a time: the result of :meth:`ServiceBusClient.claim_role`.

    ``with`` waits until this client has the role. The client then renews its claim in the background until the
    block ends, and gives the role up at the end of the block. A client that waits for the role takes it at once. If the
    client dies, another client takes the role when the claim has ended.

    If the claim cannot be renewed in time, the role is *lost*: another client may take it, while the block still runs.
    Use :attr:`held` or :meth:`wait_lost` to notice this, and the :attr:`fence` to refuse late work of an old holder.
    """

    @property
    def name(self) -> str:
        """The name of the role."""
        return self._aio.name

    @property
    def held(self) -> bool:
        """Whether this client has the role, by the clock of this process."""
        return self._aio.held

    @property
    def fence(self) -> int:
        """A number that is higher than that of every earlier holder of the role.

        Give it to a resource outside of the broker together with each change. If the resource refuses a fence that is
        lower than the highest one it has seen, an earlier holder cannot change the resource any more.
        """
        return self._aio.fence

    def __enter__(self) -> Self:
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))

    def wait_lost(self, *, timeout: float | None = None) -> bool:
        """Wait until the role is lost, and return ``True``.

        Return ``False`` if the role is given up before that, or if ``timeout`` seconds are over. Without a ``timeout``
        there is no limit.
        """
        return self._bridge.call(self._aio.wait_lost, timeout=timeout)
