"""Scripts and calls of scripts. A call is packed once and may be sent several times, byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha1
from itertools import chain
from typing import TYPE_CHECKING, Any

from sbredis.transport._slots import key_slot

if TYPE_CHECKING:
    from sbredis.transport._replies import Failure

__all__ = ["Argument", "Call", "Command", "Keys", "Library", "Script", "pack"]

Argument = bytes | str | int


class _Heads(dict[int, bytes]):
    """For each length, the bytes before an argument of that length.

    They begin with the line end of the previous argument. Those of short arguments are kept.
    """

    def __missing__(self, length: int) -> bytes:
        return b"\r\n$%d\r\n" % length


_HEADS = _Heads({length: b"\r\n$%d\r\n" % length for length in range(1024)})


def pack(arguments: Sequence[Argument]) -> bytes:
    """Pack a command in the server's protocol."""
    return _packed(b"*%d" % len(arguments), arguments) + b"\r\n"


def _packed(before: bytes, arguments: Sequence[Argument]) -> bytes:
    """Append arguments to ``before``. The last argument gets no line end."""
    parts = [before]
    for argument in arguments:
        if type(argument) is not bytes:
            if type(argument) is str:
                argument = argument.encode()
            elif type(argument) is int:
                argument = b"%d" % argument
            else:
                argument = _encoded(argument)
        parts.append(_HEADS[len(argument)])
        parts.append(argument)
    return b"".join(parts)


def _encoded(argument: Argument) -> bytes:
    if isinstance(argument, str):
        return argument.encode()
    if isinstance(argument, int) and not isinstance(argument, bool):
        return b"%d" % int(argument)
    if isinstance(argument, (bytes, bytearray, memoryview)):
        return bytes(argument)
    raise TypeError(f"an argument of a command must be bytes, text or a whole number, not {type(argument).__name__}")


class Script:
    """A Lua script as it is sent: its name for people, its source, and the hash by which servers identify it.

    With ``takes_run_id`` the first ARGV of every call is the run id of the server process that executes it. The run id
    is put in when the call is written to a connection; it is ``?`` if the server does not report its run id. A script
    whose first line says ``no-writes`` is called in a way that needs only the right to read its keys. ``function`` is
    its name in the :class:`Library` that has it as a function; a script without this name is in no library.

    The source may be a function that returns it. It is called when the script is sent as a single script.
    ``only_reads`` then says what the first line says.
    """

    def __init__(
        self,
        name: str,
        source: str | Callable[[], str],
        takes_run_id: bool = False,
        function: str = "",
        *,
        only_reads: bool | None = None,
    ) -> None:
        self.name = name
        self.takes_run_id = takes_run_id
        self.function = function
        self._source = source
        self._only_reads = only_reads

    def __repr__(self) -> str:
        return f"Script({self.name!r})"

    @cached_property
    def source(self) -> str:
        """The text of the script."""
        return self._source if isinstance(self._source, str) else self._source()

    @cached_property
    def sha(self) -> str:
        """The hash of the source."""
        return sha1(self.source.encode(), usedforsecurity=False).hexdigest()

    @cached_property
    def head(self) -> bytes:
        """How a call of the script begins."""
        name = self.command.encode()
        return b"*%%d\r\n$%d\r\n%b\r\n$40\r\n%b" % (len(name), name, self.sha.encode())

    @property
    def command(self) -> str:
        """The command that calls the script."""
        return "EVALSHA_RO" if self.only_reads else "EVALSHA"

    @property
    def function_command(self) -> str:
        """The command that calls the script as a function of a library."""
        return "FCALL_RO" if self.only_reads else "FCALL"

    @cached_property
    def only_reads(self) -> bool:
        """Whether the script writes nothing, as its first line says."""
        return "no-writes" in self.source.partition("\n")[0] if self._only_reads is None else self._only_reads

    def without_shebang(self) -> Script:
        """Return the same script for a server that does not know the ``#!lua`` line. Line numbers stay the same."""
        first, newline, rest = self.source.partition("\n")
        if not first.startswith("#!"):
            return self
        return Script(self.name, newline + rest, self.takes_run_id)


@dataclass(frozen=True, slots=True, eq=False)
class Library:
    """Scripts as the functions of one library, whose name contains the hash of its source."""

    name: str
    source: str
    functions: frozenset[str]
    """The names of its functions, without the name of the library."""
    heads: dict[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """How the calls of functions begin, by the name of the function, as far as :meth:`head` has made them."""

    def head(self, script: Script) -> bytes | None:
        """Return how a call of a script as a function begins; ``None`` if the library does not have the script."""
        found = self.heads.get(script.function)
        if found is None and script.function in self.functions:
            command = script.function_command.encode()
            name = f"{self.name}_{script.function}".encode()
            found = b"*%%d\r\n$%d\r\n%b\r\n$%d\r\n%b" % (len(command), command, len(name), name)
            self.heads[script.function] = found
        return found


class Keys(tuple[bytes, ...]):  # noqa: SLOT001 -- what is computed once is kept in the instance
    """Keys that many calls share. They are packed once, and their slot is computed once."""

    @cached_property
    def slot(self) -> int:
        """The hash slot that all of the keys are in."""
        return key_slot(self[0])

    @classmethod
    def joined(cls, parts: Iterable[tuple[bytes, ...]]) -> Keys:
        """Return the keys of several calls for one call. What the parts have packed is not packed again."""
        found = [part if type(part) is cls else cls(part) for part in parts]
        keys = cls(chain.from_iterable(found))
        keys.__dict__["_each"] = b"".join([part._each for part in found])
        return keys

    @cached_property
    def packed(self) -> bytes:
        """The number of keys and the keys, as they are sent."""
        return _packed(b"", (len(self),)) + self._each

    @cached_property
    def _each(self) -> bytes:
        return _packed(b"", self)


class Call:
    """One call of one script: its slot and its bytes. A repetition sends the same object again."""

    __slots__ = (
        "_after_run_id",
        "_before_run_id",
        "_count",
        "answered",
        "asking",
        "began",
        "deadline",
        "failed",
        "future",
        "heals",
        "library",
        "loads_before",
        "missing",
        "repeatable",
        "script",
        "size",
        "slot",
        "written",
    )

    # The state of the call on its wire. A call is on one wire at a time. It goes to another wire only when the first
    # wire has answered the call or was lost.
    answered: Callable[[Call, Any], None] | None
    """The function that gets the reply as soon as it is read, and must not raise; ``None`` if the call has ended."""
    failed: Callable[[Call, Failure], None]
    """The function that gets a failure in its place."""
    future: Any
    """The future of a caller who may be cancelled, so that the call need not be sent; ``None`` if there is none."""
    began: float
    """The time at which the first attempt began, if it was made without a task."""
    deadline: float
    asking: bool
    library: Library | None
    """The library as whose function the call was written; ``None`` for a single script."""
    heals: int
    """How often the call was written again."""
    missing: int
    """How often the server did not have what the call needs, in its present form."""
    loads_before: int

    def __init__(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        repeatable: bool = False,
        written: Callable[[], None] | None = None,
    ) -> None:
        """``written`` is called each time before the call is written to a connection. It must not raise."""
        if type(keys) is not Keys:
            keys = Keys(keys)
        self.script: Script | None = script
        self.slot = keys.slot if keys else None
        self.repeatable = repeatable
        self.written = written
        self.library = None
        self.future = None
        if not script.takes_run_id:
            self._count = 3 + len(keys) + len(arguments)
            self._before_run_id = _packed(keys.packed, arguments) + b"\r\n"
            self._after_run_id: bytes | None = None
            self.size = len(self._before_run_id) + 100
        else:
            self._count = 4 + len(keys) + len(arguments)
            self._before_run_id = keys.packed
            self._after_run_id = _packed(b"", arguments) + b"\r\n"
            self.size = len(self._before_run_id) + len(self._after_run_id) + 150

    def payload(self, run_id: bytes, head: bytes | None = None) -> bytes:
        """Return the bytes for a connection whose server process has this run id.

        ``head`` is how the call begins if it is the call of a function (:meth:`Library.head`).
        """
        if head is None:
            assert self.script is not None  # a command has bytes of its own
            head = self.script.head
        begun = head % self._count
        if self._after_run_id is None:
            return begun + self._before_run_id
        return b"%b%b\r\n$%d\r\n%b%b" % (begun, self._before_run_id, len(run_id), run_id, self._after_run_id)

    @property
    def needs(self) -> str:
        """The name of the library or the hash of the script that the call needs, as it was last written."""
        if self.library is not None:
            return self.library.name
        return self.script.sha if self.script else ""

    def loading(self) -> Command:
        """Return the command that loads what the call needs, as it was last written."""
        if self.library is not None:
            return Command(b"FUNCTION", b"LOAD", self.library.source)
        return Command(b"SCRIPT", b"LOAD", self.script.source if self.script else b"")

    def __str__(self) -> str:
        return f"script {self.script.name}" if self.script else "command"


class Command(Call):
    """A plain command in the place of a script."""

    __slots__ = ("name",)

    def __init__(self, *arguments: Argument, slot: int | None = None, repeatable: bool = False) -> None:
        self.script = None
        self.slot = slot
        self.repeatable = repeatable
        self.written = None
        self.library = None
        self.future = None
        self._before_run_id = pack(arguments)
        self.size = len(self._before_run_id)
        first = arguments[0]
        self.name = first.decode() if isinstance(first, bytes) else str(first)

    def payload(self, run_id: bytes, head: bytes | None = None) -> bytes:  # noqa: ARG002 -- it is the same everywhere
        """Return the bytes of the command."""
        return self._before_run_id

    def __str__(self) -> str:
        return f"command {self.name}"
