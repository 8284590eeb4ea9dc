"""How the examples are called, each of them alike. What is worth copying of one is its `main`, and what that calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sbredis import ServiceBusError
from sbredis.transport import parse_target


@contextmanager
def connection_string(about: str | None) -> Iterator[str]:
    """What the command line names, or memory. Ctrl-C ends what is done with it, with a line and the code 130."""
    arguments = argparse.ArgumentParser(description=(about or "").partition("\n\n")[0])
    arguments.add_argument(
        "url",
        nargs="?",
        default="memory://example",
        metavar="CONNECTION STRING",
        help="where to run, for instance redis://localhost:6379 or embedded:///tmp/folder; in memory unless said",
    )
    url: str = arguments.parse_args().url
    try:
        parse_target(url)
    except ServiceBusError as error:
        arguments.error(error.message)
    try:
        yield url
    except KeyboardInterrupt:
        print("\nStopped.")
        sys.exit(130)
