"""A handler whose module takes long to import in the process of the handler: until the test lets it go on."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from sbredis.workers import SyncContext

if "STARTING" in os.environ:  # not when the test itself imports the module
    folder = Path(os.environ["STARTING"])
    (folder / "begun").write_text(str(os.getpid()))
    while not (folder / "go").exists():
        threading.Event().wait(0.01)


class TooLateError(Exception):
    """An error that a process must know before it serves."""


def quick(text: str, context: SyncContext) -> None:
    context.send("out", [text, context.attempt])
