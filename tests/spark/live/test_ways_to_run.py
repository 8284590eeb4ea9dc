"""Smoke tests of the ways to run Spark: executors of their own, a master with two workers, and Spark Connect.

Each has a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer, free_port
from sbredis.spark import require_java
from sbredis.sync.management import ServiceBusAdministrationClient
from tests.spark.live.reading import send

LAUNCHER = Path(pyspark.__file__).parent / "bin" / "spark-class"
PATIENCE = 900


@contextmanager
def running(kind: str, *arguments: str, folder: Path) -> Generator[None]:
    """Run a master or a worker, which serve until they get SIGTERM. Their executors end with them."""
    program = [str(LAUNCHER), f"org.apache.spark.deploy.{kind.lower()}.{kind}", "--host", "127.0.0.1"]
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder / "work")}
    for name in ("SBREDIS_SECRET_URL", "SBREDIS_URL", "PYSPARK_PYTHON"):
        environment.pop(name, None)
    folder.mkdir(exist_ok=True)
    with (folder / f"{kind}.log").open("w") as log:
        process = subprocess.Popen(
            [*program, "--webui-port", "0", *arguments], env=environment, cwd=folder, stdout=log, stderr=log
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def master(folder: Path) -> Generator[str]:
    """Run a standalone master with two workers, which know nothing of the driver, and yield its address."""
    if not LAUNCHER.exists():
        pytest.skip(f"there is no {LAUNCHER}, which starts a master and a worker")
    port = str(free_port())
    address = f"spark://127.0.0.1:{port}"
    worker = ("Worker", "--cores", "1", "--memory", "1g", address)
    with (
        running("Master", "--port", port, folder=folder),
        running(*worker, folder=folder / "one"),
        running(*worker, folder=folder / "two"),
    ):
        yield address


@pytest.mark.long("it starts a Spark of its own")
@pytest.mark.parametrize("kind", ["local-cluster[1,1,1024]", "master", "connect"])
def test_a_queue_is_written_browsed_and_consumed(kind: str, server: LocalServer, tmp_path: Path) -> None:
    """The executors of a standalone master get the connection string by a setting only."""
    try:
        require_java()
    except SparkSetupError as missing:
        pytest.skip(str(missing))
    send(server.url, "smoke", [])
    if kind == "master":
        with master(tmp_path) as address:
            run_smoke(address, server.url, tmp_path)
    else:
        run_smoke(kind, server.url, tmp_path)
    with ServiceBusAdministrationClient.from_connection_string(server.url) as administration:
        assert administration.get_queue_runtime_properties("smoke").active_message_count == 0


def run_smoke(where: str, url: str, folder: Path) -> None:
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SBREDIS_SECRET_URL": url,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    program = Path(__file__).parent / "smoke.py"
    done = subprocess.run(
        [sys.executable, program, where, folder],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert "seen 100, taken 100" in done.stdout, done.stderr[-4000:]
