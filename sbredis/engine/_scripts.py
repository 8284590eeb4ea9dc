"""The scripts of this package as they are sent, and the facts of their calls."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

from sbredis.engine._assembled import Fact, ScriptFacts, assembled, at_limit_name
from sbredis.transport import Library, Script

__all__ = [
    "at_limit",
    "every_script",
    "facts_of",
    "facts_of_step",
    "load",
    "operations",
    "preloaded",
    "whole_library",
    "with_fact",
]


def operations() -> tuple[str, ...]:
    """The names of all operations of this package, sorted."""
    return tuple(assembled().scripts)


@cache
def load(name: str) -> Script:
    """Return an operation of this package as it is sent.

    Raises :class:`~sbredis.engine._expansion.ScriptFormatError` if there is none.
    """
    facts = assembled().scripts.get(name)
    if facts is None:
        return Script(name, _source(name))  # this raises the error
    return Script(name, partial(_source, name), facts.takes_run_id, name, only_reads="no-writes" in facts.flags)


def _source(name: str) -> str:
    """Return the text of a single script. Servers that get the library need no such text, so it is made when needed."""
    from sbredis.engine._lua_files import script_source

    return script_source(name)


@cache
def facts_of(name: str) -> ScriptFacts:
    """Return the facts of an operation that its requests need, as its header states them."""
    return assembled().scripts[name]


def facts_of_step(name: str) -> Mapping[str, Fact]:
    """Return the facts of an operation of a transaction that has no script, from the fragment that checks it."""
    return assembled().steps[name]


def with_fact(name: str) -> tuple[str, ...]:
    """The operations whose header states this fact for at least some of their calls, sorted."""
    return tuple(each for each, facts in assembled().scripts.items() if name in facts.stated)


@cache
def at_limit(script: Script) -> Script:
    """Return a script that a server runs also when it has reached its memory limit. It is for calls that store no more
    than they remove.
    """
    facts = facts_of(script.name)
    if "at_limit" not in facts.stated or facts.flags:
        raise ValueError(f"the script {script.name!r} has no calls of its own for a full server")

    def source() -> str:
        first, newline, rest = script.source.partition("\n")
        return f"{first} flags=allow-oom{newline}{rest}"

    return Script(script.name, source, script.takes_run_id, at_limit_name(script.name), only_reads=False)


@cache
def whole_library() -> Library:
    """Return the library of all operations. Its functions have the names of :attr:`~sbredis.transport.Script.function`.

    Raises :class:`~sbredis.engine._expansion.ScriptFormatError` if a Lua file has a mistake.
    """
    found = assembled()
    functions = frozenset((*found.scripts, *map(at_limit_name, with_fact("at_limit"))))
    return Library(found.library_name, found.library_source, functions)


@cache
def every_script() -> tuple[Script, ...]:
    """Every script that a client may call."""
    return (*map(load, operations()), *(at_limit(load(name)) for name in with_fact("at_limit")))


def preloaded() -> tuple[Script, ...]:
    """The scripts that every client calls soon after it connects."""
    return tuple(map(load, with_fact("preloaded")))
