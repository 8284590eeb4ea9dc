"""How this folder starts processes: Python ones of its own, and servers that end with their parent."""

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
    """The command that runs ``main()`` of a module of this folder in a process of its own."""
    # -P: a json.py in the current folder must not be imported in place of the real one.
    return [_interpreter(), "-P", "-c", f"from sbredis.servers.{module} import main; main()"]


def _interpreter() -> str:
    """The Python of this process: not a program that has Python inside (uwsgi, a frozen application)."""
    beside = Path(sys.prefix, "bin", "python3")
    for candidate in (Path(sys.executable or ""), beside):
        if candidate.is_file() and candidate.name.lower().startswith(("python", "pypy")):
            return str(candidate)
    raise ServerUnsuitableError(
        "sbredis starts servers by a helper process that runs Python, and finds none: sys.executable is"
        f" {sys.executable!r} and there is no {beside}. Run a server yourself and connect with redis://."
    )


def python_environment() -> dict[str, str]:
    """This process's environment, made to find the same sbredis that this process runs."""
    home = str(Path(__file__).absolute().parents[2])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": home + os.pathsep + inherited if inherited else home}


def server_environment() -> dict[str, str]:
    """The environment for a server: this process's, without its language.

    Servers from 7.2 on refuse to start when LANG names a locale that is not installed, as it often does in containers.
    """
    return {**os.environ, "LC_ALL": "C"}


def dies_with_parent(death_signal: signal.Signals) -> Callable[[], None] | None:
    """What a child runs between fork and exec so that the kernel sends it ``death_signal`` when its parent dies.

    The kernel ties this to the *thread* that forked: the caller must be single-threaded, which also makes it safe to
    run Python there. ``None`` where there is no such thing (outside Linux).
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
        if os.getppid() != parent:  # it died before the kernel was told
            os._exit(1)

    return arrange
