"""A call that cannot be written fails alone, and a handshake that is refused shows no password."""

from __future__ import annotations

import asyncio

import pytest

from sbredis.exceptions import Outcome, ServerUnsuitableError, ServiceBusError
from sbredis.servers import LocalServer
from sbredis.transport import Script, open_transport, parse_target


def unreadable() -> str:
    raise OSError("the file of the script is gone")


@pytest.mark.any_form("the scripts of the test are in no library")
async def test_a_script_whose_text_cannot_be_read_fails_its_own_call_alone(server: LocalServer) -> None:
    echo = Script("echo", "#!lua flags=no-writes\nreturn ARGV[1]")
    gone = Script("gone", unreadable, only_reads=False)
    async with await open_transport(server.url) as transport:
        assert await transport.call(echo, [b"k"], [b"warm"]) == b"warm"
        calls = [
            transport.call(script, [b"k"], [text])
            for script, text in ((echo, b"first"), (gone, b"second"), (echo, b"third"))
        ]
        first, second, third = await asyncio.gather(*calls, return_exceptions=True)
        assert (first, third) == (b"first", b"third")
        assert isinstance(second, ServiceBusError)
        assert second.outcome is Outcome.NEVER_SENT
        assert "the file of the script is gone" in str(second)
        assert not second.is_transient
        assert await transport.call(echo, [b"k"], [b"fourth"]) == b"fourth"


async def test_a_server_that_repeats_the_password_does_not_get_it_into_the_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(b"-ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'default' 'hunter2'\r\n" * 3)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(repeat, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with caplog.at_level("DEBUG"), pytest.raises(ServerUnsuitableError, match="does not know the command HELLO"):
            await open_transport(parse_target(f"redis://:hunter2@127.0.0.1:{port}"), timeout=5)
    assert "hunter2" not in caplog.text
