"""Handlers that run in processes. They have a module of their own, because a new process must import it."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Generator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers import Context, DeadLetter, Depends, Outcome, Property, SyncContext


def hold_the_interpreter(seconds: float) -> None:
    """Do what a long call of C code does that keeps the lock of the interpreter: no other thread runs meanwhile."""
    ctypes.PyDLL(None).usleep(round(seconds * 1_000_000))


def hold(text: str, context: SyncContext) -> None:
    """Hold the interpreter for as many seconds as the message says."""
    hold_the_interpreter(float(text))
    context.send("out", context.attempt)


def get_pid() -> Generator[int]:
    yield os.getpid()


class SoldOutError(Exception):
    """An error that another attempt does not change."""


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
    if text == "sold out":
        raise SoldOutError("tea")
    if text == "reject":
        raise DeadLetter("Rejected", "by the handler")
    context.send("out", [text, context.attempt, pid != os.getppid(), tenant], subject="done")
    return None


def get_name() -> str:
    return "the real name"


def fake_name() -> str:
    return "a fake"


def get_greeting(name: Annotated[str, Depends(get_name)]) -> str:
    return f"hello, {name}"


class LoudGreeting:
    """Takes the place of a greeting."""

    def __init__(self, name: Annotated[str, Depends(get_name)]) -> None:
        self.text = f"HELLO, {name}"

    def __str__(self) -> str:
        return self.text


def greet(text: str, context: SyncContext, greeting: Annotated[Any, Depends(get_greeting)]) -> None:
    context.send("out", [text, str(greeting)])


def get_record(path: Annotated[str, Property("path")]) -> Generator[None]:
    """Write into a file with which error the call has ended."""
    try:
        yield
    except BaseException as error:
        Path(path).write_text(type(error).__name__)
        raise


def keep(record: Annotated[None, Depends(get_record)], text: str) -> None:
    del record, text


def tell(text: str, context: SyncContext) -> Outcome | None:
    """Tell in which process and at which attempt the handler runs, or do what the text of the message says."""
    if text == "odd":
        return DeadLetter("Odd", properties_to_modify={"odd": odd})
    if text.startswith("/") and context.attempt == 1:  # a file that gets the id of a fork
        fork = os.fork()
        if not fork:
            stay()
        Path(text).write_text(str(fork))
        os._exit(7)
    context.send("out", [os.getpid(), context.attempt])
    return None


def facts_of(context: Context | SyncContext) -> list[Any]:
    """Return the facts that a context tells."""
    tick = context.tick
    return [context.entity, context.attempt, context.fence, context.interrupted, tick and tick.isoformat()]


def tell_facts(context: SyncContext) -> None:
    context.send("out", facts_of(context))


odd: Any = 1j


def give(text: str) -> Any:
    """Return what the text of the message says."""
    results: dict[str, Any] = {
        "odd": odd,
        "plain": text,
        "outcome": DeadLetter("Rejected"),
        "class": DeadLetter,
        "generator": (each for each in ""),
    }
    return results[text]


def stay() -> None:
    threading.Event().wait()


def stay_once(text: str, context: SyncContext) -> None:
    """Write the id of the process into a file, and stay for ever at the first attempt."""
    if context.attempt == 1:
        Path(text).write_text(str(os.getpid()))
        stay()
    context.send("out", context.attempt)


def stay_first(text: str, context: SyncContext) -> None:
    """Write the id of the process into a file and stay for ever, unless a process has done that before."""
    file = Path(text)
    if not (file.exists() and file.read_text()):
        file.write_text(str(os.getpid()))
        stay()
    context.send("out", context.attempt)


def leave_a_thread(context: SyncContext) -> None:
    """Start a thread that never ends and for which Python waits at its end."""
    threading.Thread(target=stay).start()
    context.send("out", [os.getpid(), context.attempt])


def _stay_and_say_so(connection: Connection) -> None:
    connection.send(None)
    stay()


def start_others(context: SyncContext) -> None:
    """Start processes and programs, and end them as usual."""
    codes: list[int | None] = []
    for method in ("fork", "spawn"):
        start: Any = multiprocessing.get_context(method)
        ours, theirs = start.Pipe()
        process = start.Process(target=_stay_and_say_so, args=(theirs,))
        process.start()
        ours.recv()
        process.terminate()
        process.join()
        codes.append(process.exitcode)
    program = subprocess.Popen([sys.executable, "-S", "-c", "import threading; threading.Event().wait()"])
    program.terminate()
    codes.append(program.wait())
    context.send("out", codes)


def take_message(message: ServiceBusReceivedMessage) -> None:
    """Take what cannot go to a process."""
    del message
