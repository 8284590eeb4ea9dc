"""A pytest plugin that plants a bug: the one that the environment variable ``SBREDIS_PLANTED`` names.

``python -m tests.aio.planted`` loads the plugin, before anything of sbredis is imported.
"""

from __future__ import annotations

import os
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType

from tests.aio.planted import PLANTED, ROOT, text_with


def plant(name: str) -> None:
    """Let the module of a bug be imported with the bug. Its compiled form of before is not used."""
    (bug,) = (bug for bug in PLANTED if bug.name == name)
    real, text, before = (ROOT / bug.file).resolve(), text_with(bug), SourceFileLoader.get_code

    def get_code(loader: SourceFileLoader, module: str) -> CodeType | None:
        if Path(loader.path).resolve() == real:
            return compile(text, loader.path, "exec")
        return before(loader, module)

    SourceFileLoader.get_code = get_code  # type: ignore[assignment, method-assign]


plant(os.environ["SBREDIS_PLANTED"])
