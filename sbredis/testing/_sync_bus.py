"""The bus for tests without an event loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, final, overload

from anyio.from_thread import start_blocking_portal

from sbredis.model import (
    QueueOptions,
    QueueProperties,
    QueueRuntimeProperties,
    RuleFilter,
    RuleProperties,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    SqlRuleAction,
    SubscriptionOptions,
    SubscriptionProperties,
    SubscriptionRuntimeProperties,
    TopicOptions,
    TopicProperties,
    TrueRuleFilter,
)
from sbredis.sync import ServiceBusClient
from sbredis.sync._facade import bridge_of
from sbredis.testing._bus import Bus, Rules
from sbredis.testing._clock import TestClock
from sbredis.testing._contents import require_open
from sbredis.testing._records import Handled
from sbredis.testing._worker_run import Overrides, WorkerRun
from sbredis.workers import Outcome, Worker
from sbredis.workers.declaring._context import SendOptions

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

__all__ = ["SyncBus", "SyncWorkerRun"]

_LOOKING = 0.01


@final
class SyncWorkerRun:
    """A :class:`WorkerRun` whose methods are not awaited: ``with sbredis_sync_bus.running(worker) as run``."""

    def __init__(self, run: WorkerRun, call: Callable[[Callable[[], Awaitable[Any]]], Any]) -> None:
        self._run = run
        self._call = call

    def __repr__(self) -> str:
        return f"<Sync{repr(self._run)[1:]}"

    def send(self, entity: str, value: object, **options: Unpack[SendOptions]) -> None:
        """Do the same as :meth:`WorkerRun.send`."""
        self._call(partial(self._run.send, entity, value, **options))

    def idle(self, *, advance: bool = False, raise_errors: bool = False, timeout: float | None = None) -> None:
        """Do the same as :meth:`WorkerRun.idle`."""
        self._call(partial(self._run.idle, advance=advance, raise_errors=raise_errors, timeout=timeout))

    def until(self, condition: Callable[[], object], *, timeout: float | None = None) -> None:
        """Do the same as :meth:`WorkerRun.until`. The function is called in the thread of the test."""
        seconds = self._run.timeout if timeout is None else timeout
        deadline = time.monotonic() + seconds
        with self._run.hurrying():
            while not condition():
                if time.monotonic() > deadline:
                    raise self._call(partial(self._run.not_true, seconds))
                time.sleep(_LOOKING)

    def handled(self, entity: str | None = None) -> list[Handled]:
        """Do the same as :meth:`WorkerRun.handled`."""
        return self._run.handled(entity)

    def outcomes(self, entity: str | None = None) -> list[Outcome | None]:
        """Do the same as :meth:`WorkerRun.outcomes`."""
        return self._run.outcomes(entity)

    @property
    def paused(self) -> dict[str, str]:
        """The entities that the worker does not receive from now, with the reasons."""
        return self._run.paused


@contextmanager
def _running(portal: BlockingPortal, running: AbstractAsyncContextManager[WorkerRun]) -> Generator[SyncWorkerRun]:
    """Run a worker in the thread of a bus while the block runs."""
    with portal.wrap_async_context_manager(running) as run:
        yield SyncWorkerRun(run, portal.call)


T = TypeVar("T")


@final
class SyncBus:
    """A :class:`Bus` whose helpers are not awaited: ``with SyncBus() as bus``, or the fixture ``sbredis_sync_bus``.

    Code under test uses :attr:`client`, or makes its own clients from :attr:`url`, in any thread, synchronous or
    asynchronous. The helpers run in a thread of their own, which starts with the first helper.
    """

    def __init__(self, *, begins: datetime | None = None, slot_count: int = 16) -> None:
        """``begins`` and ``slot_count`` are those of :class:`Bus`."""
        self._bus = Bus(begins=begins, slot_count=slot_count)
        self._thread = ExitStack()
        self._portal: BlockingPortal | None = None
        self._clients: list[ServiceBusClient] = []
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Sync{repr(self._bus)[1:]}"

    @property
    def url(self) -> str:
        """A connection string, for code that makes its own clients; ``?namespace=…`` may be added to it."""
        return self._bus.url

    @property
    def client(self) -> ServiceBusClient:
        """A client that is closed with the bus.

        If the code under test closes it, this property makes another client.
        """
        require_open(closed=self._closed)
        if not self._clients or bridge_of(self._clients[-1]).closed:
            self._clients.append(ServiceBusClient(self.url))
        return self._clients[-1]

    @property
    def clock(self) -> TestClock:
        """The clock of all clients of this bus."""
        return self._bus.clock

    def create_queue(self, queue_name: str, **properties: Unpack[QueueOptions]) -> QueueProperties:
        """Do the same as :meth:`Bus.create_queue`."""
        return self._run(partial(self._bus.create_queue, queue_name, **properties))

    def create_topic(self, topic_name: str, **properties: Unpack[TopicOptions]) -> TopicProperties:
        """Do the same as :meth:`Bus.create_topic`."""
        return self._run(partial(self._bus.create_topic, topic_name, **properties))

    def create_subscription(
        self,
        topic_name: str,
        subscription_name: str,
        *,
        rules: Rules | None = None,
        **properties: Unpack[SubscriptionOptions],
    ) -> SubscriptionProperties:
        """Do the same as :meth:`Bus.create_subscription`."""
        return self._run(
            partial(self._bus.create_subscription, topic_name, subscription_name, rules=rules, **properties)
        )

    def create_rule(
        self,
        topic_name: str,
        subscription_name: str,
        rule_name: str,
        filter: RuleFilter | str = TrueRuleFilter(),  # noqa: A002, B008 -- Azure's name; the default is never changed
        action: SqlRuleAction | str | None = None,
    ) -> RuleProperties:
        """Do the same as :meth:`Bus.create_rule`."""
        return self._run(partial(self._bus.create_rule, topic_name, subscription_name, rule_name, filter, action))

    def running(
        self,
        worker: Worker,
        *,
        overrides: Overrides | None = None,
        timeout: float = 10.0,
        shutdown_timeout: float | None = None,
    ) -> AbstractContextManager[SyncWorkerRun]:
        """Do the same as :meth:`Bus.running`. The worker runs in the thread of the helpers."""
        running = self._bus.running(worker, overrides=overrides, timeout=timeout, shutdown_timeout=shutdown_timeout)
        return _running(self._opened_portal(), running)

    def sent(self, queue_or_topic_name: str) -> list[ServiceBusMessage]:
        """Do the same as :meth:`Bus.sent`."""
        return self._run(partial(self._bus.sent, queue_or_topic_name))

    def messages(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Do the same as :meth:`Bus.messages`."""
        return self._run(partial(self._bus.messages, queue_or_topic_name, subscription_name))

    def active(self, queue_or_topic_name: str, subscription_name: str | None = None) -> list[ServiceBusReceivedMessage]:
        """Do the same as :meth:`Bus.active`."""
        return self._run(partial(self._bus.active, queue_or_topic_name, subscription_name))

    def locked(self, queue_or_topic_name: str, subscription_name: str | None = None) -> list[ServiceBusReceivedMessage]:
        """Do the same as :meth:`Bus.locked`."""
        return self._run(partial(self._bus.locked, queue_or_topic_name, subscription_name))

    def scheduled(self, queue_or_topic_name: str) -> list[ServiceBusReceivedMessage]:
        """Do the same as :meth:`Bus.scheduled`."""
        return self._run(partial(self._bus.scheduled, queue_or_topic_name))

    def deferred(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Do the same as :meth:`Bus.deferred`."""
        return self._run(partial(self._bus.deferred, queue_or_topic_name, subscription_name))

    def dead_lettered(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> list[ServiceBusReceivedMessage]:
        """Do the same as :meth:`Bus.dead_lettered`."""
        return self._run(partial(self._bus.dead_lettered, queue_or_topic_name, subscription_name))

    @overload
    def counts(self, queue_or_topic_name: str) -> QueueRuntimeProperties: ...

    @overload
    def counts(self, queue_or_topic_name: str, subscription_name: str) -> SubscriptionRuntimeProperties: ...

    def counts(
        self, queue_or_topic_name: str, subscription_name: str | None = None
    ) -> QueueRuntimeProperties | SubscriptionRuntimeProperties:
        """Do the same as :meth:`Bus.counts`."""
        if subscription_name is None:
            return self._run(partial(self._bus.counts, queue_or_topic_name))
        return self._run(partial(self._bus.counts, queue_or_topic_name, subscription_name))

    def purge(self, queue_or_topic_name: str, subscription_name: str | None = None) -> int:
        """Do the same as :meth:`Bus.purge`."""
        return self._run(partial(self._bus.purge, queue_or_topic_name, subscription_name))

    def close(self) -> None:
        """Close the client, end the thread, and delete everything in the bus."""
        self._closed = True
        for client in self._clients:
            client.close()
        if self._portal is None:
            self._bus.discard()
            return
        self._portal.call(self._bus.close)
        self._portal = None
        self._thread.close()

    def _run(self, make: Callable[[], Awaitable[T]]) -> T:
        return self._opened_portal().call(make)

    def _opened_portal(self) -> BlockingPortal:
        require_open(closed=self._closed)
        if self._portal is None:
            self._portal = self._thread.enter_context(start_blocking_portal("asyncio"))
        return self._portal
