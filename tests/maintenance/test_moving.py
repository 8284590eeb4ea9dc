"""Tests of when a mover reads a partition again."""

from __future__ import annotations

import pytest

from sbredis.maintenance._moving import pause_after


@pytest.mark.parametrize(
    ("took", "before", "onward", "pause"),
    [(0.005, True, 0, 0.015), (0.005, False, 0, 0), (0.005, True, 7, 0), (0.03, True, 0, 0)],
)
def test_messages_gather_only_while_they_come_all_the_time(
    took: float, before: bool, onward: int, pause: float
) -> None:
    assert pause_after(took, before=before, onward=onward) == pytest.approx(pause)
