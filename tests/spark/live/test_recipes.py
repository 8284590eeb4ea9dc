"""Runs the recipes for tables that need packages of other projects, where these are installed.

``pip install deltalake 'pyiceberg[sql-sqlite]'`` installs them. They are no part of the tests' environment.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tests.spark.live.reading import send
from tools.repository import ROOT
from tools.run_page import python_blocks

STORED = "lake/orders"


def recipe(package: str) -> Callable[[DataFrame, int], object]:
    """Return the function of the recipe that needs a package."""
    blocks = python_blocks((ROOT / "docs/spark-platforms.md").read_text("utf-8"))
    [block] = [each for each in blocks if each.not_run is not None and f"needs {package};" in each.not_run]
    names: dict[str, Any] = {}
    exec(compile(block.code, f"docs/spark-platforms.md, line {block.line}", "exec"), names)  # noqa: S102 -- our own
    store: Callable[[DataFrame, int], object] = names["store"]
    return store


def captured_with_a_failure(spark: SparkSession, url: str, store: Callable[[DataFrame, int], object]) -> list[int]:
    """Take 100 messages in five batches. The second one fails after it is stored. Return what was stored."""
    send(url, "orders", map(str, range(100)))
    stored: list[int] = []

    def failing(batch: DataFrame, batch_id: int) -> None:
        store(batch, batch_id)
        stored.append(batch_id)
        if stored.count(1) == 1 and batch_id == 1:
            raise RuntimeError("the driver is killed")

    def run() -> None:
        options = {"url": url, "queue": "orders", "mode": "consume", "consumer": "recipe"}
        stream = spark.readStream.format("sbredis").options(**options, maxMessagesPerTrigger=20).load()
        writing = stream.writeStream.foreachBatch(failing).option("checkpointLocation", str(Path.cwd() / "checkpoint"))
        writing.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the driver is killed"):
        run()
    run()
    return stored


@pytest.mark.long("Spark needs seconds for each query")
def test_a_table_of_delta_has_each_message_once(
    spark: SparkSession, emptied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    monkeypatch.chdir(tmp_path)
    assert captured_with_a_failure(spark, emptied, recipe("deltalake")) == [0, 1, 1, 2, 3, 4]
    bodies = deltalake.DeltaTable(STORED).to_pyarrow_table().column("body").to_pylist()
    assert sorted(map(int, bodies)) == list(range(100))


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.long("Spark needs seconds for each query")
def test_a_table_of_iceberg_has_each_message_once(
    spark: SparkSession, emptied: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": tmp_path.as_uri()}
    for name, value in settings.items():  # pyiceberg reads the environment when it is imported
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{name.upper()}", value)
    catalogs = pytest.importorskip("pyiceberg.catalog")
    monkeypatch.chdir(tmp_path)
    catalogs.load_catalog("lake").create_namespace("lake")
    assert captured_with_a_failure(spark, emptied, recipe("pyiceberg")) == [0, 1, 1, 2, 3, 4]
    bodies = catalogs.load_catalog("lake").load_table("lake.orders").scan().to_arrow().column("body")
    assert sorted(map(int, bodies.to_pylist())) == list(range(100))
