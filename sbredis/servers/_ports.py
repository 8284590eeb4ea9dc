"""Choosing free ports on the loopback address."""

from __future__ import annotations

import random
import socket
import threading
from pathlib import Path

__all__ = ["free_port"]

_LOWEST = 10_000
_HIGHEST = 32_000
_given: set[int] = set()
_lock = threading.Lock()


def free_port() -> int:
    """Return a TCP port of 127.0.0.1 that nothing listens on, and that this function has not returned before.

    Ports are below the range that the kernel uses for outgoing connections. With a port inside that range, a client
    that keeps trying to reach a stopped server might be given that very port, and would be connected to itself.

    Another process can still take the port first, so the caller must be ready to try another port.
    """
    ceiling = min(_HIGHEST, _first_ephemeral() - 1)
    floor = min(_LOWEST, ceiling - 2000)
    with _lock:
        for _ in range(1000):
            port = random.randint(floor, ceiling)
            if port not in _given and _is_free(port):
                _given.add(port)
                return port
        _given.clear()  # a very long test run has used most ports, so permit used ports again
    raise OSError("no free port was found on 127.0.0.1")


def _first_ephemeral() -> int:
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return lowest if lowest > 4096 else 65_535


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # Servers set this option too. Without it, a port with connections in TIME_WAIT would look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
