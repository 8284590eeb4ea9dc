"""A pytest plugin that divides the suite into two parts: the tests of ``make test``, and the rest (``--part``).

Each test is in one of the parts. The rule needs no list of names:

| a test | its part |
|---|---|
| ``@pytest.mark.long("why")``, also as the mark of one parameter | rest |
| on the first of its targets: memory, else one server, else a cluster | test |
| on another of its targets | rest |
| ``@pytest.mark.conformance`` on any target (tests/plugins/targets.py) | test |
| without a target | test |

``first(2, VALUES, "why")`` gives ``parametrize`` its values: two for ``make test``, and all others for the rest.

A search at random, such as a state machine, can go on for as long as one likes. ``@rounds(20, 200)`` runs it twice, and
passes the number of its examples as the argument ``examples``. Only the first round is in ``make test``.

``--part=test`` and ``--part=rest`` select a part. Without the option, or with ``--part=all``, all tests are selected.
``addopts`` in pyproject.toml loads the plugin.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from _pytest.mark import ParameterSet  # what pytest.param returns; it has no public name

from tests.plugins.targets import EVERYWHERE

TEST, REST, ALL = "test", "rest", "all"

MARKER = "long(reason): make test leaves this test out; the reason says why (tests/plugins/parts.py)"


def first(number: int, values: Iterable[object], reason: str) -> list[object]:
    """Return the values of a parameter: the first ones for ``make test``, and all others for the rest.

    If there are several parameters, each value is a ``pytest.param``.
    """
    values = list(values)
    return [*values[:number], *(_long(value, reason) for value in values[number:])]


def _long(value: object, reason: str) -> object:
    mark = pytest.mark.long(reason)
    if isinstance(value, ParameterSet):
        return pytest.param(*value.values, marks=[*value.marks, mark], id=value.id)
    return pytest.param(value, marks=mark)


def rounds(few: int, *more: int) -> pytest.MarkDecorator:
    """Pass a number of examples to a test: the first one in ``make test``, each of the others in the rest."""
    return pytest.mark.parametrize("examples", first(1, (few, *more), "it searches for longer"))


def target_of(item: pytest.Item) -> str | None:
    """Return the target of a test, if it has one."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    target = given.get("target")
    return target if target in EVERYWHERE else None


def function_of(item: pytest.Item) -> str:
    """Return the name that all variants of a test share."""
    return item.nodeid.partition("[")[0]


def first_targets(items: Iterable[pytest.Item]) -> dict[str, str]:
    """Return for each test function that has targets the first of them."""
    firsts: dict[str, str] = {}
    for item in items:
        target, function = target_of(item), function_of(item)
        if target is not None:
            firsts[function] = min(target, firsts.get(function, target), key=EVERYWHERE.index)
    return firsts


def is_long(item: pytest.Item) -> bool:
    """Return whether a test is marked as long. Refuse a mark without a reason."""
    marks = list(item.iter_markers("long"))
    for mark in marks:
        if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0]:
            raise pytest.UsageError(f"{item.nodeid}: long needs a reason")
    return bool(marks)


def parts_of(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, str]]:
    """Yield each test with its part."""
    firsts = first_targets(items)
    for item in items:
        is_first = target_of(item) in (None, firsts.get(function_of(item)))
        is_conformance = item.get_closest_marker("conformance") is not None
        yield item, REST if is_long(item) or not (is_first or is_conformance) else TEST


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of this plugin; pytest calls this before it reads the command line."""
    parser.addoption("--part", choices=(TEST, REST, ALL), default=ALL, help="only the tests of make test, or the rest")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other part; pytest calls this after it has collected the tests.

    This comes before ``-k`` and ``-m``: the first target of a test is known only while all its targets are there.
    """
    part = config.getoption("part")
    divided = list(parts_of(items))
    left_out = [item for item, its in divided if part not in (ALL, its)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item, its in divided if part in (ALL, its)]


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark; pytest calls this when it starts."""
    config.addinivalue_line("markers", MARKER)
