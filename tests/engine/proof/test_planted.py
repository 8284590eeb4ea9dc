"""The machine finds bugs: some planted ones here, and all of them in the long run."""

from __future__ import annotations

from functools import cache

import pytest

from sbredis.engine._expansion import expand
from sbredis.engine._lua_files import read_source
from sbredis.engine._scripts import operations
from sbredis.servers import LocalServer
from tests.engine.proof.bugs import Bug, with_bug
from tests.engine.proof.planted import BUGS, find
from tests.offenders import for_each
from tests.plugins.parts import first

# The bugs that are found soonest; each one is in a different mechanism.
QUICK = (
    "lapses do not count",
    "the expiry event of a locked message stays",
    "the end of the first lock goes unnoticed",
    "the bytes of changed properties do not count",
    "the lock clock goes back with the server clock",
    "a repeated send sends again",
    "a session has two holders",
    "a delayed message of a session is overtaken",
    "a blocked session gives out messages",
    "a record counts one copy too few",
    "a scheduled message is published twice",
    "two operations settle one message",
    "a subscription that takes part is opened twice",
    "a call for a mover is not withdrawn",
    "a forgotten source keeps its verdict",
    "a freeze replaces the outstanding batch",
    "a frozen message expires",
    "a refusal leaves no record",
    "a settled batch stays",
    "a source does not tell its destinations",
    "a take leaves no record",
    "an older batch is taken",
    "a pinned message expires",
    "a plan takes one message too many",
    "a plan that is not committed is lost",
    "a receiver gets messages of a reserved partition",
    "a rollback is not noticed",
    "an unpinned message never expires",
)


@pytest.mark.parametrize(
    "bug", first(2, [bug for bug in BUGS if bug.name in QUICK], "each bug is one more search"), ids=lambda bug: bug.name
)
def test_a_planted_bug_is_found(bug: Bug, shared_server: LocalServer) -> None:
    assert find(bug, shared_server) is not None


@cache
def sent() -> dict[str, str]:
    """Return all scripts, as they are sent."""
    return {name: expand(name, read_source) for name in operations()}


@pytest.mark.slow
@for_each("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_is_unique_and_changes_a_script(bug: Bug) -> None:
    """This test keeps the table up to date with the scripts; the long run shows that each bug is found."""
    changed = with_bug(bug)
    holding = [name for name, text in sent().items() if name == bug.file or f"-- {bug.file}\n" in text]
    assert any(expand(name, changed) != sent()[name] for name in holding)
    assert [one.name for one in BUGS].count(bug.name) == 1
