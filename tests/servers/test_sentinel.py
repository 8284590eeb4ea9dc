"""A master, its replicas and their sentinels: the sentinels replace a killed master."""

from __future__ import annotations

from sbredis.servers import LocalSentinel
from tests.servers.processes import is_running


def test_sentinels_replace_a_killed_master() -> None:
    with LocalSentinel(2, config={"requirepass": "secret"}) as deployment:
        assert deployment.url.startswith("redis+sentinel://127.0.0.1:")
        assert deployment.url.endswith("/mymaster")
        assert deployment.url.count(",") == 2
        assert deployment.master is deployment.servers[0]
        pids = [each.pid for each in (*deployment.servers, *deployment.sentinels)]
        deployment.master.ask("SET", "k", "v")
        killed = deployment.kill_master()
        deployment.wait_until_ok()
        assert deployment.master is not killed
        assert deployment.master.ask("GET", "k") == "v"
    assert not any(map(is_running, pids))
