"""What a capture has written, as readers without Spark find it, and what is still in the queue."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from pyarrow.dataset import dataset

from sbredis import ServiceBusClient, ServiceBusSubQueue
from sbredis.sync.management import ServiceBusAdministrationClient

__all__ = ["captured", "faults", "peeked", "waiting"]

PAGE = 1000


def faults(
    there: Counter[str],
    dead: Counter[str],
    sent: Iterable[str],
    unknown: Iterable[str] = (),
    mortal: Iterable[str] = (),
) -> list[str]:
    """Return everything that is against the promises.

    ``there`` has the messages that were captured or replayed, and ``dead`` the dead letters. ``unknown`` messages may
    be there once or not at all. Only ``mortal`` messages may be dead letters.
    """
    listed, everywhere = set(sent), there + dead
    wrong = [f"{name} is missing" for name in listed - everywhere.keys()]
    wrong += [f"{name} is there {count} times" for name, count in everywhere.items() if count > 1]
    wrong += [f"{name} was never sent" for name in everywhere.keys() - listed - set(unknown)]
    return wrong + [f"{name} is a dead letter without a time to live" for name in dead.keys() - set(mortal)]


def waiting(url: str, queue: str) -> int:
    """Return how many messages can be received from a queue."""
    with ServiceBusAdministrationClient(url) as administration:
        return administration.get_queue_runtime_properties(queue).active_message_count


def peeked(url: str, queue: str, sub_queue: ServiceBusSubQueue | None = None) -> Counter[str]:
    """Return the messages in a queue, or its dead letters."""
    names: Counter[str] = Counter()
    last = 0
    with ServiceBusClient(url) as client, client.get_queue_receiver(queue, sub_queue=sub_queue) as receiver:
        while page := receiver.peek_messages(PAGE, sequence_number=last + 1):
            names.update(bytes(message.body).decode() for message in page)
            last = page[-1].sequence_number or 0
    return names


def captured(folder: Path) -> tuple[Counter[str], int]:
    """Return the messages in the files of a capture, and the number of batches.

    The files are read in the two ways that the guide promises: as a dataset, and by the manifests.
    """
    rows: pa.Table = dataset(str(folder), format="parquet", partitioning="hive").to_table(
        columns=["body", "partition", "sequence_number", "batch_id"]
    )
    simply = Counter(body.decode() for body in rows.column("body").to_pylist())
    manifests = {found["batch_id"]: found for found in _manifests(folder)}
    by_manifest: Counter[str] = Counter()
    for batch_id, manifest in manifests.items():
        files = [str(file) for file in folder.glob(f"entity=*/date=*/hour=*/batch_id={batch_id}/*.parquet")]
        own = pa.concat_tables([parquet.read_table(file, columns=["body"], partitioning=None) for file in files])
        by_manifest.update(body.decode() for body in own.column("body").to_pylist())
        there = rows.filter(pc.equal(rows.column("batch_id").cast(pa.string()), batch_id))
        assert _ranges(there) == manifest["partitions"], f"the manifest of {batch_id} does not fit its files"
        assert there.num_rows == manifest["rows"]
    assert by_manifest == simply, "the manifests and the folder have different messages"
    return simply, len(manifests)


def _manifests(folder: Path) -> Iterable[dict[str, Any]]:
    for place in folder.glob("_manifest/batch_id=*"):
        files = list(place.glob("part-*"))
        assert len(files) == 1, f"{place} has {len(files)} files"
        yield json.loads(files[0].read_text("utf-8"))


def _ranges(rows: pa.Table) -> dict[str, dict[str, int]]:
    grouped = rows.group_by("partition").aggregate(
        [("sequence_number", "min"), ("sequence_number", "max"), ("sequence_number", "count")]
    )
    return {
        str(row["partition"]): {
            "first": row["sequence_number_min"],
            "last": row["sequence_number_max"],
            "rows": row["sequence_number_count"],
        }
        for row in grouped.to_pylist()
    }
