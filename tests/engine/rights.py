"""Server users with only the rights that the scripts need. The rights are read from the scripts, as for a real role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sbredis.engine._access import commands_of
from sbredis.servers import LocalCluster, LocalServer
from tests.access.users import nodes_of

__all__ = ["Rights", "commands_of", "confined"]

_COMMANDS_OF_A_CONNECTION = (
    *("evalsha", "evalsha_ro", "script|load", "fcall", "fcall_ro", "function|load", "info", "config|get"),
    *("cluster|slots", "ping", "ssubscribe", "sunsubscribe"),
)
"""The commands of the transport besides calls of scripts; every user may use HELLO and AUTH."""


class Rights(NamedTuple):
    """The rights of a user."""

    keys: tuple[str, ...]
    channels: tuple[str, ...]
    commands: tuple[str, ...]

    @staticmethod
    def of_keys(keys: Iterable[bytes], namespace: str, salt: str, commands: Iterable[str]) -> Rights:
        """Return the rights to these keys only, and to the channels of clients in the slot of these keys."""
        return Rights(tuple(f"%RW~{key.decode()}" for key in keys), (f"&sb:{namespace}:{{{salt}}}:*",), tuple(commands))

    @staticmethod
    def of_namespace(namespace: str, commands: Iterable[str]) -> Rights:
        """Return the rights to all keys and channels that have the name of a namespace."""
        return Rights((f"~sb:{namespace}:*",), (f"&sb:{namespace}:*",), tuple(commands))


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
