"""Runs a state machine so that a search with the same seed is the same in each run, in any process.

Hypothesis alone does not promise this: it also draws numbers from the constants of all modules that happen to be
loaded. And the engine makes random tokens, which become part of the data.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hypothesis import seed, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

__all__ = ["run_machine"]


class _WithoutConstants(HypothesisProvider):
    """The source of values that Hypothesis uses, without the constants of loaded modules."""

    def _maybe_draw_constant(self, choice_type: Any, constraints: Any, *, p: float = 0.05) -> None:
        del choice_type, constraints, p


class _Bytes:
    """The bytes of the engine's tokens. Each example gets the same ones."""

    def __init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        self._numbers = itertools.count(1)

    def next(self, count: int) -> bytes:
        return (next(self._numbers) << 8).to_bytes(count, "big")  # a token does not have the last bits


@contextmanager
def _with(tokens: _Bytes) -> Iterator[None]:
    """Let Hypothesis and the engine make the same choices in each run."""
    with (
        patch.dict(AVAILABLE_PROVIDERS, {"hypothesis": _WithoutConstants}),
        patch("sbredis.engine._lock_tokens.urandom", tokens.next),
    ):
        yield


def run_machine(machine: type[RuleBasedStateMachine], given: settings, *, begin_at: int | None = 0) -> None:
    """Run a machine. ``begin_at`` is the seed of its examples; with None, each run has other examples."""
    tokens = _Bytes()

    def begin() -> RuleBasedStateMachine:
        tokens.begin_again()
        return machine()

    factory: Any = begin
    if begin_at is None:
        given = settings(given, derandomize=False)  # where CI is set, Hypothesis draws the same examples in each run
    else:
        factory = seed(begin_at)(begin)
    with _with(tokens):
        run_state_machine_as_test(factory, settings=given)
