"""Ask now and then whether the server answers, because a receiver waits through an outage without a word."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Final

from sbredis.aio import ServiceBusClient
from sbredis.exceptions import ServiceBusError

__all__ = ["Reach"]

_log = logging.getLogger("sbredis.worker")
_EVERY: Final = 2.0
_PATIENCE: Final = 2.0
"""The seconds that the server has to answer."""


class Reach:
    """Whether the server answers, for those who ask a worker whether it is ready."""

    def __init__(self, client: ServiceBusClient, entity: str) -> None:
        self._client = client
        self._entity = entity
        self.lost: str | None = None
        """The reason why the server is not reached; ``None`` if it answers."""
        self._watched = False

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[None]:
        """Ask the server while the block runs. A block inside it changes nothing."""
        if self._watched:
            yield
            return
        self._watched = True
        asking = asyncio.create_task(self._ask())
        try:
            yield
        finally:
            asking.cancel()
            with suppress(asyncio.CancelledError):
                await asking

    async def _ask(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            try:
                await self._client.describe_entity(self._entity, timeout=_PATIENCE)
            except ServiceBusError as error:
                if self.lost is None and error.is_transient:
                    _log.warning("the server does not answer; it is tried again until it does: %s", error)
                self.lost = str(error) if error.is_transient else None  # another error comes from a server that answers
            else:
                if self.lost is not None:
                    _log.info("the server answers again")
                self.lost = None
