"""The keywords of functions that take them together as ``**``: show each of them, and refuse all others.

Azure's library accepts any keyword. A keyword that it knows, and that has no effect here, gives a warning, so that
code still runs after its import was changed. Any other unknown keyword is usually a typo, and is a :class:`TypeError`.
A type checker reports both as errors: functions take ``**kwargs: Unpack[NoOptions]``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypedDict, TypeVar

from sbredis._call_site import warn_caller
from sbredis._nearest import unexpected_keyword

__all__ = ["NoOptions", "keywords_of", "names_keywords", "refuse_unknown"]

F = TypeVar("F", bound=Callable[..., Any])
_IGNORED = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Unpack[NoOptions]")


class NoOptions(TypedDict):
    """The type of a function's unknown keywords: it permits none."""


def refuse_unknown(function: Callable[..., object], given: Mapping[str, object], azure: Collection[str]) -> None:
    """Raise a :class:`TypeError` for a keyword that Azure's library does not have either, and warn of all others.

    ``given`` are the keywords that the function does not have.
    """
    for name in given:
        if name not in azure:
            raise unexpected_keyword(function.__name__, name, keywords_of(function))
    if given:
        warn_caller(f"{function.__name__} ignores keywords of Azure's library: {', '.join(sorted(given))}", UserWarning)


def keywords_of(function: Callable[..., object]) -> list[str]:
    """Return the keywords that a function names."""
    by_place = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [name for name, each in inspect.signature(function).parameters.items() if each.kind not in by_place]


def names_keywords(options: type, defaults: Mapping[str, object] | None = None) -> Callable[[F], F]:
    """Let ``help()`` and :func:`inspect.signature` show the keywords of a function that takes ``**`` of ``options``.

    ``options`` is a ``TypedDict``. Type checkers read the keywords from the annotation; this decorator shows them to
    tools at run time. ``defaults`` is for a function that also takes the keywords of Azure's library, and ignores them
    with a warning. It maps each keyword to its default value.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        named = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if defaults is None else defaults[name],
                # as text, like the annotations of all other parameters
                annotation=getattr(kind, "__forward_arg__", kind),
            )
            for name, kind in options.__annotations__.items()
        ]
        own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
        by_place = [each for each in own if each.kind is not each.KEYWORD_ONLY]
        by_name = [each for each in own if each.kind is each.KEYWORD_ONLY]
        further = [] if defaults is None else [_IGNORED]
        function.__dict__["__signature__"] = signature.replace(parameters=[*by_place, *named, *by_name, *further])
        return function

    return decorate
