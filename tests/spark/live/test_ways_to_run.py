"""Smoke tests of the ways to run Spark: executors of their own, and Spark Connect. Each has a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer
from sbredis.spark import require_java
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import send

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("master", ["local-cluster[1,1,1024]", "connect"])
def test_a_queue_is_written_browsed_and_consumed(master: str, server: LocalServer, tmp_path: Path) -> None:
    try:
        require_java()
    except SparkSetupError as missing:
        pytest.skip(str(missing))
    send(server.url, "smoke", [])
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SBREDIS_URL": server.url,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    program = Path(__file__).parent / "smoke.py"
    done = subprocess.run(
        [sys.executable, program, master, tmp_path],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert "seen 100, taken 100" in done.stdout, done.stderr[-4000:]
    with ServiceBusAdministrationClient.from_connection_string(server.url) as administration:
        assert administration.get_queue_runtime_properties("smoke").active_message_count == 0
