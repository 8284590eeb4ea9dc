"""Where a command works: the named contexts of a user, and which of the given settings counts."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from sbredis._server_url import URL_VARIABLE
from sbredis.transport import Target, parse_target, redacted

__all__ = [
    "Book",
    "ChosenServer",
    "NoServerError",
    "StoredContext",
    "address_of",
    "choose_server",
    "read_book",
    "require_url",
    "with_absolute_paths",
    "without_library",
    "write_book",
]

CONTEXT_VARIABLE = "SBREDIS_CONTEXT"
_FILES = {"tls_ca", "tls_cert", "tls_key"}
"""The options of a connection string that are paths of files."""


class NoServerError(ValueError):
    """The settings name no server, one that ends with the command, or a context that does not exist."""


@dataclass(frozen=True, slots=True)
class StoredContext:
    """A named server and namespace."""

    url: str = field(repr=False)
    namespace: str | None = None
    protected: bool = False
    """Whether a command asks for the name of the entity before it destroys anything."""


@dataclass(frozen=True, slots=True)
class Book:
    """The contexts of a user, and the one in use."""

    contexts: Mapping[str, StoredContext] = field(default_factory=dict[str, StoredContext])
    current: str | None = None

    def with_context(self, name: str, context: StoredContext) -> Book:
        """Return a book that has this context too. The first context is in use at once."""
        return Book({**self.contexts, name: context}, self.current or name)

    def without(self, name: str) -> Book:
        """Return a book without this context. Raises :class:`NoServerError` if there is none of this name."""
        self.find(name)
        left = {other: context for other, context in self.contexts.items() if other != name}
        return Book(left, None if self.current == name else self.current)

    def using(self, name: str) -> Book:
        """Return a book in which this context is in use. Raises :class:`NoServerError` if it does not exist."""
        self.find(name)
        return replace(self, current=name)

    def find(self, name: str) -> StoredContext:
        """Return the context of this name. Raises :class:`NoServerError`, which offers the nearest name."""
        if name in self.contexts:
            return self.contexts[name]
        near = difflib.get_close_matches(name, self.contexts, 1)
        hint = f" Did you mean {near[0]!r}?" if near else " 'sbredis context list' lists them."
        raise NoServerError(f"There is no context {name!r}.{hint}")


@dataclass(frozen=True, slots=True)
class ChosenServer:
    """The server and the namespace that a command works on."""

    url: str = field(repr=False)
    namespace: str | None = None
    protected: bool = False
    name: str | None = None
    """The name of the context, if the server comes from one."""

    @property
    def takes_library(self) -> bool:
        """Whether the connection string lets clients send calls as functions of a library."""
        return parse_target(self.url).has_library

    def __str__(self) -> str:
        return f"context {self.name!r}" if self.name else address_of(self.url)


def address_of(url: str) -> str:
    """Return the connection string without its secrets."""
    return redacted(url)


def choose_server(
    book: Book, environment: Mapping[str, str], *, url: str | None, context: str | None, namespace: str | None
) -> ChosenServer:
    """Return the server that the settings name.

    The first of these counts: the option ``--url``, the option ``--context``, the variable ``SBREDIS_URL``, the
    variable ``SBREDIS_CONTEXT``, the context in use. Raises :class:`NoServerError` if there is none of them, and the
    errors of :func:`require_url`.
    """
    if url is not None and context is not None:
        raise NoServerError("--url and --context exclude each other.")
    if url is None and context is None:
        url = environment.get(URL_VARIABLE) or None
        context = None if url else environment.get(CONTEXT_VARIABLE) or book.current
    if url is not None:
        chosen = ChosenServer(url, namespace)
    elif context is not None:
        found = book.find(context)
        chosen = ChosenServer(found.url, namespace or found.namespace, found.protected, context)
    else:
        raise NoServerError(
            "No server is named. Give --url, set SBREDIS_URL, or store a context: sbredis context add NAME URL. "
            "An example: --url embedded://./bus starts a server in the folder bus."
        )
    require_url(chosen.url)
    return chosen


def require_url(url: str) -> Target:
    """Parse a connection string.

    Raises :class:`~sbredis.exceptions.InvalidConnectionStringError`, or :class:`NoServerError` for a server in memory
    and for an empty text.
    """
    if not url.strip():
        raise NoServerError("The connection string is empty.")
    if url.lower().startswith("memory:"):  # with or without a name
        raise NoServerError(
            "A server in memory ends with the command, so nothing is left of what the command does on "
            f"{redacted(url)}. Use a server on a folder: --url embedded://./bus"
        )
    return parse_target(url)


def with_absolute_paths(url: str, folder: Path) -> str:
    """Return a connection string that names the same files, whatever the working folder is. Now it is ``folder``."""
    target = parse_target(url)
    location, mark, query = url.partition("?")
    if target.kind == "embedded":
        location = f"embedded://{quote(str(folder / target.path))}"
    options = [option.partition("=") for option in query.split("&")]
    return (
        location
        + mark
        + "&".join(
            f"{name}={quote(str(folder / unquote(value)))}" if name in _FILES else f"{name}{equals}{value}"
            for name, equals, value in options
        )
    )


def without_library(url: str) -> str:
    """Return a connection string whose clients load no library of functions: they send single scripts."""
    location, _, query = url.partition("?")
    kept = [option for option in query.split("&") if option and option.partition("=")[0] != "scripts"]
    return f"{location}?{'&'.join([*kept, 'scripts=needed'])}"


def read_book(text: str) -> Book:
    """Read the file of contexts. Raises :class:`ValueError` if it is not one."""
    stored: Any = json.loads(text)
    contexts = {
        str(name): StoredContext(str(entry["url"]), entry.get("namespace"), bool(entry.get("protected", False)))
        for name, entry in stored["contexts"].items()
    }
    return Book(contexts, stored.get("current"))


def write_book(book: Book) -> str:
    """Return the text of the file of contexts."""
    contexts = {
        name: {"url": context.url, "namespace": context.namespace, "protected": context.protected}
        for name, context in sorted(book.contexts.items())
    }
    return json.dumps({"current": book.current, "contexts": contexts}, indent=2, ensure_ascii=False) + "\n"
