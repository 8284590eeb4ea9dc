"""The entry point of the command. It needs no package of the extra ``cli`` until it runs."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence

__all__ = ["main"]

_USAGE = 2
_SILENT = logging.NullHandler()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with these arguments, by default those of the process, and return the exit code."""
    try:
        from sbredis.cli._app import run
    except ModuleNotFoundError as error:
        if error.name not in ("click", "rich", "yaml"):
            raise
        text = "sbredis: this command needs the extra cli: pip install '.[cli]' in the checkout of sbredis"
        print(text, file=sys.stderr)  # noqa: T201 -- it is a program
        return _USAGE
    logging.getLogger("sbredis").addHandler(_SILENT)  # a command says itself what matters
    return run(sys.argv[1:] if arguments is None else arguments)
