"""The operations of the broker as they are sent: a Lua file behind the fragments it uses; and what its header promises.

An operation is ``lua/NAME.lua``. A fragment is ``lua/includes/SUBJECT/NAME.lua``; its name is unique, so nothing but
the reader of the files needs to know its folder. A constant of ``_lua_constants.py`` is used like a fragment, and is
written when the script is loaded. Either names the fragments it uses in lines ``-- @use NAME NAME``
above its code. A fragment defines one local, called as its file, and nothing else, so that fragments
can stand behind one another in one chunk and none changes what another means; a constant may be spelled in upper
case. ``-- @use NAME NAME inside`` puts fragments inside the function, because a call pays for making a function each
time it comes to one, and most calls never come to what is rarely needed.
:func:`expand` and :func:`contract` compute; :func:`load` and :func:`operations` read the files of this package.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NoReturn

from sbredis.engine._lua_constants import GENERATED
from sbredis.engine._state import UnknownFieldError, with_positions
from sbredis.transport import Script

__all__ = [
    "Contract",
    "ScriptFormatError",
    "contract",
    "expand",
    "load",
    "operations",
    "positioned",
    "read_source",
    "refusals",
]

Read = Callable[[str], str | None]


class ScriptFormatError(Exception):
    """A Lua file is not written as this module reads it: a mistake in sbredis, never in what uses it."""


# -- expansion ---------------------------------------------------------------------------------------------------------

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SHEBANG = re.compile(r"#!lua(?: flags=(?P<flags>[a-z-]+(?:,[a-z-]+)*))?")
_COMMENT = re.compile(r"\s*--(?!\[=*\[)")
_DIRECTIVE = re.compile(r"\s*--+\s*@")
_USE = re.compile(rf"-- @use (?P<names>{_NAME}(?: {_NAME})*?)(?P<inside> inside)?")
_CLOSING = re.compile(r"end\b|[)}\]]")

# What may hold line breaks, and what may hold the beginning of such a thing without beginning it.
_TOKEN = re.compile(
    r"--\[(?P<c>=*)\[.*?\](?P=c)\]|--[^\n]*|\[(?P<s>=*)\[.*?\](?P=s)\]"
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _File:
    """One file, taken apart: the fragments it names, and its code without comments and blank lines."""

    shebang: str | None
    uses: tuple[str, ...]
    inside: tuple[str, ...]
    """Those that stand inside its function, and cost nothing until that is called."""
    code: tuple[str, ...]
    top_level: tuple[tuple[int, str], ...]
    """The lines of code that are not indented, with their numbers, but for the insides of long strings."""


def expand(name: str, read: Read) -> str:
    """The source of an operation as it is sent: its shebang, every fragment it needs, its body.

    Each fragment stands there once, after those that it uses itself. Comments that fill their line and blank lines are
    dropped. ``read`` gives the text of ``"send"`` or ``"includes/begin"``, whatever folder of ``includes`` the fragment
    is in, and None where there is no such file. Raises :class:`ScriptFormatError`, which tells by which way it came to
    the file at fault.
    """
    operation = _taken_apart(_text_of(name, read, (name,)), (name,))
    if operation.shebang is None:
        _refuse((name,), "an operation begins with a line '#!lua' or '#!lua flags=…'")
    if operation.inside:
        _refuse((name,), "an operation is no function that fragments could stand inside of")
    fragments = _Fragments(name, read)
    lines = [operation.shebang, *fragments.outside(operation.uses), f"-- {name}.lua", *operation.code]
    return "\n".join(lines) + "\n"


class _Fragments:
    """The fragments that an operation needs, read once each."""

    def __init__(self, operation: str, read: Read) -> None:
        self._operation = operation
        self._read = read
        self._known: dict[str, _File] = {}

    def outside(self, uses: tuple[str, ...]) -> list[str]:
        """The lines of all that an operation needs, each behind what it needs itself."""
        outside = self._needed(uses, (self._operation,), lambda _: ())
        # What is outside anyway is not repeated inside, and stands before those inside of which it is needed.
        ordered = self._needed(
            uses, (self._operation,), lambda host: tuple(used for used in self._within(host) if used in outside)
        )
        return self._emitted(ordered, frozenset())

    def _fragment(self, name: str, way: tuple[str, ...]) -> _File:
        if name not in self._known:
            self._known[name] = _taken_apart(_text_of(f"includes/{name}", self._read, way), way)
            _check_fragment(name, self._known[name], way)
        return self._known[name]

    def _needed(
        self, uses: tuple[str, ...], stack: tuple[str, ...], also: Callable[[str], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """All that is used, by whatever way, in order; ``also`` says what else a fragment needs before it."""
        found: dict[str, None] = {}

        def gather(uses: tuple[str, ...], stack: tuple[str, ...]) -> None:
            for used in uses:
                way = (*stack, used)
                if used in stack[1:]:  # the operation is no fragment, even if one is called as it is
                    _refuse(way, "a cycle")
                if used not in found:
                    gather((*self._fragment(used, way).uses, *also(used)), way)
                    found[used] = None

        gather(uses, stack)
        return tuple(found)

    def _within(self, host: str) -> tuple[str, ...]:
        """All that the inside of a fragment needs."""
        return self._needed(self._known[host].inside, (self._operation, host), lambda used: self._known[used].inside)

    def _emitted(self, names: tuple[str, ...], there: frozenset[str]) -> list[str]:
        """The lines of fragments, but for those that are there already; each with its inside behind its first line."""
        lines: list[str] = []
        for name in names:
            if name not in there:
                fragment = self._known[name]
                needed = self._needed(fragment.inside, (self._operation, name), lambda _: ())
                first, *others = fragment.code
                lines += (f"-- includes/{name}", first, *self._emitted(needed, there), *others)
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


def _inside(text: str) -> set[int]:
    """The numbers of the lines that begin inside a string or a long comment, and are not what they look like."""
    numbers: set[int] = set()
    for token in _TOKEN.finditer(text):
        breaks = token[0].count("\n")
        if breaks:
            first = text.count("\n", 0, token.start()) + 1
            numbers.update(range(first + 1, first + breaks + 1))
    return numbers


def _taken_apart(text: str, stack: tuple[str, ...]) -> _File:
    lines = text.split("\n")
    shebang = lines[0] if lines[0].startswith("#!") else None
    if shebang is not None:
        if not _SHEBANG.fullmatch(shebang):
            _refuse(stack, f"expected '#!lua' or '#!lua flags=…', found {shebang!r}", 1)
        lines[0] = ""
    inside = _inside(text)
    uses: dict[str, bool] = {}
    code: list[tuple[int, str]] = []
    for number, line in enumerate(lines, 1):
        if number not in inside and (not line.strip() or _COMMENT.match(line)):
            if _DIRECTIVE.match(line):
                _note_used(line, uses, stack, number, after_code=bool(code))
        else:
            code.append((number, line))
    top_level = tuple((number, line) for number, line in code if number not in inside and not line[0].isspace())
    plain = tuple(use for use, inside_it in uses.items() if not inside_it)
    nested = tuple(use for use, inside_it in uses.items() if inside_it)
    return _File(shebang, plain, nested, tuple(line for _, line in code), top_level)


def _note_used(line: str, uses: dict[str, bool], stack: tuple[str, ...], number: int, *, after_code: bool) -> None:
    """Add the fragments that a directive names to those named before, each with whether it belongs inside."""
    use = _USE.fullmatch(line)
    if not use:
        _refuse(stack, f"expected '-- @use NAME …', the only directive there is, found {line!r}", number)
    for name in use["names"].split():
        if after_code:
            _refuse(stack, f"'@use {name}' stands after the first line of code", number)
        if name in uses:
            _refuse(stack, f"'@use {name}' stands there twice", number)
        uses[name] = use["inside"] is not None


def _check_fragment(name: str, fragment: _File, stack: tuple[str, ...]) -> None:
    if fragment.shebang is not None:
        _refuse(stack, "a fragment has no shebang", 1)
    expected = f"'local function {name}(', 'local {name} =' or 'local {name.upper()} ='"
    if not fragment.top_level:
        _refuse(stack, f"expected {expected}, found no code")
    (first, line), *others = fragment.top_level
    if fragment.inside and not (line.startswith("local function ") and line.endswith(")")):
        _refuse(stack, "only a function can have fragments inside it, behind its first line", first)
    if not re.match(rf"local (?:function {name}\(|(?:{name}|{name.upper()}) =)", line) or line != fragment.code[0]:
        _refuse(stack, f"expected {expected} as the first line of code, found {line!r}", first)
    for number, other in others:
        if not _CLOSING.match(other):
            _refuse(
                stack, f"a fragment defines one local, called as its file, and nothing else; found {other!r}", number
            )


# -- the contract ------------------------------------------------------------------------------------------------------

_SECTION = re.compile(r"(?P<kind>KEYS|ARGV)\[|(?P<label>Result|Refusals):")
_NUMBERED = re.compile(
    rf"(?:KEYS|ARGV)\[(?P<first>[1-9]\d*)(?:-(?P<last>[1-9]\d*)|(?P<rest>\.\.\.))?\]\s+(?P<name>{_NAME})(?:\s+(?P<text>.*))?",
    re.DOTALL,
)
_ORDER = ("purpose", "KEYS", "ARGV", "Result", "Refusals")


@dataclass(frozen=True, slots=True)
class Contract:
    """What the header of an operation promises, for tests that hold the Python side against it."""

    purpose: str
    flags: tuple[str, ...]
    keys: tuple[tuple[str, int], ...]
    """The keys in order, by name and number: ``KEYS[1-27] partition`` is ``("partition", 27)``; 0 stands for any."""
    call: tuple[str, ...]
    """The arguments that every call of the engine has, listed under the name ``call``; they come first."""
    arguments: tuple[str, ...]
    """The arguments of its own, in order, but for the variadic rest."""
    rest: str | None
    """The name of what may follow any number of times."""
    result: str
    refusals: tuple[str, ...]
    """The codes it may answer with; ``call`` stands for those of ``includes/calls/begin.lua``."""

    @property
    def takes_run_id(self) -> bool:
        """Whether the transport puts in the first argument of a call."""
        return (self.call + self.arguments)[:1] == ("run_id",)


@dataclass(slots=True)
class _Section:
    kind: str
    line: int
    text: str
    open: bool = True


def contract(source: str) -> Contract:
    """What the header of an operation says, read from its file, not from what is sent, which has lost it.

    Raises :class:`ScriptFormatError`, which names the line and what was expected there.
    """
    first, _, _ = source.partition("\n")
    shebang = _SHEBANG.fullmatch(first)
    if not shebang:
        _expected("'#!lua' or '#!lua flags=…'", first, 1)
    sections = _sections(source)
    by_kind = {kind: [section for section in sections if section.kind == kind] for kind in _ORDER}
    for kind, what in (("purpose", "what the operation is for"), ("Result", "'Result:'"), ("Refusals", "'Refusals:'")):
        if not any(section.text.strip() for section in by_kind[kind]):
            raise ScriptFormatError(f"the header does not say {what}")
    call, arguments, rest = _arguments(by_kind["ARGV"])
    return Contract(
        purpose=by_kind["purpose"][0].text.strip(),
        flags=tuple((shebang["flags"] or "").split(",")) if shebang["flags"] else (),
        keys=_keys(by_kind["KEYS"]),
        call=call,
        arguments=arguments,
        rest=rest,
        result=by_kind["Result"][0].text.strip(),
        refusals=_codes(by_kind["Refusals"][0]),
    )


def refusals(source: str) -> tuple[str, ...]:
    """The codes after ``Refusals:`` in the header of a file, be it a fragment; none where there is no such line."""
    return tuple(code for section in _sections(source) if section.kind == "Refusals" for code in _codes(section))


def _expected(what: str, found: str, line: int) -> NoReturn:
    raise ScriptFormatError(f"line {line}: expected {what}, found {found!r}")


def _header(source: str) -> Iterator[tuple[int, str | None]]:
    """The comments at the top with their line numbers; None for a directive, which belongs to the expansion."""
    for number, line in enumerate(source.split("\n"), 1):
        if number == 1 and line.startswith("#!"):
            continue
        if not _COMMENT.match(line):
            return
        yield number, None if _DIRECTIVE.match(line) else line.strip()[2:].removeprefix(" ")


def _sections(source: str) -> list[_Section]:
    sections = [_Section("purpose", 2, "")]
    for number, text in _header(source):
        last = sections[-1]
        if text is None:
            if last.kind == "Refusals":
                break  # what stands between the directives and the code is about the code
            continue
        start = _SECTION.match(text)
        if start:
            sections.append(_begun(start, number, text, last))
        elif not text.strip():
            last.open = last.kind in ("purpose", "Result")
            last.text += "\n"
        elif last.open and (text[0].isspace() or last.kind not in ("KEYS", "ARGV")):
            last.text += f"\n{text}"
        else:
            _expected(_following(last), text, number)
    return sections


def _begun(start: re.Match[str], number: int, text: str, last: _Section) -> _Section:
    kind = start["kind"] or start["label"]
    order = _ORDER.index(kind) - _ORDER.index(last.kind)
    if order < 0 or (order == 0 and start["label"]):
        _expected(_following(last), text, number)
    return _Section(kind, number, text if start["kind"] else text[start.end() :])


def _following(section: _Section) -> str:
    """What may stand after a section, for the text of an error."""
    kind = section.kind
    if kind == "Refusals":
        return "'-- @use NAME …' or the code"
    numbered = [f"'{other}[…]'" for other in ("KEYS", "ARGV") if _ORDER.index(other) >= _ORDER.index(kind)]
    continued = "an indented line or " if section.open and kind in ("KEYS", "ARGV") else ""
    return continued + " or ".join([*numbered, "'Refusals:'" if kind == "Result" else "'Result:'"])


def _numbered(sections: list[_Section]) -> Iterator[tuple[_Section, re.Match[str], int]]:
    """Each entry of KEYS or ARGV and how many it stands for, 0 for the rest. Numbers have no gaps and begin at 1."""
    number = 1
    names: set[str] = set()
    ended = False
    for section in sections:
        entry = _NUMBERED.fullmatch(section.text.rstrip())
        expected = f"'{section.kind}[{number}]'"
        if ended:
            _expected("nothing after the variadic rest", section.text, section.line)
        if not entry or int(entry["first"]) != number:
            _expected(f"{expected} and a name", section.text, section.line)
        last = int(entry["last"] or number)
        if entry["last"] and last <= number:
            _expected(f"'{section.kind}[{number}-{number + 1}]' or more", section.text, section.line)
        if entry["name"] in names:
            _expected("a name that is not taken", entry["name"], section.line)
        names.add(entry["name"])
        ended = entry["rest"] is not None
        yield section, entry, 0 if ended else last - number + 1
        number = last + 1


def _keys(sections: list[_Section]) -> tuple[tuple[str, int], ...]:
    keys: list[tuple[str, int]] = []
    for _, entry, count in _numbered(sections):
        keys.append((entry["name"], count))
    return tuple(keys)


def _arguments(sections: list[_Section]) -> tuple[tuple[str, ...], tuple[str, ...], str | None]:
    call: tuple[str, ...] = ()
    arguments: list[str] = []
    rest: str | None = None
    for section, entry, count in _numbered(sections):
        name = entry["name"]
        if entry["last"]:
            call = _call(section, entry, count)
            continue
        if not count:
            rest = name
        else:
            arguments.append(name)
        if name in call:
            _expected("a name that is not taken", name, section.line)
        if name == "run_id" and entry["first"] != "1":
            _expected("'run_id' as 'ARGV[1]', where the transport puts it", section.text, section.line)
    return call, tuple(arguments), rest


def _call(section: _Section, entry: re.Match[str], count: int) -> tuple[str, ...]:
    """The names under ``ARGV[1-6] call``, the one range of arguments there is."""
    names = tuple(name.strip() for name in (entry["text"] or "").split(","))
    if entry["name"] != "call" or entry["first"] != "1":
        _expected("a range of ARGV only as 'ARGV[1-…] call'", section.text, section.line)
    if len(set(names)) != count or len(names) != count or not all(re.fullmatch(_NAME, name) for name in names):
        _expected(f"{count} different names, separated by commas, after 'call'", section.text, section.line)
    if "run_id" in names[1:]:
        _expected("'run_id' as 'ARGV[1]', where the transport puts it", section.text, section.line)
    return names


def _codes(section: _Section) -> tuple[str, ...]:
    text = section.text.strip()
    if text == "none":
        return ()
    codes = tuple(code.strip() for code in re.sub(r"\([^()]*\)", "", text).split(","))
    wrong = [code for code in codes if not re.fullmatch(r"call|[A-Z][A-Z0-9_]*", code)]
    if wrong or len(set(codes)) != len(codes):
        _expected("'none', or different upper case codes or 'call', separated by commas", text, section.line)
    return codes


# -- the files of this package -----------------------------------------------------------------------------------------

# Through importlib.resources, because sbredis may be imported from a zipped wheel.


def read_source(name: str) -> str | None:
    """Read a file of this package as ``expand`` asks for it: ``"send"`` or ``"includes/begin"``, with fields put in."""
    if name in GENERATED:
        return GENERATED[name]
    if name in operations():
        return positioned(name, _at(f"{name}.lua").read_text(encoding="utf-8"))
    fragment = name.removeprefix("includes/")
    if fragment == name:
        return None
    if fragment not in _folders():
        return None
    return positioned(name, _at("includes", _folders()[fragment], f"{fragment}.lua").read_text(encoding="utf-8"))


def positioned(name: str, text: str) -> str:
    """Put names and positions of fields into a Lua file where it names a list of them (:mod:`sbredis.engine._state`).

    Raises :class:`ScriptFormatError` for a field that its list does not have.
    """
    try:
        return with_positions(text)
    except UnknownFieldError as error:
        raise ScriptFormatError(f"{name}: {error}") from None


@cache
def operations() -> tuple[str, ...]:
    """The names of all operations of this package, sorted."""
    return tuple(sorted(_lua_files(_at())))


@cache
def _folders() -> Mapping[str, str]:
    """The folder of each fragment, by its name."""
    folders: dict[str, str] = {}
    for folder in _at("includes").iterdir():
        for name in _lua_files(folder) if folder.is_dir() else ():
            if name in folders:
                raise ScriptFormatError(f"both {folders[name]} and {folder.name} in lua/includes have a {name}.lua")
            folders[name] = folder.name
    return folders


def _lua_files(folder: Traversable) -> Iterator[str]:
    return (entry.name.removesuffix(".lua") for entry in folder.iterdir() if entry.name.endswith(".lua"))


def _at(*path: str) -> Traversable:
    file = files("sbredis") / "lua"
    for part in path:
        file /= part
    return file


@cache
def load(name: str) -> Script:
    """An operation of this package, as it is sent. Raises :class:`ScriptFormatError` if there is none of that name."""
    source = expand(name, read_source)
    return Script(name, source, takes_run_id=contract(read_source(name) or "").takes_run_id)
