"""The scripts do what the model does, step by step, with any calls in any order at any time."""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof import extent
from tests.engine.proof.comparison import Tally
from tests.engine.proof.extent import BOUNDS, MACHINES, drive
from tests.engine.proof.hosts import KINDS, Kind, host, with_bounds
from tests.plugins.parts import first, rounds

SHARES = {"server": 1.0, "library": 1.0, "memory": 0.4}
"""The share of the examples that a host runs. ``make prove WHAT=engine`` runs many more on both."""


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("kind", first(1, reversed(KINDS), "a step means the same in each form"))
@pytest.mark.parametrize("what", MACHINES)
@rounds(10, 4 * extent.EXAMPLES)
def test_the_scripts_agree_with_the_model(
    what: str, kind: Kind, bounds: str, examples: int, shared_server: LocalServer
) -> None:
    """Each step compares the result, the refusal and the state, and checks the invariants of the keys."""
    tally = Tally()
    with host(kind, with_bounds(BOUNDS[bounds]), server=shared_server) as on:
        drive(on, tally, bounds=BOUNDS[bounds], examples=max(1, round(examples * SHARES[kind])), what=what)
    assert tally.steps > 0
