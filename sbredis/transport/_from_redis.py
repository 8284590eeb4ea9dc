"""The target of a redis-py client: its addresses, credentials and TLS settings. Pure; redis-py is not imported."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sbredis.transport._address import Endpoint, Target, TlsOptions

if TYPE_CHECKING:
    from redis.credentials import CredentialProvider

__all__ = ["target_of"]


def target_of(client: Any) -> tuple[Target, CredentialProvider | None]:
    """Return the target and the credentials of a ``Redis`` or ``RedisCluster`` of redis-py, asynchronous or not.

    Raises :class:`TypeError` for anything else, and :class:`ValueError` for settings that cannot be taken over.
    """
    manager = getattr(client, "nodes_manager", None)
    if manager is not None:
        nodes = list(getattr(manager, "startup_nodes", {}).values())
        options: Mapping[str, Any] = getattr(manager, "connection_kwargs", None) or client.connection_kwargs
        endpoints = tuple(dict.fromkeys(Endpoint(str(node.host), int(node.port)) for node in nodes))
        if not endpoints:
            raise ValueError("The cluster client has no node.")
        return _target("cluster", endpoints, options, secure=_is_secure(options, None)), _provider(options)
    pool = getattr(client, "connection_pool", None)
    if pool is None or not hasattr(pool, "connection_kwargs"):
        raise TypeError(f"A redis.asyncio.Redis or RedisCluster is needed, not {type(client).__name__}.")
    if hasattr(pool, "sentinel_manager"):
        raise ValueError(
            "A client that was made by a Sentinel client cannot be used here: use a redis+sentinel:// connection "
            "string."
        )
    options = pool.connection_kwargs
    if options.get("path"):
        return _target("unix", (Endpoint(str(options["path"]), 0),), options, secure=False), _provider(options)
    endpoint = Endpoint(str(options.get("host", "localhost")), int(options.get("port", 6379)))
    secure = _is_secure(options, getattr(pool, "connection_class", None))
    return _target("standalone", (endpoint,), options, secure=secure), _provider(options)


def _provider(options: Mapping[str, Any]) -> CredentialProvider | None:
    provider: CredentialProvider | None = options.get("credential_provider")
    return provider


def _is_secure(options: Mapping[str, Any], connection: type | None) -> bool:
    return bool(options.get("ssl")) or (connection is not None and "SSL" in connection.__name__)


def _target(kind: Any, endpoints: tuple[Endpoint, ...], options: Mapping[str, Any], *, secure: bool) -> Target:
    tls: TlsOptions | None = None
    if secure:
        required = str(options.get("ssl_cert_reqs", "required")).rpartition(".")[2].lower()
        unverified = required in ("none", "cert_none", "0")
        checks_name = bool(options.get("ssl_check_hostname", True))
        tls = TlsOptions(
            verify="none" if unverified else "full" if checks_name else "ca",
            ca_file=options.get("ssl_ca_certs"),
            certificate_file=options.get("ssl_certfile"),
            key_file=options.get("ssl_keyfile"),
        )
        taken_not_over = [name for name in ("ssl_ca_data", "ssl_ca_path", "ssl_password") if options.get(name)]
        if taken_not_over:
            raise ValueError(f"{', '.join(taken_not_over)} cannot be used here: name files in a connection string.")
    return Target(
        kind=kind,
        endpoints=endpoints,
        path=endpoints[0].host if kind == "unix" else "",
        username=options.get("username"),
        password=options.get("password"),
        database=int(options.get("db") or 0),
        tls=tls,
    )
