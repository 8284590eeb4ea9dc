"""The report of the benchmark of Spark's growth: a table, a picture, and a page of the guide with both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import NamedTuple

from benchmarks.spark import Spent
from benchmarks.workers_report import STYLE

__all__ = ["Queue", "QueueCosts", "page", "picture", "table"]


class Queue(NamedTuple):
    """A queue that was measured."""

    rows: int
    partitions: int


class QueueCosts(NamedTuple):
    """What one queue has taken."""

    write: Spent
    read: Spent


def table(found: Mapping[Queue, QueueCosts]) -> list[str]:
    """Return the table. A queue is compared with that of the fewest rows, and as many partitions."""
    shown = [
        "| rows | partitions | write | read | of the speed with the fewest rows | processor time of a row |",
        "|---|---|---|---|---|---|",
    ]
    for queue, costs in sorted(found.items()):
        first = min(other for other in found if other.partitions == queue.partitions)
        speeds = [queue.rows / each.seconds for each in costs]
        ratios = [speed / (first.rows / each.seconds) for speed, each in zip(speeds, found[first], strict=True)]
        used = [each.processors / queue.rows * 1e6 for each in costs]
        cells = [
            f"{queue.rows:,}",
            f"{queue.partitions}",
            *(f"{speed:,.0f} rows/s" for speed in speeds),
            " and ".join(f"{ratio:.2f} x" for ratio in ratios),
            " and ".join(f"{each:.1f} µs" for each in used),
        ]
        shown.append(f"| {' | '.join(cells)} |")
    return shown


def page(found: Mapping[Queue, QueueCosts], where: str) -> str:
    """Return the page of the guide."""
    return "\n".join(
        [
            "# How Spark grows",
            "",
            "This page is for people who plan large reads and writes with [Spark](spark.md).",
            "`make bench WHAT=spark-growth ARGS='--docs docs'` has measured and written it, in one run on two cores.",
            f"Servers and rows: {where}.",
            "",
            "Each queue is written once and read twice, and the faster read counts.",
            "The processor time is that of Spark and of all servers.",
            "A query of Spark takes nearly a second of it before the first row, so few rows cost more each.",
            "",
            *table(found),
            "",
            "![The processor time of a row, by the number of rows and of partitions](spark-growth.svg)",
            "",
        ]
    )


_ROW, _LEFT, _BAR, _TOP = 24, 230, 360, 58
_TITLE, _SUBTITLE = "Processor time of a row", "in µs, of Spark and all servers: written (blue) and read (grey)"


def picture(found: Mapping[Queue, QueueCosts]) -> str:
    """Return an SVG with two bars for each queue: the processor times of a row that is written, and of one read."""
    bars = list(_bars(found))
    most = max(value for _, _, value in bars)
    width, height = _LEFT + _BAR + 80, _TOP + _ROW * len(bars) + 12
    spoken = "; ".join(f"{name or 'the same, read'} {value:.1f}" for name, _, value in bars)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    label = escape(f"{_TITLE}, {_SUBTITLE}: {spoken}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
        f"<style>{STYLE}\n</style>",
        f'<text class="title" x="8" y="22">{_TITLE}</text>',
        f'<text class="small" x="8" y="42">{_SUBTITLE}</text>',
    ]
    for number, (name, kind, value) in enumerate(bars):
        top, length = _TOP + _ROW * number, max(1.0, _BAR * value / most)
        lines += [
            f'<text x="{_LEFT - 10}" y="{top + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect class="{kind}" x="{_LEFT}" y="{top + 1}" width="{length:.1f}" height="{_ROW - 8}" rx="3"/>',
            f'<text x="{_LEFT + length + 8:.1f}" y="{top + 13}">{value:.1f}</text>',
        ]
    return "\n".join([*lines, "</svg>"])


def _bars(found: Mapping[Queue, QueueCosts]) -> Iterable[tuple[str, str, float]]:
    """Yield the name, the kind and the value of each bar; only the first bar of a queue has a name."""
    for queue, costs in sorted(found.items(), key=lambda each: (each[0].partitions, each[0].rows)):
        in_partitions = f"{queue.partitions} partition{'s' * (queue.partitions > 1)}"
        yield f"{in_partitions}, {queue.rows:,} rows", "bar ours", costs.write.processors / queue.rows * 1e6
        yield "", "bar", costs.read.processors / queue.rows * 1e6
