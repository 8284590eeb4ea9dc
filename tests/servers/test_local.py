"""A separate server for tests: a test starts, kills, pauses and restarts it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from sbredis.exceptions import ScriptRefusedError, ServerUnsuitableError
from sbredis.servers import LocalServer, ServerBinary, _local, free_port
from tests.servers.processes import is_running


def test_a_local_server_answers_on_the_loopback_address(binary: ServerBinary) -> None:
    with LocalServer(binary=binary) as server:
        assert server.url == f"redis://127.0.0.1:{server.port}"
        assert server.address == ("127.0.0.1", server.port)
        assert server.ask("PING") == "PONG"
        assert server.ask("CONFIG", "GET", "bind") == ["bind", "127.0.0.1"]
        pid = server.pid
    assert not is_running(pid)


def test_a_local_server_answers_on_a_unix_socket(binary: ServerBinary) -> None:
    with LocalServer(binary=binary, unix_socket=True) as server:
        assert server.url == f"unix://{server.address}"
        assert server.ask("CONFIG", "GET", "port") == ["port", "0"]
        server.restart()
        assert server.ask("PING") == "PONG"


def test_a_restarted_server_has_the_same_port_and_the_persisted_data(binary: ServerBinary) -> None:
    with LocalServer(binary=binary, config={"appendonly": "yes", "appendfsync": "always"}) as server:
        server.ask("SET", "k", "v")
        port, pid = server.port, server.pid
        server.kill()
        assert not server.is_alive()
        server.restart()
        assert (server.port, server.ask("GET", "k")) == (port, "v")
        assert server.pid != pid


def test_restart_shuts_a_running_server_down_cleanly() -> None:
    with LocalServer() as server:
        pid = server.pid
        server.restart()
        assert server.pid != pid
        assert not is_running(pid)


def test_a_local_server_persists_data_only_on_request() -> None:
    with LocalServer() as server:
        server.ask("SET", "k", "v")
        server.restart()
        assert server.ask("GET", "k") is None


def test_a_directory_made_by_the_server_is_removed_and_a_given_one_is_kept(tmp_path: Path) -> None:
    with LocalServer() as server:
        own = server.directory
        assert own.is_dir()
    assert not own.exists()
    given = tmp_path / "a folder"
    with LocalServer(directory=given, config={"appendonly": "yes"}) as server:
        server.ask("SET", "k", "v")
    with LocalServer(directory=given, config={"appendonly": "yes"}) as server:
        assert server.ask("GET", "k") == "v"


def test_a_paused_server_stays_alive_but_does_not_answer_until_it_is_resumed() -> None:
    with LocalServer() as server:
        server.pause()
        assert server.is_alive()
        with pytest.raises(TimeoutError):
            server.ask("PING", timeout=0.1)
        server.resume()
        assert server.ask("PING") == "PONG"


def test_a_configuration_key_can_be_given_several_times() -> None:
    users = ["one on nopass ~* +@all", "two on nopass ~* +@all"]
    with LocalServer(config={"user": users, "MAXCLIENTS": "50"}) as server:
        assert server.ask("ACL", "USERS") == ["default", "one", "two"]
        assert server.ask("CONFIG", "GET", "maxclients") == ["maxclients", "50"]


def test_a_password_of_the_configuration_is_used() -> None:
    with LocalServer(config={"requirepass": "secret"}) as server:
        assert server.ask("PING") == "PONG"


def test_a_server_that_refuses_clients_still_counts_as_started() -> None:
    with LocalServer(config={"user": "default off"}) as server, pytest.raises(ScriptRefusedError, match="NOAUTH"):
        server.ask("PING")


def test_the_error_quotes_a_server_that_refuses_its_configuration() -> None:
    with pytest.raises(ServerUnsuitableError, match="no-such-key"):
        LocalServer(config={"no-such-key": "1"}).start()


def test_a_port_that_another_program_has_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = iter([taken.getsockname()[1], free_port()])
        monkeypatch.setattr(_local, "free_port", lambda: next(ports))
        with LocalServer() as server:
            assert server.port != taken.getsockname()[1]


def test_another_server_at_the_port_is_not_used_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    with LocalServer() as other:
        ports = iter([other.port, free_port()])
        monkeypatch.setattr(_local, "free_port", lambda: next(ports))
        with LocalServer() as server:
            assert server.port != other.port


def test_stopping_a_server_that_was_not_started_has_no_effect() -> None:
    server = LocalServer()
    server.stop()
    server.kill()
    assert not server.is_alive()
    with pytest.raises(RuntimeError):
        _ = server.pid


def test_no_free_port_is_returned_twice() -> None:
    ports = [free_port() for _ in range(200)]
    assert len(set(ports)) == len(ports)
