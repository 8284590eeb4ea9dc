"""Decide how to move messages from one partition to another. Pure: nothing here waits.

Theory
------

A *mover* reads the messages that wait in a source partition, and groups them by their destination, a partition of
another entity. This module decides the steps for one group. The messages of a group are moved in their order, in
pieces.

If one script can use both partitions, it removes a piece at the source and stores it at the destination. Otherwise
there are three steps. The source *freezes* the piece as a *batch*, which has a number and never changes. The
destination *judges* the batch: it stores all messages, or it refuses the batch and remembers why. The source *settles*
the batch by this verdict: it deletes the messages, returns them to their places, or gives them up. Each step may be
repeated, also by another mover, so a mover that stops between two steps does no harm::

    piece ──FREEZE──► batch ──TAKE──► verdict ──SETTLE──► next piece
                        ▲
    left by a mover ──READ

A message that cannot be moved is *given up*: the source puts it into a dead-letter queue, with the reason. If a
destination refuses a piece of several messages because of one of them, the mover divides the piece until it knows the
message. If the destination is full, the pieces that follow stay small until one succeeds.

The caller gets the next action from ``next``, carries it out, and reports the result by calling a method. When
``next`` returns ``Ended``, the caller reads the source again. Messages for which something has changed meanwhile are
found by that reading, so a group simply ends when another mover or a receiver was faster.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from sbredis.engine import Delivery, Outgoing
    from sbredis.rules import MessageView

__all__ = [
    "MOST_AT_ONCE",
    "MOST_BYTES",
    "Action",
    "Bound",
    "Ended",
    "Fault",
    "Freeze",
    "Move",
    "MoveAtOnce",
    "MoveGroup",
    "ReadBatch",
    "Settle",
    "Take",
]


class Bound(NamedTuple):
    """A message on its way to another entity."""

    delivery: Delivery
    outgoing: Outgoing | None = None
    """The message as the destination stores it; ``None`` for a message that cannot be moved."""
    facts: MessageView | None = None
    """The view that the rules of a topic judge, if the destination is a topic."""

    @property
    def name(self) -> str:
        """The name of the message in its partition."""
        return self.delivery.name

    @property
    def size(self) -> int:
        """The bytes of the message, with its changed properties."""
        return len(self.delivery.record) + len(self.delivery.changes)


class Fault(NamedTuple):
    """Why a message cannot be moved."""

    reason: str
    description: str


class Move(NamedTuple):
    """A message that waits, and the reason if it cannot be moved to any destination."""

    message: Bound
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class MoveAtOnce:
    """Move these messages with one script. Report ``moved``, ``absent``, ``overtaken`` or ``refused``."""

    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Freeze:
    """Freeze these messages as the next batch. Report ``frozen``, or ``overtaken`` if none of them is there."""

    moves: tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class ReadBatch:
    """Read the messages of the outstanding batch. Report ``read``, or ``overtaken`` if no batch is outstanding."""


@dataclass(frozen=True, slots=True)
class Take:
    """Let the destination judge the batch. Report ``judged``."""

    batch: int
    moves: tuple[Move, ...]
    door: str
    """The door of the destination that was known before the messages were read; empty if none was known."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle the batch at the source. Report ``settled``."""

    batch: int
    verdict: Literal["taken", "back", "again", "refused"]
    names: tuple[str, ...] = ()
    """With ``again``, the messages that the destination has already."""
    given_up: tuple[tuple[Move, Fault], ...] = ()
    """With ``refused``, the messages to give up; the other messages return to their places."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The group has ended. Read the source again."""


Action = MoveAtOnce | Freeze | ReadBatch | Take | Settle | Ended

MOST_AT_ONCE, MOST_BYTES = 500, 1024 * 1024
"""The largest number of messages in a piece, and the largest total size of several messages.

With these limits, no call of a move holds a server for long.
"""
OF_ALL = frozenset({"DISABLED", "GONE"})
"""Refusals that would be the same for every message of the piece."""
OF_ONE = frozenset({"TOOLARGE", "SESSIONS"})
"""Refusals whose detail begins with the index of one message in the piece, counted from 0."""


class _Next(enum.Enum):
    PIECE = "begin with the next piece"
    READ = "read the batch that is outstanding"
    TAKE = "let the destination judge the batch"
    SETTLE = "settle the batch"
    END = "nothing is left to do"


@dataclass(slots=True)
class _MovePiece:
    moves: tuple[Move, ...]
    fault: Fault | None = None
    """The reason for which these messages are to be given up."""


@dataclass(slots=True)
class MoveGroup:
    """The moves from one partition to one other partition."""

    moves: Sequence[Move]
    """The messages, in their order. Empty if a batch of an earlier mover is outstanding."""
    one_script: bool
    """Whether one script can move the messages: both partitions are in one slot, or all slots are on one server."""
    door: str = ""
    """The last known door of the destination."""
    most: int = MOST_AT_ONCE
    """The largest number of messages in a piece."""
    carried: set[str] = field(init=False, default_factory=set[str])
    """The names of messages that this mover has moved or frozen, or may have moved, and that are not back."""
    given_up: set[str] = field(init=False, default_factory=set[str])
    """The names of messages that this mover has given up."""
    _pieces: deque[_MovePiece] = field(init=False, default_factory=deque[_MovePiece])
    _most_now: int = field(init=False, default=0)
    """The largest number of messages in a piece now."""
    _next: _Next = field(init=False, default=_Next.PIECE)
    _batch: int = field(init=False, default=0)
    _batch_moves: tuple[Move, ...] = field(init=False, default=())
    _settle: Settle | None = field(init=False, default=None)
    _after: _Next = field(init=False, default=_Next.PIECE)
    """The step that follows the settlement."""

    def __post_init__(self) -> None:
        self._most_now = self.most
        if not self.moves:
            self._next = _Next.READ
        # A message that cannot be moved is a piece of its own, so that it does not make the others fail.
        part: list[Move] = []
        for move in self.moves:
            if move.fault is not None:
                self._add(part)
                part = []
                self._add([move])
            else:
                part.append(move)
        self._add(part)

    def _add(self, moves: Sequence[Move]) -> None:
        if moves:
            self._pieces.append(_MovePiece(tuple(moves), moves[0].fault))

    # -- the next action -----------------------------------------------------------------------------------------------

    def next(self) -> Action:
        """Return the next action. Without a report in between, the action stays the same."""
        if self._next is _Next.PIECE:
            piece = self._piece()
            if piece is None:
                return Ended()
            at_once = self.one_script and piece.fault is None
            return MoveAtOnce(piece.moves) if at_once else Freeze(piece.moves)
        if self._next is _Next.READ:
            return ReadBatch()
        if self._next is _Next.TAKE:
            return Take(self._batch, self._batch_moves, self.door)
        if self._next is _Next.SETTLE:
            assert self._settle is not None
            return self._settle
        return Ended()

    def _piece(self) -> _MovePiece | None:
        """Return the first piece. If it is larger than pieces are now, divide it first."""
        if not self._pieces:
            return None
        first = self._pieces[0]
        sizes = accumulate(move.message.size for move in first.moves[: self._most_now])
        fit = max(1, sum(size <= MOST_BYTES for size in sizes))
        if fit < len(first.moves):
            self._pieces[0] = _MovePiece(first.moves[fit:], first.fault)
            self._pieces.appendleft(_MovePiece(first.moves[:fit], first.fault))
        return self._pieces[0]

    # -- reports -------------------------------------------------------------------------------------------------------

    def overtaken(self) -> None:
        """Report that another mover or a receiver was faster: the messages or the batch are not there any more."""
        self._next = _Next.END

    def absent(self, names: Collection[str]) -> None:
        """Report that some messages of the piece are not there any more as they were read. Nothing was changed."""
        piece = self._pieces[0]
        left = tuple(move for move in piece.moves if move.message.name not in names)
        self._pieces.clear()  # the order of the messages is kept by reading the source again
        if len(left) == len(piece.moves):  # the source was made again
            left = ()
        self._push([left])
        self._next = _Next.PIECE

    def moved(self) -> None:
        """Report that one script has moved the piece."""
        self.carried |= _names(self._pieces.popleft().moves)
        self._grow()

    def lost(self) -> None:
        """Report that one script may have moved the piece. The next reading of the source shows whether it has."""
        self.carried |= _names(self._pieces[0].moves)
        self._next = _Next.END

    def refused(self, code: str, detail: str, fault: Fault) -> None:
        """Report that the destination has refused the piece that one script was to move. Nothing was changed.

        ``fault`` is the reason that a message gets if it has caused this refusal.
        """
        piece = self._pieces.popleft()
        self._divide(piece.moves, self._guilty(piece.moves, code, detail), fault)
        self._next = _Next.PIECE

    def frozen(self, batch: int, names: Sequence[str], *, foreign: bool = False) -> None:
        """Report the batch that is outstanding now. It may be another one than was asked for.

        A ``foreign`` batch has another purpose: another mover has frozen it, and its destination may get other
        messages.
        """
        piece = self._pieces.popleft()
        if not foreign:
            self.carried.update(names)
        self._batch = batch
        by_name = {move.message.name: move for move in piece.moves}
        foreign = foreign or not by_name.keys() >= set(names)
        if foreign or len(names) < len(by_name):
            # Another mover or a receiver was faster. The order of the messages is kept by reading the source again.
            self._pieces.clear()
        if foreign:
            self._next = _Next.READ
            return
        self._begin(tuple(by_name[name] for name in names), piece.fault)

    def read(self, batch: int, moves: Iterable[Move]) -> None:
        """Report the messages of the outstanding batch."""
        moves = tuple(moves)
        again = batch == self._batch and self._batch_moves
        self._batch = batch
        if again:
            self._batch_moves = moves
            self._next = _Next.TAKE
            return
        self._begin(moves)

    def _begin(self, moves: tuple[Move, ...], fault: Fault | None = None) -> None:
        self._batch_moves = moves
        faults = [(move, fault or move.fault) for move in moves]
        given_up = tuple((move, why) for move, why in faults if why is not None)
        if given_up:
            self._settles(Settle(self._batch, "refused", given_up=given_up))
        else:
            self._next = _Next.TAKE

    def judged(self, verdict: str, detail: str = "", names: Sequence[str] = (), fault: Fault | None = None) -> None:
        """Report the verdict of the destination. ``fault`` is the reason for a message that has caused a refusal."""
        moves = self._batch_moves
        if verdict == "taken":
            self._grow()
            self._settles(Settle(self._batch, "taken"))
        elif verdict == "again":
            self._settles(Settle(self._batch, "again", names=tuple(names)), then=_Next.END)
        elif verdict == "over":
            self._settles(Settle(self._batch, "back"), then=_Next.END)
        elif verdict == "door":
            self.door = detail
            self._next = _Next.READ
        else:
            assert fault is not None
            guilty = self._guilty(moves, verdict, detail)
            if len(guilty) == len(moves):
                self._settles(Settle(self._batch, "refused", given_up=tuple((move, fault) for move in moves)))
            elif guilty:
                self._settles(Settle(self._batch, "refused", given_up=tuple((move, fault) for move in guilty)))
                at = moves.index(guilty[0])
                self._push([moves[:at], moves[at + 1 :]])
            else:
                self._settles(Settle(self._batch, "back"))
                self._halve(moves)

    def settled(self, *, done: bool) -> None:
        """Report the settlement. ``done`` is false if another mover has settled the batch before."""
        settle = self._settle
        assert settle is not None
        up = _names(move for move, _ in settle.given_up)
        self.given_up |= up if done else set()
        # Another mover has settled by the same verdict, unless the destination had none.
        if settle.verdict != "taken" and (done or self._after is not _Next.END):
            self.carried -= _names(self._batch_moves) - up - set(settle.names)
        self._batch, self._batch_moves, self._settle = 0, (), None
        self._next = self._after if done else _Next.END

    # -- dividing ------------------------------------------------------------------------------------------------------

    def _settles(self, settle: Settle, then: _Next = _Next.PIECE) -> None:
        self._settle, self._after, self._next = settle, then, _Next.SETTLE

    def _guilty(self, moves: Sequence[Move], code: str, detail: str) -> tuple[Move, ...]:
        """Return the messages that have caused a refusal, as far as it shows them."""
        if len(moves) == 1 or code in OF_ALL:
            return tuple(moves)
        if code in OF_ONE:
            place = detail.partition(" ")[0]
            if place.isdigit() and int(place) < len(moves):
                return (moves[int(place)],)
        return ()

    def _divide(self, moves: tuple[Move, ...], guilty: tuple[Move, ...], fault: Fault) -> None:
        """Put the messages of a refused piece back, and mark those that are to be given up."""
        if not guilty:
            self._halve(moves)
            return
        at = moves.index(guilty[0])
        self._push([moves[at + len(guilty) :]])
        self._pieces.appendleft(_MovePiece(guilty, fault))
        self._push([moves[:at]])

    def _halve(self, moves: tuple[Move, ...]) -> None:
        self._most_now = max(1, len(moves) // 2)
        self._push([moves])

    def _push(self, parts: Sequence[tuple[Move, ...]]) -> None:
        for part in reversed(parts):
            if part:
                self._pieces.appendleft(_MovePiece(part))

    def _grow(self) -> None:
        self._most_now = min(self.most, 2 * self._most_now)


def _names(moves: Iterable[Move]) -> set[str]:
    return {move.message.name for move in moves}
