"""Reading an append-only file as its server reads it, to find the end of what is whole. Pure.

A file is a sequence of commands, each an array of byte strings in RESP, and of annotations, which are lines that begin
with ``#``. The commands between MULTI and EXEC belong together: a server that finds no EXEC at the end of the file
drops all of them. So a file may be cut after a command that is in no transaction, or after an EXEC.

A server reads a value by its length, so neither the server nor this module notices a wrong byte within a value. After a
wrong byte in a length, a server can read nothing more, although what follows may be intact. :func:`commands_after`
finds such commands.
"""

from __future__ import annotations

import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

__all__ = ["Data", "Ending", "FileCommand", "FileReading", "commands_after", "read_file"]

Data: TypeAlias = bytes | mmap.mmap
"""The content of a file."""

Ending: TypeAlias = Literal["whole", "torn", "transaction", "unreadable"]
"""How a file ends: after a whole command, within a command, within a transaction, or with bytes that are no command."""

_ARRAY = re.compile(rb"\*([1-9]\d{0,9})\r\n")
_TEXT = re.compile(rb"\$(\d{1,10})\r\n")
_NEXT = re.compile(rb"\r\n\$(\d{1,10})\r\n")
"""The end of a value, and the beginning of the next one."""
_ANNOTATION = re.compile(rb"#(?:TS:(\d{1,15})|[^\r\n]{0,1000})\r\n")
_BEGUN = {
    _ARRAY: re.compile(rb"\*(?:[1-9]\d{0,9}\r?)?"),
    _TEXT: re.compile(rb"(?:\$(?:\d{1,10}\r?)?)?"),
    _ANNOTATION: re.compile(rb"#[^\r\n]{0,1000}\r?"),
}
"""For each pattern: the texts with which a line that matches it may begin."""
_LONGEST_LINE = 1010
_NAME = re.compile(rb"[A-Za-z][\w.|-]{0,63}")
_SHOWN = 64


class FileCommand(NamedTuple):
    """A whole command of a file."""

    start: int
    end: int
    name: bytes
    """The name of the command, in capitals."""
    first: bytes
    """The first argument, mostly a key. It is cut if it is long, and empty if there is none."""


@dataclass(frozen=True, slots=True)
class FileReading:
    """What a server can read of a file."""

    size: int
    whole: int
    """The end of the last whole command that is in no transaction, or of the last whole transaction."""
    stopped: int
    """The beginning of the first command that cannot be read; the size of the file if there is none."""
    ending: Ending
    commands: int
    """The number of commands before :attr:`whole`."""
    pending: tuple[FileCommand, ...]
    """The whole commands of a transaction that has no end."""
    time: int | None
    """The last time that an annotation before :attr:`whole` has, in seconds since 1970. A server writes annotations
    only with the setting ``aof-timestamp-enabled``.
    """


def read_file(data: Data) -> FileReading:
    """Read a file from its beginning to the first byte that is no part of a whole command."""
    size = len(data)
    place = whole = commands = 0
    pending: list[FileCommand] = []
    time = noted = None
    ending: Ending = "whole"
    while place < size:
        try:
            if data[place : place + 1] == b"#":
                line = _line(_ANNOTATION, data, place)
                place = line.end()
                noted = int(line[1]) if line[1] else noted
            else:
                command = _next_command(data, place, is_open=bool(pending))
                if pending or command.name == b"MULTI":
                    pending.append(command)
                place = command.end
                if command.name == b"EXEC":
                    commands += len(pending) - 1
                    pending.clear()
                commands += not pending
        except _BrokenError as error:
            ending = error.ending
            break
        if not pending:
            whole, time = place, noted
    if ending == "whole" and pending:
        ending = "transaction"
    return FileReading(size, whole, place, ending, commands, tuple(pending), time)


def commands_after(data: Data, start: int) -> Iterator[FileCommand]:
    """Yield the whole commands that begin after the byte ``start``, with whatever is between them."""
    place = start + 1
    while (found := _ARRAY.search(data, place)) is not None:
        try:
            command = _command(data, found.start())
        except _BrokenError:
            place = found.start() + 1
        else:
            yield command
            place = command.end


class _BrokenError(Exception):
    """There is no whole command at a place."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending)
        self.ending: Ending = ending


def _next_command(data: Data, start: int, *, is_open: bool) -> FileCommand:
    """Return a command. Transactions are not nested, and only an open transaction has an end."""
    command = _command(data, start)
    if command.name == (b"MULTI" if is_open else b"EXEC"):
        raise _BrokenError("unreadable")
    return command


def _command(data: Data, start: int) -> FileCommand:
    array = _line(_ARRAY, data, start)
    length = _line(_TEXT, data, array.end())
    begin = length.end()
    end = begin + int(length[1])
    name, first = data[begin : min(end, begin + _SHOWN + 1)].upper(), b""
    for number in range(1, int(array[1])):
        length = _NEXT.match(data, end) or _line(_TEXT, data, _after_value(data, end))
        begin = length.end()
        end = begin + int(length[1])
        if number == 1:
            first = data[begin : min(end, begin + _SHOWN)]
    place = _after_value(data, end)
    if not _NAME.fullmatch(name):
        raise _BrokenError("unreadable")
    return FileCommand(start, place, name, first)


def _after_value(data: Data, end: int) -> int:
    """Return the place behind the end of the line after a value."""
    if end + 2 > len(data):
        raise _BrokenError("torn")
    if data[end : end + 2] != b"\r\n":
        raise _BrokenError("unreadable")
    return end + 2


def _line(pattern: re.Pattern[bytes], data: Data, start: int) -> re.Match[bytes]:
    """Match a line. The file may end within it."""
    found = pattern.match(data, start)
    if found is None:
        rest = data[start : start + _LONGEST_LINE]
        is_torn = start + len(rest) == len(data) and _BEGUN[pattern].fullmatch(rest)
        raise _BrokenError("torn" if is_torn else "unreadable")
    return found
