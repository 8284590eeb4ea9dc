"""A role: a duty that only one client of a namespace performs at a time, on behalf of all clients.

The registry's slot stores who has a role, until when, and the role's *fence*. The fence is a number that rises with
each new holder. Clients that have or want a role listen to a channel of the role, so that a client takes the role as
soon as another one gives it up.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis._tasks import to_the_end, wait_until
from sbredis.client._waking import listen
from sbredis.engine import REFUSALS, Request, perform, registry_salt, role_keys, slot_channel
from sbredis.exceptions import ServiceBusAuthorizationError, ServiceBusError, ServiceBusQuotaExceededError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbredis.client._connection import Connection
    from sbredis.engine import ScriptCaller
    from sbredis.transport import Subscription

__all__ = ["IDLE", "MOVE", "OWN", "ROUTE", "Role", "RoleKeeper", "Standing", "call_role", "is_held", "role_channel"]

ROUTE, MOVE, IDLE = "route", "move", "idle"
"""The roles of maintenance."""
OWN = "own."
"""The prefix of the roles of applications, so that they differ from the roles of maintenance."""
_DURATION = 10.0


def _full(detail: str) -> tuple[type[ServiceBusError], str]:
    return ServiceBusQuotaExceededError, (
        f"The namespace has {detail} roles of applications already, and all of them were used within a day. Use fewer "
        "names for roles: a name is forgotten when its role has been free for a day."
    )


_REFUSALS = {**REFUSALS, "FULL": _full}


class Standing(NamedTuple):
    """The state of a role."""

    held: bool
    """Whether this client has the role."""
    fence: int
    """A number that is higher than the number of every earlier holder."""
    seconds: float
    """The seconds for which the holder has the role, counted from the call that asked for it."""


class Role:
    """One client's claim to a role."""

    def __init__(self, transport: ScriptCaller, namespace: str, role: str) -> None:
        self._transport = transport
        self._keys = role_keys(namespace)
        self._role = role
        self._holder = secrets.token_hex(8)

    async def claim(self, seconds: float = _DURATION) -> Standing:
        """Take or keep the role for ``seconds``, unless another client has it."""
        return await self._ask(round(seconds * 1000))

    async def give_up(self) -> Standing:
        """Give the role up, if this client has it."""
        return await self._ask(0)

    async def _ask(self, milliseconds: int) -> Standing:
        def read(reply: list[Any]) -> Standing:
            return Standing(bool(reply[0]), reply[1], reply[2] / 1000)

        arguments = (self._role, self._holder, milliseconds)
        request = Request.of("hold_role", self._keys, arguments, read)
        return await perform(self._transport, request, timeout=_DURATION, refusals=_REFUSALS)


async def is_held(transport: ScriptCaller, namespace: str, role: str) -> bool:
    """Return whether any client has a role."""
    return (await Role(transport, namespace, role).give_up()).seconds > 0


def role_channel(namespace: str, role: str) -> bytes:
    """Return the channel of a role. Clients that have or want the role listen to it."""
    return slot_channel(namespace, registry_salt(namespace), role)


async def call_role(connection: Connection, role: str) -> None:
    """Notify the clients that have or want a role: the role may be free, or there is news for its holder."""
    channel = role_channel(connection.namespace.name, role)
    await connection.transport.command("SPUBLISH", channel, b"", key=channel)


_log = logging.getLogger("sbredis.maintenance")
_PAUSE = 1.0
_DENIED = 3600.0
"""The seconds after which a client asks again whether its user has the rights for a role by now."""
_NOBODY = Standing(False, 0, 0.0)


class RoleKeeper:
    """One client's part in a role: the client waits until it has the role, and then keeps it as long as it can."""

    def __init__(
        self,
        connection: Connection,
        role: str,
        *,
        called: Callable[[], None] | None = None,
        seconds: float | None = None,
    ) -> None:
        """``called`` is called when a client has used the channel of the role, or may have used it unheard.

        ``seconds`` is the time for which the role is claimed at a time.
        """
        self.role = role
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._called = called
        self._claim = connection.timings.claiming if seconds is None else seconds
        self._claims: Role | None = None
        self._channel: Subscription | None = None
        self._news = asyncio.Event()
        self.answered = asyncio.Event()
        """Set when the first claim has ended in any way but for want of rights."""
        self._claim_at = 0.0
        self._unanswered = False
        """Whether the last claim got no answer, so that it may have given the role to this client."""
        self.until = 0.0
        """The time of the event loop until which this client certainly has the role."""
        self.standing = _NOBODY
        """The answer to the last claim."""

    @property
    def held(self) -> bool:
        """Whether this client certainly has the role."""
        return self.standing.held and self._loop.time() < self.until

    async def try_once(self) -> bool:
        """Claim the role once, and return whether this client has it now."""
        await self._ask()
        return self.standing.held

    async def take(self) -> None:
        """Wait until this client has the role. Failed calls are repeated for as long as it takes."""
        while True:
            self._news.clear()
            wait = _PAUSE
            try:
                await self._listen()
                await self._ask()
                self.answered.set()
                if self.standing.held:
                    return
                wait = min(self.standing.seconds, self._claim)
            except ServiceBusAuthorizationError as error:
                _log.info(
                    "%s: maintenance is left to users with more rights: %s", self._connection.target, error.message
                )
                self._unanswered, wait = False, _DENIED
            except ServiceBusError as error:
                self.answered.set()
                _log.info("%s: the role %r could not be claimed: %s", self._connection.target, self.role, error)
            except Exception:
                self.answered.set()
                raise
            await wait_until(self._news, self._loop.time() + wait * random.uniform(0.5, 1.0) + 0.05)

    async def keep(self) -> None:
        """Renew the claim until another client has the role, or until the claim has ended because no renewal succeeded.

        After that, this client must no longer act as the holder.
        """
        while self.held:
            self._news.clear()
            await wait_until(self._news, min(self._claim_at, self.until))
            if self._loop.time() < self._claim_at:
                continue
            try:
                async with asyncio.timeout_at(self.until):
                    await self._ask()
            except (ServiceBusError, TimeoutError) as error:
                _log.info("%s: the claim to the role %r was not renewed: %s", self._connection.target, self.role, error)
                self._claim_at = self._loop.time() + min(_PAUSE, self._claim / 6)
        _log.info("%s: this client has lost the role %r", self._connection.target, self.role)
        self.standing = self.standing._replace(held=False)

    def doubt(self) -> None:
        """Claim the role now, because another client seems to have it."""
        self._claim_at = 0.0
        self._news.set()

    async def leave(self) -> None:
        """Give the role up, if this client has it, and stop listening. Another client then takes the role at once."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        held, self.standing = self.standing.held or self._unanswered, _NOBODY
        if held:
            await to_the_end(self._give_up())

    async def _give_up(self) -> None:
        assert self._claims is not None  # the role is held, or was asked for
        with suppress(ServiceBusError, TimeoutError):
            async with asyncio.timeout(_PAUSE):
                await self._claims.give_up()
                await call_role(self._connection, self.role)

    async def _ask(self) -> None:
        if self._claims is None:
            self._claims = Role(self._connection.transport, self._connection.namespace.name, self.role)
        # Count from the start of the call and not from its answer, because the call may take long.
        asked = self._loop.time()
        self._claim_at = asked + self._claim / 3
        self._unanswered = True
        self.standing = await self._claims.claim(self._claim)
        self._unanswered = False
        self.until = asked + self.standing.seconds

    async def _listen(self) -> None:
        if self._channel is None:
            channel = role_channel(self._connection.namespace.name, self.role)
            self._channel = await listen(self._connection.transport, channel, woken=self._heard, missed=self._heard)

    def _heard(self) -> None:
        if not self.standing.held:
            self._news.set()
        if self._called is not None:
            self._called()
