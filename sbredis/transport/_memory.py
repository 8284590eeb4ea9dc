"""The servers behind ``memory://``: one for each name, shared by all clients in this process."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sbredis.exceptions import ServerUnsuitableError

__all__ = ["forget_memory", "memory_names", "memory_server", "require_memory"]

_SERVERS: dict[str, Any] = {}
_SCRIPTS: dict[bytes, bytes] = {}
_COMPILED: dict[bytes, bytes] = {}
_BINARY = b"\x1bLua"
"""The first bytes of a compiled script."""


class _ScriptCache(dict[bytes, bytes]):
    """The script cache of one server. All servers share the sources, which are nearly a megabyte.

    fakeredis compiles a script at each call, which takes longer than the call itself. So it finds the scripts compiled.
    """

    def __getitem__(self, sha1: bytes) -> bytes:
        source = super().__getitem__(sha1)
        if sha1 not in _COMPILED:
            _COMPILED[sha1] = _compiled(source)
        return _COMPILED[sha1]

    def __setitem__(self, sha1: bytes, source: bytes) -> None:
        if not source.startswith(_BINARY):  # fakeredis also stores each script that it runs
            super().__setitem__(sha1, _SCRIPTS.setdefault(sha1, source))


def _compiled(source: bytes) -> bytes:
    """Return a script in the binary form of Lua, or its source if it cannot be compiled."""
    return _compiler()(source) or source


@cache
def _compiler() -> Callable[[bytes], bytes | None]:
    lua = import_module("fakeredis.commands_mixins.scripting_mixin").LUA_MODULE
    compiler: Callable[[bytes], bytes | None] = lua.LuaRuntime(encoding=None).eval(
        "function(source) local script = loadstring(source, '<python>'); return script and string.dump(script) end"
    )
    return compiler


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
