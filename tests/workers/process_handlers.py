"""Handlers that run in processes. They have a module of their own, because a new process must import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Generator
from typing import Annotated, Any

from sbredis.workers import DeadLetter, Depends, Property, SyncContext


def get_pid() -> Generator[int]:
    yield os.getpid()


def work(
    text: str,
    context: SyncContext,
    pid: Annotated[int, Depends(get_pid, scope="app")],
    tenant: Annotated[str | None, Property("tenant")] = None,
) -> Any:
    """Do what the text of the message says."""
    if text == "die" and context.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "exit" and context.attempt == 1:
        os._exit(7)
    if text == "fail":
        raise LookupError("no such thing")
    if text == "reject":
        raise DeadLetter("Rejected", "by the handler")
    if text == "busy":
        end = time.monotonic() + 60
        while time.monotonic() < end:
            pass
    context.send("out", [text, context.attempt, pid != os.getppid(), tenant], subject="done")
    return None
