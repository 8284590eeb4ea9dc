"""Many processes open one folder at once, and many of them are killed: one server runs, and no data is lost."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Self

import pytest

from sbredis.servers import acquire
from tests.servers.data import ask
from tests.servers.processes import LINUX, Script, processes_in, servers_in
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(not LINUX, reason="this test looks processes up in /proc")

ROUNDS, CROWD, KEYS, ENDLESS = 3, 8, 300, 1_000_000

CLIENT = """
from sbredis.servers import acquire
from sbredis.servers._ask import ask
folder, name, keys = sys.argv[1], sys.argv[2], int(sys.argv[3])
sys.stdin.readline()  # all at once
lease = acquire(folder, linger=0.1, fsync=sys.argv[4])
say(up=True)
written = 0
while written < keys:
    try:
        ask(lease.socket_path, "SET", f"{name}:{written}", written)
    except OSError:
        lease.ensure_running()
        continue
    say(key=f"{name}:{written}")
    written += 1
lease.release()
"""


class Watch:
    """Counts the servers of a folder repeatedly."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self.most = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(0.002):
            self.most = max(self.most, len(servers_in(self._folder)))


@pytest.mark.long("it starts many processes")
@pytest.mark.parametrize("server_is_killed", [False, True], ids=["clients killed", "clients and server killed"])
def test_a_crowd_of_processes_shares_one_server_and_loses_nothing(folder: Path, server_is_killed: bool) -> None:
    """A third of the processes are killed in the middle of their work.

    A killed server may lose what it has acknowledged while its disk was busy, except with ``always``. The last round
    begins while the server may be about to end.
    """
    acknowledged: set[str] = set()
    fsync = "always" if server_is_killed else "everysec"
    with Watch(folder) as watch:
        for number in range(ROUNDS):
            crowd = [
                Script(CLIENT, str(folder), f"{number}-{each}", str(ENDLESS if each % 3 == 0 else KEYS), fsync)
                for each in range(CROWD)
            ]
            try:
                for client in crowd:
                    assert client.process.stdin is not None
                    client.process.stdin.write("go\n")
                    client.process.stdin.flush()
                for index, client in enumerate(crowd):
                    if index % 3 == 0:
                        client.hear()
                        acknowledged.add(client.hear()["key"])
                        client.kill(signal.SIGKILL)
                        if server_is_killed and index == 3:
                            kill_server(folder)
                for index, client in enumerate(crowd):
                    said = {each["key"] for each in client.hear_all() if "key" in each}
                    assert index % 3 == 0 or len(said) == KEYS
                    acknowledged |= said
            finally:
                for client in crowd:
                    client.close()
            if number == 0:
                wait_until(lambda: not processes_in(folder), what="the server outlived its clients")
        with acquire(folder, linger=0) as lease:
            held = ask(lease.socket_path, "KEYS", "*")
    assert isinstance(held, list)
    assert acknowledged - set(map(str, held)) == set()
    assert len(acknowledged) > ROUNDS * CROWD // 2 * KEYS
    assert watch.most == 1


def kill_server(folder: Path) -> None:
    for pid in servers_in(folder):
        os.kill(pid, signal.SIGKILL)
