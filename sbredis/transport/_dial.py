"""Making connections, and the meaning of the errors of making them."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sbredis.exceptions import ServerUnsuitableError
from sbredis.transport._address import Endpoint, Target, TlsOptions
from sbredis.transport._link import HandshakeError, Link, NetworkLink
from sbredis.transport._memory import memory_link, memory_server
from sbredis.transport._replies import Failure, FailureKind, failure_of_reply
from sbredis.transport._resp import ReplyError

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

    from sbredis.transport._script import Script

__all__ = ["Dialer", "accepted", "dialling_failed", "reply_error"]


_NO_CREDENTIALS = (
    "(none were given: put them into the connection string, as in redis://USER:PASSWORD@HOST; those of Sentinels are "
    "its options sentinel_username and sentinel_password)"
)
_NO_DATABASE = (
    "does not have the database of the connection string: its number must be smaller than the server's setting "
    "'databases', which is 16 unless it was changed. Give such a number, or none for database 0."
)
_UNKNOWN_AUTHORITY, _WRONG_NAME = (18, 19, 20, 21), (62, 64)
"""Numbers by which OpenSSL says why it does not accept a certificate."""
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG")
"""The reasons that the TLS library gives for an answer that is not TLS."""


def reply_error(error: BaseException) -> ReplyError | None:
    """Return the error reply with which a server has refused the handshake; ``None`` for another error."""
    return error.reply if isinstance(error, HandshakeError) else None


class Dialer:
    """A maker of unopened connections to the servers of one target, with its credentials and its TLS."""

    def __init__(self, target: Target, credential_provider: CredentialProvider | None, connect_timeout: float) -> None:
        self._target = target
        self._provider = credential_provider
        self._connect_timeout = connect_timeout
        self._memory = memory_server(target.path) if target.kind == "memory" else None
        self._tls = None if target.tls is None else _context_of(target.tls)

    @property
    def secure(self) -> bool:
        """Whether connections over the network use TLS."""
        return self._target.tls is not None

    @property
    def is_cluster(self) -> bool:
        """Whether the servers are a cluster, where a command has the keys and channels of one slot."""
        return self._target.kind == "cluster"

    @property
    def strips_shebang(self) -> bool:
        """Whether scripts are sent without their first line ``#!lua``: fakeredis does not accept this line."""
        return self._memory is not None

    def hand_over(self, script: Script) -> None:
        """Give a script to the servers in memory before it is called.

        So no call is refused for lack of a script, and then overtaken by a later one.
        """
        if self._memory is not None:
            self._memory.take_over(script.sha, script.source)

    def server(self, endpoint: Endpoint, *, protocol: int = 3) -> Link:
        """Return a connection to a data server."""
        if self._memory is not None:
            return memory_link(self._memory, protocol, self._target.database)
        return NetworkLink(
            endpoint,
            self._connect_timeout,
            protocol=protocol,
            credentials=self._credentials,
            database=self._target.database,
            tls=self._context,
        )

    def sentinel(self, endpoint: Endpoint) -> Link:
        """Return a connection to a Sentinel."""
        return NetworkLink(
            endpoint, self._connect_timeout, protocol=3, credentials=self._sentinel_credentials, tls=self._context
        )

    async def _credentials(self) -> Sequence[str]:
        if self._provider is not None:
            return await self._provider.get_credentials_async()
        return _given(self._target.username, self._target.password)

    async def _sentinel_credentials(self) -> Sequence[str]:
        return _given(self._target.sentinel_username, self._target.sentinel_password)

    def _context(self) -> ssl.SSLContext | None:
        return self._tls


def _given(username: str | None, password: str | None) -> Sequence[str]:
    if username:
        return username, password or ""
    return (password,) if password else ()


def dialling_failed(error: BaseException, endpoint: Endpoint) -> Failure:
    """Return the failure that says why a connection could not be opened."""
    reply = reply_error(error)
    if reply is not None:
        failure = failure_of_reply(reply.code, reply.detail, endpoint)
        if failure.code == "NOAUTH":
            failure = failure._replace(detail=_NO_CREDENTIALS)
        if failure.kind is not FailureKind.REFUSED:
            return failure
        said = f"refused the handshake: {reply.code} {reply.detail}"
        why = _NO_DATABASE if "DB index is out of range" in reply.detail else said
        return Failure(FailureKind.UNSUITABLE, f"{endpoint} {why}", endpoint=endpoint)
    reason = str(error)
    for cause in _chain(error):
        if isinstance(cause, ssl.SSLError):
            return Failure(
                FailureKind.UNSUITABLE, f"TLS with {endpoint} failed: {cause}{_hint(cause)}", endpoint=endpoint
            )
        if isinstance(cause, socket.gaierror):
            reason = f"its name cannot be resolved ({cause.strerror})"
        elif isinstance(cause, OSError) and cause.errno:
            reason = os.strerror(cause.errno).lower()
    return Failure(FailureKind.UNREACHABLE, f"{endpoint} cannot be reached: {reason}", endpoint=endpoint)


def accepted(error: BaseException) -> bool:
    """Whether the other side accepted the connection and broke it afterwards."""
    return reply_error(error) is None and not any(
        isinstance(cause, (ConnectionRefusedError, socket.gaierror, TimeoutError, FileNotFoundError))
        for cause in _chain(error)
    )


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and the errors that it was raised from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _hint(error: ssl.SSLError) -> str:
    """Return what to do about an error of TLS, in brackets, or nothing if its own text says it."""
    if isinstance(error, ssl.SSLCertVerificationError):
        if error.verify_code in _UNKNOWN_AUTHORITY:
            return " (to trust the authority that has signed the certificate, give tls_ca=FILE)"
        return " (connect by a name that is in the certificate)" if error.verify_code in _WRONG_NAME else ""
    return " (does the server use TLS? redis:// connects without TLS)" if error.reason in _NOT_TLS else ""


def _context_of(options: TlsOptions) -> ssl.SSLContext:
    """Return how to connect with TLS, or raise an error that names the option whose file cannot be used."""
    ca, certificate, key = options.ca_file, options.certificate_file, options.key_file
    for name, path in {"tls_ca": ca, "tls_cert": certificate, "tls_key": key}.items():
        if path is not None:
            try:
                Path(path).open("rb").close()
            except OSError as error:
                raise ServerUnsuitableError(f"{name}: the file {path} cannot be read: {error.strerror}.") from None
    context = ssl.create_default_context()
    context.check_hostname = options.verify == "full"
    context.verify_mode = ssl.CERT_NONE if options.verify == "none" else ssl.CERT_REQUIRED
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key)
        except ssl.SSLError as error:
            pair = f"{certificate} and the private key {key}" if key else f"{certificate}, without tls_key,"
            raise ServerUnsuitableError(f"tls_cert: {pair} cannot be used: {error}") from None
    if ca is not None:
        try:
            context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise ServerUnsuitableError(f"tls_ca: no certificates can be read from {ca}: {error}") from None
    return context
