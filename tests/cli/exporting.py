"""An exporter in a process of its own, and requests to it."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

__all__ = ["exporting", "fetched", "refused"]


@contextmanager
def exporting(url: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Run the exporter in a process of its own. Gives its address."""
    options = ["--listen", "127.0.0.1:0", "--every", "50ms", "--url", url]
    command = [sys.executable, "-m", "sbredis.cli", "exporter", *options]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            yield process.stderr.readline().split("/metrics")[0], process
        finally:
            process.kill()


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 -- it is the address of the test
        return str(answer.read().decode())


def refused(address: str) -> int:
    """Return the status of a request that is refused."""
    with pytest.raises(urllib.error.HTTPError) as answer:
        fetched(address)
    with answer.value:
        return answer.value.code
