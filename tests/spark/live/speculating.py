"""A program that sends rows with speculation: a slow task runs a second time, on another machine.

``python speculating.py FOLDER`` sends 50,000 rows to the queue ``slow``. The connection string is in ``SBREDIS_URL``.

Spark does not speculate with ``local[N]``, and runs the second attempt on another
host than the first one. So there is a standalone master here with two workers, which have hosts of their own on
loopback; all three run in the JVM of the driver, as those of ``local-cluster`` do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkContext
from pyspark.sql import SparkSession

sys.path.insert(0, str(Path(__file__).parents[3]))

from tests.spark.live.attempts import slow_once

ROWS = 50_000
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
}


def start_cluster(folder: str) -> str:
    """Start a master and two workers, and return the URL of the master."""
    gateway: Any = SparkContext
    gateway._ensure_initialized()
    java = gateway._jvm
    settings = java.org.apache.spark.SparkConf()
    nothing = getattr(getattr(java.scala, "None$"), "MODULE$")
    deploy = java.org.apache.spark.deploy
    master = deploy.master.Master.startRpcEnvAndEndpoint("127.0.0.1", 0, 0, settings)
    url = f"spark://127.0.0.1:{master._1().address().port()}"
    masters = gateway._gateway.new_array(java.java.lang.String, 1)
    masters[0] = url
    for number in (1, 2):
        deploy.worker.Worker.startRpcEnvAndEndpoint(
            f"127.0.0.{number}", 0, 0, 1, 1024, masters, f"{folder}/worker-{number}", nothing, settings, nothing
        )
    return url


def main(folder: str) -> None:
    """Send rows in two tasks. One of them is slow."""
    builder = SparkSession.builder.master(start_cluster(folder))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = spark.range(0, ROWS, 1, 2).selectExpr("CONCAT(id, REPEAT('x', 50)) AS body")
    fed = rows.mapInArrow(slow_once(os.environ["SBREDIS_URL"], "slow", ROWS, folder), rows.schema)
    fed.write.format("sbredis").options(urlEnv="SBREDIS_URL", queue="slow").mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).absolute()))
