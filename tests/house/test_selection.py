"""Tests of the option ``--in-process``, which selects the tests that start no process."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from sbredis.servers import LocalServer
from tests.plugins.selection import Guard, Reach


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
        (embeds, True),
    ],
)
def test_a_function_that_refers_to_a_process_starter_is_recognised(
    function: Callable[..., object], starts: bool
) -> None:
    assert Reach().starts(function) is starts


def test_a_selected_test_that_starts_a_process_fails_with_the_reason() -> None:
    # without ``__init__``, because that would add an audit hook for the rest of the process
    guard = Guard.__new__(Guard)
    guard.running = "tests/x.py::test_it"
    with pytest.raises(RuntimeError, match="was selected by --in-process and starts a process"):
        guard.hear("subprocess.Popen", ("true", ["true"]))
    guard.running = ""
    guard.hear("subprocess.Popen", ("true", ["true"]))
