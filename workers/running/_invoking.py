"""Call a handler: its arguments, its middleware, and where it runs."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from typing import Any

from sbredis.workers.declaring._context import Context, SyncContext
from sbredis.workers.declaring._handlers import HandlerPlan
from sbredis.workers.running._calls import Call
from sbredis.workers.running._injecting import Injector, Scopes, start_in_thread, value_of
from sbredis.workers.running._processes import HandlerProcesses

__all__ = ["Invoke", "Portal", "invoker"]

_log = logging.getLogger("sbredis.worker")

Invoke = Callable[[Call, Scopes], Awaitable[Any]]
"""Calls the handler with its arguments, and returns its result."""


class Portal:
    """The way from a thread of a plain function to the worker's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine in the event loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


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
    if plan.settings.timeout is not None and processes is None:
        limit = _watched if plan.execution == "thread" else _limited
        invoke = limit(invoke, plan.settings.timeout)
    return _surrounded(plan, invoke) if plan.middleware else invoke


def _direct(plan: HandlerPlan) -> Invoke:
    function, parameters = plan.function, plan.signature.parameters
    if plan.settings.batch is None and [each.kind for each in parameters] == ["message"] and not parameters[0].named:

        def with_message(call: Call, _: Scopes) -> Awaitable[Any]:
            result: Awaitable[Any] = function(call.message)
            return result

        return with_message

    wants_context = plan.signature.wants_context

    def with_values(call: Call, _: Scopes) -> Awaitable[Any]:
        context = Context(call) if wants_context else None
        result: Awaitable[Any] = function(**{each.name: value_of(each, call, context) for each in parameters})
        return result

    return with_values


def _injected(plan: HandlerPlan) -> Invoke:
    injector = Injector(plan.signature, None)

    async def invoke(call: Call, scopes: Scopes) -> Any:
        arguments = await injector.arguments(call, Context(call), scopes)
        return await plan.function(**arguments)

    return invoke


def _threaded(plan: HandlerPlan, threads: Executor) -> Invoke:
    injector, portal = Injector(plan.signature, threads), Portal(asyncio.get_running_loop())

    async def invoke(call: Call, scopes: Scopes) -> Any:
        arguments = await injector.arguments(call, SyncContext(call, portal), scopes)
        call.thread = start_in_thread(threads, functools.partial(plan.function, **arguments))
        return await asyncio.wrap_future(call.thread)

    return invoke


def _limited(invoke: Invoke, seconds: float) -> Invoke:
    async def limited(call: Call, scopes: Scopes) -> Any:
        async with asyncio.timeout(seconds):
            return await invoke(call, scopes)

    return limited


def _watched(invoke: Invoke, seconds: float) -> Invoke:
    """Tell a plain function that its time is over. Its thread cannot be ended, so it is waited for."""
    loop = asyncio.get_running_loop()

    def late(call: Call) -> None:
        call.timed_out = True
        _log.warning(
            "%s: %s has run for longer than its time-out of %g s for message %s, and runs on in its thread",
            call.entity,
            call.handler.name,
            seconds,
            call.message.sequence_number,
        )

    async def watched(call: Call, scopes: Scopes) -> Any:
        timer = loop.call_later(seconds, late, call)
        try:
            return await invoke(call, scopes)
        finally:
            timer.cancel()

    return watched


def _surrounded(plan: HandlerPlan, invoke: Invoke) -> Invoke:
    async def surrounded(call: Call, scopes: Scopes) -> Any:
        context = Context(call)

        async def proceed(place: int) -> Any:
            if place == len(plan.middleware):
                return await invoke(call, scopes)
            return await plan.middleware[place](context, functools.partial(proceed, place + 1))

        return await proceed(0)

    return surrounded
