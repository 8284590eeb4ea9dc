"""Jobs of Spark that are killed: the short forms. ``make prove WHAT=spark`` runs the long forms, and more."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sbredis.servers import LocalServer
from tests.spark.chaos.scenes import Scene, captures, replays
from tests.spark.live.running import run


@pytest.fixture
def scene(spark: SparkSession, server: LocalServer, tmp_path: Path) -> Scene:
    """A scene on a server, in which one job is killed.

    The job that is killed and the replay that goes on have processes of their own. The capture that goes on has the
    session of the tests.
    """

    def last(line: Sequence[str]) -> None:
        run(spark, *line, "--url", server.url)

    return Scene(server.url, tmp_path, 1, 1, print, last=last)


@pytest.mark.long("Spark needs seconds for each query")
def test_a_capture_whose_java_process_is_killed_loses_and_doubles_nothing(scene: Scene) -> None:
    assert "lost 0, twice 0, left 0" in captures(scene, ("writing",))


@pytest.mark.long("Spark needs seconds for each query")
def test_a_replay_whose_java_process_is_killed_loses_and_doubles_nothing(scene: Scene) -> None:
    assert "lost 0, twice 0" in replays(scene, 5_000)
