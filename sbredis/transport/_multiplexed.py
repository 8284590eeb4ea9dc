"""The transport: calls go in and replies come out, during redirections and failovers too."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from sbredis._counting import counted
from sbredis._quoting import quoted
from sbredis._tasks import TaskScope, to_the_end
from sbredis.exceptions import Outcome, ServiceBusConnectionError, ServiceBusError
from sbredis.transport._address import Endpoint, Target
from sbredis.transport._backoff import Backoff, RefreshPacing
from sbredis.transport._dial import Dialer
from sbredis.transport._forms import CallForm
from sbredis.transport._journey import Journey
from sbredis.transport._judgement import judge
from sbredis.transport._listening import ChannelListener, Listening, Subscription
from sbredis.transport._nodes import Node, Nodes
from sbredis.transport._opening import Opener
from sbredis.transport._patience import Patience, passes
from sbredis.transport._replicas import Replicas
from sbredis.transport._replies import Failure, FailureKind
from sbredis.transport._script import Argument, Call, Command, Keys, Library, Script
from sbredis.transport._server_facts import ServerFacts, can_lose_acknowledged, not_writable, problems
from sbredis.transport._slots import key_slot
from sbredis.transport._topology import Layout, topology_of
from sbredis.transport._wire import Wire, WireLimits

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

__all__ = ["Transport"]

_T = TypeVar("_T")
_log = logging.getLogger("sbredis.transport")
_ANSWER_WITHIN = 1.0
"""The seconds after which another master is tried, while no master was reached."""
_CHANGE_THE_CONNECTION = frozenset(
    (
        *("", "ASKING", "AUTH", "CLIENT", "DISCARD", "EXEC", "HELLO", "MONITOR", "MULTI", "PSUBSCRIBE", "PSYNC"),
        *("PUNSUBSCRIBE", "QUIT", "READONLY", "READWRITE", "REPLCONF", "RESET", "SELECT", "SSUBSCRIBE", "SUBSCRIBE"),
        *("SUNSUBSCRIBE", "SYNC", "UNSUBSCRIBE", "UNWATCH", "WATCH"),
    )
)
"""Commands that would change the meaning, the order or the user of every other caller's calls."""


class Transport:
    """A caller of scripts on the servers of one target. :func:`sbredis.transport.open_transport` makes it."""

    def __init__(
        self,
        target: Target,
        *,
        scripts: Sequence[Script] = (),
        library: Library | None = None,
        credential_provider: CredentialProvider | None = None,
        connect_timeout: float = 5.0,
        limits: WireLimits | None = None,
        retry: Backoff | None = None,
        before_dial: Callable[[], Awaitable[None]] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.target = target
        self._loop = asyncio.get_running_loop()
        self._dialer = Dialer(target, credential_provider, connect_timeout)
        self._strips_shebang = self._dialer.strips_shebang
        self._first_masters: frozenset[Endpoint] | None = None
        """The masters of the slot map with which the transport was opened."""
        self._scripts = [self._as_sent(script) for script in scripts]
        self._library = library if target.has_library else None
        self._connect_timeout = connect_timeout
        self._limits = limits or WireLimits()
        self._before_dial = before_dial
        self._on_close = on_close
        self._topology = topology_of(target, self._dialer)
        self._replicated = target.durability == "replicated"
        self._backoff = Backoff()
        self._retry = retry or self._backoff
        self._pacing = RefreshPacing()
        self._nodes = Nodes(target, self._node)
        self._refresh_wanted = asyncio.Event()
        self._news = asyncio.Event()
        self._closing = asyncio.Event()
        self.held_up: dict[Journey, None] = {}
        """The calls under way that a server has refused, and may take yet."""
        self._outages: dict[Endpoint, int] = {}
        """The number of failed calls for each server that cannot be reached."""
        self._root: asyncio.Task[None] | None = None
        self._opener: Opener
        self._replicas: Replicas
        self._listening: Listening

    # -- methods for callers -------------------------------------------------------------------------------------------

    async def call(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument] = (),
        *,
        timeout: float = 60.0,
        repeatable: bool = False,
        durability: Literal["master", "replicated"] | None = None,
        written: Callable[[], None] | None = None,
    ) -> Any:
        """Run a script on the server of its keys, and return its reply.

        All keys are in one hash slot. ``repeatable`` promises that the script recognises a repetition of the same call,
        by an operation id among its arguments. Then a call whose outcome is unknown is sent again, byte for byte, until
        ``timeout``. Raises a :class:`ServiceBusError` whose ``outcome`` says whether the script may have run.
        ``written`` is called each time before the call is written to a connection. It must not raise.
        """
        script = self._as_sent(script) if self._strips_shebang else script
        call = Call(script, keys, arguments, repeatable=repeatable, written=written)
        started = self._loop.time()
        if durability is None:
            replicated = self._replicated
        elif durability in ("master", "replicated"):
            replicated = durability == "replicated"
        else:
            raise ValueError(f"durability of a call must be 'master' or 'replicated', not {quoted(durability)}")
        # The common case: the open connection takes the call. For speed, it is not submitted in a further coroutine.
        if not replicated and call.slot is not None:
            node = self._nodes.of_slot(call.slot)
            wire = node.calls.wire if node is not None else None
            if wire is not None and (wire.has_room or await wire.room(started + timeout)):
                reply = await wire.submit(call, started + timeout)
                if type(reply) is not Failure:
                    return reply
                return await self.go_on(call, started, timeout, reply)
        return await self.go_on(call, started, timeout, None, replicated=replicated)

    def soon(self, keys: Keys, work: Callable[[], None], *, at_once: bool) -> None:
        """Do some work in the next turn of the event loop, which begins calls with these keys.

        It is done ``at_once`` if its calls are written at once then, because no other call is or was just under way.
        """
        wire = self._wire_of(keys.slot)
        if wire is None:
            self._loop.call_soon(work)
        elif at_once and wire.quiet:
            work()
        else:
            wire.soon(work)

    def begin(
        self,
        script: Script,
        keys: Sequence[bytes],
        arguments: Sequence[Argument],
        *,
        timeout: float,
        answered: Callable[[Call, Any], None],
        failed: Callable[[Call, Failure], None],
        repeatable: bool,
        written: Callable[[], None] | None = None,
    ) -> bool:
        """Make the first attempt at a call like that of :meth:`call`, without a task.

        Return ``False`` if there is no open connection with room for the call. Otherwise ``answered`` gets the call and
        its reply as soon as the reply is read. If the attempt brings no reply, ``failed`` gets the call and the
        failure, with which :meth:`finish` makes the further attempts. Both functions are called in the event loop, and
        must not raise.
        """
        sent = self._as_sent(script) if self._strips_shebang else script
        call = Call(sent, keys, arguments, repeatable=repeatable, written=written)
        wire = self._wire_of(call.slot, reads=script.only_reads)
        if wire is None or not wire.has_room:
            return False
        call.began = self._loop.time()
        wire.put(call, call.began + timeout, answered, failed)
        return True

    async def finish(self, call: Call, failure: Failure) -> Any:
        """Make the further attempts at a call that has begun. Return the reply, or raise the error."""
        return await self.go_on(call, call.began, call.deadline - call.began, failure)

    def _wire_of(self, slot: int | None, *, reads: bool = False) -> Wire | None:
        """Return the open connection for calls without a task, if there is one. A call that ``reads`` needs no WAIT."""
        if (self._replicated and not reads) or slot is None:
            return None
        node = self._nodes.numbered[self._nodes.by_slot[slot]]  # for speed, no further call
        return None if node is None else node.calls.wire

    async def command(
        self, *arguments: Argument, key: bytes | None = None, slot: int | None = None, timeout: float = 60.0
    ) -> Any:
        """Run a plain command on the server of ``key`` or ``slot``, or on any server without them.

        The command is repeated only while it is known not to have run.
        """
        first = arguments[0] if arguments else ""
        name = (first.decode() if isinstance(first, bytes) else str(first)).upper()
        if name in _CHANGE_THE_CONNECTION:
            raise ValueError(f"{name or 'nothing'} would change a connection that all callers share")
        if key is not None:
            slot = key_slot(key)
        return await self.go_on(Command(*arguments, slot=slot), self._loop.time(), timeout, None)

    async def call_replica(
        self, script: Script, keys: Sequence[bytes], arguments: Sequence[Argument], *, timeout: float = 60.0
    ) -> Any:
        """Run a script that only reads on a replica of the server of its keys. Its data may be older.

        Raises :class:`ServerUnsuitableError` if there is no replica.
        """
        self._check_open()
        script = self._as_sent(script) if self._strips_shebang else script
        call = Call(script, keys, arguments, repeatable=True)
        return await self._replicas.call(call, keys[0], timeout)

    async def replicas_of(self, key: bytes, *, timeout: float = 60.0) -> tuple[Endpoint, ...]:
        """Return the replicas that the server of a key's slot has now.

        Raises :class:`ServerUnsuitableError` if it has none.
        """
        self._check_open()
        return tuple(await self._replicas.of(key, timeout, anew=True))

    async def subscribe(self, channel: bytes, listener: ChannelListener, *, timeout: float = 60.0) -> Subscription:
        """Listen to a sharded channel, in the slot of the channel's name. Returns when the server has confirmed it.

        ``listener.message(payload)`` is called for each message. ``listener.gap()`` is called whenever the
        subscription was made again, after a reconnection or a move of the slot. Then messages may have been missed.
        """
        self._check_open()
        return await self._listening.subscribe(channel, listener, timeout)

    def listen(
        self, channel: bytes, listener: ChannelListener, refused: Callable[[ServiceBusError], None]
    ) -> Subscription:
        """Listen to a sharded channel as soon as its server confirms it, and say so by ``listener.gap()``.

        ``refused`` is called if the server refuses the channel. This costs no task, so it serves many channels.
        """
        self._check_open()
        return self._listening.listen(channel, listener, refused)

    @property
    def servers(self) -> tuple[ServerFacts, ...]:
        """The facts of each server with an open connection."""
        return tuple(facts for node in self._nodes if (facts := node.facts) is not None)

    @property
    def masters(self) -> tuple[Endpoint, ...]:
        """The servers that serve slots according to the last slot map, with or without an open connection."""
        return tuple(node.endpoint for node in self._nodes.masters)

    @property
    def slots_of_masters(self) -> dict[Endpoint, int]:
        """A slot of each master, for commands that concern the whole server."""
        return self._nodes.slots_of_masters

    def endpoint_of(self, key: bytes) -> Endpoint | None:
        """Return the server of a key's slot according to the last slot map; ``None`` if the slot has no server."""
        return self._nodes.owner_of(key_slot(key))

    def server_of(self, key: bytes) -> ServerFacts | None:
        """Return the facts of the server of a key's slot, as they were when the connection was opened. The run id
        identifies the server process.
        """
        node = self._nodes.of_slot(key_slot(key))
        return node.facts if node else None

    async def first_connection(self, keys: Keys, timeout: float) -> None:
        """Wait until the first connection to the server of these keys is open or has failed, if that is not known yet.

        A caller with little patience for its call waits for this before, because a first connection takes longer.
        """
        node = self._nodes.of_slot(keys.slot)
        if node is not None:
            holder = node.durable.holder if self._replicated else node.calls
            if holder.new:
                await holder.get(self._loop.time() + timeout)

    def is_in_reach(self, key: bytes) -> bool:
        """Whether there is a connection to the server of a key's slot, or the first one is being opened."""
        node = self._nodes.of_slot(key_slot(key))
        return node is not None and node.in_reach

    def obstacle(self, key: bytes, script: str) -> ServiceBusError | None:
        """Return why the server of a key's slot does not take the calls under way; ``None`` if it has not said why.

        A call of this script tells, if one is held up, because another call may be refused for another reason.
        """
        slot = key_slot(key)
        held_up = [journey for journey in self.held_up if journey.call.slot == slot]
        of_script = [each for each in held_up if each.call.script is not None and each.call.script.name == script]
        journey = next(iter(of_script or held_up), None)
        return None if journey is None else journey.obstacle()

    def form_of(self, key: bytes) -> CallForm | None:
        """Return the form of the calls of the server of a key's slot; ``None`` if the slot has no server."""
        node = self._nodes.of_slot(key_slot(key))
        return node.form if node else None

    async def aclose(self) -> None:
        """Close all connections. Calls that are under way end with an error that says whether they may have run."""
        self._closing.set()
        if self._root is not None:
            await asyncio.wait((self._root,))
            self._root = None

    async def wait_closed(self) -> None:
        """Wait until the transport is closed: by a call of :meth:`aclose`, or because of a defect."""
        await self._closing.wait()

    def abandon(self) -> None:
        """Release the resources that outlive the event loop. The loop and all its tasks have already ended."""
        self._closing.set()
        on_close, self._on_close = self._on_close, None
        if on_close is not None:
            on_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        state = "closed" if self._closing.is_set() else "open"
        return f"<Transport {self.target} {state}>"

    # -- calls whose first attempt failed ------------------------------------------------------------------------------

    async def go_on(
        self, call: Call, started: float, timeout: float, failure: Failure | None, *, replicated: bool = False
    ) -> Any:
        """Finish a call whose first attempt failed or could not be made."""
        if failure is None:
            self._check_open()
        journey = Journey(self, call, started, started + timeout, self._retry, replicated=replicated)
        return await journey.finish(failure)

    def route(self, slot: int | None) -> Node | None:
        """Return the server of a slot; without a slot, any server, if possible one that is not suspected."""
        return self._nodes.any if slot is None else self._nodes.of_slot(slot)

    def redirected(self, failure: Failure) -> Node:
        """Return the server that MOVED or ASK names. Raises ValueError if the reply names no server."""
        node = self._nodes.redirected(failure)
        if failure.kind is FailureKind.MOVED:
            self._refresh_wanted.set()
        return node

    def troubled(self, failure: Failure) -> None:
        """Ask for a new slot map if the failure may mean that the known slot map is out of date."""
        if failure.kind not in (FailureKind.REFUSED, FailureKind.BROKE, FailureKind.TIMED_OUT):
            self._refresh_wanted.set()

    def log(self, failure: Failure, error: ServiceBusError) -> None:
        """Log the error of a call, so that its tracking id can be found.

        A refusal is a usual answer, so it is logged for debugging only; and so are the calls that fail after the first
        one while a server cannot be reached, because there may be very many.
        """
        where, kind = failure.endpoint, failure.kind
        level = logging.DEBUG if kind is FailureKind.REFUSED else logging.INFO
        waits = kind is FailureKind.TIMED_OUT and failure.outcome is Outcome.NEVER_SENT and where in self._outages
        if where is not None and (waits or kind is FailureKind.UNREACHABLE):
            failed = self._outages[where] = self._outages.get(where, 0) + 1
            level = logging.INFO if failed == 1 else logging.DEBUG
        _log.log(level, "%s", error)

    async def pause(self, seconds: float) -> None:
        """Wait, but only until the next news: another slot map, a new connection, the end of the transport."""
        if seconds <= 0 or self.closed:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            return

    @property
    def closed(self) -> bool:
        """Whether the transport was closed, or is being closed."""
        return self._closing.is_set()

    # -- opening, closing and the slot map -----------------------------------------------------------------------------

    async def start(self, timeout: float) -> None:
        """Connect to one master, and keep the slot map. Raises if no suitable server answers in time.

        Each of the others is connected to, and checked, when a call first needs it.

        If a server answers that it is not ready yet, the limit is ``timeout``. Otherwise it is the time-out to connect.
        """
        now = self._loop.time()
        patience = Patience(now, self._connect_timeout, now + timeout, self.target.kind)
        started: asyncio.Future[None] = self._loop.create_future()
        self._root = self._loop.create_task(self._live(started), name=f"sbredis transport {self.target}")
        try:
            await started
            self._apply(await self._insisting(lambda _: self._discover(), patience))
            self._first_masters = frozenset(node.endpoint for node in self._nodes.masters)
            await self._insisting(self._reach_a_master, patience)
            if self.target.scripts == "all":
                await self._reach_all()
        except BaseException:
            await to_the_end(self.aclose())
            raise

    async def _live(self, started: asyncio.Future[None]) -> None:
        try:
            async with TaskScope() as tasks:
                self._opener = Opener(
                    self._dialer,
                    self._limits,
                    self._connect_timeout,
                    tasks,
                    self._before_dial,
                    self._trouble_at,
                    self._reached,
                    self._accepts,
                    self._scripts,
                    self._library,
                    self.target.scripts == "library",
                )
                self._replicas = Replicas(self, self._opener, self._loop.time)
                self._listening = Listening(
                    self._dialer,
                    tasks,
                    self._nodes.owner_of,
                    self._trouble_at,
                    before_dial=self._before_dial,
                    subscribe_again=self._limits.subscribe_again,
                )
                tasks.start(self._keep_layout())
                if not started.done():
                    started.set_result(None)
                await self._closing.wait()
                tasks.cancel()
        except Exception:  # noqa: BLE001  # any defect belongs in the log, and the calls must learn of the end
            _log.exception("the transport to %s failed because of a defect and is closed", self.target)
        finally:
            self._closing.set()
            self._news.set()
            self._listening.close(f"The transport to {self.target} was closed.")
            on_close, self._on_close = self._on_close, None
            if on_close is not None:
                on_close()  # called here, where the cancellation of a caller cannot prevent the call

    async def _insisting(self, attempt: Callable[[float], Awaitable[_T | Failure]], patience: Patience) -> _T:
        """Repeat an attempt to get something from a server as long as it may succeed. Raises the last failure."""
        patience = replace(patience, started=self._loop.time())
        failures = 0
        told: Failure | None = None
        while True:
            masters = len(self._nodes.masters) or None
            found = await attempt(self._loop.time() + self._connect_timeout)
            if not isinstance(found, Failure):
                return found
            failures += 1
            now = self._loop.time()
            limit = patience.limit(found.kind, masters)
            delay = self._backoff.within(self._backoff.delay(failures, 0), limit - now)
            seconds = now - patience.started
            if found.kind is not FailureKind.TIMED_OUT:
                told = found
            elif told is not None:
                found = told  # the earlier failure says more than a last attempt that had too little time
            else:
                said = f"{found.endpoint or self.target} did not answer within {seconds:.1f} s"
                found = found._replace(kind=FailureKind.UNREACHABLE, detail=said)
            if not passes(found.kind) or delay is None:
                error = found.error(attempts=failures, seconds=seconds)
                _log.info("%s", error)
                raise error
            if failures == 1:
                _log.info("%s is not ready; trying again for %.1f s: %s", self.target, limit - now, found.detail)
            await self.pause(delay)

    async def _reach_a_master(self, deadline: float) -> Wire | Failure:
        """Return a connection to any master: an open one, if there is one. The others are reached when calls need them.

        While a master is silent, the next one is asked too, early enough for all to be asked before the deadline. A
        failure that will last says more than one that may pass.
        """
        masters = self._nodes.masters
        unasked = sorted(random.sample(masters, len(masters)), key=lambda node: node.calls.open)
        asked = set[asyncio.Task[Wire | Failure]]()
        worst: Failure | None = None
        try:
            while unasked or asked:
                if unasked:
                    asked.add(self._loop.create_task(unasked.pop().calls.get(deadline)))
                share = (deadline - self._loop.time()) / (len(unasked) + 1)
                timeout = min(share, _ANSWER_WITHIN) if unasked else None  # each of them ends at the deadline
                ended, asked = await asyncio.wait(asked, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    wire = task.result()
                    if not isinstance(wire, Failure):
                        # If the connection was opened to ask for the layout, nobody knew that this is a master.
                        wire = self._judged(wire.facts) or wire
                    if not isinstance(wire, Failure):
                        return wire
                    if worst is None or not passes(wire.kind):
                        worst = wire
        finally:
            for task in asked:
                task.cancel()
        return worst or Failure(FailureKind.UNSERVED, "no master is known")

    async def _reach_all(self) -> None:
        """Connect to all masters, because the target says that connections load all scripts for other users."""
        deadline = self._loop.time() + self._connect_timeout
        for wire in await asyncio.gather(*(node.calls.get(deadline) for node in self._nodes.masters)):
            if isinstance(wire, Failure):
                if not passes(wire.kind):
                    raise wire.error()
                _log.warning("%s. The client is connected without this node.", wire.detail)

    async def _keep_layout(self) -> None:
        """Ask for the slot map whenever a refresh is wanted, one question at a time and not too often."""
        asked, failed = -1000.0, 0
        while True:
            await self._refresh_wanted.wait()
            await asyncio.sleep(self._pacing.pause(self._loop.time() - asked, failed))
            self._refresh_wanted.clear()
            asked = self._loop.time()
            try:
                found = await self._discover()
            except Exception as error:  # noqa: BLE001  # the calls must not end with any defect here
                found = Failure(FailureKind.UNREACHABLE, f"{type(error).__name__}: {error}")
                _log.warning("asking for the slot map failed", exc_info=True)
            if isinstance(found, Failure):
                failed += 1
                _log.debug("the slot map could not be refreshed: %s", found.detail)
            else:
                failed = 0
                self._apply(found)

    async def _discover(self) -> Layout | Failure:
        return await self._topology.discover(self)

    def _apply(self, layout: Layout) -> None:
        if self._nodes.apply(layout):
            for gone in self._outages.keys() - set(self.masters):
                self._outage_ends(gone, "is not used any more")
            self._good_news()
            self._listening.moved()

    # -- for the parts of the transport --------------------------------------------------------------------------------

    async def probe(
        self, endpoint: Endpoint, commands: Sequence[Sequence[Argument]], seconds: float
    ) -> list[Any] | Failure:
        """Send commands to a data server over the connection that calls use, and return the replies."""
        now = self._loop.time()
        node = self._nodes.at(endpoint)
        wire = await node.calls.get(now + seconds)
        if isinstance(wire, Failure):
            return wire
        deadline = self._loop.time() + seconds
        replies = [await future for future in [wire.submit(Command(*command), deadline) for command in commands]]
        lost = next(
            (r for r in replies if isinstance(r, Failure) and r.kind in (FailureKind.LOST, FailureKind.TIMED_OUT)), None
        )
        return lost or replies

    def known(self) -> list[Endpoint]:
        """Return the servers to ask about the cluster: connected servers first, suspected servers last."""
        return self._nodes.in_order

    def _node(self, endpoint: Endpoint) -> Node:
        return Node(endpoint, self._opener, self._nodes.replicas_of)

    def loses_acknowledged(self, facts: ServerFacts) -> bool:
        """Whether a crash of this one server process loses messages that were acknowledged."""
        return can_lose_acknowledged(facts, replicated=bool(self._nodes.replicas_of(facts)))

    def _reached(self, endpoint: Endpoint) -> None:
        if endpoint in self._outages:
            self._outage_ends(endpoint, "can be reached again")
        self._good_news()

    def _outage_ends(self, endpoint: Endpoint, how: str) -> None:
        _log.info("%s %s; %s had failed meanwhile", endpoint, how, counted(self._outages.pop(endpoint), "call"))

    def _good_news(self) -> None:
        """Wake all calls that pause, at the same time, so that their bytes are written together."""
        if not self._closing.is_set():
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _trouble_at(self, _: Endpoint) -> None:
        if not self._closing.is_set():
            self._refresh_wanted.set()

    def _accepts(self, facts: ServerFacts) -> Failure | None:
        """Return why a server cannot be used. This runs for every connection, because the server's configuration may
        have changed.
        """
        found = problems(facts, self.target.kind, self.target.durability)
        if found:
            return Failure(FailureKind.UNSUITABLE, " ".join(found), endpoint=facts.endpoint)
        said = not_writable(facts, self.target.kind)
        if said:
            return Failure(FailureKind.READ_ONLY, said, endpoint=facts.endpoint)
        return self._judged(facts) if self._nodes.lists(facts.endpoint) else None

    def _judged(self, facts: ServerFacts) -> Failure | None:
        """Judge a master when it is first reached: return why it cannot keep the durability.

        Later its replicas may be down for a while, for which calls wait. So may those of a server that has become a
        master since the client was opened.
        """
        node = self._nodes.at(facts.endpoint)
        copies = self._nodes.replica_count_of(facts)
        if self._first_masters is not None and facts.endpoint not in self._first_masters:
            copies = copies._replace(steady=False)
        refusal = None if node.judged else judge(self.target, facts, copies)
        node.judged = refusal is None
        return None if refusal is None else Failure(FailureKind.UNSUITABLE, refusal, endpoint=facts.endpoint)

    def _as_sent(self, script: Script) -> Script:
        if not self._strips_shebang:
            return script
        key = script.sha, script.takes_run_id
        stripped = _STRIPPED.get(key)
        if stripped is None:
            stripped = _STRIPPED[key] = script.without_shebang()
            self._dialer.hand_over(stripped)
        return stripped

    def _check_open(self) -> None:
        if self._closing.is_set():
            raise ServiceBusConnectionError(f"The transport to {self.target} is closed.", is_transient=False)


_STRIPPED: dict[tuple[str, bool], Script] = {}
