"""Call a handler in other processes: they are spawned, never forked, and one handles one message at a time."""

from __future__ import annotations

import asyncio
import atexit
import builtins
import inspect
import multiprocessing
import os
import pickle
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from math import inf
from time import monotonic
from typing import Any, Final
from weakref import WeakSet

from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusMessage
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.declaring._outcomes import Abandon, Complete, DeadLetter, Defer, Outcome
from sbredis.workers.declaring._signatures import Depends, HandlerParameter, function_name
from sbredis.workers.observing._exits import ending_of
from sbredis.workers.observing._logs import logs_here
from sbredis.workers.running._calls import HandlerCall
from sbredis.workers.running._child import Start, find, holding_signals, serve
from sbredis.workers.running._frames import Answer, Asked, read_answer, write_asked
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._threads import Threads
from sbredis.workers.running._timeouts import limited
from sbredis.workers.running._tracebacks import SaysEverything

__all__ = ["HandlerProcessDied", "HandlerProcesses", "NotAgain", "start_of"]

_OUTCOMES: Final[Mapping[str, Callable[..., Outcome]]] = {
    each.__name__: each for each in (Abandon, Complete, DeadLetter, Defer)
}
_LOOKING: Final = 1.0
"""The seconds after which a thread that waits for an answer looks again whether the process lives."""
_STARTING: Final = 300.0
"""The seconds within which a process must be ready: it imports the module of its handler."""
_PAUSE: Final = 0.05
_spawn = multiprocessing.get_context("spawn")


class HandlerProcessDied(SaysEverything):
    """The process of a handler ended while it handled a message."""


class NotAgain(Exception):  # noqa: N818 -- a mark beside the class of an error
    """Marks an error for which the process has found that its message must not come again."""


class _EndedWhileIdleError(Exception):
    """A process had ended before it was given a message."""


class _Process:
    """One process of a handler. Its methods are called in different threads."""

    def __init__(self, start: Start) -> None:
        self._connection, self._theirs = _spawn.Pipe()
        name, arguments = f"handler {start.name}", (self._theirs, start, logs_here())
        self._process = _spawn.Process(target=serve, args=arguments, name=name, daemon=False)
        self._lock = threading.Lock()
        self._killed = False
        self._used = False

    def start(self, within: float = _STARTING) -> None:
        """Start the process, and wait until it can call the handler: at most this number of seconds.

        Raises :class:`HandlerProcessDied`.
        """
        with self._lock:
            if self._killed:
                raise HandlerProcessDied("The process of the handler was no longer needed when it was to be started.")
            with holding_signals():
                self._process.start()
            _running.add(self)
        self._theirs.close()
        self._receive(within)

    def exchange(self, frame: bytes) -> bytes:
        """Send a message and wait for the answer. Raises :class:`HandlerProcessDied` if the process ends before that.

        Raises :class:`_EndedWhileIdleError` if the process has ended since its last message.
        """
        try:
            self._connection.send_bytes(frame)
        except OSError:
            raise _EndedWhileIdleError if self._used else self._died() from None
        self._used = True
        return self._receive()

    def _receive(self, within: float = inf) -> bytes:
        with suppress(EOFError, OSError):
            if self._has_frame(within):
                return self._connection.recv_bytes()
        raise self._died()

    def _has_frame(self, within: float) -> bool:
        """Wait for a frame or the end of the connection; a process that it has forked may keep that open for longer."""
        end = monotonic() + within
        while not self._connection.poll(max(0.0, min(_LOOKING, end - monotonic()))):
            if not self._process.is_alive():
                return self._connection.poll()
            if monotonic() >= end:
                raise HandlerProcessDied(
                    f"The process of the handler was not ready {within:g} s after its start, and was killed."
                )
        return True

    def _died(self) -> HandlerProcessDied:
        self._wait(5)
        code = self._process.exitcode
        how = "a closed connection" if code is None else ending_of(code)
        return HandlerProcessDied(f"The process of the handler ended with {how}.")

    @property
    def lives(self) -> bool:
        """Whether the process has not ended."""
        return self._process.is_alive()

    def kill(self) -> None:
        """End the process at once. If it has not started yet, it will not start."""
        with self._lock:
            self._killed = True
            if self._process.pid is not None:
                self._process.kill()

    def close(self) -> None:
        """End the process: it ends by itself when its connection is closed."""
        self._connection.close()

    def join(self, seconds: float) -> None:
        """Wait until the process ends, and kill it after a number of seconds."""
        if self._process.pid is not None and not self._wait(seconds):
            self._process.kill()
            self._wait(seconds)
        _running.discard(self)

    def _wait(self, seconds: float) -> bool:
        """Return whether the process ends within this time. Look again and again: a fork of it hides its end."""
        end = monotonic() + seconds
        while self._process.is_alive():
            if monotonic() > end:
                return False
            self._process.join(_PAUSE)
        return True


_running: WeakSet[_Process] = WeakSet()
"""The processes that this process has started, and that it must end."""


@atexit.register
def _kill_all() -> None:
    """Kill the processes that a worker has left behind, because a program has ended in the middle of its event loop.

    They ignore the SIGTERM of :mod:`multiprocessing`, which waits for all processes at the end of the program.
    """
    for process in list(_running):
        process.kill()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_running.clear)


class HandlerProcesses:
    """The processes of one handler. A process starts when a message first needs it, or before the turn of a suspect."""

    def __init__(self, plan: HandlerPlan, most: int, *, starting: float = _STARTING) -> None:
        """``starting`` is the number of seconds within which a process must be ready."""
        self._plan = plan
        self._starting = starting
        self._start = start_of(plan)
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._room = asyncio.Semaphore(most)
        self._threads = Threads(most, f"sbredis-{plan.name}")

    async def invoke(self, call: HandlerCall, _: Scopes) -> Any:
        """Handle a message in a process, and return its outcome. A process whose call is cancelled is killed."""
        frame = write_asked(_asked(call))
        async with self._room:
            answer = await self._answer(frame)
        return _result(call, read_answer(answer))

    async def _answer(self, frame: bytes) -> bytes:
        while self._idle:
            with suppress(_EndedWhileIdleError):
                return await self._exchange(self._idle.pop(), frame)
        return await self._exchange(None, frame)

    async def _exchange(self, idle: _Process | None, frame: bytes) -> bytes:
        """Give a message to a process, which is started if there is none that is idle. The time-out begins then."""
        async with self._used(idle) as process, limited(self._plan.settings.timeout):
            return await asyncio.get_running_loop().run_in_executor(self._threads, process.exchange, frame)

    @asynccontextmanager
    async def _used(self, idle: _Process | None) -> AsyncGenerator[_Process]:
        """Return a context with a process, which is idle after that. An error in the context ends the process."""
        process = idle or _Process(self._start)
        self._all.add(process)
        try:
            if idle is None:
                await asyncio.get_running_loop().run_in_executor(self._threads, process.start, self._starting)
            yield process
        except BaseException:
            process.kill()
            self._all.discard(process)
            raise
        self._idle.append(process)

    async def prepare(self) -> None:
        """Have a process that waits for a message, unless it cannot start in time: then the next message fails."""
        async with self._room:
            if not self.ready:
                with suppress(Exception):  # the system may have no room for it, too
                    async with self._used(None):
                        pass

    @property
    def ready(self) -> bool:
        """Whether a process waits for a message."""
        return any(process.lives for process in self._idle)

    async def close(self) -> None:
        """End all processes."""
        for process in self._all:
            process.close()
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(None, process.join, 5) for process in self._all))
        self._threads.shutdown(wait=False, cancel_futures=True)


def start_of(plan: HandlerPlan) -> Start:
    """Return what a process needs to find the handler. Raise if it could not find it."""
    module, name = plan.function.__module__, getattr(plan.function, "__qualname__", "<?>")
    found: Any = None
    with suppress(AttributeError, ImportError):
        found = find(module, name)
    if found is not plan.function:
        raise WorkerSetupError(
            f"{plan.name} cannot run in a process, because a new process could not find it: define it at the top of a "
            "module that can be imported."
        )
    for parameter in plan.signature.parameters:
        if parameter.kind == "message":
            raise WorkerSetupError(
                f"{plan.name} runs in a process, so it cannot have the message in its parameter {parameter.name!r}: "
                "take the body, and a SyncContext."
            )
    overrides = tuple(_overrides(plan.function, plan.signature.parameters))
    for dependency, replacement in overrides:
        try:
            pickle.dumps((dependency, replacement))
        except Exception as error:
            raise WorkerSetupError(
                f"{plan.name} runs in a process, which could not find what overrides its dependency "
                f"{function_name(dependency)}: define both functions at the top of modules that can be imported."
            ) from error
    uses_result = plan.settings.publishes is not None or bool(plan.settings.replies)
    start = Start(module, name, plan.retries.no_retry, tuple(sys.path), uses_result, overrides)
    try:
        pickle.dumps(start)
    except Exception as error:
        raise WorkerSetupError(
            f"{plan.name} cannot run in a process, because its no_retry cannot be pickled: {error}. Define these "
            "classes at the top of a module that can be imported."
        ) from error
    return start


def _overrides(
    function: Callable[..., Any], parameters: Sequence[HandlerParameter]
) -> Iterator[tuple[Callable[..., Any], Callable[..., Any]]]:
    """Find the dependencies that are overridden: the function that the code names, and the one that takes its place."""
    declared = inspect.signature(function, eval_str=True).parameters
    for parameter in parameters:
        if (dependency := parameter.dependency) is not None:
            marks = declared[parameter.name].annotation.__metadata__
            (named,) = (mark.call for mark in marks if isinstance(mark, Depends))
            if named is not dependency.call:
                yield named, dependency.call
            yield from _overrides(dependency.call, dependency.parameters)


def _asked(call: HandlerCall) -> Asked:
    message = call.message
    facts = {
        "entity": call.entity,
        "attempt": message.delivery_count,
        "fence": message.fence,
        "interrupted": call.interrupted,
        "tick": call.tick,
    }
    properties: Any = message.application_properties
    return Asked(bytes(message.body), message.content_type, properties, facts)


def _result(call: HandlerCall, answer: Answer) -> Outcome | ServiceBusMessage | None:
    """Return the outcome or the result, or raise the error, that came out of the process."""
    if answer.outcome is None:
        assert answer.error is not None
        name, built_in, text, final = answer.error
        raise _error(name, built_in, text, final=final)
    for sent in answer.sends:
        message = ServiceBusMessage(sent.body, **sent.options)
        call.send(sent.entity, message, {})
    name, values = answer.outcome
    if name == Complete.__name__:
        return None if answer.result is None else ServiceBusMessage(answer.result.body, **answer.result.options)
    return _OUTCOMES[name](**values)


def _error(name: str, built_in: str, text: str, *, final: bool) -> Exception:
    """Return an error like that of the process. It is of the same built-in class, for a circuit breaker to see."""
    marks = (NotAgain, SaysEverything) if final else (SaysEverything,)
    base: Any = getattr(builtins, built_in, Exception)
    with suppress(Exception):  # some classes need other values
        made: Any = type(name, (*marks, base), {})(text)
        if isinstance(made, Exception):
            return made
    error: Exception = type(name, marks, {})(text)
    return error
