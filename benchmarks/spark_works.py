"""The work that the benchmark of Spark measures: reads, writes, streams and jobs over one server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sql

from sbredis.aio import ServiceBusClient, ServiceBusReceiver
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.model import ServiceBusReceivedMessage
from sbredis.spark._commands import read_command
from sbredis.spark._jobs_run import run_job

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Bus", "start_spark"]

_URL = "SBREDIS_BENCH_URL"
BODY = 200
_PATIENCE = 600.0


def start_spark(url: str, folder: Path) -> SparkSession:
    """Start Spark with two cores, in this process."""
    os.environ[_URL] = url
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").appName("benchmark of sbredis")
    for name, value in {
        "spark.driver.memory": "2g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Bus:
    """Queues of one server, used by one Spark. Each method does one piece of work, and waits until it is done."""

    def __init__(self, spark: SparkSession, url: str, folder: Path) -> None:
        self._spark = spark
        self.url = url
        self._folder = folder

    def make_rows(self, files: Path, rows: int, size: int = BODY) -> None:
        """Write parquet files with ids and bodies of some bytes."""
        made = self._spark.range(0, rows, 1, 2).select(
            sql.md5(sql.col("id").cast("string")).alias("message_id"),
            sql.rpad(sql.col("id").cast("string"), size, "x").cast("binary").alias("body"),
        )
        made.write.mode("overwrite").parquet(str(files))

    def write(self, queue: str, files: Path) -> None:
        """Send the rows of parquet files."""
        rows = self._spark.read.parquet(str(files))
        rows.write.format("sbredis").options(urlEnv=_URL, queue=queue).mode("append").save()

    def read(self, queue: str, **options: str) -> None:
        """Read all messages, and throw the rows away."""
        self._rows(queue, **options).write.format("noop").mode("overwrite").save()

    def make_messages(self, rows: int) -> None:
        """Make as many rows as a read does, in as many tasks, and throw them away. No server is asked."""
        columns = self._rows("bench").schema

        def made(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:  # in a function: it is sent by value
            from sbredis.engine import Content, Rows, encode
            from sbredis.spark._reading import BatchMaker
            from sbredis.spark._schema import read_columns

            maker = BatchMaker(read_columns(), "bench", "")
            for batch in numbers:
                listed = [b"%d" % number for number in batch.column(0).to_pylist()]
                sent = [Content(number.ljust(BODY, b"x"), message_id=number.hex().zfill(32)) for number in listed]
                records = [b"a0%013d" % 1 + encode(content) for content in sent]
                yield maker.batch(0, 0, [Rows(listed, records)])

        numbers = self._spark.range(0, rows, 1, max(rows // 250_000, 1))
        numbers.mapInArrow(made, columns).write.format("noop").mode("overwrite").save()

    def read_to_parquet(self, queue: str, to: Path) -> None:
        """Read all messages into parquet files."""
        self._rows(queue).write.mode("overwrite").parquet(str(to))

    def consume(self, queue: str, rows: int, checkpoint: Path) -> None:
        """Take all messages in batches of some rows, and throw the rows away."""
        options = {"urlEnv": _URL, "queue": queue, "mode": "consume", "consumer": "bench"}
        stream = self._spark.readStream.format("sbredis").options(**options, maxMessagesPerTrigger=rows).load()
        query = (
            stream.writeStream.foreachBatch(lambda batch, _: batch.write.format("noop").mode("overwrite").save())
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    def job(self, *arguments: str) -> str:
        """Run a job as its command does, and return what it prints."""
        printed = StringIO()
        with redirect_stdout(printed):
            code = run_job(read_command([*arguments, "--url-env", _URL]), self._spark)
        assert code == 0, printed.getvalue()
        return printed.getvalue()

    def compact(self, source: Path, to: Path) -> None:
        """Run the job that knows no server."""
        with redirect_stdout(StringIO()):
            run_job(read_command(["compact", "--source", str(source), "--to", str(to)]), self._spark)

    def _rows(self, queue: str, **options: str) -> DataFrame:
        return self._spark.read.format("sbredis").options(urlEnv=_URL, queue=queue, **options).load()

    # -- queues --------------------------------------------------------------------------------------------------------

    def create(self, queue: str, **options: Any) -> None:
        """Create a queue with partitions."""
        asyncio.run(self._administer(lambda admin: admin.create_queue(queue, enable_partitioning=True, **options)))

    def delete(self, queue: str) -> None:
        """Delete a queue, also a reserved one."""

        async def work(admin: ServiceBusAdministrationClient) -> None:
            await admin.release_reservation(queue)
            await admin.delete_queue(queue)

        asyncio.run(self._administer(work))

    async def _administer(self, work: Callable[[ServiceBusAdministrationClient], Any]) -> None:
        async with ServiceBusAdministrationClient(self.url) as admin:
            await work(admin)

    def settle(self, queue: str, *, dead: bool) -> None:
        """Complete all messages, or make dead letters of them, by calls of 1,000 messages."""
        asyncio.run(self._settle(queue, dead=dead))

    async def _settle(self, queue: str, *, dead: bool) -> None:
        async with ServiceBusClient(self.url) as client, client.get_queue_receiver(queue) as receiver:
            while messages := await receiver.receive_messages(1000, max_wait_time=1):
                if dead:
                    await asyncio.gather(*[_dead_letter(receiver, message) for message in messages])
                else:
                    await receiver.complete_messages(messages)


async def _dead_letter(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
    number = message.sequence_number or 0
    why = f"line {number}: no such customer"
    await receiver.dead_letter_message(message, reason=f"Failed{number % 7}", error_description=why)
