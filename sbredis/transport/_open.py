"""Opening a transport: the one place that makes connections from a connection string, and starts embedded servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from sbredis._threads import in_thread
from sbredis.transport._address import Endpoint, Target, parse_target
from sbredis.transport._backoff import Backoff
from sbredis.transport._script import Library, Script

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

    from sbredis.servers import EmbeddedLease
    from sbredis.transport._multiplexed import Transport
    from sbredis.transport._wire import WireLimits


__all__ = ["open_transport", "require_asyncio"]


def require_asyncio() -> None:
    """Raise if no asyncio event loop is running: a clear error now is better than a failure somewhere inside."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise RuntimeError(
            "sbredis runs on asyncio. There is no running asyncio event loop here; trio is not supported."
        ) from None


async def _taken(acquire: Callable[[], EmbeddedLease]) -> EmbeddedLease:
    """Take a lease in a thread. If the caller is cancelled meanwhile, the thread itself releases the lease."""
    lock = threading.Lock()
    taken: list[EmbeddedLease] = []
    given_up = False

    def take() -> None:
        lease = acquire()
        with lock:
            if not given_up:
                taken.append(lease)
                return
        lease.release()

    try:
        await in_thread(take)
        return taken.pop()
    finally:
        with lock:
            given_up = True
            for lease in taken:
                lease.release()


async def open_transport(
    url: str | Target,
    *,
    scripts: Sequence[Script] = (),
    library: Library | None = None,
    credential_provider: CredentialProvider | None = None,
    connect_timeout: float = 5.0,
    timeout: float | None = None,
    limits: WireLimits | None = None,
    retry: Backoff | None = None,
) -> Transport:
    """Connect to the servers of a connection string, and check that they are suitable.

    ``library`` has the scripts as functions, and is loaded when a call needs it. Without a library, or if the
    connection string says ``scripts=needed`` or ``all``, the given single scripts are loaded now.
    ``credential_provider`` is a provider of redis-py. Every connection asks it for credentials. ``retry`` says how
    calls are repeated. Errors are :class:`~sbredis.exceptions.InvalidConnectionStringError` for a malformed string,
    :class:`~sbredis.exceptions.ServerUnsuitableError` for a server that must be set up differently, and
    :class:`~sbredis.exceptions.ServiceBusConnectionError` when nothing answers within ``connect_timeout``. When a
    server answers that it is not ready yet, as during a failover, it is tried for ``timeout`` seconds
    (``connect_timeout`` by default).
    """
    require_asyncio()
    target = parse_target(url) if isinstance(url, str) else url
    from sbredis.transport._multiplexed import Transport  # only a connection needs it

    before_dial: Callable[[], Awaitable[None]] | None = None
    on_close: Callable[[], None] | None = None
    if target.kind == "embedded":
        from sbredis.servers import acquire

        path, fsync = target.path, target.embedded_fsync
        lease = await _taken(lambda: acquire(path, fsync=fsync, timeout=connect_timeout))
        target = replace(target, endpoints=(Endpoint(str(lease.socket_path), 0),))

        before_dial = partial(in_thread, lease.ensure_running)
        on_close = lease.release
    elif target.kind == "memory":
        target = replace(target, endpoints=(Endpoint(f"memory://{target.path}", 0),))
    try:
        transport = Transport(
            target,
            scripts=scripts,
            library=library,
            credential_provider=credential_provider,
            connect_timeout=connect_timeout,
            limits=limits,
            retry=retry,
            before_dial=before_dial,
            on_close=on_close,
        )
    except BaseException:
        if on_close is not None:
            on_close()
        raise
    await transport.start(connect_timeout if timeout is None else timeout)
    return transport
