"""Reads the Lua files of this package, and makes the scripts that are sent of them.

The files are read with importlib.resources, because sbredis may be imported from a zipped wheel.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from sbredis.engine._changes import check_fields, unsound_fields
from sbredis.engine._contracts import Contract, Fact, contract, facts_of_fragment
from sbredis.engine._expansion import ScriptFormatError, expand
from sbredis.engine._library import library
from sbredis.engine._lua_constants import GENERATED
from sbredis.engine._state import UnknownFieldError, with_positions
from sbredis.transport import Library, Script

__all__ = [
    "ScriptFacts",
    "at_limit",
    "contract_of",
    "every_script",
    "facts_of",
    "facts_of_step",
    "generated",
    "load",
    "lua_files",
    "operations",
    "positioned",
    "preloaded",
    "read_source",
    "whole_library",
    "with_fact",
]

_USES = "includes/uses"


class ScriptFacts(NamedTuple):
    """The facts of a script that its requests need."""

    repeatable: Fact
    freeing: Fact


@cache
def read_source(name: str) -> str | None:
    """Return the text of a file such as ``"send"`` or ``"includes/begin"``, as :func:`positioned` changes it."""
    if name in GENERATED:
        return GENERATED[name]
    if name == _USES:
        return _uses()
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
def operations() -> tuple[str, ...]:
    """The names of all operations of this package, sorted."""
    return tuple(sorted(_lua_files(_at())))


@cache
def lua_files() -> Mapping[str, str]:
    """The texts of all Lua files of this package, as :func:`read_source` returns them."""
    return {name: read_source(name) or "" for name in (*operations(), *(f"includes/{each}" for each in _folders()))}


@cache
def generated() -> Mapping[str, str]:
    """The texts of all constants of the scripts, with the one that is made from the headers."""
    return {**GENERATED, _USES: _uses()}


def _uses() -> str:
    return f"local USES = ' {' '.join(with_fact('use'))} '\n"


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
    return Script(name, expand(name, read_source), takes_run_id=contract_of(name).takes_run_id, function=name)


@cache
def contract_of(name: str) -> Contract:
    """Return the contract in the header of an operation."""
    return contract(read_source(name) or "")


@cache
def facts_of(name: str) -> ScriptFacts:
    """Return the facts of an operation that its requests need, as its header states them."""
    header = contract_of(name)
    freeing = Fact(always=True) if "allow-oom" in header.flags else header.fact("freeing")
    return ScriptFacts(header.fact("repeatable"), freeing)


@cache
def facts_of_step(name: str) -> Mapping[str, Fact]:
    """Return the facts of an operation of a transaction that has no script, from the fragment that checks it."""
    return facts_of_fragment(read_source(f"includes/check_{name}") or "")


@cache
def with_fact(name: str) -> tuple[str, ...]:
    """The operations whose header states this fact for at least some of their calls, sorted."""
    return tuple(each for each in operations() if name in contract_of(each).facts)


@cache
def at_limit(script: Script) -> Script:
    """Return a script that a server runs also when it has reached its memory limit. It is for calls that store no more
    than they remove.
    """
    first, newline, rest = script.source.partition("\n")
    if "at_limit" not in contract_of(script.name).facts or first != "#!lua":
        raise ValueError(f"the script {script.name!r} has no calls of its own for a full server")
    source = f"{first} flags=allow-oom{newline}{rest}"
    return Script(script.name, source, script.takes_run_id, function=_function_at_limit(script.name))


def _function_at_limit(name: str) -> str:
    return f"{name}_at_limit"


@cache
def whole_library() -> Library:
    """Return the library of all operations. Its functions have the names of :attr:`~sbredis.transport.Script.function`.

    Raises :class:`ScriptFormatError` also if a field of the table of changes is not sound, because only all files
    together show this.
    """
    for mistake in unsound_fields(lua_files()):
        raise ScriptFormatError(mistake)
    return library(operations(), read_source, {name: _function_at_limit(name) for name in with_fact("at_limit")})


@cache
def every_script() -> tuple[Script, ...]:
    """Every script that a client may call."""
    return (*map(load, operations()), *(at_limit(load(name)) for name in with_fact("at_limit")))


def preloaded() -> tuple[Script, ...]:
    """The scripts that every client calls soon after it connects."""
    return tuple(map(load, with_fact("preloaded")))
