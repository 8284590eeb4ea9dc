"""The entry point of the command, which says if the extra ``cli`` is missing."""

from __future__ import annotations

import gc
import logging
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec

from sbredis.cli._exit_codes import ExitCode, interrupted_before_work

__all__ = ["main"]

_EXTRA = ("rich", "yaml")
"""The packages of the extra ``cli``. They are imported when needed, but no command begins without them."""
_THRESHOLD = 50_000
"""How many more objects than before there must be until the garbage collector looks at the young ones."""
_SILENT = logging.NullHandler()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return the exit code.

    With the arguments of the process, Ctrl-C ends the process without a word once the command's work has ended. Python
    would print a traceback if it came while the interpreter waits for its threads.
    """
    if arguments is not None:
        return _run(arguments)
    # Nearly all objects of a command live until its end, so looking for garbage among them would only take time. At its
    # end, the interpreter would look at all of them several times.
    gc.set_threshold(_THRESHOLD)
    try:
        return _run(sys.argv[1:])
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.freeze()


def _run(arguments: Sequence[str]) -> int:
    try:
        from sbredis.cli._app import run
    except KeyboardInterrupt:
        return interrupted_before_work()
    if None in map(find_spec, _EXTRA):
        text = "sbredis: this command needs the extra cli: pip install '.[cli]' in the checkout of sbredis"
        print(text, file=sys.stderr)  # noqa: T201 -- it is a program
        return ExitCode.USAGE
    logging.getLogger("sbredis").addHandler(_SILENT)  # a command says itself what matters
    return run(arguments)
