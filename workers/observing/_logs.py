"""The log of a worker that runs as a program, and of the processes of its handlers, which log in the same way."""

from __future__ import annotations

import json
import logging
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

from sbredis.workers.observing._terminal import AboveLine

__all__ = ["Logs", "log_like", "logs_here", "set_up_logs"]

_LINE: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_TIME: Final = "%H:%M:%S"

_OWN: Final = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"})
"""The attributes that each record has. All others come from the ``extra`` of its call."""


class _Json(logging.Formatter):
    """Writes each record as one line of JSON, with what its call has given as ``extra``."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "process": record.process,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        for name, value in vars(record).items():
            if name not in _OWN:
                line.setdefault(name, _for_json(value))
        return json.dumps(line, ensure_ascii=False)


def _for_json(value: object) -> object:
    """Return a value that JSON has: the value itself, or its text."""
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return str(value)
    return value


class _RepeatFilter(logging.Filter):
    """Keeps one of the equal lines about connections: a worker has several clients of the same servers."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write the record."""
        if record.name != "sbredis.transport" or record.levelno > logging.INFO:
            return True
        text = record.getMessage()
        if text in self._seen:
            return False
        self._seen.add(text)
        return True


class _CommandHandler(logging.StreamHandler[TextIO]):
    """Marks a log that the command has set up, and not the application."""


def set_up_logs(form: str | None) -> None:
    """Write the log to the standard error output as ``text`` or ``json``; by default as text only on a terminal.

    Nothing is changed if the application has set up logging itself.
    """
    if logging.getLogger().handlers:
        return
    handler = _CommandHandler(sys.stderr)
    if form == "json" or (form is None and not sys.stderr.isatty()):
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(logging.Formatter(_LINE, _TIME))
    handler.addFilter(_RepeatFilter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


# -- the processes of handlers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Logs:
    """The way in which a process logs to a standard stream, for the processes of its handlers."""

    stream: Literal["stdout", "stderr"] | None
    """The stream to which it logs; ``None`` if it logs elsewhere, or nowhere."""
    levels: tuple[int, int] = logging.WARNING, logging.NOTSET
    """The levels of the root logger and of the handler."""
    formatter: bytes = b""
    """The formatter of its lines, pickled. It comes from the application, and the other process may not find it."""
    by_command: bool = False
    """Whether the command has set the log up, so that the application finds it when it is imported."""
    above_line: bool = False
    """Whether its lines appear above a live line."""


def logs_here() -> Logs:
    """Return how this process logs now."""
    above_line, root = isinstance(sys.stderr, AboveLine), logging.getLogger()
    for handler in root.handlers:
        stream = _standard(getattr(handler, "stream", None))
        if isinstance(handler, logging.StreamHandler) and stream is not None:
            formatter = b""
            with suppress(Exception):  # it may have anything in it
                formatter = pickle.dumps(handler.formatter)
            by_command = isinstance(handler, _CommandHandler)
            return Logs(stream, (root.level, handler.level), formatter, by_command, above_line)
    return Logs(None, above_line=above_line)


def log_like(logs: Logs) -> None:
    """Log as another process does, unless this one logs already."""
    root = logging.getLogger()
    if logs.stream is None or root.handlers:
        return
    handler = logging.StreamHandler(getattr(sys, logs.stream))
    formatter: object = None
    with suppress(Exception):  # the class may be unknown here
        formatter = pickle.loads(logs.formatter)  # noqa: S301 -- it comes from the process that has started this one
    handler.setFormatter(formatter if isinstance(formatter, logging.Formatter) else logging.Formatter(_LINE, _TIME))
    if logs.by_command:
        handler.addFilter(_RepeatFilter())
    root.setLevel(logs.levels[0])
    handler.setLevel(logs.levels[1])
    root.addHandler(handler)


def _standard(stream: object) -> Literal["stdout", "stderr"] | None:
    """Return which of the standard streams this is."""
    plain = _plain(stream)
    if plain is None:
        return None
    if plain in (_plain(sys.stderr), sys.__stderr__):
        return "stderr"
    return "stdout" if plain in (_plain(sys.stdout), sys.__stdout__) else None


def _plain(stream: object) -> object:
    return stream.stream if isinstance(stream, AboveLine) else stream
