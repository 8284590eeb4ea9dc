"""How the log of a worker looks when it runs as a program."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

__all__ = ["set_up_logs"]


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


class _Once(logging.Filter):
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


def set_up_logs(form: str | None) -> None:
    """Write the log to the standard error output as ``text`` or ``json``; by default as text only on a terminal.

    Nothing is changed if the application has set up logging itself.
    """
    if logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    if form == "json" or (form is None and not sys.stderr.isatty()):
        handler.setFormatter(_Json())
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    handler.addFilter(_Once())
    logging.basicConfig(level=logging.INFO, handlers=[handler])
