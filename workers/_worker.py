"""The worker: handlers, a client, and the loop that brings them together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypedDict, Unpack

from sbredis._version import __version__
from sbredis.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender, ServiceBusSessionReceiver
from sbredis.exceptions import MessagingEntityNotFoundError, WorkerSetupError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers.declaring._context import SendOptions
from sbredis.workers.declaring._handlers import Defaults, EntityPlan, plan_of
from sbredis.workers.declaring._middleware import Middleware
from sbredis.workers.declaring._options import EntityOptions
from sbredis.workers.declaring._retries import Retries
from sbredis.workers.declaring._router import Router
from sbredis.workers.observing._counts import Counts
from sbredis.workers.observing._http import Health, address_of, serving_http
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.observing._reports import Report
from sbredis.workers.running._batches import BatchConsumer
from sbredis.workers.running._calls import Place, message_of
from sbredis.workers.running._consuming import Consumer
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._serving import Service
from sbredis.workers.running._sessions import SessionConsumer
from sbredis.workers.running._settling import Settlements

__all__ = ["Worker", "WorkerOptions"]

_log = logging.getLogger("sbredis.worker")
Lifespan = Callable[["Worker"], AbstractAsyncContextManager[Any]]
ErrorHook = Callable[[ServiceBusReceivedMessage, BaseException], None]


class WorkerOptions(TypedDict, total=False):
    """The options of a worker. Each has a default."""

    namespace: str
    credential: Any
    max_concurrent_calls: int
    """The default for all entities. 16."""
    retries: Retries
    """The default for all handlers."""
    middleware: Sequence[Middleware]
    """What surrounds the calls of all handlers, from the outside in."""
    maintenance: bool
    """Whether the worker takes part in maintenance. True."""
    shutdown_timeout: float
    """How many seconds running handlers get to finish at the end. 25."""
    threads: int
    """How many plain functions run at once. 40."""
    http: str
    """``HOST:PORT`` of an HTTP server for ``/live``, ``/ready`` and ``/metrics``. None unless it is given."""
    lifespan: Lifespan
    """A function that returns a context manager, which surrounds the work of the worker."""
    on_error: ErrorHook
    """Called with the message and the error when a handler or a settlement fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    namespace: str | None = None
    credential: Any = None
    max_concurrent_calls: int | None = None
    retries: Retries = field(default_factory=Retries)
    middleware: Sequence[Middleware] = ()
    maintenance: bool = True
    shutdown_timeout: float = 25.0
    threads: int = 40
    http: str | None = None
    lifespan: Lifespan | None = None
    on_error: ErrorHook | None = None


class Worker(Router):
    """Handles the messages of queues and subscriptions with decorated functions.

    ``fully_qualified_namespace`` is a connection string as :class:`~sbredis.aio.ServiceBusClient` takes it.
    """

    def __init__(self, fully_qualified_namespace: str, **options: Unpack[WorkerOptions]) -> None:
        super().__init__()
        self._url = fully_qualified_namespace
        self._settings = _Settings(**options)
        self._by_path: dict[str, dict[str, Any]] = {}
        self._overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        self._client: ServiceBusClient | None = None
        self._senders: dict[str, ServiceBusSender] = {}
        self._services: list[Service] = []
        self._counts: dict[str, Counts] = {}
        self._stopped: asyncio.Event | None = None

    def __repr__(self) -> str:
        count = len(self._declared)
        state = "stopped" if self._client is None else "running"
        return f"<Worker with {count} handler{'s' if count != 1 else ''}, {state}>"

    def entity(self, entity_path: str, *, retries: Retries | None = None, **options: Unpack[EntityOptions]) -> None:
        """Set options for all handlers of an entity."""
        said = self._by_path.setdefault(entity_path.lower(), {})
        said.update(options)
        if retries is not None:
            said["retries"] = retries

    def override(self, dependency: Callable[..., Any], replacement: Callable[..., Any]) -> None:
        """Let handlers get a dependency from another function, for tests."""
        self._overrides[dependency] = replacement

    @property
    def client(self) -> ServiceBusClient:
        """The client of the worker. Raises :class:`RuntimeError` while the worker does not run."""
        if self._client is None:
            raise RuntimeError("The worker does not run: use its client inside a handler, its lifespan, or async with.")
        return self._client

    async def send(self, entity: str, value: object, **options: Unpack[SendOptions]) -> None:
        """Send a value, or a :class:`~sbredis.ServiceBusMessage`, to a queue or topic."""
        message = value if isinstance(value, ServiceBusMessage) else message_of(value, options)
        await self._sender_to(entity).send_messages(message)

    def _sender_to(self, entity: str) -> ServiceBusSender:
        sender = self._senders.get(entity)
        if sender is None:
            sender = self._senders[entity] = self.client.get_sender(entity)
        return sender

    # -- for the program that runs the worker --------------------------------------------------------------------------

    def _narrow(self, queues: Sequence[str], concurrency: int | None, http: str | None) -> None:
        """Run only the handlers of these entities, with this concurrency and this HTTP port."""
        if queues:
            wanted = {path.lower() for path in queues}
            known = {declared.source.path.lower() for declared in self._declared}
            if unknown := sorted(wanted - known):
                listed = ", ".join(sorted(known)) or "none"
                raise WorkerSetupError(f"The worker has no handler of {unknown[0]!r}. It handles: {listed}.")
            self._declared = [each for each in self._declared if each.source.path.lower() in wanted]
        if concurrency is not None:
            for declared in self._declared:
                self._by_path.setdefault(declared.source.path.lower(), {})["max_concurrent_calls"] = concurrency
        if http is not None:
            self._settings = replace(self._settings, http=http)

    def _report(self) -> Report:
        """Return the state of the worker for its supervisor."""
        if self._client is None or not self._services:
            return Report()
        rows = [
            (service.entity, handler.name, service.plan.settings.max_concurrent_calls)
            for service in self._services
            for handler in service.plan.handlers
        ]
        paused = {service.entity: str(service.paused_by) for service in self._services if service.paused_by is not None}
        title = f"sbredis {__version__} · {repr(self._client)[1:-1]}"
        return Report(self._counts, paused, rows, title, self._client.namespace, running=True)

    # -- running -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Handle messages until :meth:`stop` is called or the caller is cancelled. Installs no signal handlers."""
        async with self.running():
            assert self._stopped is not None
            await self._stopped.wait()

    def stop(self) -> None:
        """Stop receiving, and let :meth:`run` return when the running handlers have finished."""
        if self._stopped is not None:
            self._stopped.set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[Self]:
        """Handle messages while the block runs."""
        if self._client is not None:
            raise RuntimeError("The worker runs already.")
        settings = self._settings
        plans = plan_of(
            self._declared,
            Defaults(
                entity={}
                if settings.max_concurrent_calls is None
                else {"max_concurrent_calls": settings.max_concurrent_calls},
                by_path=self._by_path,
                retries=settings.retries,
                middleware=tuple(settings.middleware),
                overrides=self._overrides,
            ),
        )
        self._stopped = asyncio.Event()
        async with AsyncExitStack() as stack:
            self._client = await stack.enter_async_context(
                ServiceBusClient(
                    self._url, settings.credential, namespace=settings.namespace, maintenance=settings.maintenance
                )
            )
            stack.callback(self._forget)
            if settings.lifespan is not None:
                await stack.enter_async_context(settings.lifespan(self))
            threads = ThreadPoolExecutor(settings.threads, "sbredis-handler")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            app = Scopes()
            stack.push_async_callback(app.close)
            self._services = [await self._service(plan, app, threads, stack) for plan in plans]
            tasks = [asyncio.create_task(service.serve(), name=service.entity) for service in self._services]
            stack.push_async_callback(self._finish, tasks)
            if settings.http is not None:
                await stack.enter_async_context(self._serving_http(settings.http))
            yield self

    def _serving_http(self, address: str) -> AbstractAsyncContextManager[int]:
        host, port = address_of(address)
        return serving_http(
            host,
            port,
            live=lambda: Health(well=True, details={}),
            ready=self._health,
            metrics=lambda: prometheus(self.client.namespace, self._counts),
        )

    def _health(self) -> Health:
        paused = {service.entity: str(service.paused_by) for service in self._services if service.paused_by is not None}
        return Health(not paused, {"paused": paused})

    async def _finish(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        timeout = self._settings.shutdown_timeout
        await asyncio.gather(*(service.consumer.finish(timeout) for service in self._services))

    def _forget(self) -> None:
        self._client = self._stopped = None
        self._senders.clear()
        self._services.clear()

    async def _service(
        self, plan: EntityPlan, app: Scopes, threads: ThreadPoolExecutor, stack: AsyncExitStack
    ) -> Service:
        client = self.client
        source = plan.source
        try:
            info = await client.describe_entity(source.path)
        except MessagingEntityNotFoundError as error:
            raise WorkerSetupError(
                f"{plan.handlers[0].name} handles {source.path!r}, which does not exist. Create it, or let the "
                "worker do it: create_if_missing=True."
            ) from error
        properties: Any = info.properties
        for handler in plan.handlers:
            attempts = handler.retries.attempts
            if attempts is not None and attempts > properties.max_delivery_count:
                raise WorkerSetupError(
                    f"{handler.name} asks for {attempts} attempts, but {source.path!r} dead-letters a message after "
                    f"{properties.max_delivery_count} deliveries: set its max_delivery_count, or ask for fewer."
                )

        def failed(messages: Sequence[ServiceBusReceivedMessage], error: BaseException) -> None:
            self._failed(source.path, messages, error)

        handling = Handling(
            plan, max_delivery_count=properties.max_delivery_count, app=app, threads=threads, on_error=failed
        )
        counts = self._counts.setdefault(source.path, Counts())

        def settlements(receiver: ServiceBusReceiver) -> Settlements:
            return Settlements(client, receiver, self._sender_to, counts, when_failed=failed)

        def place_of(receiver: ServiceBusSessionReceiver) -> Place:
            return Place(source.path, receiver, settlements(receiver), counts, receiver.session)

        stack.push_async_callback(handling.close)
        receiver = client.get_receiver(source.path)
        if info.requires_session:
            return Service(plan, SessionConsumer(plan, handling, client, place_of, app), receiver)
        await receiver.__aenter__()
        place = Place(source.path, receiver, settlements(receiver), counts)
        kind = BatchConsumer if plan.in_batches else Consumer
        return Service(plan, kind(plan, handling, place), receiver)

    def _failed(self, path: str, messages: Sequence[ServiceBusReceivedMessage], error: BaseException) -> None:
        for message in messages:
            _log.warning("%s: message %s: %r", path, message.sequence_number, error, exc_info=error)
            if self._settings.on_error is not None:
                self._settings.on_error(message, error)
