"""``sbredis context``: servers under names of the user's choice."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import click

from sbredis._server_url import URL_VARIABLE
from sbredis.cli._book_file import load_book, save_book
from sbredis.cli._commands import command, group
from sbredis.cli._invocation import Invocation
from sbredis.cli._output import TableColumn
from sbredis.cli._server_choice import (
    CONTEXT_VARIABLE,
    Book,
    StoredContext,
    address_of,
    require_url,
    with_absolute_paths,
)

__all__ = ["contexts"]

contexts = group(
    "context",
    "Store servers under names, and choose one of them.",
    examples=["sbredis context add local embedded://./bus", "sbredis context use local"],
)

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
_COLUMNS = (
    TableColumn("name"),
    TableColumn("in_use", 1),
    TableColumn("url", 2, shortest=20),
    TableColumn("namespace", 4),
    TableColumn("protected", 3),
)


@command("add", into=contexts, connects=False, examples=[
    "sbredis context add local embedded://./bus",
    "sbredis context add prod - --protected < url.txt",
])  # fmt: skip
@click.argument("name")
@click.argument("url")
@click.option("--namespace", metavar="NAME", help="The namespace, if not that of the connection string.")
@click.option("--protected", is_flag=True, help="Ask for the entity's name before anything is destroyed.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before a protected context is replaced.")
def add(invocation: Invocation, *, name: str, url: str, namespace: str | None, protected: bool, yes: bool) -> None:
    """Store a server under NAME. URL '-' reads the connection string from stdin.

    The first context is in use at once. A context of the same name is replaced; if it is protected, you are asked for
    its name before.
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter("a name has letters, digits, '.', '_' and '-', at most 64", param_hint="NAME")
    text = sys.stdin.readline().strip() if url == "-" else url
    require_url(text)
    context = StoredContext(with_absolute_paths(text, Path.cwd()), namespace, protected)
    book = load_book()
    before = book.contexts.get(name)
    if before is not None and before != context:
        _require_agreement(invocation, "Replace", name, before, yes=yes)
    save_book(book.with_context(name, context))
    address = address_of(context.url)
    invocation.out.done(f"context {name}: {address}", name=name, url=address)


def _require_agreement(invocation: Invocation, verb: str, name: str, context: StoredContext, *, yes: bool) -> None:
    """Ask before a protected context is lost."""
    if context.protected and not yes:
        invocation.ask(f"{verb} the protected context {name} ({address_of(context.url)})?", typed=name)


@command("use", into=contexts, connects=False, examples=["sbredis context use prod"])
@click.argument("name")
def use(invocation: Invocation, name: str) -> None:
    """Let commands work on the context NAME from now on."""
    save_book(load_book().using(name))
    invocation.out.done(f"context {name} is in use", name=name)


@command("list", into=contexts, connects=False, examples=["sbredis context list"])
def list_(invocation: Invocation) -> None:
    """List the contexts. Passwords are not shown."""
    book = load_book()
    rows = [
        {
            "name": name,
            "in_use": name == book.current,
            "url": address_of(context.url),
            "namespace": context.namespace,
            "protected": context.protected,
        }
        for name, context in sorted(book.contexts.items())
    ]
    invocation.out.table(_COLUMNS, rows, empty="no contexts")


@command("remove", into=contexts, connects=False, examples=["sbredis context remove local"])
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask before a protected context is forgotten.")
def remove(invocation: Invocation, *, name: str, yes: bool) -> None:
    """Forget the context NAME. The server is not touched.

    If the context is protected, you are asked for its name before.
    """
    book = load_book()
    _require_agreement(invocation, "Forget", name, book.find(name), yes=yes)
    left = book.without(name)
    save_book(left)
    invocation.out.done(f"context {name} is forgotten", name=name)
    if book.current == name:
        invocation.out.remark(_without_current(left))


def _without_current(book: Book) -> str:
    """Say which server commands use now that the context in use is forgotten."""
    for variable in (URL_VARIABLE, CONTEXT_VARIABLE):
        if os.environ.get(variable):
            return f"it was the context in use; commands use ${variable}"
    if not book.contexts:
        return "no context is left: give --url, set SBREDIS_URL, or store one: sbredis context add NAME URL"
    name = next(iter(book.contexts)) if len(book.contexts) == 1 else "NAME"
    return f"no context is in use now: give --url or --context, or choose one: sbredis context use {name}"
