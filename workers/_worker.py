"""The worker: handlers, and the options with which they run."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any, Self, Unpack

from sbredis._nearest import unexpected_keyword
from sbredis._server_url import url_or_default
from sbredis.aio import ServiceBusClient
from sbredis.exceptions import WorkerSetupError
from sbredis.model import ServiceBusMessage
from sbredis.workers.declaring._checks import require_function, require_instance, require_text
from sbredis.workers.declaring._context import SendOptions
from sbredis.workers.declaring._handlers import HandlerDeclaration
from sbredis.workers.declaring._messages import message_with
from sbredis.workers.declaring._options import EntityOptions, checked
from sbredis.workers.declaring._retries import Retries
from sbredis.workers.declaring._router import Router
from sbredis.workers.declaring._worker_options import Setup, WorkerOptions, WorkerSettings
from sbredis.workers.observing._reports import Report
from sbredis.workers.observing._terminal import above_the_line
from sbredis.workers.running._runtime import Parts, Runtime
from sbredis.workers.supervising._commands import WorkerCommand
from sbredis.workers.supervising._programs import run_in_loop, run_program

__all__ = ["Worker", "begun", "setup_of"]

_log = logging.getLogger("sbredis.worker")


class Worker(Router):
    """Handles the messages of queues and subscriptions with decorated functions.

    ``fully_qualified_namespace`` is a connection string as :class:`~sbredis.aio.ServiceBusClient` takes it. If it is
    not given, the worker reads the variable ``SBREDIS_URL`` of the environment when it starts. The options ``--url``
    and ``--context`` of the command ``sbredis`` take its place.

    :meth:`run` runs the worker in an event loop that exists already, and :meth:`run_sync` and
    ``python -m sbredis.workers`` as a program.
    """

    def __init__(self, fully_qualified_namespace: str | None = None, **options: Unpack[WorkerOptions]) -> None:
        super().__init__()
        if fully_qualified_namespace is not None:
            require_instance("the connection string", fully_qualified_namespace, str)
        self._url = fully_qualified_namespace
        for name in options:
            if name not in WorkerOptions.__annotations__:
                raise unexpected_keyword("Worker", name, WorkerOptions.__annotations__)
        self._settings = WorkerSettings(**options)
        self._by_path: dict[str, dict[str, Any]] = {}
        self._overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._runtime: Runtime | None = None

    def __repr__(self) -> str:
        count = len(self._declared)
        state = "stopped" if self._runtime is None else "running"
        return f"<Worker with {count} handler{'s' if count != 1 else ''}, {state}>"

    def _check_new(self, declared: Sequence[HandlerDeclaration]) -> None:
        self._require_stopped()
        super()._check_new(declared)

    def _require_stopped(self) -> None:
        """Raise while the worker runs: what is declared then would have no effect."""
        if self._runtime is not None:
            raise RuntimeError("The worker runs already: declare its handlers and their options before it starts.")

    # -- before it runs ------------------------------------------------------------------------------------------------

    def entity(self, entity_path: str, *, retries: Retries | None = None, **options: Unpack[EntityOptions]) -> None:
        """Set options for all handlers of an entity."""
        require_text("the path of an entity", entity_path)
        self._require_stopped()
        said = self._by_path.setdefault(entity_path.lower(), {})
        said.update(checked("entity", options))
        if retries is not None:
            require_instance("retries", retries, Retries)
            said["retries"] = retries

    def override(self, dependency: Callable[..., Any], replacement: Callable[..., Any]) -> None:
        """Let handlers get a dependency from another function, for tests."""
        require_function("dependency", dependency)
        require_function("replacement", replacement)
        self._require_stopped()
        self._overrides[dependency] = replacement

    # -- while it runs -------------------------------------------------------------------------------------------------

    @property
    def client(self) -> ServiceBusClient:
        """The client of the worker. Raises :class:`RuntimeError` while the worker does not run."""
        return self._running().client

    async def send(self, entity: str, value: object, **options: Unpack[SendOptions]) -> None:
        """Send a value, or a :class:`~sbredis.ServiceBusMessage`, to a queue or topic."""
        if isinstance(value, ServiceBusMessage) and options:
            raise TypeError("The message has properties of its own: send() takes options only for other values.")
        message = value if isinstance(value, ServiceBusMessage) else message_with(value, options)
        await self._running().sender_to(entity).send_messages(message)

    def _running(self) -> Runtime:
        if self._runtime is None:
            raise RuntimeError(
                "The worker does not run: use it inside a handler, its lifespan, or `async with worker.running()`."
            )
        return self._runtime

    # -- running -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Handle messages while the block runs.

        Raises :class:`~sbredis.exceptions.ServiceBusConnectionError` at the end of the block if the client of the
        worker was closed meanwhile.
        """
        async with self._begun(self._setup()):
            yield self

    async def run(self) -> None:
        """Handle messages until :meth:`stop` is called or the caller is cancelled. Installs no signal handlers.

        Raises :class:`~sbredis.exceptions.ServiceBusConnectionError` if the client of the worker is closed meanwhile,
        because the worker can then handle nothing any more, and :class:`~sbredis.exceptions.WorkerSetupError` if it
        has no handlers.
        """
        self._require_handlers()
        async with self._begun(self._setup()) as runtime:
            await runtime.stopped.wait()

    def run_sync(self) -> None:
        """Handle messages until SIGTERM or SIGINT comes. The running handlers finish; a second signal ends them."""
        with above_the_line():
            self.run_command(WorkerCommand(target=repr(self)))

    def run_command(self, command: WorkerCommand) -> None:
        """Run as a program with the arguments of ``python -m sbredis.workers``."""
        self._require_handlers()
        setup = self._setup().narrowed(command.queues, command.concurrency, command.http)
        setup = setup.with_server(
            url_or_default(None) if command.server_of_command else None, command.namespace_of_command
        )
        _check_memory(url_or_default(setup.url), command.processes or 1)
        settings = setup.settings
        first = Report(stuck_after=settings.stuck_after, shutdown_timeout=settings.shutdown_timeout, http=settings.http)
        if command.reports_to is not None:  # the supervisor serves the port
            setup = replace(setup, settings=replace(settings, http=None))
        run_in_loop(run_program(lambda parts: self._begun(setup, parts), command, first))

    def _require_handlers(self) -> None:
        if not self._declared:
            raise WorkerSetupError(
                "The worker has no handlers, so it would do nothing: decorate a function with @worker.queue(…), or "
                "include a router."
            )

    def stop(self) -> None:
        """Stop receiving, and let :meth:`run` return when the running handlers have finished.

        May be called in any thread, and by a handler. It has no effect inside ``async with worker.running()``, which
        ends with its block. With ``--processes``, all processes of the worker stop.
        """
        runtime = self._runtime
        if runtime is not None:
            runtime.stop()

    def _setup(self) -> Setup:
        return Setup(
            url=self._url,
            settings=self._settings,
            declared=tuple(self._declared),
            by_path={path: dict(options) for path, options in self._by_path.items()},
            overrides=dict(self._overrides),
        )

    @asynccontextmanager
    async def _begun(self, setup: Setup, parts: Parts | None = None) -> AsyncGenerator[Runtime]:
        if self._runtime is not None:
            raise RuntimeError("The worker runs already.")
        self._runtime = Runtime(setup, parts)
        try:
            async with self._runtime.running(self) as runtime:
                yield runtime
        finally:
            self._runtime = None


def setup_of(worker: Worker) -> Setup:
    """Return what an application has declared on a worker: its handlers, and its options."""
    return worker._setup()  # pyright: ignore[reportPrivateUsage]  # this function is the way to it for sbredis.testing


def begun(worker: Worker, setup: Setup, parts: Parts) -> AbstractAsyncContextManager[Runtime]:
    """Run a worker with another setup and with other parts than its own, while the block runs."""
    return worker._begun(setup, parts)  # pyright: ignore[reportPrivateUsage]  # as above


def _check_memory(url: str, processes: int) -> None:
    """Refuse a server in memory for several processes, and warn of it for one: no other process can reach it."""
    if not url.lower().startswith("memory:"):
        return
    if processes > 1:
        raise WorkerSetupError(
            f"A server in memory belongs to one process: each of the {processes} processes would have its own, without "
            "the messages of the others. Name a server that all of them reach, for example embedded://./bus, or run "
            "one process."
        )
    _log.warning(
        "the worker runs on a server in memory: no other process can send to it, and its messages end with the worker"
    )
