"""A short form of the proof of the removal of unused entities; ``make prove WHAT=removal`` is the long form."""

from __future__ import annotations

from collections import Counter

import pytest

from sbredis.engine._expansion import expand
from sbredis.engine._lua_files import read_source
from tests.engine.proof.bugs import Bug
from tests.engine.proof.hosts import with_texts_replaced
from tests.offenders import for_each
from tests.registry.removal.bugs import BUGS
from tests.registry.removal.run import find, lacking, planted, prove

# Each of these bugs is in a different mechanism.
QUICK = (
    "the minute of the last use is not waited for",
    "a use of a subscription is no use of its topic",
    "a topic is quiet while its subscriptions are used",
    "unreachable partitions are idle",
    "dead letters that are to be forwarded are no use",
)


@pytest.mark.slow
def test_an_unused_entity_is_removed_and_a_used_one_is_not() -> None:
    tally: Counter[str] = Counter()
    prove(4_000, tally, seed=2)
    seldom = lacking(tally, 1)
    assert len(seldom) < 15, seldom


@pytest.mark.long("each search takes as long as the run without a bug")
@pytest.mark.parametrize("bug", [bug for bug in BUGS if bug.name in QUICK], ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert find(bug, 3_000) is not None


@for_each("bug", BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_is_unique_and_changes_the_code(bug: Bug) -> None:
    assert [one.name for one in BUGS].count(bug.name) == 1
    if bug.file.startswith("sbredis."):
        with planted(bug):
            return
    changed = with_texts_replaced({bug.file: [(bug.right, bug.wrong)]}, read_source)
    scripts = ("close", "configure", "quiet", "grant", "touch")
    assert any(expand(name, changed) != expand(name, read_source) for name in scripts)
