"""A worker that runs: its client, its services, and what it tells of itself."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Sequence
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Literal, Self

from sbredis._counting import counted
from sbredis._http_server import address_of
from sbredis._version import __version__
from sbredis.aio import (
    ServiceBusClient,
    ServiceBusSender,
)
from sbredis.aio.management import ServiceBusAdministrationClient
from sbredis.exceptions import Outcome as ServiceBusOutcome
from sbredis.exceptions import ServiceBusConnectionError
from sbredis.model import ServiceBusReceivedMessage
from sbredis.workers.declaring._handlers import EntityPlan, HandlerPlan
from sbredis.workers.declaring._outcomes import Outcome
from sbredis.workers.declaring._retries import fate_of
from sbredis.workers.declaring._worker_options import Setup
from sbredis.workers.observing._counts import EntityCounts
from sbredis.workers.observing._depths import watch_depths
from sbredis.workers.observing._failures import EVERY, FailureLog
from sbredis.workers.observing._http import Health, serving_http_in_thread
from sbredis.workers.observing._prometheus import prometheus
from sbredis.workers.observing._pulse import Pulse
from sbredis.workers.observing._reports import Report
from sbredis.workers.running._batches import BatchConsumer
from sbredis.workers.running._consuming import CANCELLING, Consumer
from sbredis.workers.running._entities import (
    SourceFacts,
    check_targets,
    create_missing,
    facts_of,
    require_processes,
    require_single_messages,
    warn_of_few_threads,
)
from sbredis.workers.running._gates import Gates
from sbredis.workers.running._handling import Handling
from sbredis.workers.running._injecting import Scopes
from sbredis.workers.running._lifespan import lifespan_of
from sbredis.workers.running._limit import MessageLimit
from sbredis.workers.running._locks import Locks, beating
from sbredis.workers.running._prefetching import Prefetching
from sbredis.workers.running._reaching import Reach
from sbredis.workers.running._senders import Senders
from sbredis.workers.running._serving import Service
from sbredis.workers.running._sessions import SessionConsumer
from sbredis.workers.running._settling import CallSettler
from sbredis.workers.running._suspects import Alone, Killer, bury
from sbredis.workers.running._threads import Threads
from sbredis.workers.running._tracebacks import for_the_log
from sbredis.workers.schedules._ticking import Ticker
from sbredis.workers.schedules._time import Time

__all__ = ["Parts", "Runtime"]

_log = logging.getLogger("sbredis.worker")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts of a running worker that tests and programs replace."""

    time: Time = field(default_factory=Time)
    limit: MessageLimit = field(default_factory=MessageLimit)
    lifespan_begins: Callable[[], None] = lambda: None
    """Called before the lifespan begins."""
    suspect_begins: Callable[[], None] = lambda: None
    """Called before the handler of a suspect begins, which may end the process."""
    killer: Killer | None = None
    """The suspect with which the process before this one has ended."""
    lifespan_stuck: Callable[[], None] | None = None
    """Ends the program if the lifespan cannot be ended. Called in a thread."""
    count_failures_every: float = EVERY
    cancelling: float = CANCELLING
    """The seconds that cancelled handlers get to end."""
    handling: Callable[..., Handling] = Handling
    settlements: Callable[..., CallSettler] = CallSettler
    administration: ServiceBusAdministrationClient | None = None
    """The client that creates missing entities, if the worker shall not open one of its own."""


class Runtime:
    """One run of a worker, from its start to its end."""

    def __init__(self, setup: Setup, parts: Parts | None = None) -> None:
        self._setup = setup
        self._parts = Parts() if parts is None else parts
        self.plans = setup.plans()
        """The plans of the entities that the worker handles."""
        require_processes(self.plans)
        require_single_messages(self.plans)
        settings = setup.settings
        self.client = ServiceBusClient(
            setup.url, settings.credential, namespace=settings.namespace, maintenance=settings.maintenance
        )
        if setup.replaces_own:
            _log.info("the worker runs on %s, which the command names, and not where its module says", self._address())
        self._senders = Senders(self.client)
        self._failures = FailureLog()
        self.services: list[Service] = []
        """What serves each of the entities, once the worker runs."""
        self.tickers: list[Ticker] = []
        """The schedules of the worker that send messages, once the worker runs."""
        self._counts: dict[str, EntityCounts] = {}
        self._depths: dict[str, int] = {}
        self._state: Literal["starting", "running", "stopping"] = "starting"
        self._reach: Reach | None = None
        self._pulse = Pulse(settings.stuck_after, monotonic())
        self._alone = Alone(self._parts.time, self._parts.suspect_begins)
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.stopped = asyncio.Event()
        """Set when the worker is to end: it was stopped, or its client was closed."""
        self.stopped_itself = False
        """Whether the application has called ``worker.stop()``."""
        self.lost_client = False
        """Whether the client was closed before the end of the worker, which can handle nothing any more."""

    def stop(self) -> None:
        """Let the worker end, because the application asks for it. May be called in any thread."""
        self.stopped_itself = True
        self.end()

    def end(self) -> None:
        """Set :attr:`stopped`. May be called in any thread."""
        if threading.get_ident() == self._thread:
            self.stopped.set()
            return
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(self.stopped.set)

    def end_at_once(self) -> None:
        """Give running handlers no time to finish at the end."""
        self._setup = replace(self._setup, settings=replace(self._setup.settings, shutdown_timeout=0.0))

    def sender_to(self, entity: str) -> ServiceBusSender:
        """Return the sender to a queue or topic, for one call."""
        return self._senders.to(entity)

    # -- running -------------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self, worker: object) -> AsyncGenerator[Self]:
        """Handle messages while the block runs."""
        settings = self._setup.settings
        async with AsyncExitStack() as stack:
            stack.enter_context(beating(self._pulse))
            stack.callback(self._count_failures)
            stack.callback(asyncio.create_task(self._count_failures_again()).cancel)
            if settings.http is not None:
                await stack.enter_async_context(self._serving_http(settings.http))
            await stack.enter_async_context(self.client)
            stack.callback(asyncio.create_task(self._watch_client()).cancel)
            await self._create_missing()
            if settings.lifespan is not None:
                made = lifespan_of(settings.lifespan, worker, settings.lifespan_timeout, self._parts.lifespan_stuck)
                self._parts.lifespan_begins()
                await stack.enter_async_context(made)
            facts = [await facts_of(self.client, plan) for plan in self.plans]  # the lifespan may create entities
            for handler in (each for plan in self.plans for each in plan.handlers):
                await check_targets(self.client, handler)
            warn_of_few_threads(self.plans, settings.threads)
            threads = Threads(settings.threads, "sbredis-handler")
            stack.callback(threads.shutdown, wait=False, cancel_futures=True)
            app = Scopes()
            stack.push_async_callback(app.close)
            Gates([handler for plan in self.plans for handler in plan.handlers]).begin(self._parts.time.now)
            await self._bury_killer(facts)
            self.services = [
                await self._service(plan, own, app, threads, stack) for plan, own in zip(self.plans, facts, strict=True)
            ]
            stand_in = settings.stuck_after if settings.renewal == "process" else None
            locks = Locks(self.client, [service.consumer for service in self.services], self._pulse, stand_in)
            await stack.enter_async_context(locks)
            tasks = [asyncio.create_task(service.serve(), name=service.entity) for service in self.services]
            tasks += [asyncio.create_task(ticker.run(), name=ticker.schedule.name) for ticker in self.tickers]
            stack.push_async_callback(self._finish, tasks)
            if self.services:
                self._reach = Reach(self.client, self.services[0].entity)
                if settings.http is not None:
                    await stack.enter_async_context(self._reach.watching())
            self._state = "running"
            yield self
            if self.lost_client:
                raise ServiceBusConnectionError(
                    "The client of the worker was closed, so the worker can handle nothing any more. If the log has an "
                    "error of the client, that has closed it. Start the worker again.",
                    outcome=ServiceBusOutcome.NEVER_SENT,
                    is_transient=False,
                )

    async def _bury_killer(self, facts: Sequence[SourceFacts]) -> None:
        killer = self._parts.killer
        for plan, own in zip(self.plans, facts, strict=True):
            if killer and plan.source.path == killer.entity and killer.delivery_count >= own.max_delivery_count:
                await bury(self.client, killer)

    async def _watch_client(self) -> None:
        """End the worker if its client is closed before that, by a defect or by the application."""
        await self.client.wait_closed()
        if self._state != "stopping":
            _log.error("the client of the worker was closed, so the worker ends")
            self.lost_client = True
            self.stopped.set()

    async def _finish(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        self._state = "stopping"
        try:
            await self._end(tasks, self._setup.settings.shutdown_timeout)
        except asyncio.CancelledError:  # once more, while the worker ends: no handler may outlive its client
            for service in self.services:
                service.consumer.cancel()
            await self._end(tasks, 0)
            raise

    async def _end(self, tasks: Sequence[asyncio.Task[None]], timeout: float) -> None:
        """Receive no more messages, and let the running handlers finish within a time-out."""
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        ends = await asyncio.gather(
            *(service.consumer.finish(timeout, self._parts.cancelling) for service in self.services),
            return_exceptions=True,
        )
        for service, end in zip(self.services, ends, strict=True):
            if isinstance(end, Exception):
                _log.error("%s: the end of its handlers failed", service.entity, exc_info=end)

    def _administration(self) -> ServiceBusAdministrationClient:
        settings = self._setup.settings
        return ServiceBusAdministrationClient(self._setup.url, settings.credential, namespace=settings.namespace)

    async def _create_missing(self) -> None:
        """Create the entities that are missing, as far as their handlers ask for it."""
        wanted = [plan for plan in self.plans if plan.settings.create_if_missing is not False]
        if not wanted:
            return
        given = self._parts.administration
        if given is not None:
            await create_missing(given, wanted)
            return
        async with self._administration() as administration:
            await create_missing(administration, wanted)

    async def _service(
        self,
        plan: EntityPlan,
        facts: SourceFacts,
        app: Scopes,
        threads: Executor,
        stack: AsyncExitStack,
    ) -> Service:
        alone = self._alone
        client, source, most = self.client, plan.source, facts.max_delivery_count

        def handler_failed(
            handler: HandlerPlan, messages: Sequence[ServiceBusReceivedMessage], error: BaseException, outcome: Outcome
        ) -> None:
            attempts = min(most, handler.retries.attempts or most)
            fate = fate_of(outcome, messages[0].delivery_count, attempts)
            self._failed(f"{source.path}: {handler.name} failed", messages, error, f", which {fate}")

        def settlement_failed(messages: Sequence[ServiceBusReceivedMessage], error: BaseException) -> None:
            self._failed(f"{source.path}: the outcome was not accepted", messages, error, "")

        prefetching = Prefetching(plan.settings.prefetch, plan.settings.max_concurrent_calls, facts.lock)
        handling = self._parts.handling(
            plan,
            max_delivery_count=most,
            app=app,
            threads=threads,
            on_error=handler_failed,
            send=self._senders.send_once,
            handled=prefetching.handled,
            time=self._parts.time,
            limit=self._parts.limit,
        )
        stack.push_async_callback(handling.close)
        counts = self._counts.setdefault(source.path, EntityCounts())
        self._prepare_ticks(plan, counts, in_session=facts.requires_session)

        receiver, time = client.get_receiver(source.path), self._parts.time
        settlements = self._parts.settlements(
            client,
            receiver,
            self._senders.to,
            entity=source.path,
            counts=counts,
            when_failed=settlement_failed,
            judge=handling.after_refusal,
        )
        if facts.requires_session:
            consumer = SessionConsumer(plan, handling, client, settlements, app, alone=alone)
            return Service(plan, consumer, receiver, time)
        await receiver.__aenter__()
        if plan.in_batches:
            return Service(plan, BatchConsumer(plan, handling, settlements, alone), receiver, time)
        return Service(plan, Consumer(plan, handling, settlements, prefetching, alone), receiver, time)

    def _prepare_ticks(self, plan: EntityPlan, counts: EntityCounts, *, in_session: bool) -> None:
        for handler in plan.handlers:
            if handler.schedule is not None:
                own = counts.of(handler.name)
                own.schedules += 1
                ticker = Ticker(
                    handler.schedule,
                    self.client,
                    self.client.get_sender(plan.source.path),
                    time=self._parts.time,
                    counts=own,
                    in_session=in_session,
                )
                self.tickers.append(ticker)

    def _failed(
        self, what: str, messages: Sequence[ServiceBusReceivedMessage], error: BaseException, fate: str
    ) -> None:
        """Log an error of a handler or of a settlement, and tell the hook of it for each message."""
        number = messages[0].sequence_number
        if self._failures.is_whole(what, error, number, monotonic()):
            more = f" and {len(messages) - 1} more" if len(messages) > 1 else ""
            _log.warning("%s for message %s%s%s: %r", what, number, more, fate, error, exc_info=for_the_log(error))
        hook = self._setup.settings.on_error
        if hook is None:
            return
        for message in messages:
            try:
                hook(message, error)
            except Exception as failure:  # noqa: BLE001 -- the hook belongs to the application and may raise anything
                _log.error("on_error failed", exc_info=for_the_log(failure))

    async def _count_failures_again(self) -> None:
        while True:
            await asyncio.sleep(self._parts.count_failures_every)
            self._count_failures()

    def _count_failures(self) -> None:
        """Log the number of failures that were not logged whole."""
        for each in self._failures.counted():
            times = counted(each.times, "more time")
            _log.warning("%s with %s %s, at last for message %s", each.what, each.error, times, each.last)

    # -- what it tells -------------------------------------------------------------------------------------------------

    @property
    def left(self) -> set[asyncio.Task[None]]:
        """The tasks of handlers that did not end although they were cancelled at the end of the worker."""
        return {task for service in self.services for task in service.consumer.left}

    def report(self) -> Report:
        """Return the state of the worker for its supervisor."""
        if not self.services:
            return Report()
        rows = [
            (service.entity, handler.name, service.plan.settings.max_concurrent_calls)
            for service in self.services
            for handler in service.plan.handlers
        ]
        schedules = [
            (each.entity, each.schedule.name, str(each.schedule), each.next.isoformat(" ", "seconds"))
            for each in self.tickers
        ]
        title = f"sbredis {__version__} · {self._address()}"
        return Report(
            self._counts,
            self._paused(),
            rows,
            self._depths,
            schedules,
            title,
            self.client.namespace,
            self._setup.settings.stuck_after,
            self._setup.settings.shutdown_timeout,
            running=True,
            suspect=self._alone.suspect,
        )

    def _address(self) -> str:
        """Return the server and the namespace, without secrets."""
        return repr(self.client).removeprefix("<ServiceBusClient ").rpartition(", ")[0]

    async def watch_depths(self) -> None:
        """Count the messages that are left in the entities again and again, for the reports."""
        await watch_depths(self._administration(), [plan.source for plan in self.plans], self._depths)

    def _paused(self) -> dict[str, str]:
        lost = None if self._reach is None else self._reach.lost
        return {service.entity: why for service in self.services if (why := service.why_paused or lost) is not None}

    def watching_server(self) -> AbstractAsyncContextManager[None]:
        """Ask the server now and then whether it answers, for reports, while the block runs."""
        return nullcontext() if self._reach is None else self._reach.watching()

    def _serving_http(self, address: str) -> AbstractAsyncContextManager[int]:
        host, port = address_of(address)
        return serving_http_in_thread(
            host,
            port,
            live=self._live,
            ready=self._ready,
            metrics=lambda: prometheus(self.client.namespace, dict(self._counts)),
        )

    def _live(self) -> Health:
        """Return whether the process should go on. Called in another thread, as is the next function."""
        now = monotonic()
        details: dict[str, Any] = {"event_loop_silent_for": round(self._pulse.silence(now), 1)}
        if self.lost_client:
            details["client"] = "closed"
        return Health(not self.lost_client and not self._pulse.dead(now), details)

    def _ready(self) -> Health:
        state = "stuck" if self._pulse.stuck(monotonic()) else "stopping" if self.lost_client else self._state
        paused = self._paused()
        return Health(state == "running" and not paused, {"state": state, "paused": paused})
