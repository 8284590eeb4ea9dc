"""Handlers that run in processes. They have a module of their own, because a new process must import it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Generator
from typing import Annotated, Any

from sbredis.workers import DeadLetter, Depends, Property, SyncContext


def hold_the_interpreter(seconds: float) -> None:
    """Do what a long call of C code does that keeps the lock of the interpreter: no other thread runs meanwhile."""
    ctypes.PyDLL(None).usleep(round(seconds * 1_000_000))


def hold(text: str, context: SyncContext) -> None:
    """Hold the interpreter for as many seconds as the message says."""
    hold_the_interpreter(float(text))
    context.send("out", context.attempt)


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
