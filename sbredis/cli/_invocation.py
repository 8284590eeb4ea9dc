"""One run of a command: its server and namespace, its output, its clients, and its questions to the user."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

import click

from sbredis._nearest import nearest_name
from sbredis._server_url import URL_VARIABLE
from sbredis._visible import visible
from sbredis.cli._book_file import load_book
from sbredis.cli._output import Output
from sbredis.cli._server_choice import Book, ChosenServer, choose_server, without_library
from sbredis.cli._stopping import ending_at_once, interruption
from sbredis.cli._streams import first_line

if TYPE_CHECKING:
    from sbredis.aio import ServiceBusClient
    from sbredis.aio.management import ServiceBusAdministrationClient

__all__ = ["Invocation", "Settings"]

_LOOKING = 10.0
"""The longest time in seconds to look for a name like one that does not exist, among those of all entities."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The options that every command has."""

    NAMES: ClassVar[tuple[str, ...]] = ("url", "context", "namespace", "output")

    url: str | None = field(default=None, repr=False)
    context: str | None = None
    namespace: str | None = None
    output: str | None = None


class Invocation:
    """What a command gets as its first argument."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.out = Output(as_json=settings.output == "json")
        self._server: ChosenServer | None = None
        self._first_line: str | None = None

    def take_url(self) -> None:
        """If stdin has the connection string, read it, so that the command finds only what is behind it."""
        if self.settings.url == "-":
            try:
                self._first_line = first_line()
            except OSError as error:
                raise click.UsageError(f"stdin cannot be read: {error.strerror}.") from error

    @property
    def server(self) -> ChosenServer:
        """The server and namespace to work on.

        Raises :class:`~sbredis.cli._server_choice.NoServerError` or
        :class:`~sbredis.exceptions.InvalidConnectionStringError`.
        """
        if self._server is None:
            given = self.settings
            if given.url == "-" and self._first_line is None:
                self.take_url()
            url = self._first_line if given.url == "-" else given.url
            named = given.context is None and (url is not None or os.environ.get(URL_VARIABLE))
            book = Book() if named else load_book()
            self._server = choose_server(book, os.environ, url=url, context=given.context, namespace=given.namespace)
        return self._server

    def client(self, *, maintenance: bool = False) -> ServiceBusClient:
        """Return a client for this server, to be used as a context manager."""
        from sbredis.aio import ServiceBusClient

        return ServiceBusClient(self.server.url, namespace=self.server.namespace, maintenance=maintenance)

    def administration(self, *, library: bool = True, timeout: float = 60.0) -> ServiceBusAdministrationClient:
        """Return an administration client for this server, to be used as a context manager.

        Without ``library``, it loads no library of functions on the server.
        """
        from sbredis.aio.management import ServiceBusAdministrationClient

        url = self.server.url if library else without_library(self.server.url)
        return ServiceBusAdministrationClient(url, namespace=self.server.namespace, timeout=timeout)

    @asynccontextmanager
    async def looking_for(self, *paths: str) -> AsyncGenerator[None]:
        """If the entity or rule with one of these paths does not exist, say so and offer the nearest name."""
        from sbredis.exceptions import MessagingEntityNotFoundError, ServiceBusError

        try:
            yield
        except MessagingEntityNotFoundError as error:
            error.message = re.sub(r" (Create it|Create the entity again, get|Create them) .*", "", error.message)
            with suppress(ServiceBusError, TimeoutError):  # then there is no offer, and the error is told without it
                async with asyncio.timeout(_LOOKING):
                    for path in paths:
                        if near := await self._nearest(path):
                            error.message += f" Did you mean {near!r}?"
                            break
            raise

    async def _nearest(self, path: str) -> str | None:
        """Return the existing path that is nearest to this one: the first of its names that is unknown is replaced.

        A subscription may also be written as ``topic/name``.
        """
        entity, _, rule = path.partition("/rules/")
        topic, _, subscription = re.sub("/subscriptions/", "/subscriptions/", entity, flags=re.IGNORECASE).partition(
            "/subscriptions/"
        )
        async with self.administration() as administration:
            topics = [found.name async for found in administration.list_topics()]
            queues = [] if subscription else [found.name async for found in administration.list_queues()]
            if _unknown(topic, queues + topics):
                before, _, name = topic.rpartition("/")
                if not subscription and (owner := nearest_name(before, topics)):
                    listed = [found.name async for found in administration.list_subscriptions(owner)]
                    if near := _near(name, listed, before=f"{owner}/subscriptions/"):
                        return near
                return _near(topic, queues + topics, f"/subscriptions/{subscription}" if subscription else "")
            if not subscription:
                return None
            subscriptions = [found.name async for found in administration.list_subscriptions(topic)]
            if _unknown(subscription, subscriptions):
                return _near(subscription, subscriptions, before=f"{topic}/subscriptions/")
            rules = [found.name async for found in administration.list_rules(topic, subscription)]
            return _near(rule, rules, before=f"{topic}/subscriptions/{subscription}/rules/") if rule else None

    def confirm(self, question: str, *, typed: str, yes: bool) -> None:
        """Ask before something is destroyed. Ends the command if the user does not agree.

        In a protected context the user types ``typed``, which is the entity's name, even with ``--yes``. Elsewhere
        ``--yes`` is enough. Without a terminal there is nobody to ask, so the command is refused.
        """
        protected = self.server.protected
        if yes and not protected:
            return
        if protected and not sys.stdin.isatty():
            raise click.UsageError(f"{self.server} is protected: run this on a terminal.")
        self.ask(question, typed=typed if protected else None)

    def ask(self, question: str, *, typed: str | None = None) -> None:
        """Ask on the terminal for a yes, or for a text that the user types. Ends the command for any other answer.

        Without a terminal the command is refused, with the advice to give ``--yes``.
        """
        if not sys.stdin.isatty():
            raise click.UsageError(f"{question} Give --yes, because there is no terminal to ask on.")
        asked = visible(question, lines=True)
        with ending_at_once() as came:
            try:
                if typed is None:
                    agreed = click.confirm(asked, err=True)
                else:
                    prompt = f"{asked} Type {typed!r} to go on"
                    agreed = click.prompt(prompt, default="", show_default=False, err=True) == typed
            except click.Abort:  # click raises it for a signal, and for the end of the input
                if not came:
                    raise
                self.out.remark("\nnothing was changed")
                raise interruption(came[0]) from None
        if not agreed:
            raise click.Abort


def _unknown(name: str, known: list[str]) -> bool:
    return name.lower() not in map(str.lower, known)


def _near(name: str, known: list[str], after: str = "", *, before: str = "") -> str | None:
    near = nearest_name(name, known)
    return None if near is None else f"{before}{near}{after}"
