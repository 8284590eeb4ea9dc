"""The root of the tree of errors. All other errors are in :mod:`sbredis.exceptions`, which re-exports it."""

from __future__ import annotations

import enum
import secrets
from typing import Any, ClassVar, Self, TypeVar

__all__ = ["Outcome", "ServiceBusError"]

_E = TypeVar("_E", bound="ServiceBusError")


class Outcome(enum.Enum):
    """What is known about the effect of an operation that failed."""

    NEVER_SENT = "never sent"
    """The operation did not run. If you repeat it, here or elsewhere, it cannot run twice."""

    REFUSED = "refused"
    """The server answered with an error and changed nothing."""

    UNKNOWN = "unknown"
    """The operation was sent, but no answer came. It may or may not have run."""


class ServiceBusError(Exception):
    """The root of the tree: every error that sbredis reports about an operation or a server."""

    code: ClassVar[str] = "GeneralError"
    """The kind of error. It stays the same across releases, and each class of the tree has its own."""
    is_transient: bool = False
    """Whether the same operation may succeed later if you change nothing."""

    outcome: Outcome | None
    """What is known about the operation's effect; ``None`` if no operation was under way."""

    tracking_id: str
    """An identifier of this one failure, in the error's text and in the log."""

    entity: str | None = None
    """The queue, topic or subscription of the operation, if there was one."""

    unreachable_partitions: tuple[int, ...] = ()
    """The partitions that a creation, update or deletion of an entity could not reach. The next call that reaches them
    continues the work.
    """

    def __init__(
        self,
        message: str = "Service Bus has encountered an error.",
        *,
        outcome: Outcome | None = None,
        is_transient: bool | None = None,
        tracking_id: str | None = None,
    ) -> None:
        self.message = message
        self.outcome = outcome
        self.tracking_id = tracking_id or secrets.token_hex(8)
        if is_transient is not None:
            self.is_transient = is_transient
        super().__init__(message)

    def twin(self) -> Self:
        """Return a copy of this error for another caller: one exception must not be raised in two tasks."""
        return _made_again(type(self), self.args, self.__dict__)

    def __reduce__(self) -> tuple[Any, ...]:
        """Support copying and pickling, whatever arguments the constructor of the class takes."""
        return _made_again, (type(self), self.args, self.__dict__)

    def __str__(self) -> str:
        notes = [self.code]
        notes += [f"entity '{self.entity}'"] if self.entity and f"'{self.entity}'" not in self.message else []
        notes += [f"outcome: {self.outcome.value}"] if self.outcome else []
        notes.append("a retry may help" if self.is_transient else "a retry will not help")
        notes.append(f"tracking id {self.tracking_id}")
        return f"{self.message} ({'; '.join(notes)})"


def _made_again(kind: type[_E], arguments: tuple[Any, ...], facts: dict[str, Any]) -> _E:
    made = kind.__new__(kind)
    made.args = arguments
    made.__dict__.update(facts)
    return made
