"""Connection strings: from text to a :class:`Target`, without using a network.

::

    redis://[user[:password]@]host[:port][/db]            one server             rediss:// with TLS
    redis+cluster://[user[:password]@]host[:port],host…   Redis Cluster          rediss+cluster://
    redis+sentinel://[…@]host[:port],host…/master-name    Redis Sentinel         rediss+sentinel://
    unix://[user[:password]@]/path/to/socket              one server, by socket
    embedded:///folder  (or embedded://relative/folder)   a server that sbredis runs in that folder
    memory://name                                         fakeredis in this process, for tests

Options follow as a query: ``?namespace=orders&durability=replicated``. The error for a malformed string names the
wrong part, and never shows a password.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address
from typing import Any, Literal, NamedTuple
from urllib.parse import unquote

from sbredis._quoting import quoted
from sbredis.exceptions import InvalidConnectionStringError

__all__ = ["DEFAULT_NAMESPACE", "Durability", "Endpoint", "Target", "TlsOptions", "parse_target", "redacted"]

Kind = Literal["standalone", "cluster", "sentinel", "unix", "embedded", "memory"]
Durability = Literal["master", "replicated", "fsync"]
Verification = Literal["full", "ca", "none"]

DEFAULT_NAMESPACE = "default"

_SCHEMES: Mapping[str, tuple[Kind, bool]] = {
    "redis": ("standalone", False),
    "rediss": ("standalone", True),
    "redis+cluster": ("cluster", False),
    "rediss+cluster": ("cluster", True),
    "redis+sentinel": ("sentinel", False),
    "rediss+sentinel": ("sentinel", True),
    "unix": ("unix", False),
    "embedded": ("embedded", False),
    "memory": ("memory", False),
}
_NETWORKED = ("standalone", "cluster", "sentinel")
_REDIS_PORT, _SENTINEL_PORT = 6379, 26379
_LONGEST_SHOWN = 300
_NAMESPACE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,48}[A-Za-z0-9])?")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*\.?")
_DIGITS = re.compile(r"[0-9]{1,9}")
_AZURE = re.compile(r"\s*Endpoint\s*=", re.IGNORECASE)
_SECRET = re.compile(r"((?:password|key|secret|token|signature)[^=;]{0,1000}=)[^;]*", re.IGNORECASE)
_MEMORY_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


class Endpoint(NamedTuple):
    """The address of one server: host and port.

    With port 0, ``host`` is the path of a unix socket, or the URL of a server in this process.
    """

    host: str
    port: int

    def __str__(self) -> str:
        if not self.port:
            return self.host if "://" in self.host else f"unix:{self.host}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class TlsOptions(NamedTuple):
    """The checks of a TLS connection, and the certificate that it presents."""

    verify: Verification = "full"
    """``full``: certificate and host name; ``ca``: certificate only; ``none``: neither."""
    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed connection string. Its ``repr`` never shows a password."""

    kind: Kind
    endpoints: tuple[Endpoint, ...] = ()
    path: str = ""
    """The path of the unix socket or of the embedded folder, or the name of the in-memory server."""
    master_name: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    sentinel_username: str | None = None
    sentinel_password: str | None = field(default=None, repr=False)
    database: int = 0
    tls: TlsOptions | None = None
    namespace: str = DEFAULT_NAMESPACE
    durability: Durability = "master"
    embedded_fsync: Literal["everysec", "always"] = "everysec"
    replicas: int | None = None
    """The number of replicas of a shard that ``durability=replicated`` waits for; ``None`` for the number that the
    servers report.
    """
    scripts: Literal["auto", "library", "needed", "all"] = "auto"
    """The form of the scripts. ``library``: all of them as one library of functions. ``auto``: the same, but single
    scripts on a server that refuses the library. ``needed``: single scripts, loaded when a call needs one and the
    server lacks it. ``all``: single scripts, loaded when a connection opens.
    """

    @property
    def has_library(self) -> bool:
        """Whether calls are sent as functions of a library, where the server takes it."""
        return self.scripts in ("auto", "library") and self.kind != "memory"

    def __str__(self) -> str:
        where = ",".join(map(str, self.endpoints)) or self.path
        return f"{self.kind} {where}"


def parse_target(text: str) -> Target:
    """Parse a connection string. Raises :class:`InvalidConnectionStringError`, which names the wrong part."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # for callers without type checks
        raise InvalidConnectionStringError(f"A connection string must be text, not {type(text).__name__}.")
    return _TargetParser(text).target()


def redacted(text: str) -> str:
    """Return the connection string for logs and errors: anything that may be a secret is replaced.

    This also works for malformed strings: any text in a place for a secret is treated as a secret.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or not _SCHEME.fullmatch(scheme):
        return _SECRET.sub(r"\1***", text) if _AZURE.match(text) else "***"
    before, at, rest = rest.rpartition("@")
    option = re.search("[?&]", before)
    if option is not None and "=" in before[option.end() :]:
        return f"{scheme}://***"  # the '@' may be in the middle of a password in an option
    location, mark, query = rest.partition("?")
    if not at and scheme.lower() not in ("unix", "embedded", "memory"):
        # Without an '@' the text in the place of a port may be a password: redis://user:password.
        location = re.sub(r"(\[[^\]]*\])|:(?!\d{1,5}(?:[,/]|\Z))[^,/]+", lambda found: found[1] or ":***", location)
    if scheme.lower() not in ("unix", "embedded"):  # an option that follows no '?', such as /master&password=…
        location = re.sub(r"[&=].*", "***", location, flags=re.DOTALL)
    options = [_hidden(option) for option in query.split("&")]
    return f"{scheme}://{'***@' if at else ''}{location}{mark}{'&'.join(options)}"


def _hidden(option: str) -> str:
    name, equals, value = option.partition("=")
    if name not in _OPTIONS:
        return "***" if option else ""
    return f"{name}={'***' if 'password' in name else value}" if equals else name


class _TargetParser:
    def __init__(self, text: str) -> None:
        self.text = text

    def wrong(self, part: str, why: str) -> InvalidConnectionStringError:
        return InvalidConnectionStringError(
            f"Connection string {quoted(redacted(self.text), _LONGEST_SHOWN)}: {part}: {why}"
        )

    def target(self) -> Target:
        text = self.text
        if _AZURE.match(text):
            raise InvalidConnectionStringError(
                "This is a connection string of Azure Service Bus; sbredis connects to Redis or Valkey. "
                "Use redis://HOST:6379?namespace=NAME, redis+cluster://HOST:6379?namespace=NAME, "
                "embedded:///FOLDER, or memory://NAME in tests."
            )
        scheme, separator, rest = text.partition("://")
        if not separator:
            raise InvalidConnectionStringError(
                "Connection string: scheme: there is no '://' in it. It starts with one of "
                f"{', '.join(name + '://' for name in _SCHEMES)}."
            )
        if scheme.lower() not in _SCHEMES:
            named = quoted(scheme) if _SCHEME.fullmatch(scheme) else "the text before '://'"
            raise self.wrong("scheme", f"{named} is not one of {', '.join(_SCHEMES)}")
        if any(ord(character) < 33 or ord(character) == 127 for character in text):
            raise self.wrong("characters", "white space and control characters must be percent-encoded")
        kind, secure = _SCHEMES[scheme.lower()]
        if "#" in rest:
            raise self.wrong("'#'", "a fragment has no meaning here; in a password write %23")
        location, _, query = rest.partition("?")
        if "@" in (rest[len(rest.split("/")[0].split("?")[0]) :] if kind in _NETWORKED else query):
            raise self.wrong(
                "credentials", "there is an '@' after '/' or '?': percent-encode '/', '?' and '@' (%2F, %3F, %40)"
            )
        if kind in _NETWORKED and re.search("[&=]", location.rpartition("@")[2]):
            raise self.wrong("'&' or '='", "options follow a '?'; elsewhere write %26 for '&' and %3D for '='")
        options = self.options(kind, secure, query)
        if kind == "memory":
            return self.memory(location, options)
        if kind == "embedded":
            return self.embedded(location, options)
        authority, slash, path = location.partition("/")
        credentials, at, hosts = authority.rpartition("@")
        username, password = self.credentials(credentials) if at else (None, None)
        if kind == "unix":
            return self.unix(hosts, slash + path, username, password, options)
        endpoints = self.endpoints(hosts, _SENTINEL_PORT if kind == "sentinel" else _REDIS_PORT)
        if kind == "standalone" and len(endpoints) > 1:
            raise self.wrong("host", "several hosts need redis+cluster:// or redis+sentinel://")
        database, master_name = self.path(kind, path, options.pop("db", None))
        return Target(
            kind=kind,
            endpoints=endpoints,
            master_name=master_name,
            username=username,
            password=password,
            database=database,
            **options,
        )

    # -- the parts of a connection string ------------------------------------------------------------------------------

    def credentials(self, text: str) -> tuple[str | None, str | None]:
        if "@" in text:
            raise self.wrong("credentials", "an '@' in the user name or password must be written %40")
        username, colon, password = text.partition(":")
        return (self.decoded("user name", username) or None), (self.decoded("password", password) if colon else None)

    def decoded(self, part: str, text: str) -> str:
        try:
            decoded = unquote(text, errors="strict")
        except UnicodeDecodeError:
            raise self.wrong(part, "its percent-encoded part is not UTF-8") from None
        if "\0" in decoded and "password" not in part:
            raise self.wrong(part, "there is a zero byte in it")
        return decoded

    def endpoints(self, text: str, default_port: int) -> tuple[Endpoint, ...]:
        if not text:
            raise self.wrong("host", "it is missing")
        found: list[Endpoint] = []
        for item in text.split(","):
            bracketed = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", item)
            if bracketed:
                host, port = unquote(bracketed[1]), bracketed[2]
                if not _is_ipv6(host):
                    raise self.wrong("host", f"{quoted(bracketed[1])} is not an IPv6 address")
            elif item.count(":") > 1 or "[" in item or "]" in item:
                raise self.wrong("host", "an IPv6 address needs brackets, as in [::1]:6379")
            else:
                host, colon, after = item.partition(":")
                port = after if colon else None
                if not host:
                    raise self.wrong(
                        "host", "it is missing" if len(text) == len(item) else "a host in the list is empty"
                    )
                if not _HOST.fullmatch(host):
                    raise self.wrong("host", f"{quoted(host)} is not a host name or address")
            endpoint = Endpoint(host, self.port(port, default_port))
            if endpoint not in found:
                found.append(endpoint)
        return tuple(found)

    def port(self, text: str | None, default: int) -> int:
        if text is None:
            return default
        if not _DIGITS.fullmatch(text) or not 1 <= int(text) <= 65535:
            # Show the text only if it is a number. Any other text may be a password, if the host was forgotten.
            what = text if _DIGITS.fullmatch(text) else "the text after ':'"
            raise self.wrong("port", f"{what} is not a number from 1 to 65535")
        return int(text)

    def path(self, kind: Kind, path: str, option: int | None) -> tuple[int, str]:
        """Return the database and the master's name, from the path after the hosts."""
        first, _, more = path.partition("/")
        master_name = ""
        if kind == "sentinel":
            master_name = self.decoded("master name", first)
            if not master_name:
                raise self.wrong(
                    "master name", "redis+sentinel://host:26379/NAME names the master that Sentinel watches"
                )
            first, _, more = more.partition("/")
        if more:
            raise self.wrong("path", f"nothing is expected after {quoted('/' + first)}")
        if first and option is not None:
            raise self.wrong("db", "it is given twice, in the path and in the query")
        database = option or 0
        if first:
            database = self.number("database", first, 0, 100_000)
        if kind == "cluster" and database:
            raise self.wrong("database", "a cluster has only database 0; use namespace= to separate applications")
        return database, master_name

    def unix(
        self, before: str, path: str, username: str | None, password: str | None, options: dict[str, Any]
    ) -> Target:
        if before or not path.strip("/"):
            raise self.wrong("path", "unix:///path/to/socket takes an absolute path")
        path = self.decoded("path", path)
        database = options.pop("db", None) or 0
        return Target(
            "unix",
            (Endpoint(path, 0),),
            path=path,
            username=username,
            password=password,
            database=database,
            **options,
        )

    def embedded(self, location: str, options: dict[str, Any]) -> Target:
        path = self.decoded("folder", location)
        if not path.strip("/"):
            raise self.wrong(
                "folder", "embedded:///absolute/folder or embedded://relative/folder names the data folder"
            )
        if options.get("durability") == "fsync":
            if options.get("embedded_fsync") == "everysec":
                raise self.wrong("fsync", "durability=fsync needs fsync=always, not everysec")
            options["embedded_fsync"] = "always"
        return Target("embedded", path=path, **options)

    def memory(self, location: str, options: dict[str, Any]) -> Target:
        if not _MEMORY_NAME.fullmatch(location):
            raise self.wrong("name", "memory://NAME takes 1 to 64 letters, digits, '.', '-' or '_'")
        if options.get("durability", "master") != "master":
            raise self.wrong("durability", "memory:// keeps nothing; only 'master' is accepted")
        return Target("memory", path=location, **options)

    # -- options -------------------------------------------------------------------------------------------------------

    def options(self, kind: Kind, secure: bool, query: str) -> dict[str, Any]:
        given: dict[str, str] = {}
        for item in filter(None, query.split("&")):
            name, equals, value = item.partition("=")
            if name not in _OPTIONS:
                named = quoted(name) if equals and name.isidentifier() else "the text after '?' or '&'"
                raise self.wrong("option", f"{named} is not an option; the options are {', '.join(sorted(_OPTIONS))}")
            if not equals or not value:
                raise self.wrong(name, "it has no value")
            if name in given:
                raise self.wrong(name, "it is given twice")
            given[name] = self.decoded(name, value)
        found: dict[str, Any] = {}
        tls: dict[str, Any] = {}
        for name, value in given.items():
            kinds, read = _OPTIONS[name]
            if kind not in kinds:
                raise self.wrong(name, f"it has no meaning for {kind} connections")
            if name.startswith("tls_"):
                if not secure:
                    raise self.wrong(name, "TLS options need a scheme that begins with rediss")
                tls[_TLS_FIELDS[name]] = read(self, name, value)
            else:
                found[_FIELDS.get(name, name)] = read(self, name, value)
        if secure:
            if tls.get("key_file") and not tls.get("certificate_file"):
                raise self.wrong("tls_key", "it needs tls_cert too")
            found["tls"] = TlsOptions(**tls)
        return found

    def number(self, part: str, text: str, low: int, high: int) -> int:
        if not _DIGITS.fullmatch(text) or not low <= int(text) <= high:
            raise self.wrong(part, f"{quoted(text)} is not a number from {low} to {high}")
        return int(text)

    def choice(self, part: str, text: str, *choices: str) -> str:
        if text not in choices:
            raise self.wrong(part, f"{quoted(text)} is not one of {', '.join(choices)}")
        return text

    def namespace(self, part: str, text: str) -> str:
        if not _NAMESPACE.fullmatch(text):
            raise self.wrong(
                part,
                f"{quoted(text)} is not 1 to 50 letters, digits, '.', '-' or '_' "
                "that begin and end with a letter or digit",
            )
        return text


_ANY: tuple[Kind, ...] = ("standalone", "cluster", "sentinel", "unix", "embedded", "memory")
_TLS_FIELDS = {"tls_verify": "verify", "tls_ca": "ca_file", "tls_cert": "certificate_file", "tls_key": "key_file"}
_FIELDS = {"fsync": "embedded_fsync"}


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _text(_: _TargetParser, __: str, value: str) -> str:
    return value


_OPTIONS: Mapping[str, tuple[tuple[str, ...], Callable[[_TargetParser, str, str], object]]] = {
    "namespace": (_ANY, _TargetParser.namespace),
    "durability": (_ANY, lambda parser, part, text: parser.choice(part, text, "master", "replicated", "fsync")),
    "db": (("standalone", "sentinel", "unix"), lambda parser, part, text: parser.number(part, text, 0, 100_000)),
    "replicas": (
        (*_NETWORKED, "unix"),
        lambda parser, part, text: parser.number(part, text, 1, 100),
    ),
    "scripts": (_ANY, lambda parser, part, text: parser.choice(part, text, "auto", "library", "needed", "all")),
    "fsync": (("embedded",), lambda parser, part, text: parser.choice(part, text, "everysec", "always")),
    "sentinel_username": (("sentinel",), _text),
    "sentinel_password": (("sentinel",), _text),
    "tls_verify": (_NETWORKED, lambda parser, part, text: parser.choice(part, text, "full", "ca", "none")),
    "tls_ca": (_NETWORKED, _text),
    "tls_cert": (_NETWORKED, _text),
    "tls_key": (_NETWORKED, _text),
}
