"""The scripts do what the model does, step by step, with any calls in any order at any time."""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof import extent
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import BOUNDS, MACHINES, drive
from tests.engine.proof.hosts import KINDS, Kind, host, with_bounds

EXAMPLES = {"server": extent.EXAMPLES, "memory": max(1, extent.EXAMPLES * 2 // 5)}
"""Steps in memory take several times as long. ``make prove-engine`` runs many more of both."""


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", MACHINES)
def test_the_scripts_agree_with_the_model(what: str, kind: Kind, bounds: str, shared_server: LocalServer) -> None:
    """Each step compares the result, the refusal and the state, and checks the invariants of the keys."""
    tally = Tally()
    with host(kind, with_bounds(BOUNDS[bounds]), server=shared_server) as on:
        drive(on, tally, bounds=BOUNDS[bounds], examples=EXAMPLES[kind], what=what)
    assert tally.steps > 0
