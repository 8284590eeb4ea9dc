"""Receivers that grant credit, over a network with faults, hand out each message once while its lock holds."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.engine.proof.bugs import Bug
from tests.engine.proof.credit_run import REQUIRED, prove
from tests.engine.proof.planted_credit import CREDIT_BUGS, find, text_of
from tests.offenders import for_each


def test_no_promise_is_broken() -> None:
    seen = prove(range(10))
    often = ("again: a gift", "gift: push", "gift: reply", "fresh: taken", "open: unsubscribed", "epoch", "interest")
    assert all(seen[case] for case in often), seen


@pytest.mark.long("it takes minutes until each case has happened")
def test_each_case_happens() -> None:
    seen = Counter[str]()
    for seed in range(10, 510, 20):
        seen.update(prove(range(seed, seed + 20)))
        if all(seen[case] for case in REQUIRED):
            break
    assert [case for case in REQUIRED if not seen[case]] == []


@for_each("bug", CREDIT_BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_is_unique_and_changes_a_module(bug: Bug) -> None:
    ast.parse(text_of(bug))
    assert [one.name for one in CREDIT_BUGS].count(bug.name) == 1


@pytest.mark.long("some bugs are found only after a hundred runs")
@pytest.mark.parametrize("bug", CREDIT_BUGS, ids=lambda bug: bug.name)
def test_the_machine_finds_each_planted_bug(bug: Bug) -> None:
    assert find(bug)


def test_without_a_planted_bug_the_loaded_modules_keep_their_promises() -> None:
    assert not find(None, runs=2)
