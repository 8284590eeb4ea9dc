"""A notebook about dead letters: capture all orders, find out why some of them died, and send those back.

Run it cell by cell in an editor that shows cells (``# %%``), or all at once: python examples/spark_dead_letters.py
It needs Java and the extra ``spark``. docs/spark.md explains all parts.
"""

# %% The bus is a folder of this machine. On a cluster, it is a server, and urlEnv names a variable with its address.
import json
import os
import sys
import tempfile

try:
    from pyspark.sql import SparkSession
except ModuleNotFoundError as error:
    sys.exit(f"This notebook needs PySpark ({error}): run pip install '.[spark,embedded]' in the checkout of sbredis")

from sbredis import ServiceBusClient
from sbredis.spark.jobs import Capture, dead_letter_report, with_fingerprint
from sbredis.sync.management import ServiceBusAdministrationClient

folder = tempfile.mkdtemp(prefix="sbredis-orders-")
bus = {"url": f"embedded://{folder}/bus"}
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.master("local[2]").appName("dead letters").getOrCreate()

# %% A topic of orders: the shop handles them, and the archive keeps them for analysis.
client = ServiceBusClient(bus["url"])
with ServiceBusAdministrationClient(bus["url"]) as administration:
    administration.create_topic("orders")
    for name in ("shop", "archive"):
        administration.create_subscription("orders", name)

# %% A DataFrame becomes messages. Each row is stored once, also if Spark runs a task again.
orders = spark.range(100).selectExpr(
    "CONCAT('order-', id) AS message_id",
    "CONCAT('customer-', id % 3) AS partition_key",
    "TO_JSON(STRUCT(id AS number, IF(id % 10 = 7, NULL, 'Main Street') AS street, id % 25 AS items)) AS body",
)
orders.write.format("sbredis").options(**bus, topic="orders").mode("append").save()

# %% The shop cannot handle all of them: some have no address, and some have no items.
with client.get_subscription_receiver("orders", "shop", max_wait_time=2) as shop:
    for message in shop:
        order = json.loads(str(message))
        if "street" not in order:
            shop.dead_letter_message(message, "NoAddress", f"order {order['number']} has no street")
        elif not order["items"]:
            shop.dead_letter_message(message, "Empty", f"order {order['number']} has no items")
        else:
            shop.complete_message(message)

# %% Capture: the messages of the archive move into parquet files, each exactly once.
everything = {**bus, "topic": "orders", "subscription": "archive", "consumer": "archive"}
archive = Capture(everything, to=f"{folder}/captured", checkpoint=f"{folder}/checkpoint")
query = archive.start(spark)
query.awaitTermination()
archive.settle(query)
captured = spark.read.parquet(f"{folder}/captured")
print("captured:", captured.count())

# %% Report: why did orders die?
letters = spark.read.format("sbredis").options(**bus, topic="orders", subscription="shop", subQueue="deadLetter").load()
dead_letter_report(letters).select("fingerprint", "messages", "share", "keys").show(truncate=False)

# %% Look closer: the captured messages have all orders, so it is easy to see which customers have the problem.
dead = with_fingerprint(letters).where("fingerprint LIKE 'NoAddress%'")
captured.join(dead, "message_id", "left_semi").groupBy("partition_key").count().orderBy("partition_key").show()

# %% Resubmit: the shop can handle orders without a street now. They go back exactly once.
numbers = [row.sequence_number for row in dead.select("sequence_number").collect()]
with client.get_subscription_receiver("orders", "shop", sub_queue="deadletter") as receiver:
    print("moved back:", receiver.redrive_messages(sequence_numbers=numbers).moved)
with client.get_subscription_receiver("orders", "shop", max_wait_time=2) as shop:
    for message in shop:
        shop.complete_message(message)
print("still dead:", letters.count())

# %% Close the client. The server of the folder ends with its last client; the folder keeps everything.
client.close()
