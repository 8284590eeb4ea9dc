"""The servers behind ``memory://``: one a name, shared by everything in this process that asks for it."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from sbredis.exceptions import ServerUnsuitableError

__all__ = ["forget_memory", "memory_server", "require_memory"]

_SERVERS: dict[str, Any] = {}


def require_memory() -> None:
    """Raise if what ``memory://`` needs is not installed; it is looked for, and not imported."""
    for name in ("fakeredis", "lupa"):
        if find_spec(name) is None:
            raise _missing(name)


def memory_server(name: str) -> Any:
    """The server of this name."""
    try:
        fakeredis = import_module("fakeredis")
        import_module("lupa")
    except ImportError as error:
        raise _missing(error.name) from None
    return _SERVERS.setdefault(name, fakeredis.FakeServer(version=(7, 4), server_type="redis"))


def forget_memory(name: str) -> None:
    """Give up the server of this name and what it holds. Who is connected to it keeps it; others get a new one."""
    _SERVERS.pop(name, None)


def _missing(name: str | None) -> ServerUnsuitableError:
    return ServerUnsuitableError(
        f"memory:// needs fakeredis with Lua: run pip install '.[memory]' in the checkout of sbredis "
        f"(cannot import {name})"
    )
