"""The process of a handler: it calls one function for one message at a time."""

from __future__ import annotations

import asyncio
import importlib
import inspect
import logging
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any, Final, NoReturn

from sbredis.model import MessageId, ServiceBusMessage
from sbredis.workers.declaring._context import SendOptions, SyncContext
from sbredis.workers.declaring._messages import encoded_with
from sbredis.workers.declaring._outcomes import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Outcome,
    checked_result,
    outcome_in,
)
from sbredis.workers.declaring._retries import described, is_of
from sbredis.workers.declaring._signatures import read_signature
from sbredis.workers.observing._failures import FailureLog
from sbredis.workers.observing._logs import Logs, log_like
from sbredis.workers.observing._terminal import above_the_line
from sbredis.workers.running._collecting import collecting_less
from sbredis.workers.running._frames import Answer, Asked, SentFrame, read_asked, write_answer
from sbredis.workers.running._injecting import Injector, Scopes
from sbredis.workers.running._tracebacks import for_the_log

__all__ = ["Start", "find", "holding_signals", "serve"]

_log = logging.getLogger("sbredis.worker")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOKING: Final = 1.0
"""The seconds after which a process looks again whether its worker lives."""
_VALUES: Final[Mapping[type[Outcome], tuple[str, ...]]] = {
    Abandon: ("delay", "properties_to_modify"),
    Complete: (),
    DeadLetter: ("reason", "description", "properties_to_modify"),
    Defer: ("properties_to_modify",),
}
"""The values of outcomes that go to the worker."""


@dataclass(frozen=True, slots=True)
class Start:
    """The values with which the process of a handler begins."""

    module: str
    name: str
    no_retry: tuple[type[Exception], ...]
    path: tuple[str, ...]
    uses_result: bool = False
    """Whether what the handler returns is published or is a reply."""
    overrides: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = ()
    """The dependencies that are overridden: the function that the code names, and the one that takes its place."""


@dataclass(slots=True)
class _Message:
    """The parts of a message that cross into the process."""

    body: bytes
    content_type: str | None
    application_properties: Mapping[str, Any] | None
    delivery_count: int
    fence: int | None


@dataclass(slots=True)
class _ProcessCall:
    """A call in the process of a handler, as its context sees it."""

    asked: Asked
    message: Any
    sends: list[SentFrame] = field(default_factory=list[SentFrame])
    bodies: None = None
    lock_lost: bool = False
    """Always false: a process whose lock is lost is killed."""
    timed_out: bool = False
    """Always false: a process that takes too long is killed."""

    @property
    def entity(self) -> str:
        return str(self.asked.facts["entity"])

    @property
    def interrupted(self) -> bool:
        return bool(self.asked.facts["interrupted"])

    @property
    def session_id(self) -> None:
        return None

    @property
    def tick(self) -> datetime | None:
        tick: datetime | None = self.asked.facts["tick"]
        return tick

    def send(self, entity: str, value: object, options: SendOptions) -> None:
        if isinstance(value, ServiceBusMessage):
            raise TypeError("A handler in a process sends values with options, not a ServiceBusMessage.")
        self.sends.append(SentFrame(entity, *encoded_with(value, options)))

    def returned(self, result: object) -> SentFrame | None:
        """Return the handler's result as a message without an entity."""
        return None if result is None else SentFrame("", *encoded_with(result, {}))

    def remember(self, key: MessageId, window: float) -> None:
        del key, window
        raise _not_here("once()")

    async def renew(self) -> datetime:
        raise _not_here("renew()")

    async def settle(self, outcome: Outcome) -> None:
        del outcome
        raise _not_here("settle()")

    async def get_state(self, as_type: Any) -> Any:
        del as_type
        raise _not_here("get_state()")

    def set_state(self, value: object) -> None:
        del value
        raise _not_here("set_state()")


def _not_here(what: str) -> RuntimeError:
    return RuntimeError(f"A handler in a process has no {what}: the worker that started it has the lock.")


def _refuse_to_wait(work: Coroutine[Any, Any, Any]) -> NoReturn:
    """Refuse a call that waits for the event loop of a worker: a process has none."""
    try:
        work.send(None)
    finally:
        work.close()
    raise _not_here("waiting calls")


def find(module: str, name: str) -> Callable[..., Any]:
    """Return the function of this name at the top of a module."""
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


@contextmanager
def holding_signals() -> Generator[None]:
    """Hold back SIGINT and SIGTERM from each process that this thread starts in the block, until it serves."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    resource_tracker.ensure_running()  # else it is started in the block, and no signal is held back after that
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ignore_signals() -> None:
    """Ignore the signals that the worker gets too, because the worker decides when this process ends.

    A SIGTERM still ends the programs that the handler starts: another program does not inherit a function for a signal,
    and a fork gets the default again. They do inherit that SIGINT is ignored, so that Ctrl-C lets handlers finish.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: None)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lambda: signal.signal(signal.SIGTERM, signal.SIG_DFL))
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def serve(connection: Connection, start: Start, logs: Logs) -> None:
    """Answer calls until the worker is gone. Log as the worker does."""
    with above_the_line() if logs.above_line else nullcontext():
        _serve(connection, start, logs)


def _serve(connection: Connection, start: Start, logs: Logs) -> None:
    _ignore_signals()
    threading.Thread(target=_end_with_worker, name="sbredis parent", daemon=True).start()
    for folder in start.path:
        if folder not in sys.path:
            sys.path.append(folder)
    if logs.by_command:  # before the application is imported, as in the worker
        log_like(logs)
    function = find(start.module, start.name)
    log_like(logs)  # unless the import has set up logging
    signature = read_signature(function, overrides=dict(start.overrides))
    handler, scopes = _Handler(function, Injector(signature, None), start), Scopes()
    with asyncio.Runner() as runner, collecting_less():
        connection.send_bytes(b"ready")
        try:
            while True:
                answer = runner.run(handler.answer(scopes, read_asked(connection.recv_bytes())))
                connection.send_bytes(_frame(answer))
        except (EOFError, OSError):  # the worker is gone, or has closed its end
            pass
        finally:
            runner.run(scopes.close())


def _end_with_worker() -> None:
    """End this process when the worker is killed: another worker gets the message, and this handler may never end."""
    worker = multiprocessing.parent_process()
    if worker is None:
        return
    while worker.is_alive():
        worker.join(_LOOKING)
        if os.name == "posix" and os.getppid() != worker.pid:  # a fork of the worker keeps the pipe open
            break
    os._exit(1)


def _frame(answer: Answer) -> bytes:
    """Return an answer as a frame. An outcome with a value that cannot cross is a failure of the handler."""
    try:
        return write_answer(answer)
    except TypeError as error:
        return write_answer(_failure(error, final=False))


class _Handler:
    """The handler of a process, and how its failures are logged."""

    def __init__(self, function: Callable[..., Any], injector: Injector, start: Start) -> None:
        self._function = function
        self._injector = injector
        self._start = start
        self._failures = FailureLog()

    async def answer(self, outer: Scopes, asked: Asked) -> Answer:
        """Call the handler for a message."""
        facts = asked.facts
        message = _Message(asked.body, asked.content_type, asked.properties, facts["attempt"], facts["fence"])
        call = _ProcessCall(asked, message)
        like_a_call: Any = call  # as far as the arguments are concerned
        scopes = outer.inner("message")
        try:
            try:
                arguments = await self._injector.arguments(like_a_call, SyncContext(call, _refuse_to_wait), scopes)
                result = self._function(**arguments)
                if inspect.iscoroutine(result):
                    result = await result
            except BaseException as error:
                await scopes.close(error)
                raise
            await scopes.close()
            result = checked_result(result)
            if isinstance(result, Outcome):
                return _answer(result, call)
            return _answer(Complete(), call, call.returned(result) if self._start.uses_result else None)
        except Exception as error:  # noqa: BLE001 -- a handler of the application may raise anything
            outcome = outcome_in(error)
            if outcome is not None:
                return _answer(outcome, call)
            name = self._start.name
            if self._failures.is_whole(name, error, None, monotonic()):  # the worker counts the others
                _log.warning("%s failed", name, exc_info=for_the_log(error))
            return _failure(error, is_of(error, self._start.no_retry))


def _failure(error: Exception, final: bool) -> Answer:
    built_in = next(each.__name__ for each in type(error).__mro__ if each.__module__ == "builtins")
    return Answer(None, (type(error).__name__, built_in, described(error), final))


def _answer(outcome: Outcome, call: _ProcessCall, result: SentFrame | None = None) -> Answer:
    for kind, names in _VALUES.items():
        if isinstance(outcome, kind):  # or a class of the application that is derived from it
            values = {name: getattr(outcome, name) for name in names}
            return Answer((kind.__name__, values), None, call.sends, result)
    return _failure(TypeError(f"{outcome!r} is not an outcome that a worker knows."), False)
