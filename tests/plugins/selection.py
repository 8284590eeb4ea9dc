"""A pytest plugin that selects the tests that start no process (``--in-process`` and ``--quick``), or only the others
(``--served``).

The plugin needs no marks. It leaves out a test whose target is a server or a cluster. It also leaves out a test that
names a function that starts a process: in its code, in its fixtures, in its parameters, or in a helper that these call.
If a selected test still starts a process, it fails with the reason.

``--quick`` also leaves out the tests marked ``slow`` or ``long``, and limits Hypothesis to few examples.

``--served`` selects the tests whose result may depend on the server program: those that ``--in-process`` leaves out,
without the tests in memory.

``addopts`` in pyproject.toml loads the plugin.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import suppress
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest
from hypothesis import settings

SERVED = ("server", "cluster")
"""The targets that run in another process."""

STARTERS = ("multiprocessing.", "subprocess.", "sbredis.servers.", "sbredis.workers.supervising._process.")
"""The modules that start processes. Code that names such a module, or a part of it, starts processes."""

STARTER = object()
"""Stands for any part of one of these modules."""

OURS = ("tests.", "tools.", "benchmarks.")
"""The modules whose functions the plugin searches."""

OF_TARGETS = {"url"}
"""The fixtures that name servers, and start none if the target is memory."""

EMBEDDED = "embedded:"
"""Code that contains such a connection string starts a server."""

FORKING = frozenset({"create_subprocess_exec", "create_subprocess_shell", "fork"})
"""Functions of other modules that start a process. Code names them without the name of a starter."""

EXAMPLES = 10
"""The number of examples of a property in a quick run, unless the property sets its own."""

EVENTS = {"subprocess.Popen", "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
"""The audit events that Python raises before it starts a process."""


class Reach:
    """Finds the functions that may start a process, and caches the results."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, bool]] = {}

    def starts(self, thing: object) -> bool:
        """Return whether a function, a class or a module starts processes itself, or names code of this repository that
        does.
        """
        if id(thing) not in self._known:
            self._known[id(thing)] = (thing, _reaches_starter(thing))
        return self._known[id(thing)][1]


def _reaches_starter(root: object) -> bool:
    ahead, seen = [root], {id(root): root}
    while ahead:
        thing = ahead.pop()
        if _is_starter(thing):
            return True
        for named in _named_by(thing):
            if id(named) not in seen:
                seen[id(named)] = named
                ahead.append(named)
    return False


def _is_starter(thing: object) -> bool:
    name = thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None)
    return thing is STARTER or (isinstance(name, str) and f"{name}.".startswith(STARTERS))


def _named_by(thing: object) -> Iterator[object]:
    """Yield the objects that code of this repository names: globals, imported modules, closures, and methods of a
    class.
    """
    if isinstance(thing, type):
        if thing.__module__.startswith(OURS):
            yield from thing.__mro__[1:]
            yield from (getattr(member, "__func__", member) for member in vars(thing).values())
    elif isinstance(thing, property):
        yield from (thing.fget, thing.fset)
    elif isinstance(thing, FunctionType):
        yield inspect.unwrap(thing)
        yield getattr(getattr(thing, "hypothesis", None), "inner_test", None)
        if (thing.__module__ or "").startswith(OURS):
            for name in _names_in(thing.__code__):
                yield STARTER if f"{name}.".startswith(STARTERS) else thing.__globals__.get(name)
            for cell in thing.__closure__ or ():
                with suppress(ValueError):  # the closure variable has no value yet
                    yield cell.cell_contents


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield the names in a function and its inner functions. Also yield the module that starts processes if the code
    uses it without its name.
    """
    yield from code.co_names
    if not FORKING.isdisjoint(code.co_names):
        yield "multiprocessing"
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)
        elif isinstance(constant, str) and constant.startswith(EMBEDDED):
            yield "sbredis.servers"


def needs_processes(item: pytest.Item, reach: Reach) -> bool:
    """Return whether a test has a server as its target, or names code that starts a process."""
    if not isinstance(item, pytest.Function):
        return True
    given: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    if any(isinstance(value, str) and value in SERVED for value in given.values()):
        return True
    named = item._fixtureinfo.name2fixturedefs
    passed_over = OF_TARGETS if given.get("target") == "memory" else set[str]()
    fixtures = [definitions[-1].func for name, definitions in named.items() if name not in passed_over]
    return any(map(reach.starts, [item.obj, *fixtures, *given.values()]))


def _marks_of(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}


def depends_on_the_server(item: pytest.Item, reach: Reach) -> bool:
    """Return whether a test may start a process, and its target is not memory."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    return given.get("target") != "memory" and needs_processes(item, reach)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin; pytest calls this before it reads the command line."""
    parser.addoption(
        "--in-process", action="store_true", help="only tests that start no process: over memory, and of pure code"
    )
    parser.addoption("--quick", action="store_true", help="as --in-process, without the tests marked slow or long")
    parser.addoption("--served", action="store_true", help="only tests whose result may depend on the server")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests that are not selected; pytest calls this after it has collected the tests."""
    quick, served = config.getoption("quick"), config.getoption("served")
    if not quick and not served and not config.getoption("in_process"):
        return
    reach = Reach()
    if served:
        left_out = [item for item in items if not depends_on_the_server(item, reach)]
    else:
        left_out = [
            item
            for item in items
            if needs_processes(item, reach) or (quick and not {"slow", "long"}.isdisjoint(_marks_of(item)))
        ]
    config.hook.pytest_deselected(items=left_out)
    gone = set(left_out)
    items[:] = [item for item in items if item not in gone]


class Guard:
    """Fails a test that starts a process."""

    def __init__(self) -> None:
        self.running = ""
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.running and event in EVENTS:
            raise RuntimeError(f"{self.running} was selected by --in-process and starts a process: {arguments[:2]}")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.running = item.nodeid
        try:
            return (yield)
        finally:
            self.running = ""


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark and the guard; pytest calls this when it starts."""
    config.addinivalue_line(
        "markers",
        "slow: takes more than a tenth of a second, or waits half a second; make quick leaves out slow and long tests",
    )
    if config.getoption("quick"):
        settings.register_profile("quick", max_examples=EXAMPLES)
        settings.load_profile("quick")
    if config.getoption("quick") or config.getoption("in_process"):
        config.pluginmanager.register(Guard(), "sbredis-in-process")
