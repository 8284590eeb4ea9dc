"""A parser of the server's protocol, RESP2 and RESP3, for bytes in pieces of any size. Pure.

If hiredis is installed, its faster parser is used instead; :func:`reply_parser` chooses the parser. Pushes are dropped,
because they answer no call. If a push were taken for a reply, every later caller would get the reply to another call.

A server may be an impostor, or defective. So a reply has limits (:class:`ReplyLimits`), and a parser refuses a larger
one as soon as it is announced, or at the latest when its bytes have come.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["ProtocolError", "PythonParser", "ReplyError", "ReplyLimits", "as_mapping", "reply_parser"]

_LONGEST_LINE = 64 * 1024
"""The largest length of a line: of a number, or of a text that is no string of known length."""
_MANY = re.compile(rb"\r\n([*~%>](?=[0-9]{2})|\|)([0-9]{0,7})")
_MANY_AT_START = re.compile(rb"([*~%>](?=[0-9]{2})|\|)([0-9]{0,7})")
"""The beginning of an array, set, mapping or push with ten items or more, or of attributes, unless it is a part of a
string.
"""
_CUT_OFF = re.compile(rb"\r(?:\n[*~%>][0-9]{0,6})?\Z")
_CUT_OFF_AT_START = re.compile(rb"[*~%>][0-9]{0,6}\Z")
_LONGEST_CUT_OFF = 9
_LINE_END = b"\r\n"
_MOST_PUSHED = 9_999
"""The largest number of items of a push. Pushes have a handful."""


class ReplyLimits(NamedTuple):
    """The limits of one reply."""

    bytes: int = 256 * 1024 * 1024
    """The largest size in bytes. A message may have 100 MB, and the server's own limit for a string is 512 MB."""
    items: int = 999_999
    """The largest number of items in all arrays, sets and mappings of the reply together."""
    small: int = 16 * 1024 * 1024
    """The largest size of everything except long strings: small items take eighteen times their size in memory."""
    depth: int = 64


class ReplyError(Exception):
    """An error reply of a server: its first word, and the rest. It is a value among replies and is never raised."""

    def __init__(self, text: str | bytes) -> None:
        if isinstance(text, bytes):
            text = text.decode(errors="replace")
        self.code, _, self.detail = text.partition(" ")
        super().__init__(text)


class ProtocolError(Exception):
    """An error for bytes that do not follow the protocol. The connection cannot be used any more."""


class _Open:
    """An array, set or mapping that is still being read."""

    __slots__ = ("items", "kind", "missing")

    def __init__(self, missing: int, kind: int) -> None:
        self.items: list[Any] = []
        self.missing = missing
        self.kind = kind

    def whole(self) -> Any:
        return dict(zip(self.items[::2], self.items[1::2], strict=True)) if self.kind == _MAP else self.items


class PythonParser:
    """A parser that takes bytes and gives whole replies. It keeps an incomplete reply, and reads nothing twice."""

    def __init__(self, limits: ReplyLimits = ReplyLimits()) -> None:  # noqa: B008 -- it is immutable
        self._limits = limits
        self._rest = b""
        self._late: list[bytes] = []
        self._short_of = 0
        self._open: list[_Open] = []
        self._size = self._items = 0
        """The bytes and the items of the incomplete reply."""

    def feed(self, data: bytes) -> list[Any]:
        """Take more bytes, and return the replies that are whole now. Raises :class:`ProtocolError`."""
        self._size += len(data)
        if self._size - len(data) > self._limits.bytes:  # more than one reply may have begun with these bytes
            raise ProtocolError(f"a reply has more than {self._limits.bytes} bytes")
        if self._short_of:
            # A long string is arriving: collect its pieces, and do not parse them again each time.
            self._late.append(data)
            self._short_of -= len(data)
            if self._short_of > 0:
                return []
            data = b"".join((self._rest, *self._late))
            self._late.clear()
            self._short_of = 0
        elif self._rest:
            data = self._rest + data
        try:
            replies, position = self._parse(data)
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(f"not a reply: {error}") from error
        self._rest = data[position:]
        return replies

    def _parse(self, data: bytes) -> tuple[list[Any], int]:
        replies: list[Any] = []
        position, size = 0, len(data)
        while position < size:
            kind = data[position]
            if kind not in _KINDS:
                raise ValueError(f"no reply begins with {data[position : position + 20]!r}")
            end = data.find(b"\r\n", position, position + _LONGEST_LINE)
            if end < 0:
                self._require_line(size - position)
                break
            line = data[position + 1 : end]
            if kind in _STRINGS:
                length = self._length(line)
                if length >= 0:
                    start = end + 2
                    end = start + length
                    if end + 2 > size:
                        self._short_of = end + 2 - size
                        break
                    value: Any = _STRINGS[kind](data[start:end])
                else:
                    value = None
            elif kind in _AGGREGATES:
                count = self._count(line, kind)
                if count > 0:
                    self._open.append(_Open(count, kind))
                    position = end + 2
                    continue
                value = None if count < 0 else {} if kind == _MAP else []
            else:
                value = _SIMPLE[kind](line)
            position = end + 2
            while self._open:
                innermost = self._open[-1]
                innermost.items.append(value)
                innermost.missing -= 1
                if innermost.missing:
                    break
                kind = innermost.kind
                value = self._open.pop().whole()
            else:
                self._size, self._items = size - position, 0
                if kind != _PUSH:
                    replies.append(value)
        return replies, position

    # -- limits --------------------------------------------------------------------------------------------------------

    @staticmethod
    def _require_line(size: int) -> None:
        if size >= _LONGEST_LINE:
            raise ValueError("a line is too long")

    def _length(self, line: bytes) -> int:
        length = int(line)
        if not -1 <= length <= self._limits.bytes:
            raise ValueError("the length of a string is negative, or too large")
        return length

    def _count(self, line: bytes, kind: int) -> int:
        count = int(line) * _AGGREGATES[kind]
        self._items += max(count, 0)
        if count < -_AGGREGATES[kind] or self._items > self._limits.items:
            raise ValueError("the number of items is negative, or too large")
        if len(self._open) >= self._limits.depth:
            raise ValueError("it is nested too deeply")
        return count


def _same(data: bytes) -> bytes:
    return data


def _null(_: bytes) -> None:
    return None


def _boolean(data: bytes) -> bool:
    return {b"t": True, b"f": False}[data]


def _verbatim(data: bytes) -> bytes:
    return data[4:]


_MAP, _PUSH = ord("%"), ord(">")
_STRINGS: dict[int, Callable[[bytes], Any]] = {ord("$"): _same, ord("="): _verbatim, ord("!"): ReplyError}
_AGGREGATES = {ord("*"): 1, ord("~"): 1, _PUSH: 1, _MAP: 2}
_SIMPLE: dict[int, Callable[[bytes], Any]] = {
    ord("+"): _same,
    ord("-"): ReplyError,
    ord(":"): int,
    ord("("): int,
    ord("_"): _null,
    ord(","): float,
    ord("#"): _boolean,
}


_KINDS = frozenset((*_STRINGS, *_AGGREGATES, *_SIMPLE))


def as_mapping(reply: Any) -> dict[Any, Any]:
    """Return a reply of pairs as a mapping. RESP3 sends a mapping; RESP2 and fakeredis send a flat list.

    Any other reply has no pairs.
    """
    if isinstance(reply, dict):
        return reply  # pyright: ignore[reportUnknownVariableType]  # the caller knows the content of its reply
    if isinstance(reply, list):
        items: list[Any] = reply  # pyright: ignore[reportUnknownVariableType]  # the caller knows its content
        try:
            return dict(zip(items[::2], items[1::2], strict=False))
        except TypeError:  # a key is a list
            return {}
    return {}


def reply_parser(limits: ReplyLimits = ReplyLimits()) -> Callable[[bytes], list[Any]]:  # noqa: B008 -- it is immutable
    """Return a new parser for one connection: a function that takes bytes and gives whole replies."""
    try:
        import hiredis
    except ImportError:
        return PythonParser(limits).feed
    return _FastParser(hiredis, limits).feed


class _FastParser:
    """hiredis with limits. By itself, it makes a list as long as an array says, before the items of the array come.

    So the numbers of items are added up before hiredis sees them. Arrays of less than ten items are not counted:
    a list takes eight bytes for an item, so the limit of the size without long strings bounds them well enough.
    """

    def __init__(self, hiredis: Any, limits: ReplyLimits) -> None:
        self._limits = limits
        self._nothing = object()
        # The reader returns errors as our own ReplyError. Without an encoding, strings stay bytes.
        self._reader = hiredis.Reader(protocolError=ProtocolError, replyError=ReplyError, notEnoughData=self._nothing)
        self._push = getattr(hiredis, "PushNotification", None)  # hiredis 3.2 and later
        self._held = b""
        """Bytes that hiredis has not seen, because they may be the beginning of a number of items."""
        self._size = self._items = 0
        """The bytes and the announced items of the incomplete reply."""
        self._string = 0
        """The bytes of the incomplete string in it, at least."""
        self._strings = 0
        """The bytes of the long strings in it, at least."""

    def feed(self, data: bytes) -> list[Any]:
        """Take more bytes, and return the replies that are whole now. Raises :class:`ProtocolError`."""
        if self._held:
            data, self._held = self._held + data, b""
        if data[-2:] != _LINE_END:  # most data end with whole replies
            cut_off = _CUT_OFF.search(data, max(0, len(data) - _LONGEST_CUT_OFF)) or _CUT_OFF_AT_START.match(data)
            if cut_off is not None:
                self._held = data[cut_off.start() :]
                data = data[: cut_off.start()]
        replies: list[Any] = []
        begin = 0
        found = _MANY_AT_START.match(data) or _MANY.search(data)
        while found is not None:
            if found.start(1) > begin:
                self._read(data[begin : found.start(1)], replies)
                begin = found.start(1)
            if not self._reader.has_data():  # otherwise a string is being read, of which this is a part
                if found[1] == b"|":
                    raise ProtocolError("not a reply: attributes, for which nobody has asked")
                self._count(found[1], int(found[2]))
            found = _MANY.search(data, found.end())
        self._read(data[begin:] if begin else data, replies)
        return replies

    def _count(self, kind: bytes, items: int) -> None:
        self._items += items * 2 if kind == b"%" else items
        if self._items > self._limits.items or (kind == b">" and items > _MOST_PUSHED):
            raise self._too_many()

    def _too_many(self) -> ProtocolError:
        return ProtocolError(f"not a reply: it has more than {self._limits.items} items")

    def _read(self, data: bytes, replies: list[Any]) -> None:
        reader, before = self._reader, len(replies)
        reader.feed(data)
        self._size += len(data)
        try:
            while (reply := reader.gets(False)) is not self._nothing:
                self._size = self._items = self._string = self._strings = 0
                if type(reply) is not self._push:
                    replies.append(reply)
        except TypeError as error:  # the reply has a mapping with a key that Python cannot hash
            raise ProtocolError(f"not a reply: {error}") from error
        except MemoryError:  # an array behind a string without its end, where _MANY does not look
            raise self._too_many() from None
        if len(replies) > before:
            return
        string = reader.len() if reader.has_data() else 0
        if string < self._string:  # the string has ended
            self._strings += self._string
        self._string = string
        if self._size > self._limits.bytes or self._size - self._strings - string > self._limits.small:
            raise ProtocolError(f"a reply has more than {self._limits.bytes} bytes, or too many items")
