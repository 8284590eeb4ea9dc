"""``sbredis demo``: the demonstration of the examples, which is part of the wheel."""

from __future__ import annotations

import runpy
from pathlib import Path

from sbredis.cli._commands import command
from sbredis.cli._invocation import Invocation

__all__ = ["demo", "demo_file"]


def demo_file() -> Path:
    """Return the program: in the wheel it is beside this module, and in a checkout it is among the examples."""
    here = Path(__file__)
    installed = here.with_name("_demo.py")
    return installed if installed.exists() else here.parents[2] / "examples" / "demo.py"


@command("demo", connects=False, examples=["sbredis demo"])
def demo(invocation: Invocation) -> int:
    """Show sbredis at work on servers that it starts itself.

    It takes half a minute: a queue, schedules, sessions, topics, transactions, a worker, and a cluster that loses a
    node. Nothing is left running.
    """
    del invocation
    program = runpy.run_path(str(demo_file()))
    return int(program["main"]())
