"""Command lines for the search: their arguments are parsed, and no command runs."""

from __future__ import annotations

import io
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from typing import Any

import click

from sbredis.cli._app import program

__all__ = ["COMMAND_LINES", "parse"]

COMMAND_LINES = [
    "queue create q --lock-duration 1m30s --max-delivery-count 3 --requires-session --user-metadata 'a b'",
    "queue list --output json --url redis://h:1",
    "rule create t s r --filter 'a = @b' --parameter b:=[1,2] --action 'SET c = 2' --output table",
    "send q hello -p a=1 -p n:=[1,2] --ttl 5m --session s --count 3 --schedule 2026-05-01T12:00:00Z --rate 0.5",
    "receive q --count 5 --wait 1s --ack dead-letter --on-failure abandon --retry-delay 1h",
    "peek q --state deferred --from 17 --count 100 --filter \"a LIKE 'x%'\" --follow",
    "move a b --count 5 --filter 'a = 1'",
    "dlq redrive q --to other --set a:=5 --rate 10 --budget 0.1",
    "namespace limit --max-entities none --max-size-in-megabytes 5",
    "top --every 2s --sort depth --once",
    "acl entity a b/subscriptions/c --user u",
    "server start bus --port 6380 --cluster 3 --replicas 1",
]
_LONGEST = 8 * 1024
"""The longest line that is tried. The time of click grows with the square of the number of options, but only the user
who types the line waits.
"""


def _leaves(group: click.Group, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in group.list_commands(click.Context(group)):
        found = group.get_command(click.Context(group), name)
        if isinstance(found, click.Group):
            yield from _leaves(found, (*words, name))
        elif found is not None:
            yield (*words, name), found


@cache
def _commands() -> dict[tuple[str, ...], click.Command]:
    return dict(_leaves(program))


def parse(given: Any) -> object:
    """Parse the arguments of the command that a line names, as far as it names one."""
    words = shlex.split(given[:_LONGEST])
    for length in (2, 1):
        found = _commands().get(tuple(words[:length]))
        if found is not None:
            with redirect_stdout(io.StringIO()):  # of --help
                return found.make_context(words[0], words[length:]).params
    raise click.UsageError("no such command")
