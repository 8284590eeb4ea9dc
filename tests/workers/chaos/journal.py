"""Read what workers have written down, and find handlings that they had no right to. Pure, except for reading files.

A message may be handled again only for one of these reasons:

- *Its worker was killed* while it held the message, or *the server was away*, and the lock had ended before the second
  handling began. Then the second delivery is counted.
- *Its worker was terminated*, and the handler had not finished within the time for it. Then the handler was cut off,
  the second handling sees that the first was interrupted, and the delivery count is the same.

Nothing else allows it, and nothing at all after the completion was acknowledged.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Ends", "Handling", "Journal", "faults", "handlings", "summary"]

Lines = list[dict[str, Any]]


@dataclass(slots=True)
class Handling:
    """One call of a handler for one message."""

    message: int
    pid: int
    began: float
    attempt: int
    fence: int
    interrupted: bool
    session: str | None
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
    """How the worker processes were ended, and whether the server was away."""

    killed: dict[int, float] = field(default_factory=dict[int, float])
    """The processes that were killed, and when."""
    terminated: dict[int, float] = field(default_factory=dict[int, float])
    """The processes that got SIGTERM, and when."""
    shutdown_timeout: float = 25.0
    server_was_away: bool = False


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
    found: list[Handling] = []
    last: dict[tuple[int, int], Handling] = {}
    by_message: dict[int, Handling] = {}
    for line in lines:
        message, pid, event = line["id"], line["pid"], line["event"]
        if event == "begin":
            given = (line["attempt"], line["fence"], line["interrupted"], line["session"])
            made = Handling(message, pid, line["time"], *given)
            last[message, pid] = by_message[message] = made
            found.append(made)
            continue
        handling = last.get((message, pid)) or by_message[message]  # a handler in a process has a pid of its own
        if event == "lock":
            handling.until = max(handling.until, line["until"])
        elif event == "done":
            handling.done = True
        elif event == "acknowledged":
            handling.acknowledged = True
        else:
            handling.how, handling.ended = event, line["time"]
    return found


def faults(sent: Iterable[int], given: Iterable[Handling], ends: Ends) -> list[str]:
    """Return everything that is against the promise, in words."""
    found: list[str] = []
    by_message: dict[int, list[Handling]] = {number: [] for number in sent}
    for handling in given:
        if handling.message not in by_message:
            found.append(f"{handling.message} was never sent")
        by_message.setdefault(handling.message, []).append(handling)
    for message, own in by_message.items():
        own.sort(key=lambda each: each.began)
        if not any(each.done for each in own):
            found.append(f"{message} was lost: {own}")
        found += [f"{message}: {fault}: {own}" for fault in _of_message(own, ends)]
    found += _out_of_order(by_message.values())
    return found


def _of_message(own: list[Handling], ends: Ends) -> Iterable[str]:
    most = 1 + len(ends.killed) if not ends.server_was_away else 1000
    if own and not 1 <= own[0].attempt <= most:
        yield f"the first handling is the delivery {own[0].attempt}"
    if own and own[0].interrupted:
        yield "the first handling says that another was interrupted"
    for first, second in itertools.pairwise(own):
        if first.acknowledged:
            yield "handled again after its completion was acknowledged"
        if second.fence <= first.fence:
            yield "the fence did not rise"
        if first.pid in ends.terminated and first.pid not in ends.killed:
            yield from _after_a_signal(first, second, ends)
        elif first.pid in ends.killed or ends.server_was_away:
            if second.began < first.until:
                yield f"handled again {first.until - second.began:.3f} s before the lock ended"
            if second.attempt <= first.attempt:
                yield "the delivery was not counted"
        else:
            yield "handled again without a reason"


def _after_a_signal(first: Handling, second: Handling, ends: Ends) -> Iterable[str]:
    if first.done or first.how != "cut":
        yield f"handled again after it had ended ({first.how})"
    if first.ended < ends.terminated[first.pid] + ends.shutdown_timeout - 0.01:
        yield "cut off before its time was up"
    if second.attempt != first.attempt:
        yield "the interrupted delivery was counted"
    if not second.interrupted:
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
    cut = sum(1 for each in all_of_them if each.how == "cut")
    attempts = max((each.attempt for each in all_of_them), default=0)
    return (
        f"{len(times):,} messages, {len(all_of_them):,} handlings, {again:,} messages handled again, "
        f"{cut:,} handlings cut off, delivery count at most {attempts}"
    )
