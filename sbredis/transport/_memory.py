"""The servers behind ``memory://``: one for each name, shared by all clients in this process."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from sbredis.exceptions import ServerUnsuitableError

if TYPE_CHECKING:
    from sbredis.transport._memory_server import MemoryLink, MemoryServer

__all__ = ["forget_memory", "memory_has", "memory_link", "memory_names", "memory_server", "require_memory"]

_SERVERS: dict[str, MemoryServer] = {}


def require_memory() -> None:
    """Raise if the packages that ``memory://`` needs are not installed. This does not import them."""
    for name in ("fakeredis", "lupa"):
        if find_spec(name) is None:
            raise _missing(name)


def memory_server(name: str) -> MemoryServer:
    """Return the server of this name. Make it if there is none yet."""
    if name in _SERVERS:
        return _SERVERS[name]
    try:
        import_module("lupa")
        from sbredis.transport._memory_server import MemoryServer
    except ImportError as error:
        raise _missing(error.name) from None
    return _SERVERS.setdefault(name, MemoryServer())


def memory_link(server: MemoryServer, protocol: int, database: int) -> MemoryLink:
    """Return a connection to a server."""
    from sbredis.transport._memory_server import MemoryLink

    return MemoryLink(server, protocol, database)


def memory_names() -> tuple[str, ...]:
    """Return the names of all servers."""
    return tuple(_SERVERS)


def memory_has(name: str, database: int, key: bytes) -> bool:
    """Return whether the server of this name has a key. Unlike a call, this costs almost nothing."""
    server = _SERVERS.get(name)
    return server is not None and server.has(database, key)


def forget_memory(name: str) -> None:
    """Forget the server of this name and its data.

    Connected clients keep the old server; new clients get a new server.
    """
    server = _SERVERS.pop(name, None)
    if server is not None:
        server.give_back()


def _missing(name: str | None) -> ServerUnsuitableError:
    return ServerUnsuitableError(
        f"memory:// needs fakeredis with Lua: run pip install '.[memory]' in the checkout of sbredis "
        f"(cannot import {name})"
    )
