"""The short form of the proof that ticks outlive the workers that send them."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbredis.servers import LocalServer
from tests.workers.killed_schedules import gaps, kill_workers


@pytest.mark.long("it kills many workers")
async def test_each_tick_is_sent_once_while_workers_are_killed(server: LocalServer, tmp_path: Path) -> None:
    ids = await kill_workers(f"{server.url}?namespace=killed", tmp_path, workers=3, kills=2, restart=False)
    assert len(ids) >= 5
    assert gaps(ids) == []


def test_gaps_and_repetitions_are_found() -> None:
    ids = [f"x@2026-03-01T00:00:0{second}.000+00:00" for second in (1, 2, 2, 3, 5)]
    assert len(gaps(ids)) == 2
