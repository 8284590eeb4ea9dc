"""Lets the tests of this folder import the examples."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from tools.repository import ROOT


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the examples be imported, each time anew. Handlers of workers fail on purpose, so that is not logged."""
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    monkeypatch.setattr(logging.getLogger("sbredis.worker"), "disabled", True)
    yield
    for path in (ROOT / "examples").glob("*.py"):
        sys.modules.pop(path.stem, None)
