"""A worker that runs on a bus, for tests without an event loop."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack, final

from sbredis.testing._records import Handled
from sbredis.testing._worker_run import Overrides, WorkerRun, running
from sbredis.workers import Outcome, Worker
from sbredis.workers.declaring._context import SendOptions

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from sbredis.testing._bus import Bus

__all__ = ["SyncWorkerRun", "running_sync"]

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
def running_sync(
    portal: BlockingPortal,
    bus: Bus,
    worker: Worker,
    *,
    overrides: Overrides | None,
    timeout: float,
    shutdown_timeout: float | None,
) -> Generator[SyncWorkerRun]:
    """Run a worker in the thread of a bus while the block runs."""
    made = partial(running, bus, worker, overrides=overrides, timeout=timeout, shutdown_timeout=shutdown_timeout)
    with portal.wrap_async_context_manager(made()) as run:
        yield SyncWorkerRun(run, portal.call)
