"""Tests of how many cores the executors of a session have, by which a read chooses its number of tasks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sbredis.spark._registering import cores_of

CLASSIC: Any = SimpleNamespace(_sc=SimpleNamespace(defaultParallelism=6))
CONNECT: Any = SimpleNamespace()


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"spark.executor.instances": "4", "spark.executor.cores": "8"}, 32),
        ({"spark.dynamicAllocation.maxExecutors": "9", "spark.executor.cores": "2"}, 18),
        ({"spark.dynamicAllocation.maxExecutors": "infinity", "spark.executor.cores": "2"}, 6),
        ({"spark.executor.instances": "4"}, 6),
        ({}, 6),
    ],
)
def test_settings_count_before_what_has_started(settings: dict[str, str], cores: int) -> None:
    assert cores_of(settings, CLASSIC) == cores


def test_a_session_of_connect_tells_only_its_settings() -> None:
    assert cores_of({}, CONNECT) == 0
    assert cores_of({"spark.executor.instances": "4", "spark.executor.cores": "8"}, CONNECT) == 32
