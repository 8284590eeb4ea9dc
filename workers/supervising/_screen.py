"""The texts of a worker on a terminal: a banner at the start, and a line of rates while it runs. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sbredis._quoting import shortened
from sbredis.workers.observing._counts import EntityCounts
from sbredis.workers.observing._reports import Report

__all__ = ["banner", "rates", "summary"]


def banner(report: Report, processes: int, width: int) -> str:
    """Return the text that a worker shows at its start: its handlers and its schedules."""
    entities = [row[0] for row in report.rows] + [schedule[0] for schedule in report.schedules]
    left = max(map(len, entities), default=0)
    lines = [
        report.title,
        f"{_count(processes, 'process')} · Ctrl-C to stop",
        "",
        *(f"  {entity:<{left}}  {concurrency:>4} at once  {handler}" for entity, handler, concurrency in report.rows),
        *(f"  {entity:<{left}}  {line}: {name}, next at {tick}" for entity, name, line, tick in report.schedules),
        "",
    ]
    return "\n".join(shortened(line, width) for line in lines)


def summary(report: Report, processes: int) -> str:
    """Return the same as one line, for a log."""
    entities = len({row[0] for row in report.rows})
    handlers = _count(len(report.rows), "handler")
    return f"{report.title} · {_count(processes, 'process')} · {handlers} of {_count(entities, 'entity')}"


def rates(
    before: Mapping[str, EntityCounts],
    now: Mapping[str, EntityCounts],
    depths: Mapping[str, int],
    seconds: float,
    width: int,
) -> str:
    """Return a line with the speed of each entity since the counts of before, and with the messages that are left."""
    parts: list[str] = []
    for entity, counts in sorted(now.items()):
        old = before.get(entity, EntityCounts())
        part = f"{entity} {_rate(counts.completed - old.completed, seconds)}/s, {counts.running} running"
        if entity in depths:
            part += f", {depths[entity]:,} left"
        failed = counts.errors - old.errors
        if failed:
            part += f", {_rate(failed, seconds)}/s failing"
        parts.append(part)
    return shortened(" · ".join(parts), width)


def _count(count: int, noun: str) -> str:
    """Return a number with its noun."""
    plurals = {"process": "processes", "entity": "entities"}
    return f"{count} {noun if count == 1 else plurals.get(noun, f'{noun}s')}"


def _rate(count: int, seconds: float) -> str:
    rate = count / max(seconds, 1e-9)
    return f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"
