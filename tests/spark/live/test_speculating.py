"""A test with Spark itself running a slow task a second time, on another machine. It has a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer
from sbredis.spark import require_java
from sbredis.spark._browse import BrowseReader
from tests.spark.live.reading import bodies, query, rows_of, send

ROWS = 50_000


@pytest.mark.long("it starts a Spark of its own")
@pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2 is a host of its own on Linux only")
def test_a_task_that_runs_speculatively_stores_each_row_once(server: LocalServer, tmp_path: Path) -> None:
    try:
        require_java()
    except SparkSetupError as missing:
        pytest.skip(str(missing))
    send(server.url, "slow", [], partitioned=False)
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": "--conf spark.ui.enabled=false --driver-memory 1g pyspark-shell",
        "SBREDIS_URL": server.url,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("speculating.py"), tmp_path],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert sorted(each.name for each in tmp_path.glob("attempt-*")) == ["attempt-0", "attempt-1"]
    reader = BrowseReader(query(server.url, stream=False, queue="slow"))
    rows = bodies(rows_of(reader, reader.partitions()))
    assert (len(rows), len(set(rows))) == (ROWS, ROWS)
