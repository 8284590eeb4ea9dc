"""Servers that are impostors or defective: their bytes end the connection with an error, and take little memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from sbredis.exceptions import Outcome, ServiceBusCommunicationError, ServiceBusConnectionError
from sbredis.transport import Script, open_transport
from tests.transport.ears import Ear
from tests.transport.impostors import Flood, answering, flooding, suitable_server
from tests.waiting import eventually

if TYPE_CHECKING:
    from sbredis.transport import Transport

ON_THE_WAY = 64 * 1024 * 1024
"""More bytes than the operating system keeps between two sockets."""
ZEROS = b"0" * 65536
ONES = b":1\r\n" * 10_000
SCRIPT = Script("s", "return 1")


@asynccontextmanager
async def opened(address: str) -> AsyncIterator[Transport]:
    async with await open_transport(f"redis://{address}", connect_timeout=60) as transport:
        yield transport


@pytest.mark.parametrize(
    "beginning",
    [b"$3000000000\r\n", b"+", b"-", b"*999999999\r\n$65000\r\n", b"%999999999\r\n", b"*9\r\n$900000\r\n", b":", b""],
)
async def test_a_flood_before_the_client_is_authenticated_ends_the_connection(beginning: bytes) -> None:
    flood = Flood(beginning, ZEROS)
    async with flooding(flood, instead_of=b"HELLO") as address:
        with pytest.raises(ServiceBusConnectionError, match=address):
            await open_transport(f"redis://{address}", connect_timeout=0.5)
    assert flood.most < ON_THE_WAY


@pytest.mark.parametrize(
    ("beginning", "rest"),
    [
        (b"*999999999\r\n", ONES),
        (b"*2\r\n*999999999\r\n", ONES),
        (b"*-2\r\n", ZEROS),
        (b"$-5\r\n", ZEROS),
        (b"", b"*1\r\n" * 1000),
        (b"%1\r\n*1\r\n:1\r\n:1\r\n", ZEROS),
    ],
    ids=["list", "inner list", "negative list", "negative string", "depth", "key"],
)
async def test_a_reply_beyond_all_limits_ends_the_call_with_an_error(beginning: bytes, rest: bytes) -> None:
    """The parser's own tests have the replies that are refused only when their bytes have come."""
    async with flooding(Flood(beginning, rest), instead_of=b"EVALSHA") as address, opened(address) as transport:
        with pytest.raises(ServiceBusCommunicationError, match=r"lost during") as caught:
            await transport.call(SCRIPT, [b"k"], ["now"], timeout=60)
    assert caught.value.outcome is Outcome.UNKNOWN


async def test_a_listener_passes_over_what_no_server_says() -> None:
    """What follows is heard."""
    said = (b"*1 :1 *0 :1", b"+smessage +c :7", b"+smessage *0 :7", b"+smessage +c +hi")
    pushes = b"".join(b"*3\r\n" + each.replace(b" ", b"\r\n") + b"\r\n" for each in (b"+ssubscribe +c :1", *said))

    def answer(words: list[bytes]) -> bytes:
        return pushes if words[0] == b"SSUBSCRIBE" else suitable_server(words)

    async with answering(answer) as address, opened(address) as transport:
        ear = Ear()
        await transport.subscribe(b"c", ear, timeout=20)
        await eventually(lambda: ear.heard == [b"hi"])
