"""Movers that stop, repeat old calls and work side by side lose no message and move none twice."""

from __future__ import annotations

from collections import Counter

import pytest

from sbredis.servers import LocalServer
from tests.engine.proof.hosts import KINDS, USUAL, Kind, host
from tests.engine.proof.moves_aims import AimedMovesMachine
from tests.engine.proof.moves_run import prove
from tests.plugins.parts import first


@pytest.mark.parametrize("kind", first(1, reversed(KINDS), "steps in memory take several times as long"))
def test_each_message_is_at_one_place_in_the_end(kind: Kind, shared_server: LocalServer) -> None:
    with host(kind, server=shared_server) as on:
        seen = prove(on, examples=30 if kind == USUAL else 8, steps=30, begin_at=0)
    often = ("take: taken", "take: again", "lost freeze", "made again") if kind == USUAL else ("take: taken",)
    assert all(seen[what] for what in often), seen


def test_an_old_freeze_of_a_redrive_gives_its_purpose_to_a_new_batch() -> None:
    """The batch of a redrive came back, and then the old call freezes the messages anew."""
    with host("memory") as on:
        machine = type("Machine", (AimedMovesMachine,), {"on": on, "seen": Counter()})()
        machine.create(keeps=False, twice=False)
        for _ in range(2):
            machine.send(4, None)
        machine.let_a_redriver_die("a", back=True, repeated=False)
        assert not machine._frozen()
        machine._again("freeze")
        assert machine._frozen()
        machine.teardown()
        assert machine.seen["redrive: by another mover"]
