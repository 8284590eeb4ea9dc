"""A pytest plugin that chooses the targets of a test: memory, one server, or a cluster.

The plugin decides for every test that takes the fixture ``target`` (or ``url``, which needs it). Each behaviour is
tested in memory, where ``make quick`` and ``make test`` run it, and again on a real server. A cluster uses another
transport below the same client and the same scripts. So tests use a cluster for the fundamentals, and if a cluster
could make a difference.

| a test | runs over | ``make test`` runs it over |
|---|---|---|
| without a mark | memory and one server | memory |
| ``@pytest.mark.everywhere("why")`` | memory, one server and a cluster | memory |
| ``@pytest.mark.conformance`` | memory, one server and a cluster | all three |
| ``@pytest.mark.memory("why")`` | memory | memory |
| ``@pytest.mark.parametrize("target", [...], indirect=True)`` | the targets that it lists | the first of them |

``make test-all`` runs all of them (tests/plugins/parts.py). The tests with the mark ``conformance`` are one suite.
``make test`` also runs it on the other server programs that sbredis supports. A test belongs to it if every user relies
on what the test shows, and if the test is short.

An entity has one partition, or several. ``@pytest.mark.both_shapes`` passes this choice to the test as its argument
``partitioned``: False in memory, and True on servers, where the partitions really run side by side. A test that lists
its targets runs with both values on each. The marks may be set for a whole module: ``pytestmark =
pytest.mark.everywhere("why")``.
"""

from __future__ import annotations

import pytest

ALWAYS = ("memory", "server")
EVERYWHERE = ("memory", "server", "cluster")
SHAPES = {False: "plain", True: "partitioned"}


def partitioned_on(target: str) -> bool:
    """Return whether the entity is partitioned on a target that the plugin selected."""
    return target != "memory"


MARKERS = (
    "conformance: one of the suite that make test runs on every target and every server (tests/plugins/targets.py)",
    "everywhere(reason): run over a cluster too; the reason says what a cluster can change (tests/plugins/targets.py)",
    "memory(reason): run in memory only; the reason says which other tests run on servers",
    "queue_with(**options): the options of the fixture queue (tests/aio/given.py)",
    "both_shapes: run with an entity of one partition and with a partitioned one (tests/plugins/targets.py)",
)


def chosen_by_hand(metafunc: pytest.Metafunc) -> set[str]:
    """Return the names of the arguments that a test's own ``parametrize`` marks set."""
    names: set[str] = set()
    for mark in metafunc.definition.iter_markers("parametrize"):
        argnames = mark.args[0] if mark.args else mark.kwargs["argnames"]
        names.update(argnames.replace(" ", "").split(",") if isinstance(argnames, str) else argnames)
    return names


def targets_of(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    """Return the targets of a test that does not list them."""
    if metafunc.definition.get_closest_marker("memory") is not None:
        return ALWAYS[:1]
    if metafunc.definition.get_closest_marker("conformance") is not None:
        return EVERYWHERE
    mark = metafunc.definition.get_closest_marker("everywhere")
    if mark is None:
        return ALWAYS
    if len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0]:
        raise pytest.UsageError(f"{metafunc.definition.nodeid}: everywhere needs a reason")
    return EVERYWHERE


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test function with its targets and shapes; pytest calls this before it makes the tests."""
    by_hand = chosen_by_hand(metafunc)
    over = targets_of(metafunc) if "target" in metafunc.fixturenames and "target" not in by_hand else None
    shaped = metafunc.definition.get_closest_marker("both_shapes") is not None
    if over is None:
        if shaped:
            metafunc.parametrize("partitioned", SHAPES, ids=SHAPES.values())
    elif shaped:
        pairs = [(target, partitioned_on(target)) for target in over]
        ids = [f"{target}-{SHAPES[shape]}" for target, shape in pairs]
        metafunc.parametrize(("target", "partitioned"), pairs, ids=ids, indirect=["target"])
    else:
        metafunc.parametrize("target", over, indirect=True)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks; pytest calls this when it starts."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)
