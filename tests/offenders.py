"""One test of a rule about many things of the repository, which names every one that breaks it.

A rule about every module, Lua file, class or keyword is one thing to know, so it is one item of the suite, and not one
for each file. Cases that were written down to show a behaviour stay items of their own, by ``parametrize``.
"""

from __future__ import annotations

import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet

__all__ = ["for_each"]


def for_each(
    names: str | tuple[str, ...], things: Iterable[Any], *, ids: Callable[[Any], str] = str
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Call a test for each of these things, and fail once, with a line for each thing that broke the rule.

    It is written as ``pytest.mark.parametrize`` is. A thing is called as ``pytest.param(..., id=...)`` says, or as
    ``ids`` says of its first value. A rule that holds for nothing fails.
    """
    wanted = (names,) if isinstance(names, str) else names
    cases = [_case(thing, one=isinstance(names, str), ids=ids) for thing in things]

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        def every(**fixtures: Any) -> None:
            offenders = [
                textwrap.indent(f"{name}: {wrong}", "    ").strip()
                for name, values in cases
                if (wrong := _wrong(test, dict(zip(wanted, values, strict=True)) | fixtures)) is not None
            ]
            if offenders or not cases:
                pytest.fail(
                    "\n".join([f"{len(offenders)} of {len(cases)} break this rule:", *offenders]), pytrace=False
                )

        every.__name__, every.__qualname__ = test.__name__, test.__qualname__
        every.__module__, every.__doc__ = test.__module__, test.__doc__
        vars(every).update(vars(test))  # the marks that it has got already
        signature = inspect.signature(test)
        rest = [each for name, each in signature.parameters.items() if name not in wanted]
        every.__signature__ = signature.replace(parameters=rest)  # type: ignore[attr-defined]
        return every

    return decorate


def _case(thing: Any, *, one: bool, ids: Callable[[Any], str]) -> tuple[str, tuple[Any, ...]]:
    """What a thing is called, and the values that the test gets."""
    if isinstance(thing, ParameterSet):
        return str(thing.id or ids(thing.values[0])), tuple(thing.values)
    values = (thing,) if one else tuple(thing)
    return ids(values[0]) if one else ", ".join(map(ids, values)), values


def _wrong(test: Callable[..., None], arguments: dict[str, Any]) -> str | None:
    """What the test says of one thing, with the line that says it; None where it passes."""
    try:
        test(**arguments)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # whatever is wrong is told at the end
        text = str(error).strip() if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
        here = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
        return f"{text} ({Path(here[0].filename).name}, line {here[0].lineno})"
    return None
