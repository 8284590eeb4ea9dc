"""Tests of the options ``--in-process`` and ``--served``: the tests that start no process, and the others."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sbredis.servers import LocalServer
from tests.plugins import selection


def pure() -> int:
    return len("a")


def starts_a_server() -> object:
    return LocalServer()


def starts_one_by_a_helper() -> object:
    return [starts_a_server() for _ in range(2)]


def only_names_it_as_a_type(server: LocalServer) -> LocalServer:
    return server


def embeds() -> str:
    return "embedded:///folder"


class Helper:
    """A class with a method that starts a process."""

    def ask(self) -> object:
        return subprocess.run(["/bin/true"], check=True)


def uses_the_helper() -> object:
    return Helper().ask()


async def starts_a_program() -> object:
    return await asyncio.create_subprocess_exec("/bin/true")


def made_by(helper: Callable[[], object]) -> Callable[[], object]:
    return lambda: [helper()]


@pytest.mark.parametrize(
    ("function", "starts"),
    [
        (pure, False),
        (only_names_it_as_a_type, False),
        (starts_a_server, True),
        (starts_one_by_a_helper, True),
        (made_by(starts_one_by_a_helper), True),
        (uses_the_helper, True),
        (starts_a_program, True),
        (embeds, True),
    ],
)
def test_a_function_that_refers_to_a_process_starter_is_recognised(
    function: Callable[..., object], starts: bool
) -> None:
    assert selection.Reach().starts(function) is starts


@pytest.fixture
def names_a_server(target: str) -> bool:
    """Name a server, as fixtures do that use a server only if the target is one."""
    return isinstance(target, LocalServer)


@pytest.mark.parametrize(
    ("option", "target", "stays"),
    [
        ("in_process", "memory", True),
        ("in_process", "server", False),
        ("served", "memory", False),
        ("served", "server", True),
        ("", "memory", True),
        ("", "server", True),
    ],
    indirect=["target"],
)
@pytest.mark.usefixtures("target")
def test_served_selects_tests_on_servers_and_in_process_selects_tests_in_memory(
    option: str, stays: bool, request: pytest.FixtureRequest
) -> None:
    gone: list[pytest.Item] = []
    hook = SimpleNamespace(pytest_deselected=lambda items: gone.extend(items))  # noqa: PLW0108 -- called by keyword
    config: Any = SimpleNamespace(getoption=lambda name: name == option, hook=hook)
    items = [request.node]
    selection.pytest_collection_modifyitems(config, items)
    assert (items, gone) == (([request.node], []) if stays else ([], [request.node]))


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@pytest.mark.usefixtures("names_a_server")
def test_a_test_in_memory_is_not_served_even_if_its_fixtures_name_a_server(request: pytest.FixtureRequest) -> None:
    assert selection.needs_processes(request.node, selection.Reach())
    assert not selection.depends_on_the_server(request.node, selection.Reach())


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@pytest.mark.usefixtures("url")
def test_the_url_of_a_test_in_memory_needs_no_process(request: pytest.FixtureRequest) -> None:
    assert not selection.needs_processes(request.node, selection.Reach())


def test_a_selected_test_that_starts_a_process_fails_with_the_reason() -> None:
    # without ``__init__``, because that would add an audit hook for the rest of the process
    guard = selection.Guard.__new__(selection.Guard)
    guard.running = "tests/x.py::test_it"
    with pytest.raises(RuntimeError, match="was selected by --in-process and starts a process"):
        guard.hear("subprocess.Popen", ("true", ["true"]))
    guard.running = ""
    guard.hear("subprocess.Popen", ("true", ["true"]))
