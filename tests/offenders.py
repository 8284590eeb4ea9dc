"""A decorator that turns a rule about many things of the repository into one test. The test names each thing that
breaks the rule.

A rule about every module, Lua file, class or keyword is one fact, so it is one test item, and not one item for each
thing. Cases that were written to show a behaviour stay separate items, by ``parametrize``.
"""

from __future__ import annotations

import inspect
import textwrap
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from _pytest.mark import ParameterSet

__all__ = ["Offenders", "for_each"]

LONGEST = 100
"""The maximum length of a name that is made from the values of a thing. A longer name is cut off."""


def for_each(
    names: str | tuple[str, ...], things: Iterable[Any], *, ids: Callable[[Any], str] = str
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call a test for each of these things, and fail at the end, with one line for each thing that breaks the rule.

    The decorator is written like ``pytest.mark.parametrize``. The name of a thing is the ``id`` of its
    ``pytest.param``, or the result of ``ids`` for its first value. The test fails if there are no things. It may be
    asynchronous. All things share the same fixtures, so the test must leave the fixtures unchanged.
    """
    wanted = (names,) if isinstance(names, str) else names
    cases = [_case(thing, one=isinstance(names, str), ids=ids) for thing in things]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        async def wait_for_every(**fixtures: Any) -> None:
            with Offenders(len(cases)) as offenders:
                for name, values in cases:
                    with offenders.of(name):
                        await test(**dict(zip(wanted, values, strict=True)), **fixtures)

        def every(**fixtures: Any) -> None:
            with Offenders(len(cases)) as offenders:
                for name, values in cases:
                    with offenders.of(name):
                        test(**dict(zip(wanted, values, strict=True)), **fixtures)

        made: Any = wait_for_every if inspect.iscoroutinefunction(test) else every
        made.__name__, made.__qualname__ = test.__name__, test.__qualname__
        made.__module__, made.__doc__ = test.__module__, test.__doc__
        vars(made).update(vars(test))  # the marks that the test has already
        signature = inspect.signature(test)
        rest = [each for name, each in signature.parameters.items() if name not in wanted]
        made.__signature__ = signature.replace(parameters=rest)
        return made  # type: ignore[no-any-return]

    return decorate


class Offenders:
    """Collects the failures of single things. After the last thing it fails the test."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.found: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and (self.found or not self.count):
            head = f"{len(self.found)} of {self.count} break this rule:"
            pytest.fail("\n".join([head, *self.found]), pytrace=False)

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Record the failure of a thing, with the line of the test that failed."""
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001  # reported at the end
            text = str(error).strip() if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            here = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
            where = f"({Path(here[0].filename).name}, line {here[0].lineno})"
            self.found.append(textwrap.indent(f"{name}: {text} {where}", "    ").strip())


def _case(thing: Any, *, one: bool, ids: Callable[[Any], str]) -> tuple[str, tuple[Any, ...]]:
    """Return the name of a thing, and the values that the test gets."""
    if isinstance(thing, ParameterSet):
        return str(thing.id or ids(thing.values[0])), tuple(thing.values)
    values = (thing,) if one else tuple(thing)
    name = ids(values[0]) if one else ", ".join(map(ids, values))
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…", values
