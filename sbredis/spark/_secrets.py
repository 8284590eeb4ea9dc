"""Find the connection string of a query, without a trace of it in Spark's plans, logs and checkpoints.

Spark stores options in its event log and sends them to every executor. So a password belongs into the environment
(``urlEnv``), into a file (``urlFile``) or into the answer of a function (``urlProvider``); the options only say where
it is. Each process of the query looks there itself.
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
from sbredis.exceptions import SparkSetupError
from sbredis.spark._options import parse_secret

__all__ = ["Server", "server_of", "warn_of_password"]

_PASSWORD = re.compile(r"://[^/?]*:[^/?@]*@|password=", re.IGNORECASE)


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
    ((name, value),) = named.items()
    return Server(_FOUND[name](value).strip(), namespace)


def warn_of_password(options: Mapping[str, str]) -> None:
    """Warn if the option ``url`` contains a password."""
    if _PASSWORD.search(parse_secret(options).get("url", "")):
        warn_caller(
            "The option url contains a password, which Spark writes into its event log and sends to every executor. "
            "Use urlEnv, urlFile or urlProvider instead.",
            UserWarning,
        )


def _from_environment(name: str) -> str:
    url = os.environ.get(name, "")
    if not url.strip():
        raise SparkSetupError(
            f"The option urlEnv names the environment variable {quoted(name)}, which is not set in this process. The "
            "driver and every executor need it (spark.executorEnv.NAME)."
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
