"""Middleware that holds handlers back, such as a circuit breaker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol, runtime_checkable

from sbredis.workers.declaring._handlers import HandlerPlan

__all__ = ["Gate", "Gates"]

_LOOKING: Final = 1.0
"""The most seconds between two looks at a closed gate. Another entity that shares it may have opened it."""


@runtime_checkable
class Gate(Protocol):
    """Middleware that says how many handlers may start."""

    def room(self, now: float) -> int:
        """Return the number of handlers that may start now."""
        ...

    def wait(self, now: float) -> float | None:
        """Return the seconds after which a handler may start; ``None`` if time alone does not matter."""
        ...

    def begin(self, now: Callable[[], float]) -> None:
        """Forget all earlier runs, because a worker starts. ``now`` returns the worker's time."""
        ...


class Gates:
    """The gates of one entity.

    A gate of one handler holds back the whole entity: a receiver cannot choose among its messages, and a message that
    it gave back would come again at once. Handlers that must not wait for each other need entities of their own, such
    as subscriptions with rules.
    """

    __slots__ = ("_gates",)

    def __init__(self, handlers: Sequence[HandlerPlan]) -> None:
        found = {id(each): each for handler in handlers for each in handler.middleware if isinstance(each, Gate)}
        self._gates = list(found.values())

    def __bool__(self) -> bool:
        """Return whether there are gates."""
        return bool(self._gates)

    def begin(self, now: Callable[[], float]) -> None:
        """Let all gates begin anew. ``now`` returns the worker's time."""
        for gate in self._gates:
            gate.begin(now)

    def room(self, now: float, most: int) -> int:
        """Return the number of handlers that may start now, at most this number."""
        return min((most, *(gate.room(now) for gate in self._gates)))

    def closed(self, now: float) -> list[Gate]:
        """Return the gates that let no handler start."""
        return [gate for gate in self._gates if gate.room(now) <= 0]

    def wait(self, now: float) -> float:
        """Return the seconds after which to look again."""
        waits = [wait for gate in self._gates if (wait := gate.wait(now)) is not None]
        return min(max(waits, default=_LOOKING), _LOOKING)
