"""A parser of the server's protocol, RESP2 and RESP3, for bytes in pieces of any size. Pure.

If hiredis is installed, its faster parser is used instead; :func:`reply_parser` chooses the parser. Pushes are dropped,
because they answer no call. If a push were taken for a reply, every later caller would get the reply to another call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["ProtocolError", "PythonParser", "ReplyError", "as_mapping", "reply_parser"]


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

    def __init__(self) -> None:
        self._rest = b""
        self._late: list[bytes] = []
        self._short_of = 0
        self._open: list[_Open] = []

    def feed(self, data: bytes) -> list[Any]:
        """Take more bytes, and return the replies that are whole now. Raises :class:`ProtocolError`."""
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
            end = data.find(b"\r\n", position)
            if end < 0:
                break
            line = data[position + 1 : end]
            if kind in _STRINGS:
                length = int(line)
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
                count = int(line) * _AGGREGATES[kind]
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
                if kind != _PUSH:
                    replies.append(value)
        return replies, position


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
        return dict(zip(items[::2], items[1::2], strict=False))
    return {}


def reply_parser() -> Callable[[bytes], list[Any]]:
    """Return a new parser for one connection: a function that takes bytes and gives whole replies."""
    try:
        import hiredis
    except ImportError:
        return PythonParser().feed
    nothing = object()
    # The parser returns errors as our own ReplyError. Without an encoding, strings stay bytes.
    reader = hiredis.Reader(protocolError=ProtocolError, replyError=ReplyError, notEnoughData=nothing)
    feed, gets = reader.feed, reader.gets
    push = getattr(hiredis, "PushNotification", None)  # hiredis 3.2 and later

    def parse(data: bytes) -> list[Any]:
        feed(data)
        replies: list[Any] = []
        try:
            while (reply := gets(False)) is not nothing:
                if type(reply) is not push:
                    replies.append(reply)
        except TypeError as error:  # the reply has a mapping with a key that Python cannot hash
            raise ProtocolError(f"not a reply: {error}") from error
        return replies

    return parse
