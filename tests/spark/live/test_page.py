"""Runs the programs of the guide, one after the other, as a reader would."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.live.reading import send
from tools.repository import ROOT
from tools.run_page import python_blocks


@pytest.mark.long("Spark needs seconds for each query")
def test_the_programs_of_the_guide_run(spark: SparkSession, emptied: str, folder: Path) -> None:
    """They find the server by the environment of the session, as they would on a cluster."""
    send(emptied, "orders", map(str, range(20)))
    names: dict[str, object] = {}
    for block in python_blocks((ROOT / "docs/spark.md").read_text("utf-8")):
        exec(compile(block.code, f"docs/spark.md, line {block.line}", "exec"), names)  # noqa: S102 -- our own document
    assert names["spark"] is spark
    assert spark.read.parquet(str(folder / "captured")).count() == 20
