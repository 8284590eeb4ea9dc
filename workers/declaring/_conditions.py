"""Choose the handler of an entity that takes a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusReceivedMessage

__all__ = ["Chooser", "ConditionError", "HandlerCondition"]

T = TypeVar("T")


class HandlerCondition(NamedTuple):
    """The condition on messages under which a handler takes them. A condition without a part is always true."""

    subject: str | None = None
    when: Callable[[ServiceBusReceivedMessage], bool] | None = None

    @property
    def always(self) -> bool:
        """Whether the handler takes every message."""
        return self.subject is None and self.when is None

    def holds(self, message: ServiceBusReceivedMessage) -> bool:
        """Return whether the handler takes this message."""
        if self.subject is not None and message.subject != self.subject:
            return False
        return self.when is None or bool(self.when(message))


class ConditionError(Exception):
    """The condition of a handler has raised an error."""

    def __init__(self, handler: Any, error: BaseException) -> None:
        super().__init__(handler, error)
        self.handler = handler
        self.error = error


class Chooser(Generic[T]):
    """Chooses the handler for a message: the first whose condition holds, else the one without a condition.

    Raises :class:`~sbredis.exceptions.WorkerSetupError` if two handlers have no condition, or if two have the same
    subject and nothing else.
    """

    def __init__(self, entity: str, handlers: Sequence[tuple[str, HandlerCondition, T]]) -> None:
        self._rest: T | None = None
        self._conditional: list[tuple[HandlerCondition, T]] = []
        self._by_subject: dict[str, T] = {}
        names: dict[str | None, str] = {}
        for name, condition, handler in handlers:
            if condition.when is None:
                if condition.subject in names:
                    raise _twice(entity, condition.subject, names[condition.subject], name)
                names[condition.subject] = name
            if condition.always:
                self._rest = handler
            else:
                self._conditional.append((condition, handler))
                if condition.when is None and condition.subject is not None:
                    self._by_subject[condition.subject] = handler
        self._only_subjects = len(self._by_subject) == len(self._conditional)

    def choose(self, message: ServiceBusReceivedMessage) -> T | None:
        """Return the handler that takes a message; ``None`` if no handler takes it.

        Raises :class:`ConditionError` with the handler whose ``when`` function raises an error, and with that error.
        """
        if not self._conditional:
            return self._rest
        if self._only_subjects:
            subject = message.subject
            return self._rest if subject is None else self._by_subject.get(subject, self._rest)
        for condition, handler in self._conditional:
            try:
                if condition.holds(message):
                    return handler
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                raise ConditionError(handler, error) from error
        return self._rest


def _twice(entity: str, subject: str | None, first: str, second: str) -> WorkerSetupError:
    if subject is None:
        return WorkerSetupError(
            f"Two handlers of {entity!r} have no condition: {first} and {second}. Only one handler can take the rest: "
            "give the other one subject= or when=."
        )
    return WorkerSetupError(f"Two handlers of {entity!r} take the subject {subject!r}: {first} and {second}.")
