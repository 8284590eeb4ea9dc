"""Read what workers have written down, and find handlings that they had no right to. Pure, except for reading files.

A handler starts once for each lock of its message. A message may be handled again only for one of these reasons:

- *Its worker was killed* while it held the message, or *the server was away*, and the lock had ended before the second
  handling began. Then the second delivery is counted.
- *Its worker was terminated*, and the handler had not finished within the time for it. Then the handler was cut off,
  the second handling sees that the first was interrupted, and the delivery count is the same.

Nothing else allows it, and nothing at all after the completion was acknowledged. The reason must come before the second
handling, and each fault is a reason for no more messages than the workers that it meets can have in work. While a
handler runs and its lock has not ended, no other handler starts for its message, whatever the reason.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

__all__ = ["Ends", "Handling", "Journal", "faults", "handled_without_right", "handlings", "summary"]

Lines = list[dict[str, Any]]
_LINGERING = 10.0
"""The seconds after an outage in which a lock may still end because of it: two of the shortest locks."""


@dataclass(slots=True)
class Handling:
    """The handling of one delivery of a message, under one lock."""

    message: int
    fence: int
    pid: int = 0
    """The worker process."""
    began: float = 0.0
    """When the worker began to call the handler."""
    attempt: int = 0
    interrupted: bool = False
    session: str | None = None
    starts: list[float] = field(default_factory=list[float])
    """When the handler started. It writes that down itself."""
    until: float = 0.0
    """When the lock ended, as far as the worker has written it down: the server did not end it earlier."""
    done: bool = False
    """Whether the handler has had its effect."""
    how: str | None = None
    """How the call ended: ``end``, ``failed`` or ``cut``; ``None`` if it did not end."""
    ended: float = 0.0
    acknowledged: bool = False


@dataclass(slots=True)
class Ends:
    """How the worker processes were ended, and when the server was away."""

    killed: dict[int, float] = field(default_factory=dict[int, float])
    """The processes that were killed, and when."""
    terminated: dict[int, float] = field(default_factory=dict[int, float])
    """The processes that got SIGTERM, and when."""
    shutdown_timeout: float = 25.0
    away: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    """The times in which the server, or a part of it, was away or moved for so long that locks could end."""
    in_work: int = 1000
    """The largest number of messages that one worker can have between their handlers' starts and the acknowledgements
    of their completions.
    """
    workers: int = 1
    """How many workers an outage meets."""

    def has_killed(self, pid: int, before: float) -> bool:
        """Return whether a process was killed before a time."""
        return self.killed.get(pid, before) < before

    def was_away(self, since: float, until: float) -> bool:
        """Return whether a lock that was held at the first time could end by the second because the server was away."""
        return any(begin <= until and since <= end + _LINGERING for begin, end in self.away)

    @property
    def most_again(self) -> int:
        """The largest number of messages that may be handled again for all these reasons together."""
        return self.in_work * (len(self.killed) + len(self.terminated) + len(self.away) * self.workers)


class Journal:
    """The lines that the processes have written in a folder so far."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}
        self._lines: Lines = []
        self.begun: set[int] = set()
        self.done: set[int] = set()
        self.held: dict[int, set[int]] = {}
        """The messages that each process works on."""

    def look(self) -> None:
        """Read what was written since the last look. The last line of a process may be unfinished."""
        for path in self._folder.glob("*.journal"):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                for line in file:
                    if line.endswith(b"\n"):
                        self._read[path] = self._read.get(path, 0) + len(line)
                        self._note(json.loads(line))

    def _note(self, line: dict[str, Any]) -> None:
        self._lines.append(line)
        held = self.held.setdefault(line["pid"], set())
        if line["event"] == "begin":
            self.begun.add(line["id"])
            held.add(line["id"])
        elif line["event"] == "done":
            self.done.add(line["id"])
        elif line["event"] in ("end", "failed", "cut"):
            held.discard(line["id"])

    def lines(self) -> Lines:
        """Return all lines until now."""
        self.look()
        return self._lines

    def handlings(self) -> list[Handling]:
        """Return the calls of handlers until now."""
        self.look()
        return handlings(sorted(self._lines, key=lambda line: line["time"]))


def handlings(lines: Iterable[Mapping[str, Any]]) -> list[Handling]:
    """Return the calls of handlers, from the lines of all processes."""
    found: dict[tuple[int, int], Handling] = {}
    for line in lines:
        key, event = (line["id"], line["fence"]), line["event"]
        if key not in found:
            found[key] = Handling(*key, line["pid"], line["time"])
        handling = found[key]
        if event == "begin":
            handling.pid, handling.attempt, handling.until = line["pid"], line["attempt"], line["until"]
            handling.interrupted, handling.session = line["interrupted"], line["session"]
        elif event == "start":
            handling.starts.append(line["time"])
        elif event == "lock":
            handling.until = max(handling.until, line["until"])
        elif event == "done":
            handling.done = True
        elif event == "acknowledged":
            handling.acknowledged = True
        else:
            handling.how, handling.ended = event, line["time"]
    return list(found.values())


def faults(sent: Iterable[int], given: Iterable[Handling], ends: Ends) -> list[str]:
    """Return everything that is against the promise, in words."""
    handled = list(given)
    expected, done = set(sent), {each.message for each in handled if each.done}
    found = [f"{each} was never sent" for each in sorted({each.message for each in handled} - expected)]
    lost = sorted(expected - done)
    found += [f"{each} was lost: {[handling for handling in handled if handling.message == each]}" for each in lost]
    return found + handled_without_right(handled, ends)


def handled_without_right(given: Iterable[Handling], ends: Ends) -> list[str]:
    """Return the handlings that were against the promise, in words. Whether a message was lost is another question."""
    found: list[str] = []
    by_message: dict[int, list[Handling]] = {}
    for handling in given:
        by_message.setdefault(handling.message, []).append(handling)
    for message, own in by_message.items():
        own.sort(key=lambda each: each.began)
        found += [f"{message}: {fault}: {own}" for fault in (*_of_message(own, ends), *_at_once(own, ends))]
    again = sum(len(own) - 1 for own in by_message.values())
    if again > ends.most_again:
        found.append(f"{again} messages were handled again, but the faults are reasons for at most {ends.most_again}")
    found += _out_of_order(by_message.values())
    return found


def _of_message(own: list[Handling], ends: Ends) -> Iterable[str]:
    most = 1 + len(ends.killed) if not ends.away else 1000
    if not 1 <= own[0].attempt <= most:
        yield f"the first handling is the delivery {own[0].attempt}"
    if own[0].interrupted:
        yield "the first handling says that another was interrupted"
    for first, second in itertools.pairwise(own):
        if first.acknowledged:
            yield "handled again after its completion was acknowledged"
        if second.fence <= first.fence:
            yield "the fence did not rise"
        if first.pid in ends.terminated and first.pid not in ends.killed:
            yield from _after_a_signal(first, second, ends)
        elif ends.has_killed(first.pid, second.began) or ends.was_away(first.began, second.began):
            if second.began < first.until:
                yield f"handled again {first.until - second.began:.3f} s before the lock ended"
            if second.attempt <= first.attempt:
                yield "the delivery was not counted"
        else:
            yield "handled again without a reason"


def _at_once(own: list[Handling], ends: Ends) -> Iterable[str]:
    """Return where a second handler started while a first one ran and had its lock."""
    for handling in own:
        if len(handling.starts) > 1:
            yield f"its handler started {len(handling.starts)} times under one lock"
        if handling.done and not handling.starts:
            yield "its handler has not said that it started"
    for first, second in itertools.combinations(own, 2):
        if not (first.starts and second.starts):
            continue
        ran_until = min(inf if first.how is None else first.ended, ends.killed.get(first.pid, inf))
        if (second_start := second.starts[0]) >= ran_until:
            continue
        if second_start < first.until:
            yield "two handlers at once, and the first one had its lock"
        elif not ends.was_away(first.began, second_start):
            yield "two handlers at once, and the first one had lost its lock without a reason"


def _after_a_signal(first: Handling, second: Handling, ends: Ends) -> Iterable[str]:
    if first.how != "cut":  # the end of a process can cut a handler off right after its effect
        yield f"handled again after it had ended ({first.how})"
    began = bool(first.starts)  # a plain function that still waits for a thread is taken back at once, and never begins
    if first.ended < ends.terminated[first.pid] + (ends.shutdown_timeout if began else 0) - 0.01:
        yield "cut off before its time was up"
    if second.attempt != first.attempt:
        yield "the interrupted delivery was counted"
    if began and not second.interrupted:
        yield "the second handling was not told that the first was interrupted"


def _out_of_order(by_message: Iterable[list[Handling]]) -> Iterable[str]:
    """Return where a message of a session was handled after a later one of the same session had been done."""
    latest: dict[str, int] = {}
    in_time = sorted((each for own in by_message for each in own if each.session), key=lambda each: each.began)
    for handling in in_time:
        assert handling.session is not None
        if handling.message < latest.get(handling.session, -1):
            yield f"{handling.message} was handled after {latest[handling.session]} of its session was done"
        if handling.done:
            latest[handling.session] = max(latest.get(handling.session, -1), handling.message)


def summary(given: Iterable[Handling]) -> str:
    """Return the counts of a run in words."""
    all_of_them = list(given)
    times = Counter(each.message for each in all_of_them)
    again = sum(1 for count in times.values() if count > 1)
    starts = sum(len(each.starts) for each in all_of_them)
    cut = sum(1 for each in all_of_them if each.how == "cut")
    attempts = max((each.attempt for each in all_of_them), default=0)
    return (
        f"{len(times):,} messages, {len(all_of_them):,} handlings, {starts:,} starts, "
        f"{again:,} messages handled again, {cut:,} handlings cut off, delivery count at most {attempts}"
    )
