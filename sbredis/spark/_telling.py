"""The output of a job: lines, progress on a terminal, and reports as tables or CSV."""

from __future__ import annotations

import csv
import sys
import threading
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from sbredis._counting import counted
from sbredis._visible import formula_free, visible
from sbredis.exceptions import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["complain", "progress", "require_writable", "say", "show", "showing"]

_PAUSE = 2.0
"""The number of seconds between two looks at how far a job is."""


def say(line: str) -> None:
    """Print a line."""
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)  # noqa: T201 -- it is a program
    print(visible(line, lines=True), flush=True)  # noqa: T201


def complain(line: str) -> None:
    """Print what is wrong."""
    print(f"sbredis: {visible(line, lines=True)}", file=sys.stderr, flush=True)  # noqa: T201 -- it is a program


def progress(line: str) -> None:
    """Show how far a job is, on a terminal only."""
    if sys.stderr.isatty():
        print(f"\r\033[K{visible(line)}", end="", file=sys.stderr, flush=True)  # noqa: T201 -- it is a program


@contextmanager
def showing(line: Callable[[], str | None], pause: float = _PAUSE) -> Generator[None]:
    """Show during the block how far a job is, on a terminal only. ``line`` may take its time, and may know nothing."""
    if not sys.stderr.isatty():
        yield
        return
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(pause):
            found = line()
            if found is not None and not ended.is_set():
                progress(found)

    threading.Thread(target=repeat, name="progress", daemon=True).start()
    try:
        yield
    finally:
        ended.set()


def show(report: DataFrame, file: str | None, only_in_file: Collection[str] = ()) -> int:
    """Print a report as a table, or write it into a file as CSV; ``-`` is the standard output.

    In CSV, a text that a spreadsheet would take for a formula begins with an apostrophe. The columns
    ``only_in_file`` are left out of the table.
    """
    if file is None:
        report = report.drop(*only_in_file)
    found = report.collect()
    rows = [tuple(map(_text, row)) for row in found]
    cells = [report.columns, *(tuple(map(_cell, row)) for row in found)]
    if file is None:
        _table(report.columns, rows)
    elif file == "-":
        csv.writer(sys.stdout).writerows(cells)
    else:
        with Path(file).open("w", encoding="utf-8", newline="") as lines:
            csv.writer(lines).writerows(cells)
        say(f"wrote {counted(len(rows), 'row')} to {file}")
    return 0


def require_writable(file: str) -> None:
    """Raise :class:`~sbredis.exceptions.SparkSetupError` if a report cannot be written there."""
    if file == "-":
        return
    path = Path(file)
    try:
        new = not path.exists()
        path.open("a").close()
        if new:
            path.unlink()
    except OSError as error:
        raise SparkSetupError(f"The report cannot be written to '{file}': {error.strerror}.") from None


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    return str(value)


def _cell(value: object) -> str:
    """Return a cell of CSV. Texts, unlike numbers, are guarded: a spreadsheet would run some of them as formulas."""
    return formula_free(value) if isinstance(value, str) else _text(value)


_WIDEST = 60


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    shown = [columns, *([visible(text.replace("\n", " "))[:_WIDEST] for text in row] for row in rows)]
    widths = [max(len(row[place]) for row in shown) for place in range(len(columns))]
    for row in shown:
        say("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if not rows:
        say("(nothing)")
