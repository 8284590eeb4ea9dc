"""What all tests of the client share: no test depends on how fast the machine is."""

from __future__ import annotations

import pytest

from sbredis.aio.core import _watching as watching
from sbredis.aio.receiving import _accepting as accepting
from sbredis.aio.receiving import _inbox as inbox


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine any answer may take seconds. No partition is passed over for that, unless a test wants it."""
    monkeypatch.setattr(watching, "LATE", 60.0)
    monkeypatch.setattr(inbox, "ANSWERING", 60.0)
    monkeypatch.setattr(accepting, "ANSWERING", 60.0)


@pytest.fixture
def gathers_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who has got something waits for more until it has all, or the test ends it."""
    monkeypatch.setattr(inbox, "_GATHERING", 60.0)
    monkeypatch.setattr(inbox, "_LONGEST_GATHERING", 60.0)


@pytest.fixture
def hasty(patient: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is late at once, for tests in which one does not come."""
    monkeypatch.setattr(watching, "LATE", 0.05)
