"""The state of a worker process, as its supervisor sees it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from sbredis._unreadable import MALFORMED
from sbredis.workers.observing._counts import EntityCounts

__all__ = ["Report", "ReportReader"]

_LONGEST: Final = 1 << 24
"""The most bytes of a line. A longer one is no report."""


@dataclass(slots=True)
class Report:
    """The state of one worker process."""

    counts: dict[str, EntityCounts] = field(default_factory=dict[str, EntityCounts])
    paused: dict[str, str] = field(default_factory=dict[str, str])
    """The entities that are not consumed, with the reasons."""
    rows: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """The handlers, for the banner."""
    depths: dict[str, int] = field(default_factory=dict[str, int])
    """The messages that are left in each entity, as far as somebody watches them."""
    schedules: list[tuple[str, str, str, str]] = field(default_factory=list[tuple[str, str, str, str]])
    """The schedules: the entity, the name, the cron line or the period, and the time of the next tick."""
    title: str = ""
    namespace: str = ""
    stuck_after: float = 300.0
    shutdown_timeout: float = 25.0
    running: bool = False
    ending: bool = False
    """Whether the process is ending."""
    stopped: bool = False
    """Whether it is ending because the application has called ``worker.stop()``."""
    http: str | None = None
    """The HTTP address of the worker, which its supervisor serves."""
    in_lifespan: bool = False
    """Whether the lifespan of the worker is beginning."""
    suspect: tuple[str, str, int] | None = None
    """The suspect that the process handles alone: its entity, its lock token, and the number of its delivery."""

    def to_line(self) -> bytes:
        """Return the report as a line."""
        given: dict[str, Any] = {
            "counts": {entity: counts.to_json() for entity, counts in self.counts.items()},
            "paused": self.paused,
            "rows": self.rows,
            "depths": self.depths,
            "schedules": self.schedules,
            "title": self.title,
            "namespace": self.namespace,
            "stuck_after": self.stuck_after,
            "shutdown_timeout": self.shutdown_timeout,
            "running": self.running,
            "ending": self.ending,
            "stopped": self.stopped,
            "http": self.http,
            "in_lifespan": self.in_lifespan,
            "suspect": self.suspect,
        }
        return json.dumps(given).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read a line."""
        given: Mapping[str, Any] = json.loads(line)
        for name, kinds in _KINDS.items():
            if type(given[name]) not in kinds:
                raise TypeError(f"{name} is malformed")
        return cls(
            {entity: EntityCounts.from_json(counts) for entity, counts in given["counts"].items()},
            given["paused"],
            [(entity, handler, concurrency) for entity, handler, concurrency in given["rows"]],
            given["depths"],
            [(entity, name, line, then) for entity, name, line, then in given["schedules"]],
            given["title"],
            given["namespace"],
            given["stuck_after"],
            given["shutdown_timeout"],
            given["running"],
            given["ending"],
            given["stopped"],
            given["http"],
            given["in_lifespan"],
            None if given["suspect"] is None else _suspect(*given["suspect"]),
        )


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("paused", "depths"), (dict,)),
    **dict.fromkeys(("title", "namespace"), (str,)),
    **dict.fromkeys(("stuck_after", "shutdown_timeout"), (int, float)),
    **dict.fromkeys(("running", "ending", "stopped", "in_lifespan"), (bool,)),
    "http": (str, type(None)),
    "suspect": (list, type(None)),
}
"""The types that values of a report have in JSON."""


def _suspect(entity: str, lock_token: str, delivery_count: int) -> tuple[str, str, int]:
    return str(entity), str(lock_token), int(delivery_count)


class ReportReader:
    """Finds the reports in the bytes of a pipe. A part of them may begin and end in the middle of a line."""

    def __init__(self) -> None:
        self._begun = b""
        self.unreadable = 0
        """The number of lines that were no reports."""

    def read(self, part: bytes) -> list[Report]:
        """Return the reports that are complete with these bytes."""
        *lines, self._begun = (self._begun + part).split(b"\n")
        if len(self._begun) > _LONGEST:
            lines.append(self._begun)
            self._begun = b""
        return [report for line in lines if (report := self._report(line)) is not None]

    def _report(self, line: bytes) -> Report | None:
        try:
            return Report.from_line(line)
        except MALFORMED:
            self.unreadable += 1
            return None
