"""Lanes whose calls are lost, refused, repeated, split and moved at random: each caller gets a true outcome."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from tests.client.lane_machine import FATES, run


@pytest.fixture(autouse=True)
def few_records(caplog: pytest.LogCaptureFixture) -> None:
    """Do not write the thousands of failures that the machine makes."""
    caplog.set_level(logging.CRITICAL, "sbredis.client")


def test_each_caller_gets_the_outcome_of_its_messages() -> None:
    seen: Counter[str] = Counter()
    for seed in range(20):
        seen += run(seed, 500)
    assert [fate for fate in FATES if not seen[fate]] == []
    assert {f"a job: Outcome.{name}" for name in ("NEVER_SENT", "REFUSED", "UNKNOWN")} <= seen.keys()


def test_a_run_can_be_repeated_by_its_seed() -> None:
    assert run(7, 300) == run(7, 300)
