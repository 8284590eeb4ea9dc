"""Server users with only the rights that the scripts need. The rights are read from the scripts, as for a real role."""

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
"""The commands of the transport besides calls of scripts; every user may use HELLO and AUTH."""

_CALLED = re.compile(r"(?:redis\.p?call|write_many|read_many)\(\s*(?P<what>'[^']*'|[^,)]*)")
_PASSED_ON = "command"
"""`write_many` and `read_many` take the command as a parameter with this name. The calls of these two are checked
instead.
"""


def calls_of(source: str) -> Iterator[str]:
    """Yield the first argument of each call in a script that runs a Redis command. A command that the text shows is in
    quotes.
    """
    yield from (match["what"] for match in _CALLED.finditer(source))


def commands_of(names: Iterable[str]) -> tuple[str, ...]:
    """Return the commands that these scripts use."""
    found: set[str] = set()
    for name in names:
        for what in calls_of(load(name).source):
            if what.startswith("'"):
                found.add(what.strip("'").lower())
            else:
                assert what == _PASSED_ON, f"{name} calls {what}: its text does not show the command"
    return tuple(sorted(found))


class Rights(NamedTuple):
    """The rights of a user."""

    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]

    @staticmethod
    def of_keys(keys: Iterable[bytes], namespace: str, salt: str, commands: Iterable[str]) -> Rights:
        """Return the rights to these keys only, and to the channels of clients in the slot of these keys."""
        channel = waiting_channel(namespace, salt, "x").decode().removesuffix("x") + "*"
        return Rights(tuple(f"%RW~{key.decode()}" for key in keys), (f"&{channel}",), tuple(commands))

    @staticmethod
    def of_namespace(namespace: str, commands: Iterable[str]) -> Rights:
        """Return the rights to all keys and channels that have the name of a namespace."""
        return Rights((f"~sb:{namespace}:*",), (f"&sb:{namespace}:*",), tuple(commands))


def nodes_of(running: LocalServer | LocalCluster) -> Sequence[LocalServer]:
    """Return all the servers of a target.

    If this function named the class of a cluster, ``make quick`` would leave out each test with a bench
    (tests/plugins/selection.py).
    """
    nodes: Sequence[LocalServer] = getattr(running, "nodes", [running])
    return nodes


@contextmanager
def confined(running: LocalServer | LocalCluster, name: str, rights: Rights) -> Iterator[str]:
    """Return the connection string of a user who has these rights and no others, while the block runs."""
    commands = (f"+{command}" for command in (*_COMMANDS_OF_A_CONNECTION, *rights.commands))
    rules = ("reset", "on", ">pw", *rights.keys, *rights.channels, "-@all", *commands)
    for node in nodes_of(running):
        node.ask("ACL", "SETUSER", name, *rules)
    try:
        yield running.url.replace("://", f"://{name}:pw@")
    finally:
        for node in nodes_of(running):
            node.ask("ACL", "DELUSER", name)
