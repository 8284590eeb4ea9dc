"""A search with a seed is the same in each run."""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from sbredis.engine import new_token
from tests.engine.proof.extent import bounded
from tests.engine.proof.running import run_machine


class Drawing(RuleBasedStateMachine):
    """A machine that remembers what it has drawn."""

    drawn: ClassVar[list[tuple[int, str]]]

    @rule(number=st.integers(0, 1_000_000))
    def draw(self, number: int) -> None:
        self.drawn.append((number, new_token()))


def drawn(begin_at: int | None) -> list[tuple[int, str]]:
    Drawing.drawn = []
    run_machine(Drawing, bounded(20, steps=10), begin_at=begin_at)
    return Drawing.drawn


def test_a_seed_decides_all_numbers_and_tokens_of_a_run() -> None:
    assert drawn(1) == drawn(1)
    assert [number for number, _ in drawn(1)] != [number for number, _ in drawn(2)]


def test_each_example_gets_the_same_tokens() -> None:
    """An example that fails is run once more, and must fail in the same way."""
    tokens = [token for _, token in drawn(1)]
    assert tokens.count(tokens[0]) >= 20


def test_a_run_without_a_seed_draws_other_numbers_each_time() -> None:
    """Hypothesis may begin with the simplest numbers, so few numbers may be equal by chance."""
    assert len({tuple(number for number, _ in drawn(None)) for _ in range(5)}) > 1
