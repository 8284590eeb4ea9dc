"""``python -m sbredis.workers MODULE:WORKER`` runs a worker."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from sbredis.exceptions import InvalidConnectionStringError, ServiceBusError, WorkerSetupError
from sbredis.workers.observing._logs import set_up_logs
from sbredis.workers.observing._terminal import above_the_line
from sbredis.workers.supervising._commands import PROGRAM, WorkerCommand, read_command


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    """Run a worker, and return the exit code. ``program`` is the command as the user has typed it."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = read_command(given, program)
    with above_the_line():
        set_up_logs(command.log_format)
        try:
            return _run(command, given)
        except KeyboardInterrupt:  # before the event loop runs, which has signal handlers of its own
            return 128 + signal.SIGINT


def _run(command: WorkerCommand, given: Sequence[str]) -> int:
    from sbredis.workers._targets import load_worker  # these need the client, and the help of the command does not
    from sbredis.workers.supervising._programs import run_in_loop
    from sbredis.workers.supervising._supervisor import SETUP_FAILED, Supervisor

    try:
        if command.is_supervised and command.reports_to is None:
            return int(run_in_loop(Supervisor(command, given).run(), leaves_tasks=False))
        load_worker(command.target).run_command(command)
    except (WorkerSetupError, InvalidConnectionStringError) as error:
        print(f"sbredis: {error.message}", file=sys.stderr)  # noqa: T201 -- it is a program
        return SETUP_FAILED
    except ServiceBusError as error:
        print(f"sbredis: {error}", file=sys.stderr)  # noqa: T201 -- it is a program
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
