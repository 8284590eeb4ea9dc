"""The effects of time are the same whether or not a partition was looked at in between."""

from __future__ import annotations

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof.extent import BOUNDS
from tests.engine.proof.hosts import KINDS, USUAL, Kind, host, with_bounds, with_texts_replaced
from tests.engine.proof.looking import Extent, drive
from tests.plugins.parts import first

EXAMPLES = {
    ("server", "narrow"): 6,
    ("server", "real"): 4,
    ("library", "narrow"): 6,
    ("library", "real"): 4,
    ("memory", "narrow"): 3,
    ("memory", "real"): 2,
}
"""With the real bounds each step compares hundreds of messages, and steps in memory take several times as long.
``make prove WHAT=time`` runs many more of all.
"""


@pytest.mark.parametrize(
    "bounds", first(1, ("narrow", "real"), "with the real bounds a step compares hundreds of messages")
)
@pytest.mark.parametrize("kind", first(1, reversed(KINDS), "steps in memory take several times as long"))
@pytest.mark.parametrize("sessions", [False, True], ids=["queue", "sessions"])
def test_looks_between_other_calls_change_no_result(
    sessions: bool, kind: Kind, bounds: str, shared_server: LocalServer
) -> None:
    """Looks make no difference even if one call cannot do all of the work that is due."""
    extent = Extent()
    with host(kind, with_bounds(BOUNDS[bounds]), server=shared_server) as on:
        drive(on, extent, sessions=sessions, bounds=BOUNDS[bounds], examples=EXAMPLES[kind, bounds])
    assert extent.looks > 0
    assert extent.shares > 0


def test_a_planted_bug_that_uses_the_time_of_the_look_is_found(shared_server: LocalServer) -> None:
    """The planted bug enqueues a scheduled message at the time of the next call instead of its due time."""
    wrong = {"includes/happen": [("activate(p, o, member, time)", "activate(p, o, member, p.now)")]}
    with host(USUAL, with_texts_replaced(wrong), server=shared_server) as on, pytest.raises(AssertionError):
        drive(on, Extent(), sessions=False, examples=50, shrinks=False)
