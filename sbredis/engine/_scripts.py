"""Builds the scripts of the broker's operations from Lua files and their fragments, and reads their contracts.

An operation is ``lua/NAME.lua``. A fragment is ``lua/includes/SUBJECT/NAME.lua``; its name is unique, so only the
loader needs to know its folder. A constant of ``_lua_constants.py`` is used like a fragment, and is generated when the
script is loaded. Operations and fragments name the fragments that they use in lines ``-- @use NAME NAME`` above their
code. A fragment defines one local with the name of its file, and nothing else. So all fragments can be in one chunk,
and none changes the meaning of another. The local of a constant may be in upper case.

``-- @use NAME NAME inside`` puts fragments inside the function of the fragment. A call takes time for each function
that it creates. It creates the inside fragments only if it calls the function around them.

:func:`expand` and :func:`contract` do no I/O; :func:`load` and :func:`operations` read the files of this package.
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
    """A Lua file does not have the required form: a mistake in sbredis, never in the code that uses it."""


# -- expansion ---------------------------------------------------------------------------------------------------------

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_SHEBANG = re.compile(r"#!lua(?: flags=(?P<flags>[a-z-]+(?:,[a-z-]+)*))?")
_COMMENT = re.compile(r"\s*--(?!\[=*\[)")
_DIRECTIVE = re.compile(r"\s*--+\s*@")
_USE = re.compile(rf"-- @use (?P<names>{_NAME}(?: {_NAME})*?)(?P<inside> inside)?")
_CLOSING = re.compile(r"end\b|[)}\]]")

# Matches long comments and long strings, which may contain line breaks. Also matches line comments and other strings,
# which may contain text that looks like the beginning of a long comment or a long string.
_TOKEN = re.compile(
    r"--\[(?P<c>=*)\[.*?\](?P=c)\]|--[^\n]*|\[(?P<s>=*)\[.*?\](?P=s)\]"
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _File:
    """One parsed file: the fragments that it names, and its code without comments and blank lines."""

    shebang: str | None
    uses: tuple[str, ...]
    inside: tuple[str, ...]
    """The fragments inside its function, which cost nothing until the function is called."""
    code: tuple[str, ...]
    top_level: tuple[tuple[int, str], ...]
    """The lines of code that are not indented, with their numbers; lines inside long strings are left out."""


def expand(name: str, read: Read) -> str:
    """Return the source of an operation as it is sent: its shebang, every fragment that it needs, its body.

    Each fragment occurs once, after the fragments that it uses itself. Blank lines and whole-line comments are dropped.
    ``read`` returns the text of a file such as ``"send"`` or ``"includes/begin"``, or None if there is no such file.
    For a fragment, ``read`` searches all folders of ``includes``. Raises :class:`ScriptFormatError`, which shows the
    chain of ``@use`` lines that leads to the faulty file.
    """
    operation = _taken_apart(_text_of(name, read, (name,)), (name,))
    if operation.shebang is None:
        _refuse((name,), "an operation begins with a line '#!lua' or '#!lua flags=…'")
    if operation.inside:
        _refuse((name,), "'@use … inside' is for fragments only, because an operation is not a function")
    fragments = _Fragments(name, read)
    lines = [operation.shebang, *fragments.outside(operation.uses), f"-- {name}.lua", *operation.code]
    return "\n".join(lines) + "\n"


class _Fragments:
    """The fragments that an operation needs. Each file is read once."""

    def __init__(self, operation: str, read: Read) -> None:
        self._operation = operation
        self._read = read
        self._known: dict[str, _File] = {}

    def outside(self, uses: tuple[str, ...]) -> list[str]:
        """Return the lines of all fragments that an operation needs; each follows the fragments that it uses."""
        outside = self._needed(uses, (self._operation,), lambda _: ())
        # A fragment at the top level of the script is not repeated inside functions. It comes before the fragments that
        # use it inside their functions.
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
    """Return the numbers of lines that begin inside a string or a long comment, so they are not code of their own."""
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
    """Add the names in a directive to ``uses``, a mapping from a fragment's name to whether it belongs inside."""
    use = _USE.fullmatch(line)
    if not use:
        _refuse(stack, f"expected '-- @use NAME …', which is the only directive, found {line!r}", number)
    for name in use["names"].split():
        if after_code:
            _refuse(stack, f"'@use {name}' comes after the first line of code", number)
        if name in uses:
            _refuse(stack, f"'@use {name}' occurs twice", number)
        uses[name] = use["inside"] is not None


def _check_fragment(name: str, fragment: _File, stack: tuple[str, ...]) -> None:
    if fragment.shebang is not None:
        _refuse(stack, "a fragment has no shebang", 1)
    expected = f"'local function {name}(', 'local {name} =' or 'local {name.upper()} ='"
    if not fragment.top_level:
        _refuse(stack, f"expected {expected}, found no code")
    (first, line), *others = fragment.top_level
    if fragment.inside and not (line.startswith("local function ") and line.endswith(")")):
        _refuse(stack, "fragments can be included only inside a function, after its first line", first)
    if not re.match(rf"local (?:function {name}\(|(?:{name}|{name.upper()}) =)", line) or line != fragment.code[0]:
        _refuse(stack, f"expected {expected} as the first line of code, found {line!r}", first)
    for number, other in others:
        if not _CLOSING.match(other):
            _refuse(
                stack, f"a fragment defines one local with its file's name, and nothing else; found {other!r}", number
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
    """The contract in the header of an operation, for tests that compare the Python side with it."""

    purpose: str
    flags: tuple[str, ...]
    keys: tuple[tuple[str, int], ...]
    """The keys in order, by name and number: ``KEYS[1-27] partition`` is ``("partition", 27)``; 0 stands for any number
    of keys.
    """
    call: tuple[str, ...]
    """The arguments that every call of the engine has, listed under the name ``call``; they come first."""
    arguments: tuple[str, ...]
    """The operation's own arguments, in order, without the variadic rest."""
    rest: str | None
    """The name of the variadic rest: the last arguments, of which there may be any number."""
    result: str
    refusals: tuple[str, ...]
    """The codes of its refusals; ``call`` stands for the codes of ``includes/calls/begin.lua``."""

    @property
    def takes_run_id(self) -> bool:
        """Whether the transport adds the first argument of a call."""
        return (self.call + self.arguments)[:1] == ("run_id",)


@dataclass(slots=True)
class _Section:
    kind: str
    line: int
    text: str
    open: bool = True


def contract(source: str) -> Contract:
    """Return the contract in an operation's header. Reads the file's text, because the text that is sent has no header.

    Raises :class:`ScriptFormatError`, which names the line and the text that was expected there.
    """
    first, _, _ = source.partition("\n")
    shebang = _SHEBANG.fullmatch(first)
    if not shebang:
        _expected("'#!lua' or '#!lua flags=…'", first, 1)
    sections = _sections(source)
    by_kind = {kind: [section for section in sections if section.kind == kind] for kind in _ORDER}
    for kind, what in (("purpose", "its purpose"), ("Result", "'Result:'"), ("Refusals", "'Refusals:'")):
        if not any(section.text.strip() for section in by_kind[kind]):
            raise ScriptFormatError(f"the header does not state {what}")
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
    """Return the codes after ``Refusals:`` in the header of a Lua file; empty if there is no such line."""
    return tuple(code for section in _sections(source) if section.kind == "Refusals" for code in _codes(section))


def _expected(what: str, found: str, line: int) -> NoReturn:
    raise ScriptFormatError(f"line {line}: expected {what}, found {found!r}")


def _header(source: str) -> Iterator[tuple[int, str | None]]:
    """Yield the comments at the top with their line numbers; None for a directive, which is not in the contract."""
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
                break  # comments between the directives and the code describe the code and are not part of the header
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
    """Return text for an error: the names of the lines that may follow a section."""
    kind = section.kind
    if kind == "Refusals":
        return "'-- @use NAME …' or the code"
    numbered = [f"'{other}[…]'" for other in ("KEYS", "ARGV") if _ORDER.index(other) >= _ORDER.index(kind)]
    continued = "an indented line or " if section.open and kind in ("KEYS", "ARGV") else ""
    return continued + " or ".join([*numbered, "'Refusals:'" if kind == "Result" else "'Result:'"])


def _numbered(sections: list[_Section]) -> Iterator[tuple[_Section, re.Match[str], int]]:
    """Yield each entry of KEYS or ARGV, and the number of its values (0 for the rest). Refuse gaps in the numbers."""
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
    """Return the names under ``ARGV[1-6] call``, the only range of arguments."""
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

# The files are read with importlib.resources, because sbredis may be imported from a zipped wheel.


def read_source(name: str) -> str | None:
    """Return the text of a file such as ``"send"`` or ``"includes/begin"``, as :func:`positioned` changes it."""
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
    """Put names and positions of fields into a Lua file, wherever it names a list (:mod:`sbredis.engine._state`).

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
    """A mapping from the name of each fragment to its folder."""
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
    """Return an operation of this package as it is sent. Raises :class:`ScriptFormatError` if there is none."""
    source = expand(name, read_source)
    return Script(name, source, takes_run_id=contract(read_source(name) or "").takes_run_id)
