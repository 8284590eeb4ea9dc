"""Each case that a long run requires can be brought about, one after the other and without chance."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType

import pytest

from sbredis.engine import Lock, PartitionSettings
from tests.engine.proof import aims, session_rules
from tests.engine.proof.both import PLAIN, Settlement
from tests.engine.proof.cases import ALL_TRANSITIONS, REPEATABLE
from tests.engine.proof.comparison import How, Tally
from tests.engine.proof.hosts import host
from tests.engine.proof.machine import AGAIN, REFUSED_FOR
from tests.engine.proof.moves_aims import AimedMovesMachine
from tests.engine.proof.moves_cases import MOVES, text_of
from tests.engine.proof.seeking import Seeker
from tests.engine.proof.town import Town
from tests.engine.terms import Event, State
from tests.plugins.parts import first


def reached(*, sessions: bool) -> set[object]:
    """Bring every transition about that a queue makes. Return them."""
    settings = PartitionSettings(clock="test", sessions=sessions)
    with host("memory") as on:
        town = Town(on, settings, tally=Tally())
        town.create(settings)

        def settle(what: Settlement, locks: Sequence[Lock], counted: bool) -> None:
            town.do(town.settling(what, locks, counted=counted), PLAIN)

        seeker = Seeker(town, lambda messages: town.send(PLAIN, messages), settle, PLAIN)
        ways = [way for way in ALL_TRANSITIONS if Seeker.fits(settings, way)]
        for way in ways:
            before = town.model.taken[way]
            seeker.bring_about(way)
            assert town.model.taken[way] > before, f"{way} was not brought about"
        town.close()
    return set(ways)


def test_each_transition_of_a_stored_message_is_brought_about() -> None:
    left = set(ALL_TRANSITIONS) - reached(sessions=False) - reached(sessions=True)
    assert all(state is State.NEW or event is Event.PUBLISH for _, state, event, _ in left), left


@pytest.mark.parametrize("rules", [aims, session_rules], ids=["queue", "sessions"])
def test_each_call_with_a_defect_is_refused_and_each_repeated_call_known_again(rules: ModuleType) -> None:
    settings = PartitionSettings(clock="test", sessions=rules is session_rules)
    with host("memory") as on:
        town = Town(on, settings, tally=Tally())
        town.create(settings)
        town.due(How(lane="a"))
        town.due(How(lane="a"))  # now there is an older number of a lane
        for operation, defect in rules.WRONG:
            call, before = rules.ANY[operation], town.tally.refusals.copy()
            if defect in REFUSED_FOR:
                call(town, How(defect, "b"))
                assert town.tally.refusals[operation, REFUSED_FOR[defect]] > before[operation, REFUSED_FOR[defect]]
            elif defect == AGAIN and operation in REPEATABLE and rules is aims:
                call(town, How(lane="b"))
                town.again("b")
                assert town.tally.repetitions[operation], f"{operation} was not known again"
        town.close()


@pytest.mark.parametrize("keeps", first(1, [True, False], "both differ in one way"), ids=["kept", "deleted"])
def test_each_transition_of_a_move_is_brought_about(keeps: bool) -> None:
    with host("memory") as on:
        machine = type("Machine", (AimedMovesMachine,), {"on": on})()
        machine.create(keeps=keeps, twice=False)
        for way in MOVES:
            before = machine.tally[text_of(way)]
            machine._bring_about(way)
            _, state, _, condition = way
            if state is not State.NEW and condition.name != ("EXPIRED" if keeps else "EXPIRED_KEPT"):
                assert machine.tally[text_of(way)] > before, f"{text_of(way)} was not brought about"
