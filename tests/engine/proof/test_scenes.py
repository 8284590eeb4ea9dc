"""Each case that a long run requires has a machine that makes it happen, and each scene makes its case happen."""

from __future__ import annotations

from typing import Any

import pytest

from sbredis.engine import PartitionSettings
from tests.engine.proof.cases import Case, required, times
from tests.engine.proof.comparison import How, Tally
from tests.engine.proof.directing import home, rules, wrong_calls
from tests.engine.proof.extent import BOUNDS, MACHINES, machine_of
from tests.engine.proof.hosts import host, with_bounds
from tests.engine.proof.transaction_scenes import SCENES

pytestmark = pytest.mark.slow

SETTINGS = PartitionSettings(clock="test", duplicate_window=1_000)


def begin(machine: Any, what: str) -> None:
    """Make the partitions of a machine."""
    if what in {"queue", "sessions"}:
        machine.begin(SETTINGS, 0, [])
    elif what == "topic":
        machine.begin(SETTINGS, [SETTINGS] * 3, 0, [])
    else:
        machine.begin(SETTINGS, [SETTINGS] * 4, 0, [], sessions=True)


@pytest.mark.parametrize("what", MACHINES)
def test_each_scene_makes_its_case_happen(what: str) -> None:
    tally, bounds = Tally(), BOUNDS["narrow"]
    with host("memory", with_bounds(bounds)) as on:
        for (kind, key), scene in SCENES.items():
            if scene.machine != what:
                continue
            machine = machine_of(what, on, tally, bounds)()
            begin(machine, what)
            case = Case(kind, key)
            before = times(tally, case)
            scene.play(machine, How(lane="a"))
            machine.teardown()  # it adds the transitions to the tally
            assert times(tally, case) > before, f"{kind}: {case} did not happen"


def test_each_case_has_a_rule_that_makes_it_happen() -> None:
    assert {Case(*of) for of in SCENES} <= {*required()}
    for case in required():
        # The operations happen in all rules; test_cases.py makes the transitions of stored messages happen.
        by_a_rule = case.kind in {"operations", "transitions", "transacted"} or (case.kind, case.key) in SCENES
        assert by_a_rule or case in wrong_calls(home(case)), f"{case} has neither a scene nor a wrong call"
        assert len(rules(home(case), [case])) == 1
