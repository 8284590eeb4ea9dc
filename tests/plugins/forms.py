"""A pytest plugin that chooses the form of the scripts on servers, and checks that servers got them in this form.

The suite runs over the default: a server gets the scripts as one library of functions. A client that silently falls
back to single scripts would pass all other tests. So a test fails if a server of the fixtures ``server`` and
``cluster`` has run a single script, or if a client has logged that some server refused the library. A test that takes
the library away, or that chooses a form itself, says so: ``@pytest.mark.any_form("why")``.

With ``SBREDIS_TEST_FORM=scripts`` in the environment, the tests of the transport and of the scripts run over single
scripts, and must not run functions. ``make test-rest`` runs them this way too. The proofs take the same choice.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import pytest

from sbredis.servers import LocalServer

LIBRARY, SCRIPTS = "library", "scripts"
FORM: Final = os.environ.get("SBREDIS_TEST_FORM") or LIBRARY
"""The form of this run."""

_MARKER = "any_form(reason): servers may get any form; the reason says why (tests/plugins/forms.py)"
_WRONG_COMMANDS = {LIBRARY: "evalsha", SCRIPTS: "fcall"}
_PATIENCE = 60.0
_LOG = logging.getLogger("sbredis.transport.forms")
"""It has the messages of clients that a server has refused the library, and no others."""


def with_form(url: str) -> str:
    """Return a connection string whose connections have the scripts in the form of this run."""
    return url if FORM == LIBRARY else f"{url}{'&' if '?' in url else '?'}scripts=needed"


def ran(server: LocalServer, command: str) -> int:
    """Return how often a command, or its variant that only reads, has succeeded since the last reset of statistics."""
    told = re.findall(
        rf"cmdstat_{command}(?:_ro)?:calls=(\d+),.*failed_calls=(\d+)",
        str(server.ask("INFO", "commandstats", timeout=_PATIENCE)),
    )
    return sum(int(calls) - int(failed) for calls, failed in told)


def may_be_any(item: pytest.Item) -> bool:
    """Return whether the mark of a test permits any form. Refuse a mark without a reason."""
    mark = item.get_closest_marker("any_form")
    if mark is not None and (len(mark.args) != 1 or not isinstance(mark.args[0], str) or not mark.args[0]):
        raise pytest.UsageError(f"{item.nodeid}: any_form needs a reason")
    return mark is not None


@contextmanager
def in_form(servers: Sequence[LocalServer], *, may_be_any: bool) -> Iterator[None]:
    """Fail if these servers run calls of the other form during the block, unless they may."""
    if may_be_any:
        yield
        return
    for server in servers:
        server.ask("CONFIG", "RESETSTAT", timeout=_PATIENCE)
    yield
    command = _WRONG_COMMANDS[FORM]
    counts = [ran(server, command) for server in servers]
    if any(counts):
        pytest.fail(f"{sum(counts)} calls of {command.upper()}, although the form of this run is {FORM!r}")


class _Refusals(logging.Handler):
    """The messages of clients that a server has refused the library."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record.getMessage())


@contextmanager
def without_refusals(*, may_be_any: bool) -> Iterator[None]:
    """Fail if a server refuses the library during the block, unless it may."""
    refusals = _Refusals()
    _LOG.addHandler(refusals)
    try:
        yield
    finally:
        _LOG.removeHandler(refusals)
    if refusals.found and not may_be_any:
        pytest.fail(refusals.found[0])


@pytest.fixture(autouse=True)
def no_refusals(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test in which a server refuses the library, unless its mark permits it."""
    with without_refusals(may_be_any=may_be_any(request.node)):
        yield


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and let clients log refusals; pytest calls this when it starts."""
    if FORM not in _WRONG_COMMANDS:
        raise pytest.UsageError(f"SBREDIS_TEST_FORM is {LIBRARY} or {SCRIPTS}, not {FORM}")
    config.addinivalue_line("markers", _MARKER)
    _LOG.setLevel(logging.INFO)
