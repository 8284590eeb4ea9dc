"""Asking one server one question: the client reads RESP2 replies wherever they are split."""

from __future__ import annotations

import socket
import time

import pytest

from sbredis.exceptions import ScriptRefusedError
from sbredis.servers import LocalServer
from sbredis.servers._ask import Reply, _Exchange, ask

ANSWERS: list[tuple[bytes, Reply]] = [
    (b"+PONG\r\n", "PONG"),
    (b":-7\r\n", -7),
    (b"$0\r\n\r\n", ""),
    (b"$4\r\na\r\nb\r\n", "a\r\nb"),
    (b"$-1\r\n", None),
    (b"*-1\r\n", None),
    (b"*0\r\n", []),
    (b"*2\r\n$1\r\na\r\n*2\r\n:1\r\n$-1\r\n", ["a", [1, None]]),
]


@pytest.mark.parametrize("pieces", [1, 3, 1000])
@pytest.mark.parametrize(("sent", "expected"), ANSWERS)
def test_an_answer_is_read_wherever_it_is_split(sent: bytes, expected: Reply, pieces: int) -> None:
    here, there = socket.socketpair()
    with here, there:
        stream = _Exchange(here, time.monotonic() + 5)
        for start in range(0, len(sent), pieces):
            there.sendall(sent[start : start + pieces])
        assert stream.reply() == expected


def test_an_error_is_raised_with_its_code_and_detail() -> None:
    with LocalServer() as server, pytest.raises(ScriptRefusedError, match="unknown command") as caught:
        server.ask("NO-SUCH-COMMAND")
    assert caught.value.reply_code == "ERR"


def test_an_error_inside_an_array_is_returned_as_a_value() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"*2\r\n-ERR no\r\n:1\r\n")
        reply = _Exchange(here, time.monotonic() + 5).reply()
    assert isinstance(reply, list)
    assert isinstance(reply[0], ScriptRefusedError)


def test_a_silent_server_causes_an_error_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, pytest.raises(TimeoutError):
        ask(silent.getsockname(), "PING", timeout=0.1)


def test_a_server_that_speaks_another_protocol_is_reported() -> None:
    here, there = socket.socketpair()
    with here, there:
        there.sendall(b"HTTP/1.1 400 Bad Request\r\n")
        with pytest.raises(ConnectionError, match="HTTP"):
            _Exchange(here, time.monotonic() + 5).reply()


def test_a_text_that_is_not_utf8_is_returned_unchanged() -> None:
    with LocalServer() as server:
        text = b"\xff\x00\r\n".decode("utf-8", "surrogateescape")
        server.ask("SET", "k", text)
        assert server.ask("GET", "k") == text
