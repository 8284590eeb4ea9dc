"""The client: where senders and receivers come from."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import anyio

from sbredis.aio._arguments import count_of, deadline_of, seconds_of, warn_of_unknown
from sbredis.aio._connection import Connection, Creation
from sbredis.aio._credentials import Credential, credited
from sbredis.aio._queues import create_or_get, described, queue_creation
from sbredis.aio._receiver import ServiceBusReceiver
from sbredis.aio._renewer import AutoLockRenewer
from sbredis.aio._sender import ServiceBusSender
from sbredis.aio._telemetry import Telemetry
from sbredis.engine import entity_name
from sbredis.model import QueueProperties, ServiceBusReceiveMode, ServiceBusSubQueue
from sbredis.transport import Backoff, Target, parse_target, target_of

if TYPE_CHECKING:
    from sbredis.aio._clock import Clock

__all__ = ["ServiceBusClient"]

_SUB_QUEUES = {
    "/$transfer/$deadletterqueue": ServiceBusSubQueue.TRANSFER_DEAD_LETTER,
    "/$deadletterqueue": ServiceBusSubQueue.DEAD_LETTER,  # the other one ends so as well
}
_MOST_PREFETCHED = 50_000


class ServiceBusClient:
    """Connects to a namespace on Redis or Valkey, and makes senders and receivers.

    ``fully_qualified_namespace`` is a connection string: ``redis://host:6379?namespace=orders``,
    ``redis+cluster://…``, ``embedded:///folder``, ``memory://name`` and the others of the documentation; ``namespace``
    stands above the one in it. ``credential`` is a user and a password, or a credential provider of redis-py, which is
    asked anew for every connection. Nothing is connected to before it is needed.

    A call is repeated, as long as that cannot do it twice, until its time-out: after ``retry_backoff_factor`` seconds
    and then twice as long each time, up to ``retry_backoff_max``, with ``retry_mode="fixed"`` always the same; at most
    ``retry_total`` times, if that is given. ``partition_count`` is how many partitions the namespace is made with if it
    does not exist yet: 16 unless said.
    """

    def __init__(
        self,
        fully_qualified_namespace: str,
        credential: Credential | None = None,
        *,
        namespace: str | None = None,
        partition_count: int | None = None,
        retry_total: int | None = None,
        retry_backoff_factor: float = 0.02,
        retry_backoff_max: float = 1.0,
        retry_mode: str = "exponential",
        connect_timeout: float = 5.0,
        **kwargs: Any,
    ) -> None:
        clock: Clock | None = kwargs.pop("_clock", None)
        warn_of_unknown("ServiceBusClient", kwargs)
        target, provider = credited(parse_target(fully_qualified_namespace), credential)
        self._begin(
            target,
            provider,
            namespace,
            partition_count,
            _backoff(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode),
            connect_timeout,
            clock,
        )

    def _begin(  # noqa: PLR0917 -- both constructors end here
        self,
        target: Target,
        provider: Any,
        namespace: str | None,
        partition_count: int | None,
        retry: Backoff,
        connect_timeout: float,
        clock: Clock | None,
    ) -> None:
        self._connection = Connection(
            target,
            namespace=namespace,
            credential_provider=provider,
            connect_timeout=connect_timeout,
            partition_count=partition_count,
            retry=retry,
            clock=clock,
        )
        endpoint = target.endpoints[0] if target.endpoints else None
        self._telemetry = Telemetry(
            self._connection.target.namespace, endpoint.host if endpoint else None, endpoint.port if endpoint else None
        )
        self._handlers: set[ServiceBusSender | ServiceBusReceiver] = set()

    @classmethod
    def from_connection_string(cls, conn_str: str, **kwargs: Any) -> Self:
        """The same, under the name that Azure gives it."""
        return cls(conn_str, **kwargs)

    @classmethod
    def from_redis(
        cls,
        redis: Any,
        *,
        namespace: str | None = None,
        partition_count: int | None = None,
        retry_total: int | None = None,
        retry_backoff_factor: float = 0.02,
        retry_backoff_max: float = 1.0,
        retry_mode: str = "exponential",
        connect_timeout: float = 5.0,
    ) -> Self:
        """A client for the server or the cluster that a client of redis-py is for: ``Redis`` or ``RedisCluster``.

        Its addresses, credentials and TLS settings are used, and nothing else of it: it stays its owner's.
        """
        target, provider = target_of(redis)
        made = cls.__new__(cls)
        retry = _backoff(retry_total, retry_backoff_factor, retry_backoff_max, retry_mode)
        made._begin(target, provider, namespace, partition_count, retry, connect_timeout, None)
        return made

    @property
    def namespace(self) -> str:
        """The namespace that it works in."""
        return self._connection.target.namespace

    async def __aenter__(self) -> Self:
        await self._connection.open(deadline_of(None))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        state = "closed" if self._connection.closed else "open"
        return f"<ServiceBusClient {self._connection.target}, namespace {self.namespace!r}, {state}>"

    # -- senders and receivers -----------------------------------------------------------------------------------------

    def get_queue_sender(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        create_if_missing: bool | Mapping[str, Any] = False,
        max_in_flight: int = 1000,
        max_in_flight_bytes: int = 32 * 1024 * 1024,
        **kwargs: Any,
    ) -> ServiceBusSender:
        """A sender to a queue.

        ``create_if_missing``: whether to create the queue if there is none, with the properties that are given as a
        mapping or with those of Azure. ``max_in_flight`` messages of ``max_in_flight_bytes`` together are under way at
        most; who would send more waits.
        """
        self._connection.check_open()
        del socket_timeout  # the calls' own time-outs bound all
        warn_of_unknown("get_queue_sender", kwargs)
        sender = ServiceBusSender(
            self._connection,
            entity_name(queue_name),
            self._telemetry,
            client_identifier=_identifier(client_identifier),
            create=_creation(create_if_missing, self._connection),
            max_in_flight=max_in_flight,
            max_in_flight_bytes=max_in_flight_bytes,
            on_close=self._handlers.discard,
        )
        self._handlers.add(sender)
        return sender

    def get_queue_receiver(
        self,
        queue_name: str,
        *,
        client_identifier: str | None = None,
        socket_timeout: float | None = None,
        session_id: str | None = None,
        sub_queue: ServiceBusSubQueue | str | None = None,
        receive_mode: ServiceBusReceiveMode | str = ServiceBusReceiveMode.PEEK_LOCK,
        max_wait_time: float | None = None,
        auto_lock_renewer: AutoLockRenewer | None = None,
        prefetch_count: int = 0,
        adaptive_prefetch: bool = False,
        create_if_missing: bool | Mapping[str, Any] = False,
        **kwargs: Any,
    ) -> ServiceBusReceiver:
        """A receiver from a queue or, with ``sub_queue``, from its dead-letter queue.

        ``max_wait_time`` is how long to wait for a message where a call does not say it; it ends an iteration.
        ``prefetch_count`` messages, 0 to 50,000, are fetched ahead; with ``adaptive_prefetch`` as many of them as are
        handled in two seconds or a quarter of a lock. All messages are registered with ``auto_lock_renewer``.
        """
        self._connection.check_open()
        del socket_timeout  # the calls' own time-outs bound all
        warn_of_unknown("get_queue_receiver", kwargs)
        if session_id is not None:
            raise ValueError("Sessions are not available in this release: leave out session_id.")
        if sub_queue is not None:
            sub_queue = ServiceBusSubQueue(sub_queue)
        lowered = str(queue_name).lower()
        for suffix, kind in _SUB_QUEUES.items():
            if lowered.endswith(suffix):
                if sub_queue is not None and sub_queue is not kind:
                    raise ValueError(f"{queue_name!r} is another sub-queue than sub_queue={sub_queue!r}")
                queue_name, sub_queue = queue_name[: -len(suffix)], kind
                break
        mode = ServiceBusReceiveMode(receive_mode)
        count_of(prefetch_count, "prefetch_count", _MOST_PREFETCHED, least=0)
        if auto_lock_renewer is not None and not isinstance(auto_lock_renewer, AutoLockRenewer):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "auto_lock_renewer is a sbredis.aio.AutoLockRenewer, not a "
                f"{type(auto_lock_renewer).__module__}.{type(auto_lock_renewer).__name__}"
            )
        if mode is ServiceBusReceiveMode.RECEIVE_AND_DELETE and auto_lock_renewer is not None:
            raise ValueError("Messages that are received and deleted have no locks: leave out auto_lock_renewer.")
        receiver = ServiceBusReceiver(
            self._connection,
            entity_name(queue_name),
            self._telemetry,
            client_identifier=_identifier(client_identifier),
            create=_creation(create_if_missing, self._connection),
            sub_queue=sub_queue,
            receive_mode=mode,
            max_wait_time=None if max_wait_time is None else seconds_of(max_wait_time, "max_wait_time"),
            auto_lock_renewer=auto_lock_renewer,
            prefetch_count=prefetch_count,
            adaptive_prefetch=adaptive_prefetch,
            on_close=self._handlers.discard,
        )
        self._handlers.add(receiver)
        return receiver

    async def ensure_queue(
        self, queue_name: str, *, timeout: float | None = None, **properties: Any
    ) -> QueueProperties:
        """The properties of a queue, created with these where there is none. One that is there stays as it is.

        Raises :class:`ValueError` if that differs from ``properties`` in what cannot be changed.
        """
        deadline = deadline_of(timeout)
        name = entity_name(queue_name)
        await self._connection.open(deadline)
        seconds = deadline - anyio.current_time()
        record = await create_or_get(
            self._connection.namespace, name, seconds, properties, clock=self._connection.clock.kind
        )
        return described(record, reachable=True)

    async def close(self) -> None:
        """Close all senders and receivers, each in its way, and then the connection.

        Where that is cut short, what is under way ends with an error that says what is known of it.
        """
        try:
            await asyncio.gather(*(handler.close() for handler in list(self._handlers)))
        finally:
            with anyio.CancelScope(shield=True):
                await self._connection.aclose()


def _creation(wanted: bool | Mapping[str, Any], connection: Connection) -> Creation | None:
    if wanted is False:
        return None
    if wanted is not True and not isinstance(wanted, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"create_if_missing is True, False or a mapping of properties, not {wanted!r}")
    options: dict[str, Any] = {} if wanted is True else dict(wanted)
    return queue_creation(clock=connection.clock.kind, **options)


def _identifier(given: str | None) -> str:
    if given is None:
        return secrets.token_hex(8)
    if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers are not all typed
        raise TypeError(f"client_identifier is text, not {type(given).__name__}")
    return given


def _backoff(total: int | None, factor: float, longest: float, mode: str) -> Backoff:
    if total is not None and (type(total) is not int or total < 0):
        raise ValueError(f"retry_total must be a whole number from 0 on or None, not {total!r}")
    if mode not in ("exponential", "fixed"):
        raise ValueError(f"retry_mode is 'exponential' or 'fixed', not {mode!r}")
    first = seconds_of(factor, "retry_backoff_factor")
    return Backoff(
        first=first,
        longest=max(first, seconds_of(longest, "retry_backoff_max")),
        doubling=mode == "exponential",
        repetitions=total,
    )
