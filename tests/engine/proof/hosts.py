"""The servers on which the scripts are proved, called over a plain connection: a real one that has single scripts or
the library of all operations, and one in memory.

Each call is one ``EVAL``, ``EVALSHA`` or ``FCALL``. The scripts need nothing else from a client, and the transport has
its own tests.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

import redis
from fakeredis import FakeRedis, FakeServer
from fakeredis.model import ZSet

from sbredis.engine import Request
from sbredis.engine._expansion import expand
from sbredis.engine._library import library
from sbredis.engine._lua_files import _folders, read_source
from sbredis.engine._scripts import operations
from sbredis.servers import LocalServer
from sbredis.transport import Argument, Library, Script, _memory_server
from tests.engine.model import Bounds, Refused
from tests.engine.proof.picture import HASHES, Picture
from tests.plugins.forms import FORM, LIBRARY

T = TypeVar("T")
Kind = Literal["memory", "library", "server"]
USUAL: Kind = "library" if FORM == LIBRARY else "server"
"""The kind of host for whatever runs on one host. The environment chooses it (tests/plugins/forms.py)."""
KINDS: tuple[Kind, ...] = ("memory", "server" if USUAL == "library" else "library", USUAL)
Read = Callable[[str], str | None]

_REFUSAL = re.compile(r"(?!ERR )([A-Z]+) (.*)", re.DOTALL)

# Returns all keys in one reply: a hash as a list of fields and values, a sorted set as a list of members and scores.
_READ_ALL = """#!lua flags=no-writes
local all = {}
for i = 1, #KEYS do
  if string.sub(ARGV[1], i, i) == 'h' then
    all[i] = redis.call('HGETALL', KEYS[i])
  else
    all[i] = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
  end
end
return all
"""


@cache
def _sources() -> dict[str, str | None]:
    """Return the text of each Lua file."""
    return {name: read_source(name) for name in (*operations(), *(f"includes/{one}" for one in _folders()))}


def source_at_start(name: str) -> str | None:
    """Return the text that a file had when this process read the first one.

    A run may take an hour. If files change meanwhile, because another version is checked out, the model of this process
    still has the rules of the first version.
    """
    sources = _sources()
    return sources[name] if name in sources else read_source(name)


class Address(NamedTuple):
    """The address of a running server."""

    host: str
    port: int


class Client(Protocol):
    """The methods that both clients must have."""

    connection: Any
    """The one connection of a client of a real server; None for a server in memory."""

    def execute_command(self, *arguments: Any, **options: Any) -> Any: ...


class Host:
    """A server with the scripts. ``read`` reads their files; with another function the host runs changed scripts."""

    def __init__(
        self,
        client: Client,
        read: Read = source_at_start,
        *,
        memory: FakeServer | None = None,
        has_library: bool = False,
    ) -> None:
        self.kind: Kind = "memory" if memory is not None else "library" if has_library else "server"
        self.client = client
        self._memory = memory
        self._read = read
        self._sources: dict[str, str] = {}
        self._loaded: dict[str, str] = {}
        self._library: Library | None = None
        self._listening: Any = None

    def listen(self, channels: Sequence[bytes]) -> None:
        """Listen to channels. Forget what was heard before."""
        if self._listening is None:
            self._listening = cast("Any", self.client).pubsub()
            self._listening.ssubscribe(*channels)
            for _ in channels:
                self._listening.get_message(timeout=5)
        mark = b"that is all"
        self.ask("SPUBLISH", channels[0], mark)
        while self.heard(1)[0][1] != mark:
            pass

    def heard(self, count: int) -> list[tuple[bytes, bytes]]:
        """Return the next messages that were published on the channels, each with its channel; fewer if fewer come."""
        found = (self._listening.get_message(timeout=2) for _ in range(count))
        return [(one["channel"], one["data"]) for one in found if one is not None]

    def close(self) -> None:
        """Stop listening."""
        if self._listening is not None:
            self._listening.close()

    def ask(self, *arguments: Argument) -> Any:
        """Send one command."""
        return self.client.execute_command(*arguments)

    def run(self, request: Request[T], run_id: str = "r1") -> T:
        """Return the result of a request. A refusal raises :class:`Refused`; a failing script fails the test."""
        return request.read(self.call(request.script.name, request.keys, (run_id, *request.arguments)))

    def call(self, name: str, keys: Sequence[bytes], arguments: Sequence[Argument]) -> Any:
        """Return the reply of a script to these arguments; the run id comes first."""
        try:
            if self.kind == "memory":
                # fakeredis would compile the text again for each call, which takes longer than the call itself.
                return self.ask("EVAL", compiled(self._source(name)), len(keys), *keys, *arguments)
            return self.ask(*self._calling(name, keys, arguments))
        except redis.ResponseError as error:
            raise _refusal(name, error) from None

    def run_and_read(
        self, request: Request[T], run_id: str, partitions: Sequence[Sequence[bytes]]
    ) -> tuple[T | Refused, list[Picture]]:
        """Return the result of a request, or its refusal, and the content of partitions afterwards. A real server gets
        both calls at once, because a step spends most of its time on waiting for the server.
        """
        name, arguments = request.script.name, (run_id, *request.arguments)
        answer: T | Refused
        if self.client.connection is None:
            try:
                answer = self.run(request, run_id)
            except Refused as refused:
                answer = refused
            return answer, self.pictures(partitions)
        hashed = _hashed(partitions)
        evaluations = [
            self._calling(name, request.keys, arguments),
            self._loading(_READ_ALL, [*hashed], (_kinds(hashed),)),
        ]
        connection = self.client.connection
        connection.send_packed_command(connection.pack_commands(evaluations))
        try:
            reply: Any = connection.read_response()
        except redis.ResponseError as error:
            reply = error
        # Read the second reply even if the script has failed. Otherwise the next command would get it.
        pictures = _pictures(partitions, hashed, connection.read_response())
        if isinstance(reply, redis.ResponseError):
            return _refusal(name, reply), pictures
        try:
            return request.read(reply), pictures
        except Refused as refused:  # an answer to a grant
            return refused, pictures

    def picture(self, keys: Sequence[bytes]) -> Picture:
        """Return the content of all keys of a partition."""
        return self.pictures([keys])[0]

    def pictures(self, partitions: Sequence[Sequence[bytes]]) -> list[Picture]:
        """Return the content of all keys of each partition. A key that several of them have is read once."""
        hashed = _hashed(partitions)
        if self._memory is None:
            return _pictures(partitions, hashed, self.ask(*self._loading(_READ_ALL, [*hashed], (_kinds(hashed),))))
        # Read the data directly: a command for each key would take longer than all other work of the step.
        there = self._memory.dbs[0]
        held = {key: _held_in_memory(there.get(key)) for key in hashed}
        return [Picture(tuple(held[key] for key in keys)) for keys in partitions]

    def _source(self, name: str) -> str:
        source = self._sources.get(name)
        if source is None:
            script = Script(name, expand(name, self._read))
            source = self._sources[name] = (script.without_shebang() if self.kind == "memory" else script).source
        return source

    def _calling(self, name: str, keys: Sequence[bytes], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the command that runs an operation on a real server, after the server has it."""
        if self.kind != "library":
            return self._loading(self._source(name), keys, arguments)
        if self._library is None:
            self._library = library(operations(), self._read, {})
            self.ask("FUNCTION LOAD", "REPLACE", self._library.source)
        return "FCALL", f"{self._library.name}_{name}", len(keys), *keys, *arguments

    def _loading(self, source: str, keys: Sequence[bytes], arguments: Sequence[Argument]) -> tuple[Argument, ...]:
        """Return the command that runs a script of a real server, after the script is loaded."""
        if source not in self._loaded:
            loaded = self.client.execute_command("SCRIPT LOAD", source)
            self._loaded[source] = loaded.decode() if isinstance(loaded, bytes) else loaded
        return "EVALSHA", self._loaded[source], len(keys), *keys, *arguments


@cache
def compiled(source: str) -> bytes:
    """Return a script in the binary form of Lua. All hosts in memory share it."""
    return _memory_server.compiled(source.encode())


def _refusal(name: str, error: redis.ResponseError) -> Refused:
    """Return the refusal of a script. A failing script fails the test."""
    refusal = _REFUSAL.fullmatch(str(error))
    if refusal is None:
        raise AssertionError(f"{name} failed: {error}") from None
    return Refused(refusal[1], refusal[2])


def _hashed(partitions: Sequence[Sequence[bytes]]) -> dict[bytes, bool]:
    """Return all keys of partitions, each once, and whether it is a hash."""
    return {key: one for keys in partitions for key, one in zip(keys, HASHES, strict=True)}


def _kinds(hashed: Mapping[bytes, bool]) -> str:
    return "".join("h" if one else "z" for one in hashed.values())


def _pictures(
    partitions: Sequence[Sequence[bytes]], hashed: Mapping[bytes, bool], replies: Sequence[Sequence[bytes]]
) -> list[Picture]:
    held = {key: dict(zip(one[::2], one[1::2], strict=True)) for key, one in zip(hashed, replies, strict=True)}
    return [Picture(tuple(held[key] for key in keys)) for keys in partitions]


def _held_in_memory(item: Any) -> dict[bytes, bytes]:
    """Return a hash or a sorted set of fakeredis, or an empty one if the key does not exist."""
    if item is None or not item.value:
        return {}
    if isinstance(item.value, ZSet):
        return {member: b"%d" % int(score) for member, score in item.value.items()}
    return dict(item.value.getall())


@contextmanager
def host(kind: Kind, read: Read = source_at_start, *, server: LocalServer | Address | None = None) -> Iterator[Host]:
    """Open a host of this kind, with a server of its own or with the given running server."""
    if kind == "memory":
        memory = FakeServer(version=(7, 4), server_type="redis")
        with FakeRedis(server=memory) as client, closing(Host(cast("Client", client), read, memory=memory)) as on:
            yield on
    elif server is None:
        with LocalServer() as fresh, host(kind, read, server=fresh) as on:
            yield on
    else:
        port: dict[str, Any] = {"host": server.host, "port": server.port, "single_connection_client": True}
        with (
            redis.Redis(**port) as client,
            closing(Host(cast("Client", client), read, has_library=kind == "library")) as on,
        ):
            yield on


def with_bounds(bounds: Bounds, read: Read = source_at_start) -> Read:
    """Read the files with other bounds for a call. A few messages are enough to reach narrow bounds."""
    told = {
        r"advance\(p, 100\)": f"advance(p, {bounds.share})",
        r"advance\(p, 250\)": f"advance(p, {5 * bounds.share})",
        r"compute_due\(p, 500\)": f"compute_due(p, {5 * bounds.share})",
        r"late == 100\b": f"late == {bounds.share}",
        r"math\.ceil\(100 / count\)": f"math.ceil({bounds.share} / count)",
        r"\b2097152\b": f"{bounds.weight}",
        r"@remember \d+": f"@remember {bounds.remembered}",
    }

    def changed(name: str) -> str | None:
        text = read(name)
        if text is None:
            return None
        for old, new in told.items():
            text = re.sub(old, new, text)
        if name == "includes/most_held":
            return text.replace("1000", f"{bounds.held}")
        if name == "includes/check_advance":
            return re.sub(r"\b10000\b", f"{bounds.watermarks}", text)
        return re.sub(r"\b4194304\b", f"{bounds.purged}", text) if name == "purge" else text

    return changed


def with_texts_replaced(changes: Mapping[str, Sequence[tuple[str, str]]], read: Read = source_at_start) -> Read:
    """Read the files with some texts replaced. Each text must occur in its file: otherwise a test proves nothing."""

    def changed(name: str) -> str | None:
        text = read(name)
        for old, new in changes.get(name, ()):
            if text is None or old not in text:
                raise LookupError(f"{name} does not hold {old!r}")
            text = text.replace(old, new)
        return text

    return changed
