"""Tests that need PySpark. Without it, none of them is collected, and a line at the top of the run says so."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import chdir
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sbredis.exceptions import SparkSetupError
from sbredis.servers import LocalServer
from sbredis.sync.management import ServiceBusAdministrationClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLANTED = "planted-word-4711"
MISSING = [name for name in ("pyspark", "pyarrow") if find_spec(name) is None]
if MISSING:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(autouse=True)
def closed_clients() -> Iterator[None]:
    """Close the clients that readers share, because the next test empties the server."""
    yield
    from sbredis.spark._loop import close_clients

    close_clients()


def pytest_report_header(config: pytest.Config) -> str:
    """Say why the tests of this folder are left out; pytest prints it at the top of a run."""
    where = (
        "left out, because PySpark is not installed (tools/spark installs it)" if MISSING else "PySpark is installed"
    )
    return f"tests/spark/live: {where}, rootdir {config.rootpath}"


QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options with which Java compiles only once, and without optimising. The Java processes of the tests live for seconds,
and need a third less of the processor so.
"""


@pytest.fixture(scope="session", autouse=True)
def quick_java() -> Iterator[None]:
    """Let each Java process that a test starts compile quickly: drivers, and the master and the worker of a cluster.

    The programs of the tests give the option of executors in a setting.
    """
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
            patch.setenv(name, QUICK_JAVA)
        yield


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for the files of Spark: its event log, its warehouse, and what tests write."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def secured() -> Iterator[str]:
    """The connection string of a server with a password that occurs nowhere else."""
    with LocalServer(config={"requirepass": PLANTED}) as server:
        yield server.url.replace("redis://", f"redis://:{PLANTED}@")


@pytest.fixture(scope="session")
def spark(folder: Path, secured: str) -> Iterator[SparkSession]:
    """One Spark for all tests, with two cores. It finds the format by itself, in the environment of the tests.

    A task that fails runs once more.
    The environment has the connection string of the server, as that of a driver on a cluster: ``urlEnv=SBREDIS_URL`` or
    ``SBREDIS_SECRET_URL``. A setting gives executors the latter.
    """
    from pyspark.sql import SparkSession

    from sbredis.spark import require_java

    try:
        require_java()
    except SparkSetupError as missing:
        pytest.skip(str(missing))
    (folder / "events").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SBREDIS_URL", secured)
        patch.setenv("SBREDIS_SECRET_URL", secured)
        builder = SparkSession.builder.master("local[2,2]").appName("tests of sbredis")
        for name, value in {
            "spark.driver.memory": "1g",
            "spark.eventLog.compress": "false",
            "spark.eventLog.dir": folder.joinpath("events").as_uri(),
            "spark.eventLog.enabled": "true",
            "spark.executorEnv.SBREDIS_SECRET_URL": secured,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": folder.joinpath("warehouse").as_uri(),
            "spark.ui.enabled": "false",
        }.items():
            builder = builder.config(name, value)
        with chdir(folder):  # the folder of relative paths
            session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def emptied(secured: str) -> Iterator[str]:
    """The connection string of the server, on which the queues of a test are deleted at its end."""
    yield secured
    with ServiceBusAdministrationClient(secured) as admin:
        for each in admin.list_reservations():
            admin.release_reservation(each.path)
        for queue in admin.list_queues():
            admin.delete_queue(queue.name)
