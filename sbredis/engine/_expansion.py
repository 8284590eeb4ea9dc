"""Builds the text of a single script from the Lua file of an operation and the fragments that it uses. Pure.

An operation is ``lua/NAME.lua``. A fragment is ``lua/includes/SUBJECT/NAME.lua``; its name is unique, so only the
loader needs to know its folder. A constant of ``_lua_constants.py`` is used like a fragment, and is generated when the
script is loaded. Operations and fragments name the fragments that they use in lines ``-- @use NAME NAME`` above their
code. A fragment defines one local with the name of its file, and nothing else. So all fragments can be in one chunk,
and none changes the meaning of another. The local of a constant may be in upper case.

``-- @use NAME NAME inside`` puts fragments inside the function of the fragment. A call takes time for each function
that it creates. It creates the inside fragments only if it calls the function around them.

A fragment with the line ``-- @remember NUMBER`` is a function of one text, or of one number, without effects. Its name
is that of a table, which has the result under the text: ``name[text]``. The table remembers so many results, and a
library keeps it for all calls. It remembers a result only when it is complete, it forgets all of them when there are
more, and it does not remember those of long texts. A text that is found again costs a third of a call.

:mod:`sbredis.engine._library` makes one library of all operations from the same files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final, NoReturn

__all__ = [
    "COMMENT",
    "DIRECTIVE",
    "FOUND_AGAIN",
    "NAME",
    "SHEBANG",
    "ClosedOperation",
    "LuaFile",
    "Read",
    "ScriptFormatError",
    "bare_code",
    "closed",
    "expand",
    "remembering",
]

Read = Callable[[str], str | None]


class ScriptFormatError(Exception):
    """A Lua file does not have the required form: a mistake in sbredis, never in the code that uses it."""


class _FormError(Exception):
    """The text of a file does not have the required form. The files that lead to it are not known yet."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what, line)
        self.what = what
        self.line = line


NAME = r"[A-Za-z_][A-Za-z0-9_]*"
SHEBANG = re.compile(r"#!lua(?: flags=(?P<flags>[a-z-]+(?:,[a-z-]+)*))?")
COMMENT = re.compile(r"\s*--(?!\[=*\[)")
DIRECTIVE = re.compile(r"\s*--+\s*@")
_USE = re.compile(rf"-- @use (?P<names>{NAME}(?: {NAME})*?)(?P<inside> inside)?")
_REMEMBER = re.compile(r"-- @remember ([1-9]\d*)")
_OF_A_TEXT = re.compile(rf"local function {NAME}\({NAME}\)")
_OF_THE_CALL = re.compile(r"\b(?:KEYS|ARGV)\b")
_CLOSING = re.compile(r"end\b|[)}\]]")
FOUND_AGAIN: Final = """\
function(known, of)
  local found = anew(of)
  if found ~= nil and (type(of) == 'number' or #of <= 1024) then
    if count >= most then
      for other in pairs(known) do
        known[other] = nil
      end
      count = 0
    end
    known[of], count = found, count + 1
  end
  return found
end"""
"""The Lua function that fills a table of remembered results. Around it are ``anew``, which computes a result, ``most``
results, and the ``count`` of those in the table.
"""
_REMEMBERED: Final = f"""\
local function remembered(anew, most)
  local count = 0
  return setmetatable({{}}, {{ __index = {FOUND_AGAIN} }})
end"""

# Matches long comments and long strings, which may contain line breaks. Also matches line comments and other strings,
# which may contain text that looks like the beginning of a long comment or a long string.
_TOKEN = re.compile(
    r"--\[(?P<c>=*)\[.*?\](?P=c)\]|--[^\n]*|\[(?P<s>=*)\[.*?\](?P=s)\]"
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LuaFile:
    """One parsed file: the fragments that it names, and its code without comments and blank lines."""

    shebang: str | None
    uses: tuple[str, ...]
    inside: tuple[str, ...]
    """The fragments inside its function, which cost nothing until the function is called."""
    code: tuple[str, ...]
    remembers: int | None
    """The number of texts for which a fragment remembers its results."""
    top_level: tuple[tuple[int, str], ...]
    """The lines of code that are not indented, with their numbers; lines inside long strings are left out."""


def expand(name: str, read: Read) -> str:
    """Return the source of an operation as it is sent: its shebang, every fragment that it needs, its body.

    Each fragment occurs once, after the fragments that it uses itself. Blank lines and whole-line comments are dropped.
    ``read`` returns the text of a file such as ``"send"`` or ``"includes/begin"``, or None if there is no such file.
    For a fragment, ``read`` searches all folders of ``includes``. Raises :class:`ScriptFormatError`, which shows the
    chain of ``@use`` lines that leads to the faulty file.
    """
    shebang, operation = _operation(name, read)
    fragments = _Fragments(name, read)
    outside = fragments.outside(operation.uses)
    begun = [shebang, *_REMEMBERED.splitlines()] if fragments.remember else [shebang]
    return "\n".join([*begun, *outside, f"-- {name}.lua", *operation.code]) + "\n"


def remembering(name: str, fragment: LuaFile) -> tuple[str, ...]:
    """Return the line after the code of a fragment that remembers; for any other fragment, no line."""
    return () if fragment.remembers is None else (f"{name} = remembered({name}, {fragment.remembers})",)


@dataclass(frozen=True, slots=True)
class ClosedOperation:
    """An operation with all fragments that it needs, for a library."""

    flags: tuple[str, ...]
    uses: tuple[str, ...]
    """The fragments that its own code uses."""
    code: tuple[str, ...]
    fragments: Mapping[str, LuaFile]
    """Each fragment follows the fragments that it uses, also those that it uses inside its function."""


def closed(name: str, read: Read) -> ClosedOperation:
    """Return an operation with its fragments. ``read`` and the errors are those of :func:`expand`."""
    shebang, operation = _operation(name, read)
    flags = SHEBANG.fullmatch(shebang)
    said = flags["flags"] if flags else None
    fragments = _Fragments(name, read).all(operation.uses)
    return ClosedOperation(tuple(said.split(",")) if said else (), operation.uses, operation.code, fragments)


def _operation(name: str, read: Read) -> tuple[str, LuaFile]:
    """Return the first line and the file of an operation."""
    text = _text_of(name, read, (name,))
    try:
        operation = _taken_apart(text)
    except _FormError as mistake:
        _refuse((name,), mistake.what, mistake.line)
    if operation.shebang is None:
        _refuse((name,), "an operation begins with a line '#!lua' or '#!lua flags=…'")
    if operation.inside or operation.remembers is not None:
        _refuse(
            (name,), "'@use … inside' and '@remember' are for fragments only, because an operation is not a function"
        )
    return operation.shebang, operation


class _Fragments:
    """The fragments that an operation needs. Each file is read once."""

    def __init__(self, operation: str, read: Read) -> None:
        self._operation = operation
        self._read = read
        self._known: dict[str, LuaFile] = {}

    def outside(self, uses: tuple[str, ...]) -> list[str]:
        """Return the lines of all fragments that an operation needs; each follows the fragments that it uses."""
        outside = self._needed(uses, (self._operation,), lambda _: ())
        # A fragment at the top level of the script is not repeated inside functions. It comes before the fragments that
        # use it inside their functions.
        ordered = self._needed(
            uses, (self._operation,), lambda host: tuple(used for used in self._within(host) if used in outside)
        )
        return self._emitted(ordered, frozenset())

    @property
    def remember(self) -> bool:
        """Whether one of the fragments remembers."""
        return any(fragment.remembers is not None for fragment in self._known.values())

    def all(self, uses: tuple[str, ...]) -> Mapping[str, LuaFile]:
        """Return all fragments that an operation needs, in order, also those inside the functions of others."""
        ordered = self._needed(uses, (self._operation,), lambda used: self._known[used].inside)
        return {name: self._known[name] for name in ordered}

    def _fragment(self, name: str, way: tuple[str, ...]) -> LuaFile:
        if name not in self._known:
            text = _text_of(f"includes/{name}", self._read, way)
            try:
                self._known[name] = _fragment(name, text)
            except _FormError as mistake:
                _refuse(way, mistake.what, mistake.line)
        return self._known[name]

    def _needed(
        self, uses: tuple[str, ...], stack: tuple[str, ...], also: Callable[[str], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return all fragments used, directly or not, in order; ``also`` returns more that must precede a fragment."""
        found: dict[str, None] = {}

        def gather(uses: tuple[str, ...], stack: tuple[str, ...]) -> None:
            for used in uses:
                way = (*stack, used)
                if used in stack[1:]:  # the operation is not a fragment, even if a fragment has its name
                    _refuse(way, "a cycle")
                if used not in found:
                    gather((*self._fragment(used, way).uses, *also(used)), way)
                    found[used] = None

        gather(uses, stack)
        return tuple(found)

    def _within(self, host: str) -> tuple[str, ...]:
        """Return all fragments that the function of a fragment needs inside."""
        return self._needed(self._known[host].inside, (self._operation, host), lambda used: self._known[used].inside)

    def _emitted(self, names: tuple[str, ...], there: frozenset[str]) -> list[str]:
        """Return the lines of fragments that are not ``there`` yet; inner fragments follow their host's first line."""
        lines: list[str] = []
        for name in names:
            if name not in there:
                fragment = self._known[name]
                needed = self._needed(fragment.inside, (self._operation, name), lambda _: ())
                first, *others = fragment.code
                inner = self._emitted(needed, there)
                lines += (f"-- includes/{name}", first, *inner, *others, *remembering(name, fragment))
                there |= {name}
        return lines


def _refuse(stack: tuple[str, ...], what: str, line: int | None = None) -> NoReturn:
    place = " -> ".join(stack) + (f", line {line}" if line else "")
    raise ScriptFormatError(f"{place}: {what}")


def _text_of(file: str, read: Read, stack: tuple[str, ...]) -> str:
    text = read(file)
    if text is None:
        _refuse(stack, f"there is no {file}.lua")
    return text


def bare_code(text: str) -> str:
    """Return Lua without its comments, and with empty strings in the place of its strings."""
    return _TOKEN.sub(lambda token: "" if token[0].startswith("--") else "''", text)


def _inside(text: str) -> set[int]:
    """Return the numbers of lines that begin inside a string or a long comment, so they are not code of their own."""
    numbers: set[int] = set()
    for token in _TOKEN.finditer(text):
        breaks = token[0].count("\n")
        if breaks:
            first = text.count("\n", 0, token.start()) + 1
            numbers.update(range(first + 1, first + breaks + 1))
    return numbers


def _taken_apart(text: str) -> LuaFile:
    lines = text.split("\n")
    shebang = lines[0] if lines[0].startswith("#!") else None
    if shebang is not None:
        if not SHEBANG.fullmatch(shebang):
            raise _FormError(f"expected '#!lua' or '#!lua flags=…', found {shebang!r}", 1)
        lines[0] = ""
    inside = _inside(text)
    uses: dict[str, bool] = {}
    code: list[tuple[int, str]] = []
    remembers: int | None = None
    for number, line in enumerate(lines, 1):
        if number not in inside and (not line.strip() or COMMENT.match(line)):
            if remember := _REMEMBER.fullmatch(line):
                remembers = int(remember[1])
            elif DIRECTIVE.match(line):
                _note_used(line, uses, number, after_code=bool(code))
        else:
            code.append((number, line))
    top_level = tuple((number, line) for number, line in code if number not in inside and not line[0].isspace())
    plain = tuple(use for use, inside_it in uses.items() if not inside_it)
    nested = tuple(use for use, inside_it in uses.items() if inside_it)
    return LuaFile(shebang, plain, nested, tuple(line for _, line in code), remembers, top_level)


def _note_used(line: str, uses: dict[str, bool], number: int, *, after_code: bool) -> None:
    """Add the names in a directive to ``uses``, a mapping from a fragment's name to whether it belongs inside."""
    use = _USE.fullmatch(line)
    if not use:
        raise _FormError(f"expected '-- @use NAME …' or '-- @remember NUMBER', found {line!r}", number)
    for name in use["names"].split():
        if after_code:
            raise _FormError(f"'@use {name}' comes after the first line of code", number)
        if name in uses:
            raise _FormError(f"'@use {name}' occurs twice", number)
        uses[name] = use["inside"] is not None


@cache  # most fragments belong to many operations
def _fragment(name: str, text: str) -> LuaFile:
    """Take a fragment apart, and check its form."""
    fragment = _taken_apart(text)
    if fragment.shebang is not None:
        raise _FormError("a fragment has no shebang", 1)
    expected = f"'local function {name}(', 'local {name} =' or 'local {name.upper()} ='"
    if not fragment.top_level:
        raise _FormError(f"expected {expected}, found no code")
    (first, line), *others = fragment.top_level
    if fragment.inside and not (line.startswith("local function ") and line.endswith(")")):
        raise _FormError("fragments can be included only inside a function, after its first line", first)
    beginnings = f"local function {name}(", f"local {name} =", f"local {name.upper()} ="
    if not line.startswith(beginnings) or line != fragment.code[0]:
        raise _FormError(f"expected {expected} as the first line of code, found {line!r}", first)
    for number, other in others:
        if not _CLOSING.match(other):
            raise _FormError(
                f"a fragment defines one local with its file's name, and nothing else; found {other!r}", number
            )
    if fragment.remembers is not None and not _OF_A_TEXT.fullmatch(line):
        raise _FormError("only the results of a function of one argument can be remembered", first)
    if named := _OF_THE_CALL.search(bare_code(text)):
        raise _FormError(f"a fragment gets the keys and arguments of a call from its caller; found {named[0]}")
    return fragment
