"""The command line that all examples share. To copy an example, copy its `main` and the functions that it calls."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from sbredis import ServiceBusError
from sbredis.aio import ServiceBusClient


@contextmanager
def connection_string(about: str | None) -> Iterator[str]:
    """Yield the connection string of the command line, by default memory://. Ctrl-C ends the program with code 130."""
    arguments = argparse.ArgumentParser(description=(about or "").partition("\n\n")[0])
    arguments.add_argument(
        "url",
        nargs="?",
        default="memory://example",
        metavar="CONNECTION STRING",
        help="the server to use, for instance redis://localhost:6379 or embedded:///tmp/folder; in memory by default",
    )
    url: str = arguments.parse_args().url
    try:
        ServiceBusClient(url)  # reads the connection string, and connects only at the first call
    except ServiceBusError as error:
        arguments.error(error.message)
    try:
        yield url
    except KeyboardInterrupt:
        print("\nStopped.")
        sys.exit(130)
