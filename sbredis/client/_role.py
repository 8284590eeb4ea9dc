"""A role: a duty that only one client of a namespace performs at a time, on behalf of all clients.

The registry's slot stores who has a role, until when, and the role's *fence*. The fence is a number that rises with
each new holder. Clients that have or want a role listen to a channel of the role, so that a client takes the role as
soon as another one gives it up.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis.engine import REFUSALS, Request, load, perform, registry_salt, role_keys, slot_channel
from sbredis.exceptions import ServiceBusError, ServiceBusQuotaExceededError

if TYPE_CHECKING:
    from sbredis.client._connection import Connection
    from sbredis.engine import ScriptCaller

__all__ = ["IDLE", "MOVE", "OWN", "ROUTE", "Role", "Standing", "call_role", "is_held", "role_channel"]

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
        self._keys = role_keys(namespace, registry_salt())
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
        request = Request(load("hold_role"), self._keys, arguments, read, repeatable=True)
        return await perform(self._transport, request, timeout=_DURATION, refusals=_REFUSALS)


async def is_held(transport: ScriptCaller, namespace: str, role: str) -> bool:
    """Return whether any client has a role."""
    return (await Role(transport, namespace, role).give_up()).seconds > 0


def role_channel(namespace: str, role: str) -> bytes:
    """Return the channel of a role. Clients that have or want the role listen to it."""
    return slot_channel(namespace, registry_salt(), role)


async def call_role(connection: Connection, role: str) -> None:
    """Notify the clients that have or want a role: the role may be free, or there is news for its holder."""
    channel = role_channel(connection.namespace.name, role)
    await connection.transport.command("SPUBLISH", channel, b"", key=channel)
