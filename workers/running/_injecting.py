"""Make the values of a handler's parameters."""

from __future__ import annotations

import asyncio
import types
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor, Future
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from contextvars import copy_context
from functools import partial
from typing import Any, Union, get_args, get_origin

from sbredis._quoting import type_name
from sbredis.codec import decode_body
from sbredis.exceptions import MessageBodyError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._context import Context, SyncContext
from sbredis.workers.declaring._outcomes import DeadLetter
from sbredis.workers.declaring._signatures import Dependency, HandlerParameter, Scope, Signature
from sbredis.workers.running._calls import HandlerCall

__all__ = ["Injector", "Scopes", "UnfitMessage", "decoded", "in_thread", "reader_of", "start_in_thread"]

AnyContext = Context | SyncContext
ArgumentReader = Callable[[HandlerCall, AnyContext | None], Any]


class UnfitMessage(DeadLetter):
    """A message that does not fit its handler: it becomes a dead letter, and that is logged."""


class _Values:
    """The values of one scope, and what ends them.

    The values of one call end with its error, if it has one, so that they can undo what they have done. The values that
    calls share end as usual, each of them, even if the end of another one fails.
    """

    __slots__ = ("_locks", "_shared", "_stack", "made")

    def __init__(self, *, shared: bool) -> None:
        self.made: dict[Dependency, Any] = {}
        self._shared = shared
        # most scopes never have a value, so these are made when they are needed
        self._stack: AsyncExitStack | None = None
        self._locks: dict[Dependency, asyncio.Lock] | None = None

    @property
    def stack(self) -> AsyncExitStack:
        """The functions that end the values, the last one first."""
        if self._stack is None:
            self._stack = AsyncExitStack()
        return self._stack

    def making(self, dependency: Dependency) -> asyncio.Lock:
        """Return the lock for making a value that several calls share."""
        if self._locks is None:
            self._locks = {}
        return self._locks.setdefault(dependency, asyncio.Lock())

    async def close(self, error: BaseException | None) -> None:
        """End the values, of a call that has raised this error or none."""
        if self._stack is not None:
            kind, traceback = (None, None) if error is None else (type(error), error.__traceback__)
            await self._stack.__aexit__(kind, error, traceback)  # contextlib gives the error this traceback

    def enter(self, manager: AbstractContextManager[Any]) -> Any:
        """Begin what ends with this scope, and return its value."""
        if not self._shared:
            return self.stack.enter_context(manager)
        value = manager.__enter__()
        self.stack.callback(manager.__exit__, None, None, None)
        return value

    async def enter_async(self, manager: AbstractAsyncContextManager[Any]) -> Any:
        """Do the same with a manager that waits."""
        if not self._shared:
            return await self.stack.enter_async_context(manager)
        value = await manager.__aenter__()
        self.stack.push_async_callback(manager.__aexit__, None, None, None)
        return value


class Scopes:
    """The scopes that a call is in, the innermost first."""

    __slots__ = ("_outer", "_own", "_values")

    def __init__(self, outer: Scopes | None = None, own: Scope = "app") -> None:
        self._outer = outer
        self._own: Scope = own
        self._values: _Values | None = None
        """The values of the innermost scope, once there are any."""

    def inner(self, scope: Scope) -> Scopes:
        """Return these scopes with a new one inside: that of a session or a message."""
        return Scopes(self, scope)

    def values_of(self, scope: Scope) -> _Values:
        """Return the values of a scope. A message of an entity without sessions is a session of its own."""
        holder = self
        while holder._own != scope and holder._outer is not None:
            holder = holder._outer
        holder = holder if holder._own == scope else self
        if holder._values is None:
            holder._values = _Values(shared=holder._own != "message")
        return holder._values

    @property
    def unused(self) -> bool:
        """Whether nothing was made for the innermost scope."""
        return self._values is None or not self._values.made

    async def close(self, error: BaseException | None = None) -> None:
        """End the innermost scope: run the code after the ``yield`` of its dependencies, the last one first."""
        if self._values is not None:
            await self._values.close(error)


class Injector:
    """Makes the arguments of a handler's calls. With ``threads``, plain functions run there, and not in the loop."""

    def __init__(self, signature: Signature, threads: Executor | None) -> None:
        self._signature = signature
        self._threads = threads
        self._readers: dict[int, ArgumentReader] = {}
        """The readers of parameters, by the identity of the parameter, which belongs to the signature."""

    async def arguments(self, call: HandlerCall, context: AnyContext, scopes: Scopes) -> dict[str, Any]:
        """Return the arguments of a call by their names."""
        return await self._values(self._signature.parameters, call, context, scopes)

    async def _values(
        self, parameters: tuple[HandlerParameter, ...], call: HandlerCall, context: AnyContext, scopes: Scopes
    ) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for parameter in parameters:
            if parameter.dependency is not None:
                made[parameter.name] = await self._dependency(parameter.dependency, call, context, scopes)
            else:
                read = self._readers.get(id(parameter))
                if read is None:
                    read = self._readers[id(parameter)] = reader_of(parameter)
                made[parameter.name] = read(call, context)
        return made

    async def _dependency(self, dependency: Dependency, call: HandlerCall, context: AnyContext, scopes: Scopes) -> Any:
        scope = scopes.values_of(dependency.scope)
        if dependency in scope.made:
            return scope.made[dependency]
        async with scope.making(dependency):  # several calls share the wider scopes
            if dependency not in scope.made:
                arguments = await self._values(dependency.parameters, call, context, scopes)
                scope.made[dependency] = await self._make(dependency, arguments, scope)
        return scope.made[dependency]

    async def _make(self, dependency: Dependency, arguments: dict[str, Any], scope: _Values) -> Any:
        call: Callable[..., Any] = dependency.call
        if dependency.how == "coroutine":
            return await call(**arguments)
        if dependency.how == "async generator":
            return await scope.enter_async(asynccontextmanager(call)(**arguments))
        if dependency.how == "generator":
            manager = contextmanager(call)(**arguments)
            if self._threads is None:
                return scope.enter(manager)
            return await scope.enter_async(_in_threads(manager, self._threads))
        return (
            call(**arguments) if self._threads is None else await in_thread(self._threads, partial(call, **arguments))
        )


def reader_of(parameter: HandlerParameter) -> ArgumentReader:
    """Return the function that reads the value of a parameter that needs no waiting.

    It raises a dead letter if the message does not fit.
    """
    as_type = parameter.type
    if parameter.kind == "body":
        return lambda call, _: decoded(call.message, as_type) if call.bodies is None else call.bodies
    if parameter.kind == "message":
        return lambda call, _: call.message if call.handler.settings.batch is None else list(call.messages)
    if parameter.kind == "context":
        return lambda _, context: context
    return lambda call, _: _property(call.message, parameter)


def decoded(message: ServiceBusReceivedMessage, as_type: Any) -> Any:
    """Return the body of a message as a value of this type. Raise a dead letter if it does not fit."""
    try:
        return decode_body(bytes(message.body), message.content_type, as_type)
    except MessageBodyError as error:
        raise UnfitMessage(error.code, error.message) from error


def in_thread(threads: Executor, work: Callable[[], Any]) -> Awaitable[Any]:
    """Run a function in a thread, with the context variables of the caller."""
    return asyncio.wrap_future(start_in_thread(threads, work))


def start_in_thread(threads: Executor, work: Callable[[], Any]) -> Future[Any]:
    """Do the same, and return what tells whether the thread runs."""
    return threads.submit(copy_context().run, _without_stop, work)


def _without_stop(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except (StopIteration, KeyboardInterrupt, GeneratorExit) as error:
        # a future cannot hold the first one, and the others would end the event loop, which they do not mean
        raise RuntimeError(f"A function raised {type(error).__name__}.") from error


@asynccontextmanager
async def _in_threads(manager: Any, threads: Executor) -> AsyncGenerator[Any]:
    value = await in_thread(threads, manager.__enter__)
    try:
        yield value
    except BaseException as error:
        if not await in_thread(threads, partial(manager.__exit__, type(error), error, error.__traceback__)):
            raise
    else:
        await in_thread(threads, partial(manager.__exit__, None, None, None))


def _property(message: ServiceBusReceivedMessage, parameter: HandlerParameter) -> Any:
    value = (message.application_properties or {}).get(parameter.property_name)
    if value is None and parameter.has_default:
        return parameter.default
    if _accepts(parameter.type, value):
        return value
    has = "no" if value is None else f"{type(value).__name__} as its"
    raise UnfitMessage(
        "MessageProperty",
        f"The message has {has} application property {parameter.property_name!r}, but {type_name(parameter.type)} is "
        "needed.",
    )


def _accepts(wanted: Any, value: object) -> bool:
    if wanted is Any:
        return value is not None
    if get_origin(wanted) in {Union, types.UnionType}:
        return any(_accepts(each, value) for each in get_args(wanted))
    if wanted is float and type(value) is int:
        return True
    return isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))
