"""What bulk readers and writers need of the client: they work on partitions and not on messages. Internal."""

from __future__ import annotations

from sbredis.aio._choosing import Condition, condition_of
from sbredis.aio._redriving import watch_redrives
from sbredis.aio.bulk._browsing import LARGEST_NUMBER, Browser
from sbredis.aio.bulk._marks import forget_writer, known_writers, stored_rows
from sbredis.aio.bulk._noting import note_tasks
from sbredis.aio.bulk._ranges import read_range
from sbredis.aio.bulk._reservation import Reservation, list_reservations, release, reserve
from sbredis.aio.bulk._reserving import SHOWING_LIFE
from sbredis.aio.bulk._settlements import read_settled
from sbredis.aio.bulk._writing import BulkWriter, Destination, WriteSummary, destination_of
from sbredis.aio.core._bulk_rows import Refusal
from sbredis.aio.core._bulk_writing import WriterKey, WriterKind
from sbredis.aio.core._redriving import LONGEST_LINE, NO_REASON, fingerprint
from sbredis.aio.core._reserving import Awaited
from sbredis.engine import Committed, Planned, Rows

__all__ = [
    "LARGEST_NUMBER",
    "LONGEST_LINE",
    "NO_REASON",
    "SHOWING_LIFE",
    "Awaited",
    "Browser",
    "BulkWriter",
    "Committed",
    "Condition",
    "Destination",
    "Planned",
    "Refusal",
    "Reservation",
    "Rows",
    "WriteSummary",
    "WriterKey",
    "WriterKind",
    "condition_of",
    "destination_of",
    "fingerprint",
    "forget_writer",
    "known_writers",
    "list_reservations",
    "note_tasks",
    "read_range",
    "read_settled",
    "release",
    "reserve",
    "stored_rows",
    "watch_redrives",
]
