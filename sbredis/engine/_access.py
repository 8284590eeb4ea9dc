"""The rights that a user of the server needs, as rules for ``ACL SETUSER``. Pure.

A server checks each command inside a script against the rights of the caller, and it finds a missing right in the
middle of the script, when earlier writes have happened. So the rules are read from the scripts, and nobody writes them
by hand. They name commands and no categories: ``@write`` contains ``FUNCTION LOAD``, and ``@read`` contains ``SCAN``.

There are two kinds of users. The user of a *namespace* may do everything that sbredis does in it. The user of some
*entities* may use them, but not change them: it reads the registry and writes the keys of its entities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

from sbredis.engine._keys import (
    STORE_KINDS,
    bucket_patterns,
    due_pattern,
    entity_pattern,
    head_pattern,
    namespace_pattern,
)
from sbredis.engine._scripts import every_script, load, operations, whole_library

__all__ = ["AccessTo", "Loads", "commands_of", "entity_rules", "namespace_rules"]

Loads = Literal["nothing", "scripts", "library"]
"""What a user may load: ``nothing``, so that it can call only what others have loaded; single ``scripts``; or also the
``library`` of functions. A user who may load a library can replace the functions that all other users call.
"""

_CONNECTION: Final = (
    *("asking", "cluster|nodes", "cluster|slots", "info", "ping", "readonly", "role", "select"),
    *("spublish", "ssubscribe", "sunsubscribe", "wait"),
)
"""The commands of the client besides calls of scripts. Every user may use AUTH, HELLO, QUIT and RESET."""
_CALLS: Final = ("evalsha", "evalsha_ro", "fcall", "fcall_ro", "script|load")
_LOADING_A_LIBRARY: Final = ("function|delete", "function|list", "function|load")
_CALLED = re.compile(r"(?:redis\.p?call|write_many|read_many)\(\s*(?P<what>'[^']*'|[^,)]*)")
_PASSED_ON = "command"
"""``write_many`` and ``read_many`` take the command as a parameter with this name. Their own calls are read instead."""


@dataclass(frozen=True, slots=True)
class AccessTo:
    """An entity that a user may use."""

    entity: str
    """Its id."""
    store: str | None = None
    """The id of the topic that stores its messages, if it is a subscription."""


def calls_of(source: str) -> Iterator[str]:
    """Yield the first argument of each call in a script that runs a command of the server.

    A command that the text shows is in quotes.
    """
    yield from (match["what"] for match in _CALLED.finditer(source))


def commands_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that these scripts use, sorted."""
    found: set[str] = set()
    for name in names:
        for what in calls_of(load(name).source):
            if what.startswith("'"):
                found.add(what.strip("'").lower())
            elif what != _PASSED_ON:
                raise ValueError(f"the text of {name} does not show which command it calls with {what}")
    return tuple(sorted(found))


def namespace_rules(namespace: str, loads: Loads = "scripts") -> list[str]:
    """Return the rules of a user that may do everything in a namespace.

    A user that loads ``nothing`` may only call the scripts and functions of this release.
    """
    pattern = namespace_pattern(namespace)
    return [*_reset(f"~{pattern}", f"&{pattern}"), *_commands(loads)]


def entity_rules(namespace: str, entities: Sequence[AccessTo], loads: Loads = "scripts") -> list[str]:
    """Return the rules of a user that may use some entities of a namespace.

    The user reads the registry, and cannot change it. It can neither publish on the channels of other entities nor
    listen to them.
    """
    own = [f"{entity_pattern(namespace, each.entity)}*" for each in entities]
    stores = dict.fromkeys(each.store for each in entities if each.store is not None)
    shared = [f"{entity_pattern(namespace, store)}{kind}" for store in stores for kind in STORE_KINDS]
    rights = [f"~{each}" for each in dict.fromkeys([*own, *shared])]
    rights += [f"%R~{each}" for each in (head_pattern(namespace), *bucket_patterns(namespace))]
    rights += [*(f"&{each}" for each in own), f"&{due_pattern(namespace)}"]
    return [*_reset(*rights), *_commands(loads)]


def _reset(*rights: str) -> list[str]:
    """Return rules that give these rights to keys and channels, and take all earlier rights."""
    keys = [each for each in rights if not each.startswith("&")]
    return ["resetkeys", *keys, "resetchannels", *(each for each in rights if each.startswith("&")), "-@all"]


@cache
def _commands(loads: Loads) -> tuple[str, ...]:
    named = sorted({*_CONNECTION, *commands_of(operations())})
    if loads == "nothing":
        library = whole_library().name
        calls = [f"{script.command.lower()}|{script.sha}" for script in every_script()]
        calls += [f"{script.function_command.lower()}|{library}_{script.function}" for script in every_script()]
        return tuple(f"+{each}" for each in [*named, *calls])
    own = _LOADING_A_LIBRARY if loads == "library" else ()
    return tuple(f"+{each}" for each in sorted([*named, *_CALLS, *own]))
