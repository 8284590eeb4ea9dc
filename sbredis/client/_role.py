"""A role: a duty that few clients of a namespace perform at a time, on behalf of all clients.

The registry's slot stores who has which shards of a role, until when, and the *fence* of each shard. The fence is a
number that rises with each new holder. Clients that have or want a role listen to a channel of the role, so that a
client that is called takes shards as soon as another one lets go of them. :mod:`sbredis.client._claiming` decides when
a client asks.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
from contextlib import suppress
from typing import TYPE_CHECKING

from sbredis._tasks import to_the_end, wait_until
from sbredis.client._claiming import Claim, Standing, read_standing
from sbredis.engine import REFUSALS, Request, perform, registry_salt, role_keys, slot_channel
from sbredis.exceptions import ServiceBusAuthorizationError, ServiceBusError, ServiceBusQuotaExceededError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sbredis.client._connection import Connection
    from sbredis.engine import ScriptCaller
    from sbredis.transport import Subscription

__all__ = ["IDLE", "MOVE", "OWN", "ROUTE", "Role", "RoleKeeper", "is_held"]

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


class Role:
    """One client's claim to a role."""

    def __init__(self, transport: ScriptCaller, namespace: str, role: str, shards: int = 1) -> None:
        self._transport = transport
        self._keys = role_keys(namespace)
        self._role = role
        self._shards = shards
        self.asker = secrets.token_hex(8)
        """The name under which this client asks."""

    async def claim(self, seconds: float = _DURATION, *, waits: bool = False, ready: bool = True) -> Standing:
        """Take or keep shards of the role for ``seconds``, as far as no other client has them.

        A client that ``waits`` may be called when there are shards for it. A client that is not ``ready`` takes shards
        only if no other client has any.
        """
        return await self._ask(round(seconds * 1000), waits=waits, ready=ready)

    async def give_up(self) -> Standing:
        """Give the role up, if this client has it or waits for it."""
        return await self._ask(0)

    async def _ask(self, milliseconds: int, *, waits: bool = False, ready: bool = True) -> Standing:
        arguments = (self._role, self.asker, milliseconds, self._shards, int(waits), int(ready))
        request = Request.of("hold_role", self._keys, arguments, read_standing)
        return await perform(self._transport, request, timeout=_DURATION, refusals=_REFUSALS)


async def is_held(transport: ScriptCaller, namespace: str, role: str) -> bool:
    """Return whether any client has a role, or waits for it."""
    return (await Role(transport, namespace, role).give_up()).members > 0


_log = logging.getLogger("sbredis.maintenance")
_LEAVING = 1.0


class RoleKeeper:
    """One client's part in a role: the client waits until it has the role, and then keeps it as long as it can."""

    def __init__(
        self,
        connection: Connection,
        role: str,
        *,
        shards: int = 1,
        seconds: float | None = None,
        changed: Callable[[], None] = lambda: None,
        ready: Callable[[], bool] = lambda: True,
        joined: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """``seconds`` is the time for which the role is claimed at a time.

        ``changed`` is called when this client has got other shards than before, while it keeps the role. ``ready`` says
        whether it can do the work of a shard as well as a client that has some now. ``joined`` is called after each
        answer while this client has no shards, and says whether it waits for some, so that it may prepare.
        """
        self.role = role
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._role = Role(connection.transport, connection.namespace.name, role, shards)
        self._changed = changed
        self._ready = ready
        self._joined = joined
        self.claim = Claim(self._role.asker, connection.timings.claiming if seconds is None else seconds)
        """The decisions about this client's claim."""
        namespace = connection.namespace.name
        self._channel_name = slot_channel(namespace, registry_salt(namespace), role)
        """The channel on which clients are called to the role."""
        self._channel: Subscription | None = None
        self._news = asyncio.Event()
        self.joined = asyncio.Event()
        """Set when this client has shards or waits for some, or when a question has failed, but not for want of rights.
        """

    @property
    def held(self) -> bool:
        """Whether this client certainly has the role."""
        return not self.claim.over(self._loop.time())

    @property
    def standing(self) -> Standing:
        """The answer to the last question."""
        return self.claim.standing

    async def try_once(self) -> bool:
        """Claim the role once, and return whether this client has it now."""
        await self._ask(waits=False)
        return self.standing.held

    async def take(self) -> None:
        """Wait until this client has the role. Failed calls are repeated for as long as it takes."""
        self.claim.ask_at = 0.0
        while True:
            self._news.clear()
            if self._loop.time() < self.claim.ask_at:
                await wait_until(self._news, self.claim.ask_at)
                continue
            try:
                await self._listen()
                await self._ask()
                if self.standing.member:
                    self.joined.set()
                self._joined(self.standing.member)
                if self.standing.held:
                    return
            except ServiceBusAuthorizationError as error:
                _log.info(
                    "%s: maintenance is left to users with more rights: %s", self._connection.target, error.message
                )
                self.claim.denied(self._loop.time())
            except ServiceBusError as error:
                self.joined.set()
                _log.info("%s: the role %r could not be claimed: %s", self._connection.target, self.role, error)
                self.claim.failed(self._loop.time(), random.random())
            except Exception:
                self.joined.set()
                raise

    async def keep(self) -> None:
        """Renew the claim until other clients have the role, or until the claim has ended because no renewal succeeded.

        After that, this client must no longer act as the holder.
        """
        claim = self.claim
        while self.held:
            self._news.clear()
            await wait_until(self._news, min(claim.ask_at, claim.until))
            if self._loop.time() < claim.ask_at:
                continue
            before = self.standing.shards
            try:
                async with asyncio.timeout_at(claim.until):
                    await self._ask()
                if self.standing.held and self.standing.shards.keys() != before.keys():
                    self._changed()
            except (ServiceBusError, TimeoutError) as error:
                reason = str(error) or "no answer came before it ended"
                _log.info(
                    "%s: the claim to the role %r was not renewed: %s", self._connection.target, self.role, reason
                )
                claim.failed(self._loop.time(), random.random())
        _log.info("%s: this client has lost the role %r", self._connection.target, self.role)
        claim.lost()

    def doubt(self) -> None:
        """Claim the role now, because another client seems to have it, or because this client has become ready."""
        self.claim.doubt()
        self._news.set()

    async def leave(self) -> None:
        """Give the role up, if this client has it, and stop listening. Another client then takes the role at once."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self.claim.ends():
            await to_the_end(self._give_up())

    async def _give_up(self) -> None:
        with suppress(ServiceBusError, TimeoutError):
            async with asyncio.timeout(_LEAVING):
                await self._call(await self._role.give_up())

    async def _ask(self, *, waits: bool = True) -> None:
        claim, asked = self.claim, self._loop.time()
        claim.asked(asked)
        standing = await self._role.claim(claim.seconds, waits=waits, ready=self._ready())
        claim.answered(standing, asked, random.random())
        with suppress(ServiceBusError):  # those who are not called ask some time later
            await self._call(standing)

    async def _call(self, standing: Standing) -> None:
        if standing.call:
            channel = self._channel_name
            await self._connection.transport.command("SPUBLISH", channel, standing.call, key=channel)

    async def _listen(self) -> None:
        if self._channel is None:
            self._channel = await self._connection.transport.subscribe(self._channel_name, self)

    def message(self, payload: bytes) -> None:
        """Handle a call."""
        self.claim.heard(payload, self._loop.time(), random.random())
        self._news.set()

    def gap(self) -> None:
        """Record that the client did not listen for a while, so calls may be lost."""
        self.claim.missed(self._loop.time(), random.random())
        self._news.set()
