"""A program that sends, browses and consumes with the Spark that its arguments name, and says what it saw.

``python smoke.py MASTER FOLDER`` runs on a classic Spark, and ``python smoke.py connect FOLDER`` on a server of Spark
Connect that the session starts. The connection string is in ``SBREDIS_SECRET_URL``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

BUS = {"urlEnv": "SBREDIS_SECRET_URL"}


def main(master: str, folder: str) -> None:
    """Send 100 rows to a queue, and take them out again."""
    builder = SparkSession.builder.remote("local[2]") if master == "connect" else SparkSession.builder.master(master)
    if master.startswith("spark:"):  # its executors are no children of this process
        builder = builder.config("spark.executorEnv.SBREDIS_SECRET_URL", os.environ["SBREDIS_SECRET_URL"])
    settings = {
        "spark.driver.memory": "1g",
        "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
        "spark.ui.enabled": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("sbredis").options(**BUS, queue="smoke").mode("append").save()
    seen = spark.read.format("sbredis").options(**BUS, queue="smoke").load().count()
    stream = spark.readStream.format("sbredis").options(**BUS, queue="smoke", mode="consume", consumer="smoke").load()
    query = (
        stream.writeStream.format("parquet")
        .option("path", f"{folder}/out")
        .option("checkpointLocation", f"{folder}/checkpoint")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    taken = spark.read.parquet(f"{folder}/out").count()
    sys.stdout.write(f"seen {seen}, taken {taken}\n")
    sys.stdout.flush()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2]).absolute()))
