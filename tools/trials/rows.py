"""Write rows as messages with Spark, and read them back: what the extra ``spark`` is for.

python rows.py CONNECTION_STRING
"""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

from sbredis.management import ServiceBusAdministrationClient


def main(url: str) -> None:
    with ServiceBusAdministrationClient(url) as administration:
        administration.create_queue("rows")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    rows = spark.range(3).selectExpr("CONCAT('row ', id) AS body")
    rows.write.format("sbredis").options(url=url, queue="rows").mode("append").save()
    found = (
        spark.read.format("sbredis").options(url=url, queue="rows").load().selectExpr("CAST(body AS STRING) AS body")
    )
    bodies = sorted(row.body for row in found.collect())
    assert bodies == ["row 0", "row 1", "row 2"], bodies
    print("written and read:", *bodies)


if __name__ == "__main__":
    main(sys.argv[1])
