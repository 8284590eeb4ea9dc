"""Examining the libraries of functions on all masters, and deleting the old ones.

:mod:`sbredis.maintenance._library_judgement` decides. A deletion can be repeated, so two clients that delete do no
harm.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sbredis.exceptions import ServiceBusAuthorizationError, ServiceBusError
from sbredis.maintenance._library_judgement import LibraryState, judge_libraries
from sbredis.registry import read_libraries
from sbredis.transport import delete_library, list_libraries, load_library

if TYPE_CHECKING:
    from sbredis.client import BackgroundFailures, Connection
    from sbredis.transport import Endpoint, Library

__all__ = ["LibrariesOfMaster", "OldLibraries", "examine_libraries"]

_log = logging.getLogger("sbredis.maintenance")


@dataclass(frozen=True, slots=True)
class LibrariesOfMaster:
    """The libraries on one master, or why they are not known."""

    connection: Connection
    library: Library
    """The library of this release."""
    server: Endpoint
    slot: int
    libraries: tuple[LibraryState, ...] = ()
    error: ServiceBusError | None = None

    async def carry_out(self, state: LibraryState) -> None:
        """Do what there is to do about a library. Raises :class:`ServiceBusError` if this is not possible."""
        transport = self.connection.transport
        if state.to_do == "delete":
            await delete_library(transport, self.slot, state.name)
        elif state.to_do == "load":
            await load_library(transport, self.slot, self.library)


async def examine_libraries(connection: Connection, library: Library) -> list[LibrariesOfMaster]:
    """Return the libraries of each master, beside that of this release. Loads none.

    Raises :class:`ServiceBusError` if the registry cannot be read.
    """
    known = await read_libraries(connection.transport, connection.namespace.name)
    found: list[LibrariesOfMaster] = []
    for server, slot in connection.transport.slots_of_masters.items():
        try:
            loaded = await list_libraries(connection.transport, slot, "sb_*")
        except ServiceBusError as error:
            found.append(LibrariesOfMaster(connection, library, server, slot, error=error))
        else:
            states = judge_libraries(loaded, known, library.name)
            found.append(LibrariesOfMaster(connection, library, server, slot, tuple(states)))
    return found


class OldLibraries:
    """The deletion of old libraries by the client that has the role for it."""

    def __init__(self, connection: Connection, failures: BackgroundFailures) -> None:
        self._connection = connection
        self._failures = failures
        self._told = False
        """Whether the log has that the user lacks a right."""

    async def run(self) -> None:
        """Look for old libraries once a day, until the task is cancelled or the user turns out to lack a right."""
        while (library := self._connection.library) is not None:
            try:
                await self._delete(library)
            except ServiceBusAuthorizationError as error:
                if not self._told:
                    self._told = True
                    _log.info(
                        "%s: the deletion of old libraries of functions is left to users with more rights: %s",
                        self._connection.target,
                        error.message,
                    )
                return
            except ServiceBusError as error:
                self._failures.report("the deletion of old libraries of functions", error)
            await asyncio.sleep(self._connection.timings.deleting_libraries)

    async def _delete(self, library: Library) -> None:
        for master in await examine_libraries(self._connection, library):
            if isinstance(master.error, ServiceBusAuthorizationError):
                raise master.error
            if master.error is not None:
                self._failures.report(f"the list of the libraries of functions on {master.server}", master.error)
            for state in master.libraries:
                if state.to_do == "delete":
                    await master.carry_out(state)
                    _log.info(
                        "the library %s was deleted from %s, because no client had named it for seven days",
                        state.name,
                        master.server,
                    )
