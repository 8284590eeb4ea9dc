"""Let an error in a process of Spark begin with its sentence. Spark shows the text of a whole Python traceback.

A traceback begins with the cause of an error. So the error gets its own sentence as its cause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from sbredis.exceptions import ServiceBusError

__all__ = ["sentence_first"]

C = TypeVar("C", bound=type)
P = ParamSpec("P")
T = TypeVar("T")


def sentence_first(cls: C) -> C:
    """Let the errors of the public methods of a class begin with their sentences."""
    for name, method in list(vars(cls).items()):
        if callable(method) and not name.startswith("_"):
            setattr(cls, name, _explained(method))
    return cls


def _explained(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            result = method(*args, **kwargs)
        except ServiceBusError as error:
            _put_first(error)
            raise
        return cast("T", _explained_rows(cast("Iterator[Any]", result))) if isinstance(result, Iterator) else result

    return call


def _explained_rows(rows: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from rows
    except ServiceBusError as error:
        _put_first(error)
        raise


def _put_first(error: ServiceBusError) -> None:
    """Give an error a class whose cause is the sentence. PySpark removes a usual cause."""
    kind = type(error)
    if issubclass(kind, _BegunBySentence):
        return
    sentence = kind.__new__(kind)
    sentence.__dict__.update(error.__dict__)
    sentence.args = error.args
    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "_sentence": sentence}
    error.__class__ = type(kind.__name__, (_BegunBySentence, kind), names)


class _BegunBySentence:
    """The base of errors whose cause cannot be removed."""

    _sentence: ServiceBusError

    @property
    def __cause__(self) -> BaseException | None:
        return self._sentence

    @__cause__.setter
    def __cause__(self, _: BaseException | None) -> None: ...
