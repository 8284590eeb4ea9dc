"""The server behind one name of ``memory://``: fakeredis, in which the scripts stay compiled.

fakeredis compiles a script at each call, collects all garbage of its Lua after each call, and reads all global names
before each command of a script. Each of the three takes longer than the call itself. So a :class:`MemoryServer` wraps
the Lua of fakeredis, and answers itself when a script reads fields of a hash, which is every third command. fakeredis
also copies the rest of what it was sent for each argument, so a :class:`MemoryLink` takes the commands apart itself. If
a later fakeredis does not work in this way, the server is only slower.

All servers of a process share the texts of the scripts and their compiled forms. Each server has a Lua of its own.

Only :mod:`sbredis.transport._memory` imports this module, because fakeredis is an extra.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any

from fakeredis import FakeServer
from fakeredis.aioredis import FakeAsyncRedisConnection
from fakeredis.model import Hash
from redis.exceptions import RedisError, ResponseError

from sbredis.transport._link import LinkError
from sbredis.transport._resp import ReplyError

__all__ = ["MemoryLink", "MemoryServer", "compiled"]

_SOURCES: dict[bytes, bytes] = {}
"""The scripts that clients have loaded or handed over, by their SHA-1."""
_COMPILED: dict[bytes, bytes] = {}
"""The same scripts in the binary form of Lua, if a server has called them."""
_BINARY = b"\x1bLua"
"""The first bytes of the binary form."""
_COLLECT = "collectgarbage()"
"""The code that fakeredis runs after each script."""
_SPARE: list[_ServerLua] = []
"""The Lua of a server that was forgotten, for the next new server: its scripts are compiled."""
_MOST_SPARE = 1
_QUICK, _BYTES = frozenset({b"HGET", b"HMGET"}), {bytes}
_COLLECTED_TOGETHER = 8
"""The number of servers after which the garbage in their Lua is deleted: this looks at all compiled scripts."""
_WATCHING = """
local made = ...
local pairs, ipairs, rawget, rawset, collectgarbage = pairs, ipairs, rawget, rawset, collectgarbage
local all, first = _G, {}  -- what there was at first in each table that every script sees
for _, value in pairs(all) do
    if type(value) == 'table' then
        first[value] = {}
        for name, each in pairs(value) do
            first[value][name] = each
        end
    end
end

setmetatable(all, {__newindex = function(_, name, value)
    made(name)
    rawset(all, name, value)
end})

return function(names, collects)
    for _, name in ipairs(names) do
        rawset(all, name, nil)
    end
    local unchanged = true
    for value, copy in pairs(first) do
        for name, each in pairs(copy) do
            unchanged = unchanged and rawget(value, name) == each
        end
        for name in pairs(value) do
            unchanged = unchanged and copy[name] ~= nil
        end
    end
    if collects or not unchanged then
        collectgarbage()
    end
    return unchanged
end
"""
"""Code that tells of each global variable that is made, and returns a function that deletes those of these names."""


def compiled(source: bytes) -> bytes:
    """Return a script in the binary form of Lua, or its source if it cannot be compiled."""
    return _compiler()(source) or source


@cache
def _compiler() -> Callable[[bytes], bytes | None]:
    lua = import_module("fakeredis.commands_mixins.scripting_mixin").LUA_MODULE
    compiler: Callable[[bytes], bytes | None] = lua.LuaRuntime(encoding=None).eval(
        "function(source) local script = loadstring(source, '<python>'); return script and string.dump(script) end"
    )
    return compiler


class MemoryServer(FakeServer):
    """One server in memory. It has every script that a client of any such server has called or loaded."""

    def __init__(self) -> None:
        super().__init__(version=(7, 4), server_type="redis")
        self._scripts = self.script_cache = _ScriptCache()
        self.run_id = secrets.token_hex(20).encode()
        """The run id. fakeredis does not know INFO."""

    @property
    def _lua_runtime(self) -> _ServerLua:
        """The Lua of this server. fakeredis makes it, keeps it here, and finds it here at each call."""
        if self._scripts.lua is None:
            raise AttributeError("there is no Lua yet")  # fakeredis asks with `hasattr`
        return self._scripts.lua

    @_lua_runtime.setter
    def _lua_runtime(self, runtime: Any) -> None:
        try:
            self._scripts.lua = _SPARE.pop()
        except IndexError:
            self._scripts.lua = _ServerLua(runtime)

    @property
    def _lua_redis_call_wrapper(self) -> Callable[..., Any]:
        """The function ``redis.call`` of scripts. fakeredis makes it, keeps it here, and gives this one to its Lua."""
        return self._lua_quick_call

    @_lua_redis_call_wrapper.setter
    def _lua_redis_call_wrapper(self, call: Callable[..., Any]) -> None:
        self._lua_quick_call = _with_quick_reads(self, call)

    def take_over(self, sha1: str, source: str) -> None:
        """Let all such servers of this process have a script, from the process and not by a command."""
        self._scripts[sha1.encode()] = source.encode()

    def has(self, database: int, key: bytes) -> bool:
        """Return whether a database has a key."""
        with self.lock:
            return database in self.dbs and key in self.dbs[database]

    def give_back(self) -> None:
        """Give the Lua of this server to the next new server. If this server needs a Lua again, it gets another one.

        Python's garbage collector does not see the memory of Lua, so without this call it would be freed late.
        """
        with self.lock:
            lua, self._scripts.lua = self._scripts.lua, None
            if lua is not None:
                for name in [name for name in vars(self) if name.startswith("_lua_") and name != "_lua_functions"]:
                    delattr(self, name)
                kept = len(_SPARE) < _MOST_SPARE
                if lua.cleared(last=not kept) and kept:
                    _SPARE.append(lua)


def _with_quick_reads(server: Any, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``redis.call`` that reads fields of hashes itself, and leaves all else to ``call``."""
    sockets: list[Any] | None = getattr(server, "_lua_current_socket", None)
    if sockets is None:
        return call

    def redis_call(command: bytes, *words: Any) -> Any:
        if command in _QUICK and len(words) > 1 and set(map(type, words)) == _BYTES:
            key, *names = words
            item = sockets[0]._db.get(key)
            held = None if item is None else item.value
            if held is None or type(held) is Hash:
                found = [False if held is None or (value := held.get(name)) is None else value for name in names]
                if command == b"HMGET":
                    return server._lua_runtime.table_from(found)
                if len(found) == 1:
                    return found[0]
        return call(command, *words)

    return redis_call


class _ScriptCache(dict[bytes, bytes]):
    """The script cache of one server.

    ``EVALSHA`` finds a short name of the compiled script here, which the Lua of the server knows.
    """

    lua: _ServerLua | None = None

    def __missing__(self, sha1: bytes) -> bytes:
        source = _SOURCES[sha1]
        binary = _COMPILED.get(sha1)
        if binary is None:
            binary = _COMPILED[sha1] = compiled(source)
        if self.lua is None or not binary.startswith(_BINARY):
            return binary
        return self.lua.named(sha1, binary)

    def __contains__(self, sha1: object) -> bool:
        return sha1 in _SOURCES

    def __setitem__(self, sha1: bytes, source: bytes) -> None:
        if not source.startswith(_BINARY):  # fakeredis also stores each script that it runs
            _SOURCES.setdefault(sha1, source)


class _GlobalNames:
    """The names of global variables that were made since this object was: a cheap form of Lua's table of all."""

    def __init__(self, table: Any) -> None:
        self._table = table
        self.made: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def __getitem__(self, name: Any) -> Any:
        return self._table[name]

    def keys(self) -> list[Any]:
        """Return the names."""
        return self.made


class _ServerLua:
    """The Lua of one server at a time, in which each script is compiled once."""

    def __init__(self, runtime: Any) -> None:
        self._runtime = runtime
        self.table_from = runtime.table_from
        self._scripts: dict[bytes, Callable[[], Any]] = {}
        self._globals = _GlobalNames(runtime.globals())
        self._clear: Callable[[Any, bool], bool] = runtime.execute(_WATCHING, self._globals.made.append)
        self._servers = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runtime, name)

    def named(self, sha1: bytes, binary: bytes) -> bytes:
        """Return the name under which :meth:`execute` knows a compiled script."""
        name = _BINARY + sha1
        if name not in self._scripts:
            self._scripts[name] = self._runtime.compile(binary)
        return name

    def execute(self, code: str | bytes) -> Any:
        """Run code, which may be the name of a script. Lua collects its garbage by itself."""
        if code == _COLLECT:
            return None
        script = self._scripts.get(code) if isinstance(code, bytes) else None
        return self._runtime.execute(code) if script is None else script()

    def globals(self) -> _GlobalNames:
        """Return the names of the global variables that were made since this object was."""
        return self._globals

    def cleared(self, *, last: bool) -> bool:
        """Delete the global variables that were made. Return whether another server may have this Lua.

        That is so unless a script has changed a function that every script sees. After the ``last`` server, and now and
        then, this also deletes all garbage, with which the data of the servers go.
        """
        self._servers += 1
        collects = last or self._servers % _COLLECTED_TOGETHER == 0
        unchanged: bool = self._clear(self._runtime.table_from(self._globals.made), collects)
        self._globals.made.clear()
        return unchanged


class MemoryLink:
    """A connection to a server in memory, through the connection of redis-py that fakeredis has."""

    transport = None

    def __init__(self, server: MemoryServer, protocol: int, database: int) -> None:
        self._server = server
        self.run_id = server.run_id
        # Without a time-out for reading: a late reply must not end the connection for other calls.
        self._connection: Any = FakeAsyncRedisConnection(
            server=server, protocol=protocol, db=database, socket_timeout=None, driver_info=None
        )

    async def connect(self) -> None:
        """Connect and do the handshake."""
        await self._connection.connect()

    async def ask(self, packed: Sequence[bytes]) -> list[Any]:
        """Write commands together, while no other code uses the connection. Return the replies, errors as values."""
        await self.write(packed)
        return [await self.read() for _ in packed]

    async def write(self, packed: Sequence[bytes]) -> None:
        """Write pieces of whole commands."""
        socket = getattr(self._connection, "_sock", None)
        process = getattr(socket, "_process_command", None)
        if process is None or not self._server.connected or getattr(socket, "_killed", False):
            await self._connection.send_packed_command(packed, check_health=False)
            return
        for piece in packed:
            for command in _commands(piece):
                process(command)

    async def read(self) -> Any:
        """Return the next reply; an error reply is a value. Raises :class:`LinkError` if the connection is lost."""
        responses = getattr(getattr(self._connection, "_sock", None), "responses", None)
        try:
            if responses is None or responses.empty():
                return await self._connection.read_response(disable_decoding=True, disconnect_on_error=False)
            reply = responses.get_nowait()
            if isinstance(reply, RedisError):
                raise reply
            return reply
        except ResponseError as error:
            return ReplyError(f"{error.status_code} {error}" if error.status_code else str(error))
        except RedisError as error:
            raise LinkError(str(error)) from error

    async def hang_up(self) -> None:
        """Close the connection."""
        with suppress(RedisError, OSError):  # it is closed even if this fails
            await self._connection.disconnect(nowait=True)


def _commands(piece: bytes) -> Iterator[list[bytes]]:
    """Take whole commands apart, each into its name and its arguments."""
    at = 0
    while at < len(piece):
        end = piece.index(b"\r\n", at)
        words: list[bytes] = []
        for _ in range(int(piece[at + 1 : end])):
            start = piece.index(b"\r\n", end + 2) + 2
            end = start + int(piece[end + 3 : start - 2])
            words.append(piece[start:end])
        yield words
        at = end + 2
