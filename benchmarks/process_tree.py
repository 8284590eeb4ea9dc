"""The processor time of a program and of all processes that it has started, and the priority of some of them.

On a machine that is busy with something else, the processor time tells two ways of doing the same work apart, and the
clock does not.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

__all__ = ["make_nice", "tree_seconds"]


_NICENESS = 10


class _TreeProcess(NamedTuple):
    parent: int
    program: str
    seconds: float
    """Its processor time, and that of its children that have ended."""


def tree_seconds() -> float:
    """Return the processor time of this process and of all below it, ended ones too; 0 where Linux does not say it."""
    return sum(process.seconds for process in _tree(os.getpid()).values())


def make_nice(program: str) -> None:
    """Let other processes go first: lower the priority of a program that this process has started, and of all below it.

    Linux keeps a priority for each thread, and a thread or process that is started later has that of the one that
    starts it.
    """
    for pid, process in _tree(os.getpid()).items():
        if process.program == program:
            for below in _tree(pid):
                for thread in Path(f"/proc/{below}/task").iterdir():
                    with suppress(ProcessLookupError):  # it has ended
                        os.setpriority(os.PRIO_PROCESS, int(thread.name), _NICENESS)


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
