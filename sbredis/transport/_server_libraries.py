"""The libraries of functions on one server: which there are, and how one is loaded or deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbredis.exceptions import ScriptRefusedError
from sbredis.transport._forms import has_library_already
from sbredis.transport._resp import as_mapping

if TYPE_CHECKING:
    from sbredis.transport._multiplexed import Transport
    from sbredis.transport._script import Library

__all__ = ["delete_library", "list_libraries", "load_library"]

_TIMEOUT = 30.0


async def list_libraries(transport: Transport, slot: int, pattern: str) -> list[str]:
    """Return the names of the libraries on the server of a slot that match a pattern."""
    reply = await transport.command("FUNCTION", "LIST", "LIBRARYNAME", pattern, slot=slot, timeout=_TIMEOUT)
    found: list[Any] = reply if isinstance(reply, list) else []  # pyright: ignore[reportUnknownVariableType]
    names = [as_mapping(each).get(b"library_name") for each in found]
    return sorted(name.decode("utf-8", "replace") for name in names if isinstance(name, bytes))


async def load_library(transport: Transport, slot: int, library: Library) -> None:
    """Load a library on the server of a slot. If the server has a library of this name, that is a success."""
    try:
        await transport.command("FUNCTION", "LOAD", library.source, slot=slot, timeout=_TIMEOUT)
    except ScriptRefusedError as error:
        if not has_library_already(error.detail):
            raise


async def delete_library(transport: Transport, slot: int, name: str) -> None:
    """Delete a library from the server of a slot. If the server does not have it, that is a success."""
    try:
        await transport.command("FUNCTION", "DELETE", name, slot=slot, timeout=_TIMEOUT)
    except ScriptRefusedError as error:
        if error.detail != "Library not found":
            raise
