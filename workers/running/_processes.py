"""Call a handler in other processes: they are spawned, never forked, and one handles one message at a time."""

from __future__ import annotations

import asyncio
import builtins
import multiprocessing
import pickle
import signal
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusMessage
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.declaring._outcomes import Abandon, Complete, DeadLetter, Defer, Outcome
from sbredis.workers.running._calls import Call
from sbredis.workers.running._child import Start, find, serve
from sbredis.workers.running._frames import Answer, Asked, read_answer, write_asked
from sbredis.workers.running._injecting import Scopes

__all__ = ["HandlerProcessDied", "HandlerProcesses", "NotAgain", "start_of"]

_OUTCOMES: Final[Mapping[str, Callable[..., Outcome]]] = {
    each.__name__: each for each in (Abandon, Complete, DeadLetter, Defer)
}
_spawn = multiprocessing.get_context("spawn")


class HandlerProcessDied(Exception):  # noqa: N818 -- the name is the reason of a dead letter
    """The process of a handler ended while it handled a message."""


class NotAgain(Exception):  # noqa: N818 -- a mark beside the class of an error
    """Marks an error for which the process has found that its message must not come again."""


class _Process:
    """One process of a handler."""

    def __init__(self, start: Start) -> None:
        self._connection, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=serve, args=(theirs, start), daemon=True, name=f"handler {start.name}")
        self._process.start()
        theirs.close()
        self._ready = False

    def exchange(self, frame: bytes) -> bytes:
        """Send a message and wait for the answer, in a thread. Raises :class:`HandlerProcessDied`."""
        try:
            if not self._ready:
                self._connection.recv_bytes()
                self._ready = True
            self._connection.send_bytes(frame)
            return self._connection.recv_bytes()
        except (EOFError, OSError):
            raise HandlerProcessDied(f"The process of the handler ended with {self._ended()}.") from None

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        """End the process: it ends by itself when its connection is closed."""
        self._connection.close()

    def join(self, seconds: float) -> None:
        self._process.join(seconds)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()

    def _ended(self) -> str:
        self._process.join(5)
        code = self._process.exitcode
        if code is None:
            return "a closed connection"
        return f"the signal {signal.Signals(-code).name}" if code < 0 else f"the exit code {code}"


class HandlerProcesses:
    """The processes of one handler. A process starts when a message first needs it."""

    def __init__(self, plan: HandlerPlan, most: int) -> None:
        self._plan = plan
        self._start = start_of(plan)
        self._idle: list[_Process] = []
        self._all: set[_Process] = set()
        self._room = asyncio.Semaphore(most)
        self._threads = ThreadPoolExecutor(most, f"sbredis-{plan.name}")

    async def invoke(self, call: Call, _: Scopes) -> Any:
        """Handle a message in a process, and return its outcome. A process whose call is cancelled is killed."""
        async with self._room:
            process = self._idle.pop() if self._idle else await self._started()
            try:
                async with asyncio.timeout(self._plan.settings.timeout):
                    frame = await asyncio.get_running_loop().run_in_executor(
                        self._threads, process.exchange, write_asked(_asked(call))
                    )
            except BaseException:
                process.kill()
                self._all.discard(process)
                raise
            self._idle.append(process)
        return _result(call, read_answer(frame))

    async def _started(self) -> _Process:
        process = await asyncio.get_running_loop().run_in_executor(self._threads, _Process, self._start)
        self._all.add(process)
        return process

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
    start = Start(module, name, plan.retries.no_retry, tuple(sys.path))
    try:
        pickle.dumps(start)
    except Exception as error:
        raise WorkerSetupError(
            f"{plan.name} cannot run in a process, because its no_retry cannot be pickled: {error}. Define these "
            "classes at the top of a module that can be imported."
        ) from error
    return start


def _asked(call: Call) -> Asked:
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


def _result(call: Call, answer: Answer) -> Outcome | ServiceBusMessage | None:
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
    marks = (NotAgain,) if final else ()
    base: Any = getattr(builtins, built_in, Exception)
    with suppress(Exception):  # some classes need other values
        made: Any = type(name, (*marks, base), {})(text)
        if isinstance(made, Exception):
            return made
    error: Exception = type(name, (*marks, Exception), {})(text)
    return error
