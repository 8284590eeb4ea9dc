"""The scripts of credit do what the model says: the machine of credit runs both."""

from __future__ import annotations

import pytest

from sbredis.engine._lua_files import read_source
from sbredis.servers import LocalServer
from tests.engine.proof.bugs import Bug
from tests.engine.proof.credit_twin import CASES, TwinMachine, prove, unhurried
from tests.engine.proof.hosts import USUAL, Address, host, source_at_start
from tests.engine.proof.planted_grants import GRANT_BUGS, find
from tests.offenders import for_each


def test_the_scripts_do_what_the_model_says(shared_server: LocalServer) -> None:
    with host(USUAL, unhurried(source_at_start), server=Address(shared_server.host, shared_server.port)) as on:
        seen = prove(range(4), on)
    often = ("again: a gift", "gift: push", "gift: reply", "grant: repeated", "epoch", "interest", "due: deputy")
    assert all(seen[case] for case in often), seen


@pytest.mark.parametrize(
    ("seed", "scene"), [(0, "throng"), (0, "succeed_a_throng"), (10, "hold_many_sessions"), (11, "hold_many_sessions")]
)
def test_more_receivers_than_a_call_looks_at(seed: int, scene: str, shared_server: LocalServer) -> None:
    with host(USUAL, unhurried(source_at_start), server=Address(shared_server.host, shared_server.port)) as on:
        machine = TwinMachine(seed, on)
        getattr(machine, scene)()
        getattr(machine, scene)()
        machine.step_calm()
        machine.scripts.close()
    assert sum(machine.cases[case] for case in CASES if case.endswith(("than a call looks at", "behind a crowd")))


@for_each("bug", GRANT_BUGS, ids=lambda bug: bug.name)
def test_each_planted_bug_is_unique_and_changes_a_script(bug: Bug) -> None:
    assert (read_source(bug.file) or "").count(bug.right) == 1
    assert [one.name for one in GRANT_BUGS].count(bug.name) == 1


@pytest.mark.long("some bugs are found only after many runs")
@pytest.mark.parametrize("bug", GRANT_BUGS, ids=lambda bug: bug.name)
def test_the_twin_finds_each_planted_bug(bug: Bug, shared_server: LocalServer) -> None:
    assert find(bug, Address(shared_server.host, shared_server.port))
