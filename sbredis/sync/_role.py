"""A role of an application, from threads."""

from __future__ import annotations

from functools import partial
from types import TracebackType
from typing import Self

from sbredis import aio
from sbredis._public import public
from sbredis.sync._docstrings import documented_by
from sbredis.sync._facade import Facade

__all__ = ["ServiceBusRole"]


@public
@documented_by(aio.ServiceBusRole)
class ServiceBusRole(Facade[aio.ServiceBusRole]):
    @property
    def name(self) -> str:
        return self._aio.name

    @property
    def held(self) -> bool:
        return self._aio.held

    @property
    def fence(self) -> int:
        return self._aio.fence

    def __enter__(self) -> Self:
        self._bridge.call(self._aio.__aenter__)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bridge.finish(partial(self._aio.__aexit__, kind, error, traceback))

    def wait_lost(self, *, timeout: float | None = None) -> bool:
        return self._bridge.call(self._aio.wait_lost, timeout=timeout)
