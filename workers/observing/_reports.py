"""The state of a worker process, as its supervisor sees it. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from sbredis.workers.observing._counts import Counts

__all__ = ["Report"]


@dataclass(slots=True)
class Report:
    """The state of one worker process."""

    counts: dict[str, Counts] = field(default_factory=dict[str, Counts])
    paused: dict[str, str] = field(default_factory=dict[str, str])
    """The entities that are not consumed, with the reasons."""
    rows: list[tuple[str, str, int]] = field(default_factory=list[tuple[str, str, int]])
    """The handlers, for the banner."""
    title: str = ""
    namespace: str = ""
    stuck_after: float = 300.0
    running: bool = False

    def to_line(self) -> bytes:
        """Return the report as a line."""
        given: dict[str, Any] = {
            "counts": {entity: counts.to_json() for entity, counts in self.counts.items()},
            "paused": self.paused,
            "rows": self.rows,
            "title": self.title,
            "namespace": self.namespace,
            "stuck_after": self.stuck_after,
            "running": self.running,
        }
        return json.dumps(given).encode() + b"\n"

    @classmethod
    def from_line(cls, line: bytes) -> Self:
        """Read a line."""
        given: Mapping[str, Any] = json.loads(line)
        return cls(
            {entity: Counts.from_json(counts) for entity, counts in given["counts"].items()},
            given["paused"],
            [(entity, handler, concurrency) for entity, handler, concurrency in given["rows"]],
            given["title"],
            given["namespace"],
            given["stuck_after"],
            given["running"],
        )
