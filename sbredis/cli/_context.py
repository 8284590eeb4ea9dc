"""``sbredis context``: servers under names of the user's choice."""

from __future__ import annotations

import re
import sys

import click

from sbredis.cli._book_file import load_book, save_book
from sbredis.cli._call import Call
from sbredis.cli._commands import command, group
from sbredis.cli._places import Context, address_of
from sbredis.transport import parse_target

__all__ = ["contexts"]

contexts = group("context", "Store servers under names, and choose one of them.")

_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")


@command("add", into=contexts, connects=False, examples=[
    "sbredis context add local embedded://./bus",
    "sbredis context add prod - --protected < url.txt",
])  # fmt: skip
@click.argument("name")
@click.argument("url")
@click.option("--namespace", metavar="NAME", help="The namespace, if not that of the connection string.")
@click.option("--protected", is_flag=True, help="Ask for the entity's name before anything is destroyed.")
def add(call: Call, name: str, url: str, namespace: str | None, protected: bool) -> None:
    """Store a server under NAME. URL '-' reads the connection string from stdin.

    The first context is in use at once. A context of the same name is replaced.
    """
    if not _NAME.fullmatch(name):
        raise click.BadParameter("a name has letters, digits, '.', '_' and '-', at most 64", param_hint="NAME")
    text = sys.stdin.readline().strip() if url == "-" else url
    parse_target(text)
    save_book(load_book().with_context(name, Context(text, namespace, protected)))
    call.out.done(f"context {name}: {address_of(text)}", name=name, url=address_of(text))


@command("use", into=contexts, connects=False, examples=["sbredis context use prod"])
@click.argument("name")
def use(call: Call, name: str) -> None:
    """Let commands work on the context NAME from now on."""
    save_book(load_book().using(name))
    call.out.done(f"context {name} is in use", name=name)


@command("list", into=contexts, connects=False, examples=["sbredis context list"])
def list_(call: Call) -> None:
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
    call.out.table(["name", "in_use", "url", "namespace", "protected"], rows, empty="no contexts")


@command("remove", into=contexts, connects=False, examples=["sbredis context remove local"])
@click.argument("name")
def remove(call: Call, name: str) -> None:
    """Forget the context NAME. The server is not touched."""
    save_book(load_book().without(name))
    call.out.done(f"context {name} is forgotten", name=name)
