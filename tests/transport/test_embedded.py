"""``embedded://`` through the transport: the server starts on demand, restarts after a kill, and ends when it is
unused.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest

from sbredis.servers import LocalServer
from sbredis.transport import Transport, WireLimits, open_transport
from tests.transport.opening import function, opened
from tests.waiting import eventually

pytestmark = [
    pytest.mark.skipif(not Path("/proc/locks").exists(), reason="looks at processes and locks as only Linux shows them")
]

ADD = function("add", "#!lua\nredis.call('SADD', KEYS[1], ARGV[1])\nreturn redis.call('SCARD', KEYS[1])")


async def process_id(transport: Transport) -> int:
    """Return the process id of the embedded server."""
    found = re.search(rb"process_id:(\d+)", await transport.command("INFO", "server"))
    assert found
    return int(found[1])


def is_gone(pid: int) -> bool:
    """Return whether the process has ended; a dead child of another process may remain as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):  # the process may end between the opening and the reading
        return True


async def test_a_killed_server_is_started_again_for_the_next_call(tmp_path: Path) -> None:
    """The new server has the stored data. Calls under way take longer but do not fail."""
    async with await opened(f"embedded://{tmp_path}/bus?fsync=always", scripts=[ADD]) as transport:
        for number in range(3):
            os.kill(await process_id(transport), signal.SIGKILL)
            calls = (transport.call(ADD, (b"set",), (f"{number}-{n}",), repeatable=True) for n in range(50))
            assert max(await asyncio.gather(*calls)) == 50 * (number + 1)


async def test_subscriptions_are_made_again_on_the_restarted_server(tmp_path: Path) -> None:
    """The listener is notified of the gap."""

    class Heard:
        gaps = 0

        def message(self, payload: bytes) -> None: ...

        def gap(self) -> None:
            self.gaps += 1

    heard = Heard()
    async with await open_transport(f"embedded://{tmp_path}/bus") as transport:
        await transport.subscribe(b"channel", heard)
        os.kill(await process_id(transport), signal.SIGKILL)
        await eventually(lambda: heard.gaps)


async def test_closing_the_transport_releases_the_server(tmp_path: Path) -> None:
    """No other client uses the server, so it ends soon afterwards."""
    async with await open_transport(f"embedded://{tmp_path}/bus") as transport:
        pid = await process_id(transport)
    await eventually(lambda: is_gone(pid))


@pytest.mark.parametrize("steps", range(1, 5))
async def test_a_cancelled_closing_releases_the_server_too(tmp_path: Path, steps: int) -> None:
    """The test cancels the closing task at each of its awaits."""
    transport = await open_transport(f"embedded://{tmp_path}/bus")
    pid = await process_id(transport)
    closing = asyncio.create_task(transport.aclose())
    for _ in range(steps):
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.gather(closing, return_exceptions=True)
    await eventually(lambda: is_gone(pid))


@pytest.mark.parametrize("after", [0.0, 0.01, 0.05, 0.1, 0.2])
async def test_a_cancelled_opening_releases_the_server_too(tmp_path: Path, after: float) -> None:
    """The cancellation may come while the client starts the server, connects to it, or queries it."""
    opening = asyncio.create_task(open_transport(f"embedded://{tmp_path}/bus"))
    await asyncio.wait((opening,), timeout=after)
    opening.cancel()
    (opened,) = await asyncio.gather(opening, return_exceptions=True)
    if isinstance(opened, Transport):  # the opening ended before it could be cancelled
        await opened.aclose()
    lock = tmp_path / "bus" / "server.lock"
    await eventually(lambda: not lock.exists() or not holders_of(lock))


def holders_of(path: Path) -> list[str]:
    """Return the lines of the kernel's table of locks that name a file."""
    inode = f":{path.stat().st_ino} "
    return [line for line in Path("/proc/locks").read_text().splitlines() if inode in line]


async def test_a_stopped_server_does_not_delay_closing(tmp_path: Path) -> None:
    """A stopped server does not delay an opening beyond its timeout either."""
    transport = await open_transport(f"embedded://{tmp_path}/bus")
    pid = await process_id(transport)
    os.kill(pid, signal.SIGSTOP)
    try:
        calling = asyncio.create_task(transport.call(ADD, (b"set",), ("x",), timeout=3600))
        await asyncio.sleep(0)
        async with asyncio.timeout(200):
            await transport.aclose()
        with pytest.raises(Exception, match="add"):
            await calling
    finally:
        os.kill(pid, signal.SIGCONT)
    await eventually(lambda: is_gone(pid))


async def test_the_client_uses_an_idle_connection_from_time_to_time(server: LocalServer) -> None:
    """Then no network device forgets the connection, and the client finds a dead connection before a call needs it."""

    def pings() -> int:
        found = re.search(r"cmdstat_ping:calls=(\d+)", str(server.ask("INFO", "commandstats")))
        return int(found[1]) if found else 0

    async with await open_transport(server.url, limits=WireLimits(idle=0.05)):
        before = pings()
        await eventually(lambda: pings() > before + 1)
