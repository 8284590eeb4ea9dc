"""``sbredis upgrade`` and the libraries of functions on the masters."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from sbredis.engine import library_keys, namespace_rules, whole_library
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import key_slot
from tests.access.users import nodes_of, set_user, url_of, without_libraries
from tests.cli.conftest import Bus

pytestmark = pytest.mark.any_form("some users may not load the library")

Running = LocalServer | LocalCluster
OWN = whole_library().name
OLD = [f"sb_{letter * 16}" for letter in "abcdef"]
(KEY,) = library_keys("default")
DAY = 86_400_000
NOTHING = "nothing to do: this release reads and writes layout 2\n"


@pytest.fixture(params=["server", "cluster"])
def running(request: pytest.FixtureRequest) -> Iterator[Running]:
    """A server and a cluster, on which there are no libraries before and after."""
    found: Running = request.getfixturevalue(request.param)
    with without_libraries(found):
        yield found


@pytest.fixture
def with_library(running: Running, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bus:
    """The command that works on the servers as the administrator."""
    return as_user(running.url, capsys, monkeypatch)


def as_user(url: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bus:
    return Bus(f"{url}?scripts=auto", capsys, monkeypatch)


def load_old(running: Running) -> None:
    """Load libraries of six other releases on all masters."""
    for node in nodes_of(running):
        for name in OLD:
            node.ask("FUNCTION", "LOAD", f"#!lua name={name}\nredis.register_function('{name}_x', function() end)")


def write(running: Running, named: dict[str, int]) -> None:
    """Let the registry have these times."""
    node = running.master_of(key_slot(KEY)) if isinstance(running, LocalCluster) else running
    node.ask("HSET", KEY.decode(), *(str(part) for pair in named.items() for part in pair))


def loaded(running: Running) -> list[set[str]]:
    """Return the libraries on each master."""
    texts = [str(node.ask("FUNCTION", "LIST")) for node in nodes_of(running)]
    return [{name for name in (OWN, *OLD) if f"'{name}'" in text} for text in texts]


def test_the_plan_names_each_library_of_each_master_and_the_upgrade_carries_it_out(
    running: Running, with_library: Bus
) -> None:
    load_old(running)
    now = round(time.time() * 1000)
    write(running, {OLD[0]: now - 9 * DAY, OLD[1]: now - 8 * DAY, OLD[2]: now - DAY})
    assert with_library.run("upgrade", "--plan").code == 3
    ran = with_library.run("upgrade", "--plan", "--output", "json")
    assert ran.code == 3
    assert loaded(running) == [set(OLD)] * len(nodes_of(running))
    namespace, *libraries = ran.json
    assert namespace == {"name": "default", "kind": "namespace", "layout": "2", "to_do": None}
    assert len(libraries) == 7 * len(nodes_of(running))
    assert {each["kind"] for each in libraries} == {"library"}
    assert len({each["server"] for each in libraries}) == len(nodes_of(running))
    to_do = {(each["name"], each["release"], each["to_do"]) for each in libraries} - {(OWN, "this", "load it")}
    assert to_do == {(name, "other", "delete it" if name in OLD[:2] else None) for name in OLD}
    named = {each["name"]: each["last_named"] for each in libraries}
    assert named[OLD[0]] == datetime.fromtimestamp((now - 9 * DAY) / 1000, UTC).isoformat()
    assert named[OLD[5]] is None
    ran = with_library.run("upgrade")
    assert ran.code == 0
    assert loaded(running) == [{OWN, *OLD[2:]}] * len(nodes_of(running))
    assert ran.out.count("delete it") == 2 * len(nodes_of(running))
    ran = with_library.run("upgrade", "--plan")
    assert (ran.code, ran.err) == (0, NOTHING)


def test_after_an_upgrade_users_who_may_not_load_call_functions(
    cluster: LocalCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for node in cluster.nodes:
        node.ask("FUNCTION", "FLUSH")
    set_user(cluster, "orders", namespace_rules("default"))
    user = Bus(f"{url_of(cluster, 'orders')}?scripts=library", capsys, monkeypatch)
    assert user.run("queue", "create", "q", "--enable-partitioning").code == 1
    assert as_user(cluster.url, capsys, monkeypatch).run("upgrade").code == 0
    assert loaded(cluster) == [{OWN}] * 3
    user.did("queue", "create", "q", "--enable-partitioning")
    user.did("send", "q", "m")
    for node in cluster.nodes:
        node.ask("FUNCTION", "FLUSH")


@pytest.mark.parametrize(
    ("rights", "said"),
    [
        ([], "the libraries of functions on {server} are not shown: "),
        (["+function|list"], f"could not delete {OLD[0]} on {{server}}: "),
    ],
)
def test_without_the_rights_the_command_does_the_rest_and_says_what_it_left(
    server: LocalServer,
    rights: list[str],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server.ask("FUNCTION", "FLUSH")
    load_old(server)
    write(server, dict.fromkeys(OLD, 1))
    set_user(server, "orders", [*namespace_rules("default"), *rights])
    ran = as_user(url_of(server, "orders"), capsys, monkeypatch).run("upgrade")
    assert ran.code == 0
    assert said.format(server=f"{server.host}:{server.port}") in ran.err
    assert loaded(server) == [set(OLD)]
    server.ask("FUNCTION", "FLUSH")


def test_only_an_option_gives_the_right_to_load_a_library(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = Bus("", capsys, monkeypatch)
    loading = {"+function|load", "+function|list", "+function|delete"}
    calls = {"+fcall", "+fcall_ro"}
    given = {
        option: set(bus.run_plain("acl", "namespace", "orders", *option.split(), "--output", "json").json["rules"])
        for option in ("", "--may-load-library", "--scripts-loaded")
    }
    assert given["--may-load-library"] - given[""] == loading
    assert not loading & given[""]
    assert calls <= given[""]
    assert not {*calls, *loading, "+script|load", "+evalsha"} & given["--scripts-loaded"]
    assert f"+fcall|{OWN}_send" in given["--scripts-loaded"]
    ran = bus.run_plain("acl", "namespace", "orders", "--may-load-library", "--scripts-loaded")
    assert ran.code == 2
    assert "--scripts-loaded and --may-load-library exclude each other" in ran.err
