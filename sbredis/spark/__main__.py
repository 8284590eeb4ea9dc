"""``python -m sbredis.spark JOB`` runs a job on Spark. ``spark-submit`` can run this file too."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from sbredis.exceptions import InvalidConnectionStringError, ServiceBusError, SparkSetupError
from sbredis.spark._commands import INTERRUPTED, PROGRAM, SETUP_FAILED, read_command
from sbredis.spark._requirements import require_java, require_spark


def main(arguments: Sequence[str] | None = None, program: Sequence[str] = PROGRAM) -> int:
    """Run a job, and return the exit code: 1 if it failed, 2 if something is wrong with its arguments or set-up.

    ``program`` is the command that runs jobs, as the user has typed it.
    """
    command = read_command(sys.argv[1:] if arguments is None else arguments, program)
    try:
        if command.needs_spark:
            require_spark()
            require_java()
        from sbredis.spark._jobs_run import run_job

        return run_job(command)
    except (SparkSetupError, InvalidConnectionStringError) as error:
        print(f"sbredis: {error.message}", file=sys.stderr)  # noqa: T201 -- it is a program
        return SETUP_FAILED
    except ServiceBusError as error:
        print(f"sbredis: {error}", file=sys.stderr)  # noqa: T201 -- it is a program
        return 1
    except KeyboardInterrupt:
        print("sbredis: interrupted", file=sys.stderr)  # noqa: T201 -- it is a program
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
