"""The processor time of a program and of all processes that it has started.

On a machine that is busy with something else, this tells two ways of doing the same work apart, and the clock does not.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["tree_seconds"]


class _TreeProcess(NamedTuple):
    parent: int
    seconds: float
    """Its processor time, and that of its children that have ended."""


def tree_seconds() -> float:
    """Return the processor time of this process and of all below it, ended ones too; 0 where Linux does not say it."""
    found = dict(filter(None, map(_process, Path("/proc").glob("[0-9]*/stat"))))
    children: dict[int, list[int]] = {}
    for pid, process in found.items():
        children.setdefault(process.parent, []).append(pid)
    seconds, waiting = 0.0, [os.getpid()]
    while waiting:
        pid = waiting.pop()
        seconds += found[pid].seconds if pid in found else 0.0
        waiting += children.get(pid, [])
    return seconds


def _process(stat: Path) -> tuple[int, _TreeProcess] | None:
    try:
        fields = stat.read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:  # it has ended
        return None
    ticks = sum(map(int, fields[11:15]))
    return int(stat.parent.name), _TreeProcess(int(fields[1]), ticks / os.sysconf("SC_CLK_TCK"))
