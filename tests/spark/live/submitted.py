"""A program for ``spark-submit --py-files``: it sends and browses in batches, and then tries a stream.

``submitted.py FOLDER`` prints what it saw, and why the stream failed, if it did. The connection string is in
``SBREDIS_SECRET_URL``. Spark does not look for formats in the files that come with a program, so it is registered.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from sbredis.spark import register

BUS = {"urlEnv": "SBREDIS_SECRET_URL", "queue": "submitted"}


def say(what: str, value: object) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{what} {value}\n")
    sys.stdout.flush()


def main(folder: str) -> None:
    """Send 100 rows to a queue, browse them, and try to consume them."""
    spark = SparkSession.builder.getOrCreate()
    register(spark)
    rows = spark.range(0, 100, 1, 2).selectExpr("CAST(id AS STRING) AS body")
    rows.write.format("sbredis").options(**BUS).mode("append").save()
    say("seen", spark.read.format("sbredis").options(**BUS).load().count())
    stream = spark.readStream.format("sbredis").options(**BUS, mode="consume", consumer="submitted")
    try:
        query = (
            stream.load()
            .writeStream.format("parquet")
            .option("path", f"{folder}/out")
            .option("checkpointLocation", f"{folder}/checkpoint")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        say("taken", spark.read.parquet(f"{folder}/out").count())
    except Exception as error:  # noqa: BLE001 -- the test looks at its text
        say("no stream:", str(error).replace("\n", " "))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
