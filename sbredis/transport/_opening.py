"""Opening connections: the handshake, the questions to the server, the loading of scripts.

A holder keeps one connection open.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sbredis._tasks import TaskScope, to_the_end
from sbredis.exceptions import ServiceBusError
from sbredis.transport._address import Endpoint
from sbredis.transport._backoff import Backoff
from sbredis.transport._dial import Dialer, accepted, dialling_failed
from sbredis.transport._forms import CallForm
from sbredis.transport._link import HandshakeError, Link, LinkError
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from sbredis.transport._resp import ReplyError, as_mapping
from sbredis.transport._script import Library, Script, pack
from sbredis.transport._server_facts import ServerFacts, server_facts
from sbredis.transport._stream import stream_over
from sbredis.transport._tls_probe import connect, with_tls_hint
from sbredis.transport._wire import Wire, WireLimits

__all__ = ["Opener", "WireHolder"]

_log = logging.getLogger("sbredis.transport")
_OF_NOBODY = Script("none", "return 0")
_OPEN_PACING = Backoff(first=0.05, longest=1.0)


@dataclass(slots=True)
class Opener:
    """The opening of connections for all nodes of a transport."""

    dialer: Dialer
    limits: WireLimits
    connect_timeout: float
    tasks: TaskScope
    before_dial: Callable[[], Awaitable[None]] | None
    """Called before each connection attempt. It starts the embedded server again if that has ended."""
    on_trouble: Callable[[Endpoint], None]
    """Called when a server is silent, is lost, or is unsuitable."""
    on_open: Callable[[Endpoint], None]
    """Called when a connection was made."""
    accepts: Callable[[ServerFacts], Failure | None]
    """Returns why a server that was reached cannot be used; ``None`` if it can be used."""
    scripts: Sequence[Script] = ()
    library: Library | None = None
    """The library as whose functions calls are sent; ``None`` for single scripts."""
    strict: bool = False
    """Whether no call is sent as a single script, even if a server refuses the library."""
    packed_scripts: list[bytes] = field(default_factory=list[bytes])

    def __post_init__(self) -> None:
        if self.library is None:  # a library is loaded when a call needs it, and then the scripts are not needed
            self.packed_scripts = [pack((b"SCRIPT", b"LOAD", script.source)) for script in self.scripts]

    def form(self) -> CallForm:
        """Return the choice of the form of the calls of a new node."""
        return CallForm(self.library, strict=self.strict, pause=self.limits.without_library)

    async def open(self, endpoint: Endpoint) -> tuple[Link, ServerFacts] | Failure:
        """Connect, do the handshake, ask about the server, load the scripts. Raises only a cancellation."""
        link: Link | None = None
        opened = False
        try:
            if self.before_dial is not None:
                await self.before_dial()
            async with asyncio.timeout(self.connect_timeout):
                link = self.dialer.server(endpoint)
                unfit = await connect(link, endpoint, secure=self.dialer.secure)
                facts = unfit or await self._survey(link, endpoint)
            refusal = facts if isinstance(facts, Failure) else self.accepts(facts)
            if refusal is not None:
                return refusal
            assert isinstance(facts, ServerFacts)  # if it is a failure, it was returned above
            opened = True
            return link, facts
        except TimeoutError:
            return Failure(
                FailureKind.UNREACHABLE,
                f"{endpoint} did not answer within {self.connect_timeout:.1f} s",
                endpoint=endpoint,
            )
        except ServiceBusError as error:
            kind = FailureKind.UNREACHABLE if error.is_transient else FailureKind.UNSUITABLE
            return Failure(kind, error.message, endpoint=endpoint)
        except (HandshakeError, LinkError, OSError) as error:
            failure = dialling_failed(error, endpoint)
            return await with_tls_hint(failure, endpoint, secure=self.dialer.secure) if accepted(error) else failure
        except Exception as error:  # noqa: BLE001  # a credential provider may raise anything, which must not end the transport
            _log.debug("connecting to %s failed", endpoint, exc_info=True)
            why = f"{endpoint} cannot be connected to: {type(error).__name__}: {error}"
            return Failure(FailureKind.UNREACHABLE, why, endpoint=endpoint)
        finally:
            if link is not None and not opened:
                await to_the_end(link.hang_up())

    async def _survey(self, link: Link, endpoint: Endpoint) -> ServerFacts | Failure:
        about = [pack((b"INFO",)), pack((b"CONFIG", b"GET", b"appendfsync"))]
        # A trial call announces one key and gives none, so it cannot run, whether or not the server has the script or
        # the function. The text of a script, and so its hash, is only made if the server runs no functions.
        trial = self._script_trial() if self.library is None else pack((b"FCALL", self.library.name, 1))
        info, fsync, *replies = await link.ask([*about, trial, *self.packed_scripts])
        verdict = self._verdict(replies[0])
        if self.library is not None and verdict != "allowed":
            replies = await link.ask([self._script_trial()])
            verdict = self._verdict(replies[0])
        for reply in replies:
            if isinstance(reply, ReplyError) and reply.code in ("LOADING", "BUSY"):
                return failure_of_reply(reply.code, reply.detail, endpoint)
        return server_facts(endpoint, _as_text(info), _setting(fsync), verdict, link.run_id)

    def _script_trial(self) -> bytes:
        trial = self.scripts[0] if self.scripts else _OF_NOBODY
        return pack((trial.command, trial.sha, 1))

    def _verdict(self, trial: Any) -> Literal["allowed", "denied"] | None:
        """Whether scripts may be called; ``None`` if unknown.

        A user may be permitted to run only some scripts. So a denial proves nothing if the trial used no script of
        sbredis.
        """
        if not isinstance(trial, ReplyError):
            return None
        if trial.detail.startswith("unknown command"):
            return "denied"
        if trial.code == "NOPERM":
            return "denied" if self.scripts else None
        return "allowed"


class WireHolder:
    """The keeper of one connection to one server: opened when first needed, and again after it was lost.

    There is only one attempt to open the connection at a time, and it serves all callers. The attempt runs in a task of
    its own, so a caller that is cancelled does not end the attempt for the other callers. After a failure there is a
    pause before the next attempt. Callers get that failure during the pause.
    """

    def __init__(self, endpoint: Endpoint, opener: Opener, form: CallForm) -> None:
        self.endpoint = endpoint
        self.wire: Wire | None = None
        self._form = form
        self._opener = opener
        self._opening: asyncio.Future[Wire | Failure] | None = None
        self._failures = 0
        self._last_failure: Failure | None = None
        self._not_before = 0.0

    @property
    def open(self) -> bool:
        """Whether the connection is open now."""
        return self.wire is not None and self.wire.failure is None

    @property
    def opening(self) -> bool:
        """Whether the connection is being opened."""
        return self._opening is not None

    @property
    def failing(self) -> bool:
        """Whether the last attempt to open the connection failed."""
        return self._failures > 0

    @property
    def new(self) -> bool:
        """Whether no attempt to open the connection has ended yet."""
        return self.wire is None and not self.failing

    async def get(self, deadline: float) -> Wire | Failure:
        """Return the open connection, or the failure that says why there is none."""
        wire = self.wire
        if wire is not None and wire.failure is None:
            return wire
        loop = asyncio.get_running_loop()
        opening = self._opening
        if opening is None:
            if self._last_failure is not None and loop.time() < self._not_before:
                return self._last_failure
            opening = self._opening = loop.create_future()
            if not self._opener.tasks.start(self._open(opening)):
                self._opening = None
                return Failure(FailureKind.CLOSED, "the transport was closed", endpoint=self.endpoint)
        await asyncio.wait((opening,), timeout=max(0.0, deadline - loop.time()))
        if opening.done():
            return opening.result()
        return Failure(FailureKind.TIMED_OUT, f"{self.endpoint} is still being connected to", endpoint=self.endpoint)

    async def _open(self, opening: asyncio.Future[Wire | Failure]) -> None:
        result: Wire | Failure = Failure(FailureKind.CLOSED, "the transport was closed", endpoint=self.endpoint)
        try:
            opened = await self._opener.open(self.endpoint)
            if isinstance(opened, Failure):
                result = opened
            else:
                link, facts = opened
                result = Wire(
                    stream_over(link),
                    facts,
                    self._opener.limits,
                    on_suspect=lambda: self._opener.on_trouble(self.endpoint),
                    form=self._form,
                )
        finally:
            self._opening = None
            if isinstance(result, Failure):
                self._failures += 1
                self._last_failure = result
                self._not_before = asyncio.get_running_loop().time() + _OPEN_PACING.delay(self._failures, 0)
                self._opener.on_trouble(self.endpoint)
            else:
                self._failures = 0
                self.wire = result
                self._opener.on_open(self.endpoint)
            opening.set_result(result)
        if isinstance(result, Wire):
            try:
                await result.run()
            finally:
                self._opener.on_trouble(self.endpoint)


def _as_text(reply: Any) -> str | None:
    if isinstance(reply, bytes):
        return reply.decode(errors="replace")
    return reply if isinstance(reply, str) else None


def _setting(reply: Any) -> str | None:
    """Return the value in an answer to CONFIG GET: a mapping or a flat list, depending on the protocol version."""
    return next(map(_as_text, as_mapping(reply).values()), None)
