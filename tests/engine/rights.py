"""Users of a server who may do just what the scripts do: generated from the scripts, as a role's rights must be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from sbredis.engine import load, waiting_channel
from sbredis.servers import LocalCluster, LocalServer

__all__ = ["Rights", "calls_of", "commands_of", "confined", "nodes_of"]

_COMMANDS_OF_A_CONNECTION = (
    *("evalsha", "script|load", "info", "config|get", "cluster|slots", "ping"),
    *("ssubscribe", "sunsubscribe"),
)
"""What the transport asks of a server beside calls of scripts; HELLO and AUTH anybody may."""

_CALLED = re.compile(r"(?:redis\.call|write_many|read_many)\(\s*(?P<what>'[^']*'|[^,)]*)")
_PASSED_ON = "command"
"""In the definitions of `write_many` and `read_many`, whose callers are looked at instead."""


def calls_of(source: str) -> Iterator[str]:
    """What stands where a script names the command it calls; a text in quotes, if it can be read at all."""
    yield from (match["what"] for match in _CALLED.finditer(source))


def commands_of(names: Iterable[str]) -> tuple[str, ...]:
    """The commands that these scripts use."""
    found: set[str] = set()
    for name in names:
        for what in calls_of(load(name).source):
            if what.startswith("'"):
                found.add(what.strip("'").lower())
            else:
                assert what == _PASSED_ON, f"{name} calls {what}, which cannot be known from its text"
    return tuple(sorted(found))


class Rights(NamedTuple):
    """What a user may do."""

    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]

    @staticmethod
    def of_keys(keys: Iterable[bytes], namespace: str, salt: str, commands: Iterable[str]) -> Rights:
        """For these keys and no others, and the channels of clients in their slot."""
        channel = waiting_channel(namespace, salt, "x").decode().removesuffix("x") + "*"
        return Rights(tuple(f"%RW~{key.decode()}" for key in keys), (f"&{channel}",), tuple(commands))

    @staticmethod
    def of_namespace(namespace: str, commands: Iterable[str]) -> Rights:
        """For whatever is called as a namespace's keys and channels are."""
        return Rights((f"~sb:{namespace}:*",), (f"&sb:{namespace}:*",), tuple(commands))


def nodes_of(running: LocalServer | LocalCluster) -> Sequence[LocalServer]:
    """All the servers of a target."""
    return running.nodes if isinstance(running, LocalCluster) else [running]


@contextmanager
def confined(running: LocalServer | LocalCluster, name: str, rights: Rights) -> Iterator[str]:
    """The connection string of a user who has these rights and no others, as long as the block lasts."""
    commands = (f"+{command}" for command in (*_COMMANDS_OF_A_CONNECTION, *rights.commands))
    rules = ("reset", "on", ">pw", *rights.keys, *rights.channels, "-@all", *commands)
    for node in nodes_of(running):
        node.ask("ACL", "SETUSER", name, *rules)
    try:
        yield running.url.replace("://", f"://{name}:pw@")
    finally:
        for node in nodes_of(running):
            node.ask("ACL", "DELUSER", name)
