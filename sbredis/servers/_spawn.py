"""Start Python processes that run a module of this folder, and servers that end when their parent ends."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from sbredis.exceptions import ServerUnsuitableError

__all__ = ["dies_with_parent", "python_command", "python_environment", "server_environment"]

_PR_SET_PDEATHSIG = 1


def python_command(module: str) -> list[str]:
    """Return the command that runs ``main()`` of a module of this folder in a new process."""
    # With -P, a json.py in the current folder is not imported in place of the standard library's module.
    return [_interpreter(), "-P", "-c", f"from sbredis.servers.{module} import main; main()"]


def _interpreter() -> str:
    """Return the path of this process's Python, and not of a program that embeds it (uwsgi, a frozen application)."""
    beside = Path(sys.prefix, "bin", "python3")
    for candidate in (Path(sys.executable or ""), beside):
        if candidate.is_file() and candidate.name.lower().startswith(("python", "pypy")):
            return str(candidate)
    raise ServerUnsuitableError(
        "sbredis starts servers with a helper process that runs Python, and found no Python: sys.executable is"
        f" {sys.executable!r} and there is no {beside}. Run a server yourself and connect with redis://."
    )


def python_environment() -> dict[str, str]:
    """Return this process's environment with a change that lets a child find the same sbredis."""
    home = str(Path(__file__).absolute().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": home + os.pathsep + inherited if inherited else home}


def server_environment() -> dict[str, str]:
    """Return the environment for a server: this process's environment without its language settings.

    Servers from 7.2 on refuse to start when LANG names a locale that is not installed, as it often does in containers.
    """
    return {**os.environ, "LC_ALL": "C"}


def dies_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """Return a function to run in a child between fork and exec. It ties the child to its parent.

    After the function has run, the kernel sends the child ``death_signal`` when the parent dies. For the kernel, the
    parent is the *thread* that forked. So the caller must be single-threaded, which also makes it safe to run Python
    between fork and exec. Returns ``None`` on systems that cannot do this (outside Linux).
    """
    if not sys.platform.startswith("linux"):
        return None
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return None
    parent = os.getpid()
    number = int(death_signal)

    def arrange() -> None:
        prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl was called
            os._exit(1)

    return arrange
