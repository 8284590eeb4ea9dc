"""The servers behind ``memory://``: one for each name, shared by all clients in this process."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sbredis.exceptions import ServerUnsuitableError

__all__ = ["forget_memory", "memory_names", "memory_server", "require_memory"]

_SERVERS: dict[str, Any] = {}
_SCRIPTS: dict[bytes, bytes] = {}


class _ScriptCache(dict[bytes, bytes]):
    """The script cache of one server. All servers share the sources, which are nearly a megabyte."""

    def __setitem__(self, sha1: bytes, source: bytes) -> None:
        super().__setitem__(sha1, _SCRIPTS.setdefault(sha1, source))


def require_memory() -> None:
    """Raise if the packages that ``memory://`` needs are not installed. This does not import them."""
    for name in ("fakeredis", "lupa"):
        if find_spec(name) is None:
            raise _missing(name)


def memory_server(name: str) -> Any:
    """Return the server of this name. Make it if there is none yet."""
    if name in _SERVERS:
        return _SERVERS[name]
    try:
        fakeredis = import_module("fakeredis")
        import_module("lupa")
    except ImportError as error:
        raise _missing(error.name) from None
    server = fakeredis.FakeServer(version=(7, 4), server_type="redis")
    server.script_cache = _ScriptCache()
    return _SERVERS.setdefault(name, server)


def memory_names() -> tuple[str, ...]:
    """Return the names of all servers."""
    return tuple(_SERVERS)


def forget_memory(name: str) -> None:
    """Forget the server of this name and its data.

    Connected clients keep the old server; new clients get a new server.
    """
    _SERVERS.pop(name, None)


def _missing(name: str | None) -> ServerUnsuitableError:
    return ServerUnsuitableError(
        f"memory:// needs fakeredis with Lua: run pip install '.[memory]' in the checkout of sbredis "
        f"(cannot import {name})"
    )
