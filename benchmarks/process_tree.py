"""The processor time of a program and of all processes that it has started, how long processes wait for a processor,
and the priority of some of them.

On a machine that is busy with something else, the processor time tells two ways of doing the same work apart, and the
clock does not.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import NamedTuple

__all__ = ["Priority", "lower", "times_of_processes", "tree_seconds"]


class Priority(Enum):
    """How a program gives way to others. Only root can take this back."""

    NICE = "nice -n 10"
    IDLE = "chrt --idle 0"


_NICENESS = 10


class _TreeProcess(NamedTuple):
    parent: int
    program: str
    seconds: float
    """Its processor time, and that of its children that have ended."""


def tree_seconds() -> float:
    """Return the processor time of this process and of all below it, ended ones too; 0 where Linux does not say it."""
    return sum(process.seconds for process in _tree(os.getpid()).values())


def times_of_processes(pids: Sequence[int]) -> tuple[float, float]:
    """Return how many ms the main threads of processes have run, and how many they had work, but no processor.

    Both are 0 where Linux does not say it.
    """
    found = [Path(f"/proc/{pid}/schedstat") for pid in pids]
    texts = [each.read_text("ascii").split() for each in found if each.exists()]
    ran, waited = (sum(int(text[at]) for text in texts) / 1e6 for at in (0, 1))
    return ran, waited


def lower(program: str, priority: Priority) -> None:
    """Lower the priority of a program that this process has started, and of all below it.

    Linux keeps a priority for each thread, and a thread or process that is started later has that of the one that
    starts it.
    """
    for pid, process in _tree(os.getpid()).items():
        if process.program == program:
            for below in _tree(pid):
                for thread in Path(f"/proc/{below}/task").iterdir():
                    with suppress(ProcessLookupError):  # it has ended
                        _lower_thread(int(thread.name), priority)


def _lower_thread(thread: int, priority: Priority) -> None:
    if priority is Priority.NICE:
        os.setpriority(os.PRIO_PROCESS, thread, _NICENESS)
    else:
        os.sched_setscheduler(thread, os.SCHED_IDLE, os.sched_param(0))


def _tree(top: int) -> dict[int, _TreeProcess]:
    """Return a process and all below it, as far as Linux lists them."""
    found = dict(filter(None, map(_process, Path("/proc").glob("[0-9]*/stat"))))
    children: dict[int, list[int]] = {}
    for pid, process in found.items():
        children.setdefault(process.parent, []).append(pid)
    tree: dict[int, _TreeProcess] = {}
    waiting = [top]
    while waiting:
        pid = waiting.pop()
        if pid in found:
            tree[pid] = found[pid]
        waiting += children.get(pid, [])
    return tree


def _process(stat: Path) -> tuple[int, _TreeProcess] | None:
    try:
        name, _, rest = stat.read_text("utf-8", "replace").rpartition(")")
    except OSError:  # it has ended
        return None
    fields = rest.split()
    ticks = sum(map(int, fields[11:15]))
    process = _TreeProcess(int(fields[1]), name.partition("(")[2], ticks / os.sysconf("SC_CLK_TCK"))
    return int(stat.parent.name), process
