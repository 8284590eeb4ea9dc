"""Users with a password, and users with few rights: no text shows a password, there is one warning, and calls work."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from redis.credentials import CredentialProvider, UsernamePasswordCredentialProvider

from sbredis.exceptions import (
    Outcome,
    ServerUnsuitableError,
    ServiceBusAuthenticationError,
    ServiceBusAuthorizationError,
    ServiceBusConnectionError,
)
from sbredis.servers import LocalCluster, LocalServer
from sbredis.transport import open_transport
from tests.transport.ears import Ear
from tests.transport.opening import function, opened
from tests.waiting import given_time

pytestmark = pytest.mark.any_form("some users may not call functions")

COUNT = function("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")
PASSWORD = "p@ss:w/rd?#%&"
USERS = [
    f"app on >{PASSWORD} ~* &* +@all",
    "caller on >pw ~* +evalsha +incrby",
    "loader on >pw ~* +evalsha +incrby +script|load",
    "reader on >pw ~* +@all -config -acl -client -cluster -script",
    "nobody on >pw",
    "no_scripts on >pw ~* +@all -evalsha -eval -fcall",
]


@pytest.fixture(scope="module")
def guarded(binary: str | None) -> Iterator[LocalServer]:
    """A server with a password, and users with more and fewer rights."""
    with LocalServer(binary=binary, config={"requirepass": PASSWORD, "user": USERS}) as server:
        yield server


@pytest.fixture
def address(guarded: LocalServer) -> str:
    """The host and port of this server, which is empty and has no scripts."""
    guarded.ask("FLUSHALL")
    guarded.ask("SCRIPT", "FLUSH")
    return f"127.0.0.1:{guarded.port}"


async def test_without_credentials_the_error_says_where_to_put_them(address: str) -> None:
    with pytest.raises(ServiceBusAuthenticationError, match=r"none were given.*redis://USER:PASSWORD@HOST"):
        await open_transport(f"redis://{address}")


@pytest.mark.parametrize("who", [":{}@", "default:{}@", "app:{}@"])
async def test_a_password_in_the_url_is_used(address: str, who: str) -> None:
    url = "redis://" + who.format(quote(PASSWORD, safe="")) + address
    async with await opened(url, scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, [b"k"], [1]) == 1
        await transport.subscribe(b"c", Ear())


@pytest.mark.parametrize("who", ["", ":hunter2hunter2@", "app:hunter2hunter2@", "stranger:hunter2hunter2@"])
async def test_wrong_and_missing_passwords_are_reported_without_the_password(
    address: str, who: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ServiceBusAuthenticationError) as caught:
        await open_transport(f"redis://{who}{address}")
    assert address in str(caught.value)
    assert (caught.value.is_transient, caught.value.outcome) == (False, Outcome.NEVER_SENT)
    assert "hunter2" not in f"{caught.value} {caught.value!r} {caught.value.__cause__!r} {caplog.text}"


class Vault(CredentialProvider):
    """Provides credentials, and counts how often it was asked."""

    def __init__(self, *answers: tuple[str, str] | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0

    def get_credentials(self) -> tuple[str, str]:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_credential_provider_of_redis_py_can_be_used(address: str) -> None:
    provider = UsernamePasswordCredentialProvider("app", PASSWORD)
    async with await opened(f"redis://{address}", scripts=[COUNT], credential_provider=provider) as transport:
        assert await transport.call(COUNT, [b"k"], [1]) == 1


async def test_a_credential_provider_is_asked_for_every_connection(guarded: LocalServer, address: str) -> None:
    vault = Vault(("stranger", "x"), ("app", PASSWORD))
    with pytest.raises(ServiceBusAuthenticationError):
        await open_transport(f"redis://{address}", credential_provider=vault)
    async with await opened(f"redis://{address}", scripts=[COUNT], credential_provider=vault) as transport:
        assert vault.asked == 2
        await transport.subscribe(b"c", Ear())
        assert vault.asked == 3
        guarded.ask("CLIENT", "KILL", "TYPE", "normal")
        assert await transport.call(COUNT, [b"k"], [1], repeatable=True) == 1
        assert vault.asked >= 4


async def test_a_failing_credential_provider_is_reported_with_its_error(address: str) -> None:
    vault = Vault(KeyError("the vault is sealed"))
    error = await given_time(
        lambda seconds: open_transport(f"redis://{address}", credential_provider=vault, connect_timeout=seconds),
        "KeyError: 'the vault is sealed'",
    )
    assert isinstance(error, ServiceBusConnectionError)
    assert error.is_transient


async def test_a_temporary_failure_of_a_credential_provider_does_not_end_the_transport(
    guarded: LocalServer, address: str
) -> None:
    """Neither calls nor subscriptions end because of it."""
    good, bad = ("app", PASSWORD), KeyError("the vault is sealed")
    vault = Vault(good, good, bad, bad, bad, bad, good)
    async with await opened(f"redis://{address}", scripts=[COUNT], credential_provider=vault) as transport:
        ear = Ear()
        await transport.subscribe(b"c", ear)
        guarded.ask("CLIENT", "KILL", "TYPE", "normal")
        guarded.ask("CLIENT", "KILL", "TYPE", "pubsub")
        assert await transport.call(COUNT, [b"k"], [1], repeatable=True) == 1
        await transport.subscribe(b"other", ear)


# -- few rights --------------------------------------------------------------------------------------------------------


async def test_a_user_who_may_only_call_scripts_connects_with_one_warning(
    guarded: LocalServer, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The server has the scripts already. The user cannot read some facts about the server; the client accepts this."""
    guarded.ask("SCRIPT", "LOAD", COUNT.source)
    async with await opened(f"redis://caller:pw@{address}", scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, [b"k"], [1]) == 1
        assert await asyncio.gather(*(transport.call(COUNT, [b"k"], [1]) for _ in range(50)))
        (facts,) = transport.servers
        assert (facts.version, facts.run_id, facts.scripts) == (None, b"?", "allowed")
    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    said = warning.getMessage()
    assert [word for word in (address, "INFO", "maxmemory-policy", "appendfsync") if word not in said] == []


async def test_a_missing_script_that_the_user_may_not_load_is_an_error(address: str) -> None:
    async with await opened(f"redis://caller:pw@{address}", scripts=[COUNT]) as transport:
        with pytest.raises(
            ServiceBusAuthorizationError, match=r"does not hold script count.*Permit SCRIPT LOAD"
        ) as caught:
            await transport.call(COUNT, [b"k"], [1])
        assert caught.value.outcome is Outcome.NEVER_SENT


async def test_a_user_who_may_load_scripts_loads_them(address: str) -> None:
    async with await opened(f"redis://loader:pw@{address}", scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, [b"k"], [1]) == 1


async def test_there_is_no_warning_if_the_user_can_read_all_facts(
    guarded: LocalServer, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    guarded.ask("SCRIPT", "LOAD", COUNT.source)
    async with await opened(f"redis://reader:pw@{address}", scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, [b"k"], [1]) == 1
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    (warning,) = [each for each in warnings if "not permitted to read" in each]
    assert "appendfsync" in warning
    assert "INFO" not in warning


@pytest.mark.parametrize("user", ["nobody", "no_scripts"])
async def test_a_user_who_may_not_call_scripts_is_refused(address: str, user: str) -> None:
    with pytest.raises(ServerUnsuitableError, match="Permit EVALSHA"):
        await opened(f"redis://{user}:pw@{address}", scripts=[COUNT])


async def test_a_user_with_rights_to_single_scripts_can_connect(guarded: LocalServer, address: str) -> None:
    """SECURITY.md recommends these rights: `+evalsha|<sha>` for each script, while another user loads the scripts."""
    guarded.ask("SCRIPT", "LOAD", COUNT.source)
    permitted = ("+hello", "+auth", "+info", "+config|get", "+incrby", f"+evalsha|{COUNT.sha}")
    guarded.ask("ACL", "SETUSER", "certain", "on", ">pw", "~*", "-@all", *permitted)
    async with await opened(f"redis://certain:pw@{address}", scripts=[COUNT]) as transport:
        assert await transport.call(COUNT, [b"certain"], [1]) == 1


async def test_a_server_that_has_renamed_evalsha_is_refused(binary: str | None) -> None:
    config = {"rename-command": 'EVALSHA ""'}
    with (
        LocalServer(binary=binary, config=config) as server,
        pytest.raises(ServerUnsuitableError, match="its renaming"),
    ):
        await open_transport(server.url)


async def test_a_right_that_is_missing_inside_a_script_leaves_the_outcome_unknown(address: str) -> None:
    script = function("set", "return redis.call('SET', KEYS[1], 1)")
    async with await opened(f"redis://loader:pw@{address}", scripts=[script]) as transport:
        with pytest.raises(Exception, match="script set failed halfway") as caught:
            await transport.call(script, [b"k"])
        assert getattr(caught.value, "outcome", None) is Outcome.UNKNOWN


async def test_each_server_of_a_cluster_causes_one_warning_and_the_slot_map_needs_only_cluster_slots(
    cluster: LocalCluster, caplog: pytest.LogCaptureFixture
) -> None:
    rights = ("on", ">pw", "~*", "+evalsha", "+incrby", "+cluster|slots", "+script|load")
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "few", *rights)
    try:
        url = cluster.url.replace("://", "://few:pw@")
        async with await opened(url, scripts=[COUNT]) as transport:
            for number in range(20):
                assert await transport.call(COUNT, [b"k%d" % number], [1]) == 1
    finally:
        for node in cluster.nodes:
            node.ask("ACL", "DELUSER", "few")
    warnings = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 3
    assert all(any(f"127.0.0.1:{node.port}" in warning for warning in warnings) for node in cluster.nodes)


async def test_a_cluster_user_without_the_right_to_the_slot_map_is_refused(cluster: LocalCluster) -> None:
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "blind", "on", ">pw", "~*", "+evalsha")
    try:
        with pytest.raises(ServiceBusAuthorizationError, match="cluster"):
            await open_transport(cluster.url.replace("://", "://blind:pw@"))
    finally:
        for node in cluster.nodes:
            node.ask("ACL", "DELUSER", "blind")
