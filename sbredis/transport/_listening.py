"""Sharded pub/sub: one connection for each node, made when the node gets its first listener.

A subscription follows its slot. It is made again when the slot moves or the connection was lost. Messages that are
published while there is no subscription are lost, so the listener's ``gap`` is called afterwards. A receiver that may
have missed a wake must look for messages again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from sbredis._tasks import TaskScope, to_the_end
from sbredis.exceptions import OperationTimeoutError, Outcome, ServiceBusError
from sbredis.transport._address import Endpoint
from sbredis.transport._backoff import Backoff
from sbredis.transport._dial import Dialer, reply_error
from sbredis.transport._link import HandshakeError, Link, LinkError
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from sbredis.transport._resp import ReplyError
from sbredis.transport._script import pack
from sbredis.transport._server_facts import UNKNOWN_RUN_ID, run_id_in
from sbredis.transport._slots import key_slot
from sbredis.transport._stream import Stream, stream_over

__all__ = ["ChannelListener", "Listening", "Subscription"]

_log = logging.getLogger("sbredis.transport")
_PING = pack((b"PING",))
_QUIET = 15.0
_SILENT = 25.0


class ChannelListener(Protocol):
    """An object that receives the messages of a channel. Its methods run in the event loop, so they must not block."""

    def message(self, payload: bytes) -> None:
        """Handle a message that was published."""
        ...

    def gap(self) -> None:
        """Handle a gap: the subscription was made again, so messages may have been missed."""
        ...


class _HeardChannel:
    """A channel that has listeners."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.slot = key_slot(name)
        self.listeners: list[ChannelListener] = []
        self.endpoint: Endpoint | None = None
        self.run_id: bytes | None = None
        """The run id of the server that has confirmed the channel last."""
        self.confirmed: asyncio.Future[Failure | None] = asyncio.get_running_loop().create_future()

    def confirm(self, run_id: bytes) -> None:
        self.run_id = run_id
        if not self.confirmed.done():
            self.confirmed.set_result(None)
            return
        for listener in list(self.listeners):
            _tell(listener.gap)


class Subscription:
    """One listener on one channel, until it is closed."""

    def __init__(self, listening: Listening, channel: bytes, listener: ChannelListener) -> None:
        self.channel = channel
        self._listening = listening
        self._listener = listener
        self._closed = False

    @property
    def run_id(self) -> bytes | None:
        """The run id of the server that has confirmed the channel; ``None`` while none has."""
        return self._listening.run_id_of(self.channel)

    def close(self) -> None:
        """Stop listening. Closing again does nothing."""
        if self._closed:
            return
        self._closed = True
        self._listening.unsubscribe(self.channel, self._listener)


class Listening:
    """All subscriptions of a transport."""

    def __init__(
        self,
        dialer: Dialer,
        tasks: TaskScope,
        owner: Callable[[int], Endpoint | None],
        trouble: Callable[[Endpoint], None],
        *,
        before_dial: Callable[[], Awaitable[None]] | None,
        subscribe_again: float,
    ) -> None:
        self.dialer = dialer
        self.trouble = trouble
        self.before_dial = before_dial
        self.subscribe_again = subscribe_again
        self._tasks = tasks
        self._owner = owner
        self._channels: dict[bytes, _HeardChannel] = {}
        self._ears: dict[Endpoint, _Ear] = {}

    async def subscribe(self, name: bytes, listener: ChannelListener, timeout: float) -> Subscription:
        """Add a listener to a channel, and wait until the server has confirmed the channel."""
        channel = self._channel(name)
        channel.listeners.append(listener)
        try:
            async with asyncio.timeout(timeout):
                failure = await asyncio.shield(channel.confirmed)
        except BaseException as error:
            self.unsubscribe(name, listener)
            if isinstance(error, TimeoutError):
                raise OperationTimeoutError(
                    f"The subscription to {name.decode(errors='replace')!r} was not confirmed within {timeout:.1f} s.",
                    outcome=Outcome.NEVER_SENT,
                ) from None
            raise
        if failure is not None:
            self.unsubscribe(name, listener)
            raise failure.error()
        return Subscription(self, name, listener)

    def listen(
        self, name: bytes, listener: ChannelListener, refused: Callable[[ServiceBusError], None]
    ) -> Subscription:
        """Add a listener to a channel without waiting for the server.

        The listener's ``gap`` is called when the server has confirmed the channel, however long that takes. If the
        server refuses the channel, ``refused`` is called instead, and the subscription is over.
        """
        channel = self._channel(name)
        channel.listeners.append(listener)

        def answered(confirmed: asyncio.Future[Failure | None]) -> None:
            if listener not in channel.listeners:
                return
            failure = confirmed.result()
            if failure is None:
                _tell(listener.gap)
            else:
                self.unsubscribe(name, listener)
                _tell(refused, failure.error())

        channel.confirmed.add_done_callback(answered)
        return Subscription(self, name, listener)

    def _channel(self, name: bytes) -> _HeardChannel:
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _HeardChannel(name)
            self._assign(channel)
        return channel

    def unsubscribe(self, name: bytes, listener: ChannelListener) -> None:
        """Remove a listener. A channel ends when its last listener is removed."""
        channel = self._channels.get(name)
        if channel is None or listener not in channel.listeners:
            return
        channel.listeners.remove(listener)
        if not channel.listeners:
            del self._channels[name]
            self._forget(channel)

    def run_id_of(self, name: bytes) -> bytes | None:
        """Return the run id of the server that has confirmed a channel last."""
        channel = self._channels.get(name)
        return None if channel is None else channel.run_id

    def close(self, reason: str) -> None:
        """End all listening. Callers that still wait for a confirmation get an error."""
        for channel in self._channels.values():
            if not channel.confirmed.done():
                channel.confirmed.set_result(Failure(FailureKind.CLOSED, reason))

    def moved(self) -> None:
        """Move the channels to the new owners of their slots, because the slot map has changed."""
        for channel in list(self._channels.values()):
            if self._owner(channel.slot) != channel.endpoint:
                self._forget(channel)
                self._assign(channel)

    def _forget(self, channel: _HeardChannel) -> None:
        ear = self._ears.get(channel.endpoint) if channel.endpoint is not None else None
        if ear is not None:
            ear.forget(channel)

    def _assign(self, channel: _HeardChannel) -> None:
        channel.endpoint = self._owner(channel.slot)
        if channel.endpoint is None:
            return
        ear = self._ears.get(channel.endpoint)
        if ear is None:
            ear = self._ears[channel.endpoint] = _Ear(self, channel.endpoint)
            self._tasks.start(self._listen(ear))
        ear.want(channel)

    async def _listen(self, ear: _Ear) -> None:
        try:
            await ear.run()
        finally:
            if self._ears.get(ear.endpoint) is ear:
                del self._ears[ear.endpoint]


class _Ear:
    """The connection that listens to the channels of one node. It lives while listeners need a channel of this node."""

    def __init__(self, listening: Listening, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._listening = listening
        self._wanted: dict[bytes, _HeardChannel] = {}
        self._loop = asyncio.get_running_loop()
        self._stream: Stream | None = None
        """The stream of the connection, while there is one."""
        self._over = asyncio.Event()
        """Set when listening may have to end."""
        self._silent = False
        """Whether the connection is lost, so that no message will come on it."""
        self._asking: dict[bytes, None] = {}
        """The channels to ask for in this turn of the loop."""
        self._asked: deque[tuple[bytes, deque[bytes]]] = deque()
        """The commands without an answer yet, each with its channels that have no answer."""
        self._heard_at = 0.0
        self._run_id = UNKNOWN_RUN_ID

    def want(self, channel: _HeardChannel) -> None:
        """Listen to a channel from now on."""
        self._wanted[channel.name] = channel
        if self._stream is not None:
            self._ask(channel.name)

    def forget(self, channel: _HeardChannel) -> None:
        """Stop listening to a channel."""
        if self._wanted.pop(channel.name, None) is None:
            return
        if self._asking.pop(channel.name, self) is self and self._stream is not None:
            self._tell_server(b"SUNSUBSCRIBE", [channel.name])
        if not self._wanted:
            self._over.set()

    async def run(self) -> None:
        """Connect, listen, and connect again, as long as a channel is wanted here."""
        backoff, failures = Backoff(first=0.05), 0
        while self._wanted:
            heard = await self._connected_once()
            if self._wanted:
                failures = 1 if heard else failures + 1
                self._listening.trouble(self.endpoint)
                await asyncio.sleep(backoff.delay(failures, 0))

    async def _connected_once(self) -> bool:
        """Run one connection from beginning to end. Return whether it was ever open."""
        link: Link | None = None
        try:
            if self._listening.before_dial is not None:
                await self._listening.before_dial()
            # Use RESP2: its messages are plain replies in order, so there is no second channel of pushes to read.
            link = self._listening.dialer.server(self.endpoint, protocol=2)
            await link.connect()
            await self._hear(stream_over(link), link.run_id)
        except (HandshakeError, LinkError, OSError, ServiceBusError) as error:
            _log.debug("listening at %s: %s", self.endpoint, error)
            reply = reply_error(error)
            if reply is not None:
                self._refused(failure_of_reply(reply.code, reply.detail, self.endpoint))
        except Exception:  # noqa: BLE001  # a credential provider may raise anything, which must not end the transport
            _log.debug("listening at %s failed", self.endpoint, exc_info=True)
        finally:
            was_connected, self._stream = self._stream is not None, None
            if link is not None:
                await to_the_end(link.hang_up())
        return was_connected

    async def _hear(self, stream: Stream, run_id: bytes | None) -> None:
        """Listen until no channel is wanted here any more, or the connection is lost."""
        self._over.clear()
        self._silent = False
        self._asking.clear()
        self._asked.clear()
        self._heard_at = self._loop.time()

        def lost(reason: str) -> None:
            _log.debug("listening at %s: %s", self.endpoint, reason)
            self._silent = True
            self._over.set()

        stream.listen(self._replied, lost, lambda: None)
        async with TaskScope() as tasks:
            tasks.start(stream.run())
            tasks.start(self._ping_while_quiet())
            self._stream = stream
            self._run_id = run_id or UNKNOWN_RUN_ID
            if run_id is None:
                self._tell_server(b"INFO", [b"server"])  # a user may have no right to ask
            for name in self._wanted:
                self._ask(name)
            while self._wanted and not self._silent:
                await self._over.wait()
                self._over.clear()
            tasks.cancel()

    def _replied(self, replies: list[Any]) -> None:
        self._heard_at = self._loop.time()
        for reply in replies:
            if isinstance(reply, ReplyError):
                self._failed(failure_of_reply(reply.code, reply.detail, self.endpoint))
            else:
                self._heard(reply)

    def _heard(self, reply: Any) -> None:
        if not isinstance(reply, list):
            if type(reply) is bytes and self._answered(b"INFO", b"server"):
                self._run_id = run_id_in(reply.decode(errors="replace"))
            return  # otherwise it is the answer to a PING
        said: list[bytes] = reply  # pyright: ignore[reportUnknownVariableType]  # the type of answers in RESP2
        if len(said) < 3:
            return  # the answer to a PING, as a list
        kind, name, payload = said[:3]
        if type(name) is not bytes:
            return  # nothing that a server of Redis says
        channel = self._wanted.get(name)
        if kind == b"smessage" and type(payload) is bytes:
            for listener in list(channel.listeners) if channel else ():
                _tell(listener.message, payload)
        elif kind == b"ssubscribe":
            self._answered(b"SSUBSCRIBE", name)
            if channel is not None:
                channel.confirm(self._run_id)
        elif kind == b"sunsubscribe" and not self._answered(b"SUNSUBSCRIBE", name) and channel is not None:
            # We have sent no SUNSUBSCRIBE, so the server has ended the subscription because the slot has moved.
            self._listening.trouble(self.endpoint)
            self._loop.call_later(self._listening.subscribe_again, self._ask_again, name)

    def _failed(self, failure: Failure) -> None:
        """Handle an error reply to SSUBSCRIBE: the slot map is old (MOVED), or a right is missing."""
        command, names = self._asked.popleft() if self._asked else (b"", ())
        if command != b"SSUBSCRIBE":
            return
        wanted = [channel for name in names if (channel := self._wanted.get(name)) is not None]
        if len(names) == 1:
            for channel in wanted:
                self._refused_at(channel, failure)
        else:  # it may concern only one of them
            for channel in wanted:
                self._tell_server(b"SSUBSCRIBE", [channel.name])

    def _refused_at(self, channel: _HeardChannel, failure: Failure) -> None:
        name = channel.name
        if failure.kind in (FailureKind.DENIED, FailureKind.REFUSED):
            if not channel.confirmed.done():
                channel.confirmed.set_result(failure)
            else:
                _log.warning("%s no longer lets this user listen to %r: %s", self.endpoint, name, failure.detail)
            return
        self._listening.trouble(self.endpoint)
        self._loop.call_later(self._listening.subscribe_again, self._ask_again, name)

    def _refused(self, failure: Failure) -> None:
        if failure.kind in (FailureKind.DENIED, FailureKind.UNAUTHENTICATED, FailureKind.REFUSED):
            for channel in self._wanted.values():
                if not channel.confirmed.done():
                    channel.confirmed.set_result(failure)

    async def _ping_while_quiet(self) -> None:
        """Ask an idle server for an answer, to notice a connection that died without being closed."""
        while self._loop.time() - self._heard_at < _SILENT:
            await asyncio.sleep(_QUIET / 3)
            if self._loop.time() - self._heard_at >= _QUIET and self._stream is not None:
                self._stream.write(_PING)
        self._silent = True
        self._over.set()

    def _ask(self, name: bytes) -> None:
        if not self._asking:
            self._loop.call_soon(self._ask_for_all)
        self._asking[name] = None

    def _ask_for_all(self) -> None:
        """Ask for the channels of this turn. A cluster wants a command for each slot, any other server takes one."""
        names, self._asking = list(self._asking), {}
        if self._stream is None or not names:
            return
        if self._listening.dialer.is_cluster:
            for name in names:
                self._tell_server(b"SSUBSCRIBE", [name])
        else:
            self._tell_server(b"SSUBSCRIBE", names)

    def _tell_server(self, command: bytes, names: Sequence[bytes]) -> None:
        self._asked.append((command, deque(names)))
        if self._stream is not None:
            self._stream.write(pack((command, *names)))

    def _answered(self, command: bytes, name: bytes) -> bool:
        """Return whether this answers the oldest unanswered command. If so, take the channel off the list."""
        if not self._asked or self._asked[0][0] != command or self._asked[0][1][0] != name:
            return False
        names = self._asked[0][1]
        names.popleft()
        if not names:
            self._asked.popleft()
        return True

    def _ask_again(self, name: bytes) -> None:
        if self._stream is not None and name in self._wanted:
            self._ask(name)


def _tell(listen: Callable[..., None], *arguments: Any) -> None:
    try:
        listen(*arguments)
    except Exception:  # noqa: BLE001  # a defect of one listener must not stop the others
        _log.exception("a listener failed")
