"""Reads the Lua files of this package, and assembles what :mod:`sbredis.engine._assembled` holds.

The files are read with importlib.resources, because sbredis may be imported from a zipped wheel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

from sbredis.engine._assembled import Assembled, Fact, ScriptFacts, at_limit_name
from sbredis.engine._changes import check_fields, unsound_fields
from sbredis.engine._contracts import Contract, contract, facts_of_fragment
from sbredis.engine._expansion import ScriptFormatError, expand
from sbredis.engine._library import library
from sbredis.engine._lua_constants import GENERATED
from sbredis.engine._state import UnknownFieldError, with_positions

__all__ = [
    "assemble",
    "contract_of",
    "lua_files",
    "opened",
    "positioned",
    "read_source",
    "script_source",
]

_HEADER = re.compile(r"#!.*\n(?:--.*\n)*")


@cache
def read_source(name: str) -> str | None:
    """Return the text of a file such as ``"send"`` or ``"includes/begin"``, as the loader uses it."""
    if name in GENERATED:
        return GENERATED[name]
    if name in _operations():
        return positioned(name, opened(name, _at(f"{name}.lua").read_text(encoding="utf-8")))
    fragment = name.removeprefix("includes/")
    if fragment == name:
        return None
    if fragment not in _folders():
        return None
    return positioned(name, _at("includes", _folders()[fragment], f"{fragment}.lua").read_text(encoding="utf-8"))


def opened(name: str, text: str) -> str:
    """Put the code that opens a call behind the header of an operation, if ``call`` is among its refusals.

    The header states all that this code needs to know.
    """
    header = contract(text)
    if "call" not in header.refusals:
        return text
    count, facts = len(header.call) + len(header.arguments), header.facts
    told = (count, header.rest is not None, "use" not in facts, "laneless" in facts)
    begun = f"begin(KEYS, ARGV, '{name}', {', '.join(map(str, told)).lower()})"
    opening = f"-- @use begin\nlocal p, refusal = {begun}\nif not p then\n  return refusal\nend\n"
    return _HEADER.sub(lambda lines: lines[0] + opening, text, count=1)


def positioned(name: str, text: str) -> str:
    """Put names and positions of fields into a Lua file, wherever it names a list (:mod:`sbredis.engine._state`).

    Raises :class:`ScriptFormatError` for a field that its list does not have, and for one that a table of changes does
    not have (:mod:`sbredis.engine._changes`).
    """
    try:
        placed = with_positions(text)
        check_fields(placed)
    except UnknownFieldError as error:
        raise ScriptFormatError(f"{name}: {error}") from None
    return placed


@cache
def _operations() -> tuple[str, ...]:
    return tuple(sorted(_lua_files(_at())))


@cache
def lua_files() -> Mapping[str, str]:
    """The texts of all Lua files of this package, as :func:`read_source` returns them."""
    return {name: read_source(name) or "" for name in (*_operations(), *(f"includes/{each}" for each in _folders()))}


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
def script_source(name: str) -> str:
    """Return an operation as it is sent as a single script.

    Raises :class:`ScriptFormatError` if there is no such operation.
    """
    return expand(name, read_source)


@cache
def contract_of(name: str) -> Contract:
    """Return the contract in the header of an operation."""
    return contract(read_source(name) or "")


def assemble(made_from: str) -> Assembled:
    """Assemble the library and the facts of all operations. ``made_from`` is the hash of all that they are made from.

    Raises :class:`ScriptFormatError` also if a field of the table of changes is not sound, because only all files
    together show this.
    """
    for mistake in unsound_fields(lua_files()):
        raise ScriptFormatError(mistake)
    scripts = {name: _facts(contract_of(name)) for name in _operations()}
    steps = {
        name.removeprefix("includes/check_"): facts_of_fragment(text)
        for name, text in lua_files().items()
        if name.startswith("includes/check_")
    }
    second_forms = {name: at_limit_name(name) for name, facts in scripts.items() if "at_limit" in facts.stated}
    made = library(_operations(), read_source, second_forms)
    return Assembled(made_from, scripts, steps, made.name, made.source)


def _facts(header: Contract) -> ScriptFacts:
    freeing = Fact(always=True) if "allow-oom" in header.flags else header.fact("freeing")
    return ScriptFacts(header.flags, header.takes_run_id, header.fact("repeatable"), freeing, header.facts)
