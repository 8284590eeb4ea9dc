"""Jobs of Spark that are killed: the short forms. ``make prove-spark`` runs the long forms, and more."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer
from sbredis.spark import require_java
from tests.spark.chaos.scenes import Scene, captures, replays

pytestmark = pytest.mark.slow


@pytest.fixture
def scene(server: LocalServer, tmp_path: Path) -> Scene:
    """A scene on a server, in which one job is killed."""
    try:
        require_java()
    except SparkSetupError as missing:
        pytest.skip(str(missing))
    return Scene(server.url, tmp_path, 1, 1, print)


def test_a_capture_whose_java_process_is_killed_loses_and_doubles_nothing(scene: Scene) -> None:
    assert "lost 0, twice 0, left 0" in captures(scene, ("writing",))


def test_a_replay_whose_java_process_is_killed_loses_and_doubles_nothing(scene: Scene) -> None:
    assert "lost 0, twice 0" in replays(scene, 5_000)
