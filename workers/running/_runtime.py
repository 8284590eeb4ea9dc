"""A worker that runs: its client, its services, and what it tells of itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any, Self

from sbredis._version import __version__
from sbredis.aio import (
    ServiceBusClient,
    ServiceBusReceiver,
    ServiceBusSender,
    ServiceBusSession,
    ServiceBusSessionReceiver,
)
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import MessagingEntityNotFoundError, WorkerSetupError
from sbredis.model import ServiceBusMessage, ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan
from sbredis.workers.declaring._worker_options import Setup
from sbredis.workers.observing._counts import Counts
from sbredis.workers.observing._http import Health, address_of, serving_http
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.observing._reports import Report
from sbredis.workers.running._batches import BatchConsumer
from sbredis.workers.running._consuming import Consumer
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._locks import Locks
from sbredis.workers.running._prefetching import Prefetching
from sbredis.workers.running._serving import Service
from sbredis.workers.running._sessions import SessionConsumer
from sbredis.workers.running._settling import Settlements

__all__ = ["Runtime"]

_log = logging.getLogger("sbredis.worker")


class Runtime:
    """One run of a worker, from its start to its end."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._plans = setup.plans()
        settings = setup.settings
        self.client = ServiceBusClient(
            setup.url, settings.credential, namespace=settings.namespace, maintenance=settings.maintenance
        )
        self._senders: dict[str, ServiceBusSender] = {}
        self._services: list[Service] = []
        self._counts: dict[str, Counts] = {}
        self.stopped = asyncio.Event()

    def stop(self) -> None:
        """Let :meth:`run_until_stopped` end."""
        self.stopped.set()

    def sender_to(self, entity: str) -> ServiceBusSender:
        """Return the sender to a queue or topic."""
        sender = self._senders.get(entity)
        if sender is None:
            sender = self._senders[entity] = self.client.get_sender(entity)
        return sender

    async def _send(self, entity: str, message: ServiceBusMessage, seconds: float) -> None:
        await self.sender_to(entity).send_messages(message, timeout=seconds)

    # -- running -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, worker: object) -> AsyncGenerator[Self]:
        """Handle messages while the block runs."""
        settings = self._setup.settings
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.client)
            await self._create_missing()
            if settings.lifespan is not None:
                await stack.enter_async_context(settings.lifespan(worker))
            threads = ThreadPoolExecutor(settings.threads, "sbredis-handler")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            app = Scopes()
            stack.push_async_callback(app.close)
            self._services = [await self._service(plan, app, threads, stack) for plan in self._plans]
            locks = Locks(self.client, [service.consumer for service in self._services], settings.stuck_after)
            await stack.enter_async_context(locks)
            tasks = [asyncio.create_task(service.serve(), name=service.entity) for service in self._services]
            stack.push_async_callback(self._finish, tasks)
            if settings.http is not None:
                await stack.enter_async_context(self._serving_http(settings.http))
            yield self

    async def _finish(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        timeout = self._setup.settings.shutdown_timeout
        await asyncio.gather(*(service.consumer.finish(timeout) for service in self._services))

    async def _create_missing(self) -> None:
        """Create the entities that are missing, as far as their handlers ask for it."""
        wanted = [plan for plan in self._plans if plan.settings.create_if_missing is not False]
        if not wanted:
            return
        setup, settings = self._setup, self._setup.settings
        async with ServiceBusAdministrationClient(
            setup.url, settings.credential, namespace=settings.namespace
        ) as administration:
            for plan in wanted:
                source = plan.source
                given: Any = plan.settings.create_if_missing
                properties: dict[str, Any] = {} if given is True else dict(given)
                if source.topic is None:
                    await administration.ensure_queue(source.name, **properties)
                else:
                    await administration.ensure_topic(source.topic)
                    await administration.ensure_subscription(source.topic, source.name, **properties)

    async def _service(
        self, plan: EntityPlan, app: Scopes, threads: ThreadPoolExecutor, stack: AsyncExitStack
    ) -> Service:
        client, source = self.client, plan.source
        try:
            info = await client.describe_entity(source.path)
        except MessagingEntityNotFoundError as error:
            raise WorkerSetupError(
                f"{plan.handlers[0].name} handles {source.path!r}, which does not exist. Create it, or let the "
                "worker do it: create_if_missing=True."
            ) from error
        properties: Any = info.properties
        most: int = properties.max_delivery_count
        for handler in plan.handlers:
            attempts = handler.retries.attempts
            if attempts is not None and attempts > most:
                raise WorkerSetupError(
                    f"{handler.name} asks for {attempts} attempts, but {source.path!r} dead-letters a message after "
                    f"{most} deliveries: set its max_delivery_count, or ask for fewer."
                )

        def failed(messages: Sequence[ServiceBusReceivedMessage], error: BaseException) -> None:
            self._failed(source.path, messages, error)

        assert info.lock_duration is not None  # only topics have none
        lock = info.lock_duration.total_seconds()
        prefetching = Prefetching(plan.settings.prefetch, plan.settings.max_concurrent_calls, lock)
        handling = Handling(
            plan,
            max_delivery_count=most,
            app=app,
            threads=threads,
            on_error=failed,
            send=self._send,
            handled=prefetching.handled,
        )
        stack.push_async_callback(handling.close)
        counts = self._counts.setdefault(source.path, Counts())

        def settlements(receiver: ServiceBusReceiver, session: ServiceBusSession | None = None) -> Settlements:
            return Settlements(
                client,
                receiver,
                self.sender_to,
                entity=source.path,
                counts=counts,
                session=session,
                when_failed=failed,
                judge=handling.after_failure,
            )

        def settlements_of(receiver: ServiceBusSessionReceiver) -> Settlements:
            return settlements(receiver, receiver.session)

        receiver = client.get_receiver(source.path)
        if info.requires_session:
            return Service(plan, SessionConsumer(plan, handling, client, settlements_of, app), receiver)
        await receiver.__aenter__()
        if plan.in_batches:
            return Service(plan, BatchConsumer(plan, handling, settlements(receiver)), receiver)
        return Service(plan, Consumer(plan, handling, settlements(receiver), prefetching), receiver)

    def _failed(self, path: str, messages: Sequence[ServiceBusReceivedMessage], error: BaseException) -> None:
        hook = self._setup.settings.on_error
        for message in messages:
            _log.warning("%s: message %s: %r", path, message.sequence_number, error, exc_info=error)
            if hook is not None:
                hook(message, error)

    # -- what it tells -------------------------------------------------------------------------------------------------

    def report(self) -> Report:
        """Return the state of the worker for its supervisor."""
        if not self._services:
            return Report()
        rows = [
            (service.entity, handler.name, service.plan.settings.max_concurrent_calls)
            for service in self._services
            for handler in service.plan.handlers
        ]
        title = f"sbredis {__version__} · {repr(self.client)[1:-1]}"
        stuck_after = self._setup.settings.stuck_after
        return Report(self._counts, self._paused(), rows, title, self.client.namespace, stuck_after, running=True)

    def _paused(self) -> dict[str, str]:
        return {service.entity: str(service.paused_by) for service in self._services if service.paused_by is not None}

    def _serving_http(self, address: str) -> AbstractAsyncContextManager[int]:
        host, port = address_of(address)
        return serving_http(
            host,
            port,
            live=lambda: Health(well=True, details={}),
            ready=lambda: Health(not self._paused(), {"paused": self._paused()}),
            metrics=lambda: prometheus(self.client.namespace, self._counts),
        )
