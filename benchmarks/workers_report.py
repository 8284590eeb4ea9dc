"""The report of the benchmark of workers: a table, a comparison with the goals, a page with a picture for the guide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

__all__ = [
    "COMPARED",
    "CONTESTANTS",
    "KINDS",
    "NATS",
    "OURS",
    "WORKING",
    "Contestant",
    "Figures",
    "KindFigures",
    "Results",
    "page",
    "picture",
    "table",
    "verdicts",
    "write_page",
]

OURS, NATS = "sbredis", "nats"
TIMES_NATS = {"asyncio": 2.2, "uvloop": 2.0}
TIMES_BEST = 12.0
TIMES_NATS_IDLE = 1.0
TIMES_NATS_SLOWEST = 2.0
TIMES_ONE = 1.5
SESSIONS, MOST_SESSION_CPU = 0.1, 6.0
"""One-message sessions, as a share of plain messages: how many a second at least, and their CPU at most."""
MOST_CONTEXT_CPU = 1.1
"""The most CPU of ``context.send``, as a share of that of ``worker.send`` and a completion."""
KINDS = ("async", "threads", "processes", "batches", "sessions", "context.send", "worker.send")
"""The kinds of handlers that ``benchmarks.peers.kinds`` knows."""
COMPARED = ("context.send", "worker.send")
"""The two ways in which a handler sends."""
WORKING = 50.0
"""For how many microseconds a handler computes, so that the worker and not the server is the limit."""
FLAT = 5.0


@dataclass(frozen=True)
class Contestant:
    """A framework on an event loop."""

    peer: str
    """The name for the option ``--peers``."""
    module: str
    """The module in ``benchmarks.peers``."""
    title: str
    loop: str = "asyncio"

    @property
    def ours(self) -> bool:
        """Whether it is sbredis."""
        return self.peer == OURS

    @property
    def name(self) -> str:
        """The name in the report."""
        return f"{self.title}, uvloop" if self.loop == "uvloop" else self.title


CONTESTANTS = (
    Contestant(OURS, "sbredis", "sbredis"),
    Contestant(OURS, "sbredis", "sbredis", "uvloop"),
    Contestant(NATS, "nats", "NATS JetStream"),
    Contestant(NATS, "nats", "NATS JetStream", "uvloop"),
    Contestant("faststream", "faststream", "FastStream"),
    Contestant("taskiq", "taskiq", "taskiq"),
    Contestant("dramatiq", "dramatiq", "Dramatiq"),
    Contestant("saq", "saq", "saq"),
    Contestant("bullmq", "bullmq", "BullMQ"),
    Contestant("streaq", "streaq", "streaQ"),
    Contestant("docket", "docket", "docket"),
)


@dataclass(frozen=True)
class Figures:
    """The medians of a contestant."""

    sent: float
    """Messages a second."""
    handled: float
    """Messages a second."""
    send_cpu: float
    """Processor time of its process, in µs a message."""
    handle_cpu: float
    p50: float
    """The time from a send to the start of the handler, in ms."""
    p99: float
    messages: int

    @property
    def both(self) -> float:
        """The messages that are sent and handled in a second, one after the other."""
        return 1 / (1 / self.sent + 1 / self.handled)


@dataclass(frozen=True)
class KindFigures:
    """The medians of a kind of handler."""

    handled: float
    """Messages a second."""
    cpu: float
    """Processor time of the worker's process, in µs a message. With handlers in processes, theirs is not in it."""
    server_cpu: float

    @property
    def both(self) -> float:
        """The processor time of worker and server."""
        return self.cpu + self.server_cpu


@dataclass
class Results:
    """All figures of a run."""

    figures: Mapping[Contestant, Figures]
    missing: Mapping[str, str]
    """The contestants that were not measured, and why."""
    processes: Mapping[float, tuple[float, float]] = field(default_factory=dict)
    """By the microseconds that a handler computes: messages a second of one worker process, and of two."""
    memory: Mapping[str, float] = field(default_factory=dict)
    kinds: Mapping[str, KindFigures] = field(default_factory=dict)
    where: str = ""
    """The server, the Python and the numbers of messages, for the guide."""

    def of(self, peer: str, loop: str = "asyncio") -> Figures | None:
        """Return the figures of a framework on a loop; ``None`` if it was not measured."""
        return next((each for who, each in self.figures.items() if (who.peer, who.loop) == (peer, loop)), None)

    @property
    def best_queue(self) -> tuple[Contestant, Figures] | None:
        """The fastest of the other frameworks on Redis."""
        others = [(who, each) for who, each in self.figures.items() if who.peer not in (OURS, NATS)]
        return max(others, key=lambda pair: pair[1].both, default=None)

    def plain(self) -> dict[str, object]:
        """Return the figures for a JSON file."""
        rows = {who.name: {**asdict(each), "both": each.both} for who, each in self.figures.items()}
        return {
            "figures": rows,
            "missing": dict(self.missing),
            "processes": {f"{work:.0f} µs": list(rates) for work, rates in self.processes.items()},
            "memory": dict(self.memory),
            "kinds": {kind: asdict(each) for kind, each in self.kinds.items()},
            "where": self.where,
        }

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Results:
        """Return the results of which :meth:`plain` has made these figures."""
        names = {who.name: who for who in CONTESTANTS}
        return cls(
            {
                names[name]: Figures(**{key: value for key, value in row.items() if key != "both"})
                for name, row in plain["figures"].items()
            },
            plain["missing"],
            {float(work.split()[0]): (one, two) for work, (one, two) in plain["processes"].items()},
            plain["memory"],
            {kind: KindFigures(**row) for kind, row in plain["kinds"].items()},
            plain["where"],
        )


# -- the table ---------------------------------------------------------------------------------------------------------


def table(results: Results) -> list[str]:
    """Return the measurements as lines of text."""
    width = max(len(who.name) for who in CONTESTANTS) + 2
    heads = ("sent/s", "handled/s", "both/s", "send CPU", "handle CPU", "p50", "p99", "messages")
    lines = [" " * width + "".join(f"{head:>12}" for head in heads)]
    for who, each in results.figures.items():
        cells = (
            f"{each.sent:,.0f}",
            f"{each.handled:,.0f}",
            f"{each.both:,.0f}",
            f"{each.send_cpu:.1f} µs",
            f"{each.handle_cpu:.1f} µs",
            f"{each.p50:.2f} ms",
            f"{each.p99:.2f} ms",
            f"{each.messages:,}",
        )
        lines.append(f"{who.name:<{width}}" + "".join(f"{cell:>12}" for cell in cells))
    lines += [f"{name:<{width}}is not measured: {why}" for name, why in results.missing.items()]
    for work, (one, two) in results.processes.items():
        handlers = f"with handlers that compute for {work:.0f} µs" if work else "with empty handlers"
        lines.append(f"one worker process {one:,.0f}/s, two {two:,.0f}/s, {handlers}")
    for kind, costs in results.kinds.items():
        said = f"CPU of the worker {costs.cpu:>7.1f} µs, of the server {costs.server_cpu:>6.1f} µs a message"
        lines.append(f"handlers: {kind:<{width - 10}}{costs.handled:>10,.0f}/s  {said}")
    if results.memory:
        lines.append(
            f"memory {results.memory['warm']:.1f} MB after a tenth of {results.memory['count']:,.0f} messages, "
            f"then at most {results.memory['change']:+.1f} MB"
        )
    return lines


def verdicts(results: Results) -> list[str]:
    """Return a line for each goal that this run can judge."""
    return ["goals", *_verdicts(results)]


def _verdicts(results: Results) -> Iterator[str]:
    for loop, goal in TIMES_NATS.items():
        ours, nats = results.of(OURS, loop), results.of(NATS, loop)
        if ours is not None and nats is not None:
            ratio, idle = ours.both / nats.both, ours.p50 / nats.p50
            yield _goal(f"sent and handled, on {loop}, ≥ {goal} x NATS", ratio, ratio >= goal)
            yield _goal(f"p50 of a trip, on {loop}, ≤ {TIMES_NATS_IDLE} x NATS", idle, idle <= TIMES_NATS_IDLE)
            slowest = ours.p99 / nats.p99
            goal = TIMES_NATS_SLOWEST
            yield _goal(f"p99 of a trip, on {loop}, ≤ {goal:.0f} x NATS", slowest, slowest <= goal)
    best, ours = results.best_queue, results.of(OURS)
    if best is not None and ours is not None:
        who, each = best
        ratio = ours.both / each.both
        yield _goal(
            f"sent and handled ≥ {TIMES_BEST:.0f} x the best Redis queue ({who.title})", ratio, ratio >= TIMES_BEST
        )
    if WORKING in results.processes:
        one, two = results.processes[WORKING]
        what = f"two processes ≥ {TIMES_ONE} x one, handlers of {WORKING:.0f} µs"
        yield _goal(what, two / one, two / one >= TIMES_ONE)
    if len(results.kinds) == len(KINDS):
        plain, single = results.kinds["async"], results.kinds["sessions"]
        rate, cost = single.handled / plain.handled, single.cpu / plain.cpu
        yield _goal(f"sessions of one message ≥ {SESSIONS} x plain messages a second", rate, rate >= SESSIONS)
        yield _goal(f"their CPU ≤ {MOST_SESSION_CPU:.0f} x that of a plain message", cost, cost <= MOST_SESSION_CPU)
        safe, unsafe = (results.kinds[kind].both for kind in COMPARED)
        share = safe / unsafe
        what = f"CPU of context.send ≤ {MOST_CONTEXT_CPU} x worker.send and completion"
        yield _goal(what, share, share <= MOST_CONTEXT_CPU)
    if results.memory:
        change = results.memory["change"]
        yield _goal(f"memory flat, ± {FLAT:.0f} MB", change, abs(change) <= FLAT)


def _goal(what: str, value: float, met: bool) -> str:
    return f"  {what:<62}{value:>8.2f}  {'met' if met else 'MISSED'}"


# -- the picture -------------------------------------------------------------------------------------------------------

ROW, LEFT, BAR, TOP = 30, 190, 420, 58
SUBTITLE = "1 KB each; a task for each send, 100 at once; then a worker with 100 at once and an empty handler"

STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328 }
  .title { font-weight: 600 }
  .small { font-size: 12px; fill: #59636e }
  .bar { fill: #8c959f }
  .ours { fill: #0969da }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .small { fill: #9198a1 }
    .bar { fill: #656c76 }
    .ours { fill: #4493f8 }
  }"""


def picture(results: Results) -> str:
    """Return an SVG with a bar for each contestant: messages sent and handled in a second."""
    rows = sorted(results.figures.items(), key=lambda pair: -pair[1].both)
    most = max((each.both for _, each in rows), default=1.0)
    width, height = LEFT + BAR + 90, TOP + ROW * len(rows) + 12
    spoken = "; ".join(f"{who.name} {each.both:,.0f}" for who, each in rows)
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    label = escape(f"Messages a second: {spoken}")
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{label}">',
        f"<style>{STYLE}\n</style>",
        '<text class="title" x="8" y="22">Messages sent and handled in a second</text>',
        f'<text class="small" x="8" y="42">{SUBTITLE}</text>',
    ]
    for number, (who, each) in enumerate(rows):
        top = TOP + ROW * number
        length = max(1.0, BAR * each.both / most)
        kind = "bar ours" if who.ours else "bar"
        lines += [
            f'<text x="{LEFT - 10}" y="{top + 16}" text-anchor="end">{escape(who.name)}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{top + 2}" width="{length:.1f}" height="{ROW - 10}" rx="3"/>',
            f'<text x="{LEFT + length + 8:.1f}" y="{top + 16}">{each.both:,.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>"])


# -- the page of the guide ---------------------------------------------------------------------------------------------

_PAGE, _PICTURE = "workers/speed.md", "workers-speed.svg"
_MEANINGS = {
    "async": "coroutines",
    "threads": "plain functions, in threads",
    "processes": '`execution="process"`',
    "batches": "batches of up to 100",
    "sessions": "sessions of one message",
    "context.send": "`context.send` of one message",
    "worker.send": "`await worker.send` of one message",
}
"""The kinds of handlers, as the page names them."""


def page(results: Results) -> str:
    """Return the page of the guide."""
    lines = [
        "# How fast workers are",
        "",
        "This page is for people who compare [workers](../workers.md) with other frameworks, or kinds of handlers.",
        "`make bench WHAT=workers` has measured and written it, in one run on two cores.",
        f"{results.where}.",
        "",
        "Each framework has a server and a process of its own.",
        "It sends its messages: each send is a task, and 100 tasks run at once.",
        "Then its worker handles them, up to 100 at once, with a handler that does nothing.",
        "Then single messages go through the idle worker: the last columns are the times from a send to its handler.",
        "A framework that is slow gets fewer messages.",
        "",
        "| | sent | handled | processor time of both | a single message: median | 99 % |",
        "|---|---|---|---|---|---|",
    ]
    for who, each in sorted(results.figures.items(), key=lambda pair: -pair[1].both):
        cells = (
            who.name,
            f"{each.sent:,.0f}/s",
            f"{each.handled:,.0f}/s",
            f"{each.send_cpu + each.handle_cpu:.0f} µs",
            f"{each.p50:.2f} ms",
            f"{each.p99:.2f} ms",
        )
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", f"![{_SPOKEN}](../{_PICTURE})", "", *_kinds(results), *_processes(results)]
    return "\n".join(lines)


_SPOKEN = "Messages sent and handled in a second by sbredis, NATS JetStream and task queues on Redis"


def _kinds(results: Results) -> list[str]:
    lines = [
        "## Kinds of handlers",
        "",
        "A worker with 16 slots handles messages that are there before it starts. Its handlers do nothing but send.",
        "Each kind has a server and a process of its own, but the two ways to send take turns in one process.",
        "",
        "| handlers | handled | processor time of the worker | of the server |",
        "|---|---|---|---|",
    ]
    for kind, costs in results.kinds.items():
        cells = (f"{costs.handled:,.0f}/s", f"{costs.cpu:.0f} µs", f"{costs.server_cpu:.0f} µs")
        lines.append(f"| {_MEANINGS[kind]} | {' | '.join(cells)} |")
    return [*lines, "", "The time of the processes in which handlers run is not in it.", ""]


def _processes(results: Results) -> list[str]:
    if WORKING not in results.processes:
        return []
    one, two = results.processes[WORKING]
    return [
        "## Processes of a worker",
        "",
        f"With handlers that compute for {WORKING:.0f} µs, a process handles {one:,.0f} a second, two {two:,.0f}.",
        "",
    ]


def write_page(results: Results, folder: Path) -> list[Path]:
    """Write the page and the picture into a folder of documents. Return their paths."""
    made = {folder / _PAGE: page(results), folder / _PICTURE: picture(results) + "\n"}
    for path, text in made.items():
        path.write_text(text, "utf-8")
    return [*made]
