"""Show each option of a function as a keyword, although the function takes its options together as ``**``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["names_keywords"]

F = TypeVar("F", bound=Callable[..., Any])
_IGNORED = inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD, annotation="Unpack[NoOptions]")


def names_keywords(options: type, defaults: Mapping[str, object] | None = None) -> Callable[[F], F]:
    """Let ``help()`` and :func:`inspect.signature` show the keywords of a function that takes ``**`` of ``options``.

    ``options`` is a ``TypedDict``. Type checkers read the keywords from the annotation; this decorator shows them to
    tools at run time. ``defaults`` is for a function that warns of other keywords and ignores them. It maps each
    keyword to its default value.
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
