"""Settling messages and administering sessions with handles, from a thread."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Self

from sbredis import aio
from sbredis._public import public
from sbredis.model import PrimitiveTypes
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade

__all__ = ["ServiceBusSettler"]


@public
@documented_by(aio.ServiceBusSettler, then_own=True)
class ServiceBusSettler(Facade[aio.ServiceBusSettler]):
    """Several threads may use the settler at the same time."""

    @property
    def entity_path(self) -> str:
        return self._aio.entity_path

    def __enter__(self) -> Self:
        """Connect, and look up the entity."""
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._bridge.finish(self._aio.close)

    # -- messages ------------------------------------------------------------------------------------------------------

    def complete_message(self, handle: str, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.complete_message, handle, timeout=timeout)

    def abandon_message(
        self,
        handle: str,
        *,
        delay: timedelta | float | None = None,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(
            self._aio.abandon_message, handle, delay=delay, properties_to_modify=properties_to_modify, timeout=timeout
        )

    def release_message(self, handle: str, *, interrupted: bool = False, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.release_message, handle, interrupted=interrupted, timeout=timeout)

    def defer_message(
        self,
        handle: str,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(self._aio.defer_message, handle, properties_to_modify=properties_to_modify, timeout=timeout)

    def dead_letter_message(
        self,
        handle: str,
        reason: str | None = None,
        error_description: str | None = None,
        *,
        properties_to_modify: Mapping[str, PrimitiveTypes] | None = None,
        timeout: float | None = None,
    ) -> None:
        self._bridge.call(
            self._aio.dead_letter_message,
            handle,
            reason,
            error_description,
            properties_to_modify=properties_to_modify,
            timeout=timeout,
        )

    def renew_message_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        return self._bridge.call(self._aio.renew_message_lock, handle, timeout=timeout)

    # -- sessions ------------------------------------------------------------------------------------------------------

    def renew_session_lock(self, handle: str, *, timeout: float | None = None) -> datetime:
        return self._bridge.call(self._aio.renew_session_lock, handle, timeout=timeout)

    def get_session_state(self, handle: str, *, timeout: float | None = None) -> bytes | None:
        return self._bridge.call(self._aio.get_session_state, handle, timeout=timeout)

    def set_session_state(
        self, handle: str, state: str | bytes | bytearray | None, *, timeout: float | None = None
    ) -> None:
        self._bridge.call(self._aio.set_session_state, handle, state, timeout=timeout)

    def release_session(self, handle: str, *, timeout: float | None = None) -> None:
        self._bridge.call(self._aio.release_session, handle, timeout=timeout)
