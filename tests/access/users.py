"""Users of the tests' servers that have the rights which ``sbredis acl`` prints, and no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sbredis.engine import namespace_rules
from sbredis.servers import LocalCluster, LocalServer

__all__ = ["OF_TESTS", "confined_url", "nodes_of", "set_user", "url_of", "without_libraries"]

_USER = "confined"
OF_TESTS = (
    *("config|get", "dbsize", "del", "eval", "flushall", "get"),
    *("hkeys", "keys", "lpush", "script|flush", "set", "type"),
)
"""The commands with which tests look into servers and damage them. A test shows that sbredis uses none of them."""


def nodes_of(running: LocalServer | LocalCluster) -> Sequence[LocalServer]:
    """Return all the servers of a target."""
    return running.nodes if isinstance(running, LocalCluster) else [running]


@contextmanager
def without_libraries(running: LocalServer | LocalCluster) -> Iterator[None]:
    """Delete all libraries of functions from the servers of a target, before and after the block."""
    for node in nodes_of(running):
        node.ask("FUNCTION", "FLUSH")
    yield
    for node in nodes_of(running):
        node.ask("FUNCTION", "FLUSH")


def set_user(running: LocalServer | LocalCluster, user: str, rules: Sequence[str]) -> None:
    """Give a user these rights on all servers of a target."""
    for node in nodes_of(running):
        node.ask("ACL", "SETUSER", user, "on", f">{user}-pw", *rules)


def url_of(running: LocalServer | LocalCluster, user: str) -> str:
    """Return the connection string of a user that :func:`set_user` has made."""
    return running.url.replace("://", f"://{user}:{user}-pw@")


def confined_url(running: LocalServer | LocalCluster) -> str:
    """Return the connection string of a user that may do in all namespaces what others may do in one.

    Tests use many namespaces, and the library of functions. Otherwise the rights are those that the documentation gives
    to every service.
    """
    rules = [rule.replace("sb:ns:*", "sb:*") for rule in namespace_rules("ns", "library")]
    set_user(running, _USER, [*rules, *(f"+{each}" for each in OF_TESTS)])
    return url_of(running, _USER)
