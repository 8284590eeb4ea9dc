"""The texts of a worker on a terminal: a banner at the start, and a line of rates while it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sbredis._quoting import shortened
from sbredis.workers.observing._counts import Counts

__all__ = ["Row", "banner", "rates"]


class Row(NamedTuple):
    """A handler in the banner."""

    entity: str
    handler: str
    concurrency: int


def banner(title: str, rows: Sequence[Row], processes: int, width: int) -> str:
    """Return the text that a worker shows at its start."""
    entity = max((len(row.entity) for row in rows), default=0)
    lines = [
        title,
        f"{processes} process{'es' if processes > 1 else ''} · Ctrl-C to stop",
        "",
        *(f"  {row.entity:<{entity}}  {row.concurrency:>4} at once  {row.handler}" for row in rows),
        "",
    ]
    return "\n".join(shortened(line, width) for line in lines)


def rates(before: Mapping[str, Counts], now: Mapping[str, Counts], seconds: float, width: int) -> str:
    """Return a line with the speed of each entity since the counts of before."""
    parts: list[str] = []
    for entity, counts in sorted(now.items()):
        old = before.get(entity, Counts())
        part = f"{entity} {_rate(counts.completed - old.completed, seconds)}/s, {counts.running} running"
        failed = counts.errors - old.errors
        if failed:
            part += f", {_rate(failed, seconds)}/s failing"
        parts.append(part)
    return shortened(" · ".join(parts), width)


def _rate(count: int, seconds: float) -> str:
    rate = count / max(seconds, 1e-9)
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
