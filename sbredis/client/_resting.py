"""Receivers that only wait for pushes. There may be very many, so nobody looks at each of them again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Protocol

from sbredis.client._turns import TurnShare

__all__ = ["RestingReceivers"]

_CHECKING = 1.0
"""The seconds between two checks whether the partitions can be reached."""


class _Reached(Hashable, Protocol):
    """An entity, as far as it says whether it can be reached."""

    @property
    def connected(self) -> bool:
        """Whether there is a connection to the server of each partition that the client uses."""
        ...


class RestingReceivers:
    """Wakes receivers if a partition of their entity cannot be reached any more, because no push comes from it."""

    def __init__(self, turns: TurnShare) -> None:
        """Only some receivers are woken in each turn of the event loop."""
        self._turns = turns
        self._resting: dict[_Reached, dict[Callable[[], None], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def rest(self, entity: _Reached, wake: Callable[[], None]) -> None:
        """Let a receiver rest until it is woken, once."""
        self._resting.setdefault(entity, {})[wake] = None
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_CHECKING, self._check)

    def leave(self, entity: _Reached, wake: Callable[[], None]) -> None:
        """Do not wake this receiver any more."""
        resting = self._resting.get(entity, {})
        if resting.pop(wake, self) is None and not resting:
            del self._resting[entity]

    def _check(self) -> None:
        for entity in [entity for entity in self._resting if not entity.connected]:
            for wake in self._resting.pop(entity):
                self._turns.soon(wake)
        self._timer = asyncio.get_running_loop().call_later(_CHECKING, self._check) if self._resting else None
