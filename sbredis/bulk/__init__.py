"""What bulk readers and writers need of the client: they work on partitions and not on messages. Internal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbredis._lazy import lazily
from sbredis.engine import Committed, Planned, Rows

if TYPE_CHECKING:
    from sbredis.bulk._chunks import ROWS_SAY, WriterKey, WriterKind
    from sbredis.bulk._claims import Awaited
    from sbredis.bulk._marks import correct_tasks, forget_marks, forget_writer, note_ends, noted_tasks, stored_rows
    from sbredis.bulk._page_reading import (
        LARGEST_NUMBER,
        Browser,
        FirstRows,
        PageLimits,
        queues_like,
        read_range,
        read_settled,
    )
    from sbredis.bulk._reservation import Reservation, list_reservations, release, reserve
    from sbredis.bulk._reserving import SHOWING_LIFE, Reservations, status_of, statuses
    from sbredis.bulk._rows import Refusal
    from sbredis.bulk._writing import BulkWriter, WriteSummary, WriteTarget, destination_of

__all__ = [
    "LARGEST_NUMBER",
    "ROWS_SAY",
    "SHOWING_LIFE",
    "Awaited",
    "Browser",
    "BulkWriter",
    "Committed",
    "FirstRows",
    "PageLimits",
    "Planned",
    "Refusal",
    "Reservation",
    "Reservations",
    "Rows",
    "WriteSummary",
    "WriteTarget",
    "WriterKey",
    "WriterKind",
    "correct_tasks",
    "destination_of",
    "forget_marks",
    "forget_writer",
    "list_reservations",
    "note_ends",
    "noted_tasks",
    "queues_like",
    "read_range",
    "read_settled",
    "release",
    "reserve",
    "status_of",
    "statuses",
    "stored_rows",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "_chunks": (
                "ROWS_SAY",
                "WriterKey",
                "WriterKind",
            ),
            "_claims": ("Awaited",),
            "_marks": (
                "correct_tasks",
                "forget_marks",
                "forget_writer",
                "note_ends",
                "noted_tasks",
                "stored_rows",
            ),
            "_page_reading": (
                "LARGEST_NUMBER",
                "Browser",
                "FirstRows",
                "PageLimits",
                "queues_like",
                "read_range",
                "read_settled",
            ),
            "_reservation": (
                "Reservation",
                "list_reservations",
                "release",
                "reserve",
            ),
            "_reserving": (
                "SHOWING_LIFE",
                "Reservations",
                "status_of",
                "statuses",
            ),
            "_rows": ("Refusal",),
            "_writing": (
                "BulkWriter",
                "WriteSummary",
                "WriteTarget",
                "destination_of",
            ),
        },
    )
