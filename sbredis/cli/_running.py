"""Running the work of a command, and what its end means for the shell."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import click

from sbredis import operating
from sbredis._arguments import drop_unwritten, silence
from sbredis._root_error import Outcome, ServiceBusError
from sbredis._visible import visible
from sbredis.cli._exit_codes import ExitCode, interrupted_before_work
from sbredis.cli._invocation import Invocation
from sbredis.cli._server_choice import NoServerError
from sbredis.cli._stopping import Terminated
from sbredis.exceptions import (
    OperationTimeoutError,
    RuleSyntaxError,
    ServerUnsuitableError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
)

__all__ = ["CommandFunction", "run_work"]

CommandFunction = Callable[..., Any]
"""The function of a command: it gets the invocation and the command's own options."""
_EXPECTED = (ServiceBusError, NoServerError, OSError, ValueError)
"""The errors that are reported in one line. The others are faults of the program."""
_NO_ANSWER = (ServiceBusConnectionError, ServiceBusCommunicationError, OperationTimeoutError)
_WRONG_FILE = (FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError)


def run_work(work: CommandFunction, invocation: Invocation, given: dict[str, Any]) -> int:
    """Run the function of a command, and return the exit code."""
    begun: list[bool] = []
    try:
        with _remarking(invocation.out.remark):
            return _run(work, invocation, given, begun)
    except BrokenPipeError:
        silence(sys.stdout)
        return ExitCode.BROKEN_PIPE
    except KeyboardInterrupt as interruption:
        silence(sys.stdout)  # its reader may be slow, and the interpreter would wait for it
        if not begun:
            interrupted_before_work()
        return ExitCode.TERMINATED if isinstance(interruption, Terminated) else ExitCode.INTERRUPTED
    except click.Abort:
        print("nothing was changed", file=sys.stderr)  # noqa: T201 -- it is a program
        return ExitCode.FAILED
    except _EXPECTED as error:
        if isinstance(error, operating.WrongUseError):
            raise click.UsageError(str(error)) from error
        return _report(error)


def _run(work: CommandFunction, invocation: Invocation, given: dict[str, Any], begun: list[bool]) -> int:
    """Run the function of a command, and note that it has begun. Of a group of errors, only one is raised."""
    try:
        if inspect.iscoroutinefunction(work):
            return _run_async(work, invocation, given, begun)
        begun.append(True)
        return int(work(invocation, **given) or ExitCode.DONE)
    except BaseExceptionGroup as group:
        errors = list(_errors_in(group))
        faults = [error for error in errors if not isinstance(error, (*_EXPECTED, click.ClickException))]
        raise (faults or errors)[0] from group


def _errors_in(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors of a group and of the groups in it. An error that is no group yields itself."""
    if not isinstance(error, BaseExceptionGroup):
        yield error
        return
    for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
        yield from _errors_in(each)


def _run_async(work: CommandFunction, invocation: Invocation, given: dict[str, Any], begun: list[bool]) -> int:
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
        begun.append(True)
        return int(await work(invocation, **given) or ExitCode.DONE)

    try:
        return asyncio.run(whole())
    except asyncio.CancelledError:
        if terminated:
            return ExitCode.TERMINATED
        raise


def _report(error: Exception) -> int:
    """Print the error, and return the exit code for it."""
    text = str(error)
    if isinstance(error, ServiceBusError):
        text = error.message
        if error.outcome is Outcome.UNKNOWN:
            text = f"{text.removesuffix('.')}. It is not known whether the operation has run."
    elif isinstance(error, OSError) and error.strerror:
        text = error.strerror if error.filename is None else f"{error.filename}: {error.strerror}"
    notes = " ".join(getattr(error, "__notes__", ()))
    said = visible(f"{text}{' ' + notes if notes else ''}", lines=True)
    print(f"sbredis: {said}", file=sys.stderr)  # noqa: T201 -- it is a program
    drop_unwritten()
    if isinstance(error, RuleSyntaxError):
        print(operating.under_mistake(error.text, error.line, error.column), file=sys.stderr)  # noqa: T201 -- it is a program
    return _code_of(error)


def _code_of(error: Exception) -> ExitCode:
    if isinstance(error, ValueError) or (isinstance(error, _WRONG_FILE) and error.filename is not None):
        return ExitCode.USAGE
    if isinstance(error, _NO_ANSWER) and not isinstance(error, ServerUnsuitableError):
        return ExitCode.UNREACHABLE
    return ExitCode.FAILED


class _Remarks(logging.Handler):
    """Prints the warnings of a logger as remarks."""

    def __init__(self, remark: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._remark = remark
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print a warning, unless it was printed before."""
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._remark(text)


@contextmanager
def _remarking(remark: Callable[[str], None]) -> Generator[None]:
    """Print a remark about each entity that is left out because its record cannot be read, while the block runs."""
    log, handler = logging.getLogger("sbredis.registry"), _Remarks(remark)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
