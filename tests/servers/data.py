"""Data folders for the tests of this folder: what they hold, and how a test damages it."""

from __future__ import annotations

import stat
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sbredis.servers import ServerBinary, acquire
from sbredis.servers._ask import Reply, ask
from tests.servers.processes import processes_in
from tests.waiting import wait_until

__all__ = ["Reply", "ask", "content", "gone", "keys_of", "last_increment", "modes", "write_data"]


def write_data(folder: Path, count: int = 10, *, binary: ServerBinary | None = None) -> Path:
    """Make the folder of a server that has stored ``k0`` to ``k9`` and ended. Return the file to which it wrote."""
    folder.mkdir(mode=0o700, parents=True)
    for name, data in _written(count, binary).items():
        if data is None:
            (folder / name).mkdir(mode=0o700)
        else:
            (folder / name).write_bytes(data)
            (folder / name).chmod(0o600)
    return last_increment(folder)


@cache
def _written(count: int, binary: ServerBinary | None) -> dict[str, bytes | None]:
    """Let a server store keys and end, once for all tests of this process. Return the content of its folder."""
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "data"
        with acquire(folder, linger=0, binary=binary, timeout=60) as lease:
            for number in range(count):
                ask(lease.socket_path, "SET", f"k{number}", "v" * 100)
        gone(folder)
        return content(folder)


def gone(folder: Path) -> None:
    """Wait until no server runs in a folder."""
    wait_until(lambda: not processes_in(folder), what="the server or its supervisor did not end")


def last_increment(folder: Path) -> Path:
    return max((folder / "appendonlydir").glob("*.incr.aof"), key=lambda path: int(path.name.split(".")[2]))


def keys_of(folder: Path, *, binary: ServerBinary | None = None) -> set[str]:
    """Return the keys that a server finds in a folder."""
    with acquire(folder, linger=0, binary=binary, timeout=60) as lease:
        found = ask(lease.socket_path, "KEYS", "*")
    gone(folder)
    assert isinstance(found, list)
    return set(map(str, found))


def content(folder: Path) -> dict[str, bytes | None]:
    """Return the content of all files of a folder, to compare it."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
        if not path.is_socket()
    }


def modes(folder: Path) -> set[str]:
    """Return who may use the files and folders below a folder."""
    return {
        f"{'folder' if path.is_dir() else 'file'} {stat.S_IMODE(path.stat().st_mode):o}" for path in folder.rglob("*")
    }
