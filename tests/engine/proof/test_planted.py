"""The machine finds bugs: some planted ones here, and all of them in the long run."""

from __future__ import annotations

from functools import cache

import pytest

from sbredis.engine._scripts import expand, read_source
from sbredis.servers import LocalServer
from tests.engine.proof.breakages import script_of
from tests.engine.proof.extent import OPERATIONS
from tests.engine.proof.hosts import with_texts_replaced
from tests.engine.proof.planted import BUGS, Bug, find
from tests.offenders import for_each

# The bugs that are found soonest, each in another mechanism.
QUICK = (
    "lapses do not count",
    "expiry of a locked message",
    "the first lock to end unnoticed",
    "changed properties weigh nothing",
    "locks that go by a clock that goes back",
    "a repetition acts again",
    "who looks does not wait",
    "a session with two holders",
    "a delay lets others overtake",
    "who waited in a session waits on",
    "a message that is counted once too little",
    "what was scheduled is published twice",
)


@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in QUICK], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, shared_server: LocalServer) -> None:
    assert find(bug, shared_server) is not None


@cache
def sent() -> dict[str, str]:
    """Return the scripts of the operations, as they are sent."""
    return {name: expand(name, read_source) for name in map(script_of, OPERATIONS)}


@for_each("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_is_unique_and_changes_a_script(bug: Bug) -> None:
    """This test keeps the table up to date with the scripts; the long run shows that each bug is found."""
    changed = with_texts_replaced({bug.file: [(bug.right, bug.wrong)]})
    holding = [name for name, text in sent().items() if name == bug.file or f"-- {bug.file}\n" in text]
    assert any(expand(name, changed) != sent()[name] for name in holding)
    assert [one.name for one in BUGS].count(bug.name) == 1
