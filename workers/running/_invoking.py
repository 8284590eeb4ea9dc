"""Call a handler: its arguments, its middleware, and where it runs."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from sbredis._quoting import quoted
from sbredis.workers.declaring._context import Context, RunInLoop, SyncContext
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.declaring._middleware import Middleware
from sbredis.workers.declaring._outcomes import outcome_in
from sbredis.workers.declaring._signatures import function_name
from sbredis.workers.running._additions import AdditionsMark
from sbredis.workers.running._calls import HandlerCall
from sbredis.workers.running._injecting import Injector, Scopes, reader_of, start_in_thread
from sbredis.workers.running._processes import HandlerProcesses
from sbredis.workers.running._timeouts import ThreadTimeout, limited

__all__ = ["Invoke", "invoker"]

Invoke = Callable[[HandlerCall, Scopes], Awaitable[Any]]
"""Calls the handler with its arguments, and returns its result."""


def _running_in(loop: asyncio.AbstractEventLoop) -> RunInLoop:
    """Return the function by which a plain function in a thread runs coroutines in the worker's event loop."""

    def run_in_loop(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    return run_in_loop


def invoker(plan: HandlerPlan, threads: Executor, processes: HandlerProcesses | None = None) -> Invoke:
    """Return the function that calls a handler and returns its result.

    The way is chosen here, once: a handler without middleware, dependencies and time-out is called directly.
    """
    if processes is not None:
        invoke: Invoke = processes.invoke
    elif plan.execution == "thread":
        invoke = _threaded(plan, threads)
    elif plan.signature.injects:
        invoke = _injected(plan)
    else:
        invoke = _direct(plan)
    if plan.settings.timeout is not None and plan.execution == "async":
        invoke = _limited(invoke, plan.settings.timeout)
    if plan.signature.injects and processes is None:
        invoke = _scoped(invoke)
    return _surrounded(plan, invoke) if plan.middleware else invoke


def _direct(plan: HandlerPlan) -> Invoke:
    function, parameters = plan.function, plan.signature.parameters
    if plan.settings.batch is None and [each.kind for each in parameters] == ["message"] and not parameters[0].named:

        def with_message(call: HandlerCall, _: Scopes) -> Awaitable[Any]:
            result: Awaitable[Any] = function(call.message)
            return result

        return with_message

    wants_context = plan.signature.wants_context
    readers = [(each.name, reader_of(each)) for each in parameters]

    def with_values(call: HandlerCall, _: Scopes) -> Awaitable[Any]:
        context = Context(call) if wants_context else None
        arguments: dict[str, Any] = {}
        for name, read in readers:  # a comprehension would be a call of its own
            arguments[name] = read(call, context)
        result: Awaitable[Any] = function(**arguments)
        return result

    return with_values


def _injected(plan: HandlerPlan) -> Invoke:
    injector = Injector(plan.signature, None)

    async def invoke(call: HandlerCall, scopes: Scopes) -> Any:
        arguments = await injector.arguments(call, Context(call), scopes)
        return await plan.function(**arguments)

    return invoke


def _threaded(plan: HandlerPlan, threads: Executor) -> Invoke:
    injector, run_in_loop = Injector(plan.signature, threads), _running_in(asyncio.get_running_loop())
    seconds = plan.settings.timeout

    async def invoke(call: HandlerCall, scopes: Scopes) -> Any:
        arguments = await injector.arguments(call, SyncContext(call, run_in_loop), scopes)
        work: Callable[[], Any] = functools.partial(plan.function, **arguments)
        if seconds is None:
            call.thread = start_in_thread(threads, work)
            return await asyncio.wrap_future(call.thread)
        with ThreadTimeout(call, seconds) as time_out:
            call.thread = start_in_thread(threads, functools.partial(time_out.during, work))
            return await asyncio.wrap_future(call.thread)

    return invoke


def _limited(invoke: Invoke, seconds: float) -> Invoke:
    async def invoke_limited(call: HandlerCall, scopes: Scopes) -> Any:
        async with limited(seconds):
            return await invoke(call, scopes)

    return invoke_limited


def _scoped(invoke: Invoke) -> Invoke:
    """Give each call of the handler its own dependencies of the scope of a message."""

    async def scoped(call: HandlerCall, outer: Scopes) -> Any:
        scopes = outer.inner("message")
        try:
            result = await invoke(call, scopes)
        except BaseException as error:
            await scopes.close(error)
            raise
        await scopes.close()
        return result

    return scoped


class _Proceed:
    """The function that a middleware calls to go on. If it calls it several times, only the last call counts."""

    __slots__ = ("_before", "_call", "_inner")

    def __init__(self, call: HandlerCall, inner: Callable[[], Awaitable[Any]]) -> None:
        self._call = call
        self._inner = inner
        self._before: AdditionsMark | None = None
        """The additions of the call before the part that counts so far."""

    async def __call__(self) -> Any:
        if self._before is None:
            self._before = self._call.additions.mark()
        else:
            self._call.restore(self._before)
        self._call.additions.overfull = False
        try:
            return await self._inner()
        except BaseException as error:
            if outcome_in(error) is None:
                self._call.restore(self._before)
                self._before = None
            raise


def _surrounded(plan: HandlerPlan, invoke: Invoke) -> Invoke:
    async def surrounded(call: HandlerCall, scopes: Scopes) -> Any:
        context = Context(call)
        inner: Callable[[], Awaitable[Any]] = functools.partial(invoke, call, scopes)
        for middleware in reversed(plan.middleware):
            inner = functools.partial(_entered, middleware, context, _Proceed(call, inner))
        return await inner()

    return surrounded


def _entered(middleware: Middleware, context: Context, proceed: _Proceed) -> Awaitable[Any]:
    entered: object = middleware(context, proceed)
    if not inspect.isawaitable(entered):
        raise TypeError(
            f"The middleware {function_name(middleware)} has returned {quoted(entered)} instead of a coroutine: write"
            " async def, and return await proceed()."
        )
    return entered
