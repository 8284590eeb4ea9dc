"""Running the work of a command, and what its end means for the shell."""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import click

from sbredis._root_error import Outcome, ServiceBusError
from sbredis.cli._call import Call
from sbredis.cli._caret import under_mistake
from sbredis.cli._exit_codes import ExitCode
from sbredis.cli._places import NoPlaceError
from sbredis.exceptions import RuleSyntaxError, ServiceBusConnectionError

__all__ = ["Work", "run_work"]

Work = Callable[..., Any]
"""The function of a command: it gets the call and the command's own options."""


def run_work(work: Work, call: Call, given: dict[str, Any]) -> int:
    """Run the function of a command, and return the exit code."""
    try:
        if inspect.iscoroutinefunction(work):
            return _run_async(work, call, given)
        return int(work(call, **given) or ExitCode.DONE)
    except BrokenPipeError:
        _silence(sys.stdout)
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt:
        return ExitCode.INTERRUPTED
    except click.Abort:
        print("nothing was changed", file=sys.stderr)  # noqa: T201 -- it is a program
        return ExitCode.FAILED
    except (ServiceBusError, NoPlaceError, OSError, ValueError) as error:
        return _report(error, call)


def _run_async(work: Work, call: Call, given: dict[str, Any]) -> int:
    terminated = False

    async def whole() -> int:
        nonlocal terminated
        task = asyncio.current_task()
        assert task is not None

        def terminate() -> None:
            nonlocal terminated
            terminated = True
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return int(await work(call, **given) or ExitCode.DONE)

    try:
        return asyncio.run(whole())
    except asyncio.CancelledError:
        if terminated:
            return ExitCode.TERMINATED
        raise


def _report(error: Exception, call: Call) -> int:
    """Print the error, and return the exit code for it."""
    text = str(error)
    if isinstance(error, ServiceBusError):
        unknown = error.outcome is Outcome.UNKNOWN
        text = error.message + (" It is not known whether the operation has run." if unknown else "")
    notes = " ".join(getattr(error, "__notes__", ()))
    print(f"sbredis: {text}{' ' + notes if notes else ''}", file=sys.stderr)  # noqa: T201 -- it is a program
    if isinstance(error, RuleSyntaxError):
        print(under_mistake(error.text, error.line, error.column), file=sys.stderr)  # noqa: T201 -- it is a program
    if isinstance(error, ValueError):
        return ExitCode.USAGE
    if isinstance(error, ServiceBusConnectionError):
        return ExitCode.UNREACHABLE
    del call
    return ExitCode.FAILED


def _silence(stream: Any) -> None:
    """Let the interpreter flush the stream at its end without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
