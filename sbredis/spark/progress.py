"""Watch how far streams of the format ``sbredis`` are behind. A listener prints it, or writes it for Prometheus."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

from pyspark.sql.streaming.listener import StreamingQueryListener

from sbredis import _prometheus_text as prometheus
from sbredis._counting import counted
from sbredis._unreadable import MALFORMED

__all__ = ["EntityLag", "ProgressListener", "lags_of", "measures_of"]


class EntityLag(NamedTuple):
    """How far a stream is behind one partition of an entity, after its last batch."""

    query: str
    """The name of the query, or its id if it has none."""
    entity: str
    partition: int
    number: int
    """The last sequence number of the batch."""
    messages: int
    """The messages after it."""
    bytes: int
    """About their size."""
    seconds: float
    """The age of the first of them, since it was enqueued."""


class ProgressListener(StreamingQueryListener):
    """Tells the lag of each stream that reads from sbredis, after each of its batches.

    Add it to a session: ``spark.streams.addListener(ProgressListener())``. It prints a line, or calls ``say`` with it.
    With ``file``, it writes measures in the text format of Prometheus there instead, for the collector of text files.
    """

    def __init__(self, say: Callable[[str], object] = print, *, file: str | os.PathLike[str] | None = None) -> None:
        self._say = say
        self._file = None if file is None else Path(file)
        self._known: dict[str, list[EntityLag]] = {}

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: a query has no lag yet."""

    def onQueryProgress(self, event: Any) -> None:
        """Tell the lag of a query that has ended a batch."""
        self.note(json.loads(event.progress.json))

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: the lag is as it was."""

    def onQueryTerminated(self, event: Any) -> None:
        """Forget a query that has ended."""
        if self._known.pop(str(event.id), None) is not None:
            self._write()

    def note(self, progress: dict[str, Any]) -> None:
        """Tell the lag in the progress of a query, as JSON."""
        lags = lags_of(progress)
        if not lags:
            return
        self._known[str(progress.get("id"))] = lags
        if self._file is None:
            self._say(_line(lags))
        else:
            self._write()

    def _write(self) -> None:
        if self._file is not None:
            text = measures_of(lag for lags in self._known.values() for lag in lags)
            part = self._file.with_name(f".{self._file.name}.{os.getpid()}")
            part.write_text(text, "utf-8")
            part.replace(self._file)


def lags_of(progress: dict[str, Any]) -> list[EntityLag]:
    """Return the lags in the progress of a query (``query.lastProgress``, as JSON), by entity and partition."""
    query = str(progress.get("name") or progress.get("id"))
    return [lag for source in progress.get("sources", []) for lag in _lags(query, source.get("latestOffset"))]


def measures_of(lags: Iterable[EntityLag]) -> str:
    """Return lags in the text format of Prometheus."""
    listed = [
        (prometheus.labels(query=lag.query, entity=lag.entity, partition=str(lag.partition)), lag) for lag in lags
    ]
    lines: list[str] = []
    for name, text, value in _MEASURES:
        lines += prometheus.family(name, "gauge", text, ((label, value(lag)) for label, lag in listed))
    return prometheus.text_of(lines)


_MEASURES: tuple[tuple[str, str, Callable[[EntityLag], float]], ...] = (
    ("spark_messages_left", "Messages that a stream of Spark has not read.", lambda lag: lag.messages),
    ("spark_bytes_left", "About the bytes of these messages.", lambda lag: lag.bytes),
    ("spark_seconds_behind", "Age of the first of these messages in seconds.", lambda lag: lag.seconds),
)


def _lags(query: str, reported: Any) -> Iterator[EntityLag]:
    """Yield the lags that a source has reported. Other sources report something else."""
    try:
        found = json.loads(reported) if isinstance(reported, str) else reported
        entities = cast("dict[str, dict[str, dict[str, Any]]]", found["entities"])
        if "secondsBehind" in found:
            yield from [
                EntityLag(query, entity, int(number), each["number"], each["left"], each["bytes"], each["seconds"])
                for entity, partitions in entities.items()
                for number, each in partitions.items()
            ]
    except MALFORMED:
        return


def _line(lags: list[EntityLag]) -> str:
    """Return what a person wants to know of a query."""
    told: list[str] = []
    for entity in dict.fromkeys(lag.entity for lag in lags):
        of = [lag for lag in lags if lag.entity == entity]
        messages, size = sum(lag.messages for lag in of), sum(lag.bytes for lag in of)
        behind = max(lag.seconds for lag in of)
        rest = f" (about {size:,} bytes), {behind:,.1f} s behind" if messages else " left"
        told.append(f"'{entity}' {counted(messages, 'message')}{rest}")
    return f"{lags[0].query}: {', '.join(told)}"
