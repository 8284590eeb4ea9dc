"""Find the connection string of a query, without a trace of it in Spark's plans, logs and checkpoints.

Spark stores options in its event log and sends them to every executor. So a password belongs into the environment
(``urlEnv``), into a file (``urlFile``) or into the answer of a function (``urlProvider``); the options only say where
it is. Each process of the query looks there itself.

Executors can get a variable by a setting of Spark (``spark.executorEnv.NAME``). Spark writes settings into its log of
events too, but hides the values of those whose names look secret.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from sbredis._call_site import warn_caller
from sbredis._quoting import quoted
from sbredis.engine import namespace_name
from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import parse_secret

__all__ = ["Server", "refuse_memory", "server_of", "warn_of_password", "warn_of_settings"]

_PASSWORD = re.compile(r"://[^/?]*:[^/?@]*@|password=", re.IGNORECASE)
_HIDING = "spark.redaction.regex"
_HIDDEN = "(?i)secret|password|token|access[.]?key|credential"
"""Spark's default pattern for the names and values of settings that it hides."""
_VARIABLES = ("spark.executorEnv.", "spark.yarn.appMasterEnv.", "spark.kubernetes.driverEnv.")
"""The beginnings of the settings that set environment variables."""


class Server(NamedTuple):
    """The server of a query: its connection string, and its namespace if an option names it."""

    url: str
    namespace: str | None

    def __repr__(self) -> str:
        return "Server(***)"


def server_of(options: Mapping[str, str]) -> Server:
    """Return the server that the options give or lead to."""
    named = parse_secret(options)
    namespace = named.pop("namespace", None)
    if namespace is not None:
        try:
            namespace_name(namespace)
        except ValueError as error:
            raise SparkSetupError(f"The option namespace is wrong: {error}.") from None
    ((name, value),) = named.items()
    return Server(_FOUND[name](value).strip(), namespace)


def refuse_memory(server: Server) -> None:
    """Refuse a server that is in the memory of this process, because the other processes of Spark cannot reach it."""
    if server.url.lower().startswith("memory:"):
        raise SparkSetupError(
            "Spark cannot use a server in memory (memory://), because each of its processes would have another one: "
            "use embedded:///FOLDER, which all processes of a machine share, or a server."
        )


def warn_of_password(options: Mapping[str, str]) -> None:
    """Warn if the option ``url`` contains a password."""
    if _PASSWORD.search(parse_secret(options).get("url", "")):
        warn_caller(
            "The option url contains a password, which Spark writes into its event log and sends to every executor. "
            "Use urlEnv, urlFile or urlProvider instead.",
            UserWarning,
        )


def warn_of_settings(settings: Mapping[str, str]) -> None:
    """Warn if a setting of Spark gives processes a variable with a password, and Spark does not hide its value."""
    try:
        hidden = re.compile(settings.get(_HIDING, _HIDDEN))
    except re.error:  # Java knows patterns that Python does not know
        hidden = re.compile(_HIDDEN)
    for name, value in settings.items():
        secret = name.startswith(_VARIABLES) and _PASSWORD.search(value)
        if secret and not hidden.search(name) and not hidden.search(value):
            warn_caller(
                f"The setting {name} contains a password, which Spark writes into its event log and shows in its user "
                "interface. Spark hides the value if the variable has a name like SBREDIS_SECRET_URL. Rename it, here "
                "and in urlEnv, or use urlFile.",
                UserWarning,
            )


def _from_environment(name: str) -> str:
    url = os.environ.get(name, "")
    if not url.strip():
        raise SparkSetupError(
            f"The option urlEnv names the environment variable {quoted(name)}, which is not set in this process. The "
            "driver and every executor need it (spark.executorEnv.NAME sets it for executors; Spark hides the value if "
            "the name is one like SBREDIS_SECRET_URL)."
        )
    return url


def _from_file(path: str) -> str:
    try:
        url = Path(path).read_text("utf-8")
    except OSError as error:
        raise SparkSetupError(
            f"The option urlFile names {quoted(path)}, which this process cannot read ({error.strerror}). The driver "
            "and every executor need the file."
        ) from None
    except UnicodeDecodeError:
        raise SparkSetupError(
            f"The option urlFile names {quoted(path)}, which is not text in UTF-8. The file has only the connection "
            "string."
        ) from None
    if not url.strip():
        raise SparkSetupError(f"The option urlFile names {quoted(path)}, which is empty.")
    return url


def _from_provider(path: str) -> str:
    module, _, name = path.partition(":")
    try:
        provider: Callable[[], Any] = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError):
        raise SparkSetupError(
            f"The option urlProvider must be MODULE:FUNCTION, a function without arguments that returns the connection "
            f"string; {quoted(path)} cannot be imported here. The driver and every executor need the module."
        ) from None
    url = provider()
    if not isinstance(url, str) or not url.strip():
        raise SparkSetupError(f"The function {quoted(path)} of urlProvider returned no connection string.")
    return url


_FOUND: Mapping[str, Callable[[str], str]] = {
    "url": str,
    "urlEnv": _from_environment,
    "urlFile": _from_file,
    "urlProvider": _from_provider,
}
