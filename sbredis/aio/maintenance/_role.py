"""A role: a duty that only one client of a namespace performs at a time, on behalf of all clients."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, NamedTuple

from sbredis.engine import Request, load, perform, registry_salt, role_keys

if TYPE_CHECKING:
    from sbredis.engine import ScriptCaller

__all__ = ["Role", "Standing", "is_held"]

_DURATION = 10.0


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
        return await perform(self._transport, request, timeout=_DURATION)


async def is_held(transport: ScriptCaller, namespace: str, role: str) -> bool:
    """Return whether any client has a role."""
    return (await Role(transport, namespace, role).give_up()).seconds > 0
