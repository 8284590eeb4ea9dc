"""How an application takes messages from a receiver."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Taking", "taking_of"]


class _TakingInbox(Protocol):
    @property
    def has_suspects(self) -> bool: ...

    def has_ended(self, message: Any, /) -> bool: ...

    def end_waits(self) -> None: ...

    def let_go(self) -> Awaitable[None]: ...


@dataclass(slots=True)
class Taking:
    """How an application takes messages from a receiver. A worker says it; other receivers keep the defaults.

    The next receive call follows a change.
    """

    hands: int | None = None
    """The most messages that it has begun at a time; ``None`` if it is not known, because it may keep them."""
    suspects: bool = True
    """Whether it takes suspects. Without them, it is told that they wait."""
    told: Callable[[], None] = lambda: None
    """Called when a partition says that suspects wait."""
    yields: bool = False
    """Whether the receiver lets go of a session without messages when others wait."""
    inbox: _TakingInbox | None = None
    """The inbox of the receiver, as soon as it has one."""

    @property
    def suspects_wait(self) -> bool:
        """Whether suspects wait that the application does not take, as far as the receiver knows."""
        return self.inbox is not None and self.inbox.has_suspects

    def end_waits(self) -> None:
        """End the waiting receive calls with what they have."""
        if self.inbox is not None:
            self.inbox.end_waits()


def taking_of(receiver: Any) -> Taking:
    """Return how the application takes messages from a receiver, to be changed."""
    taking: Taking = receiver._taking
    return taking
